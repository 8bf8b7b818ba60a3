"""The operations of a run as a tree, paired from start and end events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from .events import Kind, Outcome, SpanBlock, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .events import Event

_START: Final = "start"
_END: Final = "end"
_AMENDED: Final = "amended"


class OperationView(msgspec.Struct, frozen=True):
    """One operation with those below it, in order of their starts."""

    op_id: str
    kind: Kind
    name: str
    outcome: Outcome | None
    """None while it is open."""
    start_ns: int
    """Unix time in nanoseconds."""
    end_ns: int
    """Unix time in nanoseconds; 0 while it is open."""
    attempt: int
    """n-th execution of the same logical step."""
    error_type: str
    agent: str
    caller: str
    usage: Usage | None
    """Tokens of a model call, whenever they were reported."""
    children: tuple[OperationView, ...]


class Facts:
    """What the events say about one occurrence of an operation."""

    __slots__ = ("amended", "end", "key", "start")

    def __init__(self, key: str) -> None:
        """Know nothing yet; `key` is ``{op_id}/{occurrence}``."""
        self.key = key
        self.start: SpanBlock | None = None
        self.end: SpanBlock | None = None
        self.amended: SpanBlock | None = None

    @property
    def span(self) -> SpanBlock:
        """The most complete description there is."""
        found = self.end or self.start or self.amended
        assert found is not None, self.key  # noqa: S101 - made for an event with a block
        return found

    @property
    def usage(self) -> Usage | None:
        """What the end said, unless tokens came after it."""
        if self.amended is not None and self.amended.usage is not None:
            return self.amended.usage
        return self.span.usage


def operations_of(events: Iterable[Event]) -> tuple[list[Facts], tuple[OperationView, ...]]:
    """Pair starts with ends; return what is known, by start, and the same as a forest."""
    found: dict[str, Facts] = {}
    for event in events:
        key, _, phase = event.event_id.rpartition("/")
        if event.span is None or phase not in {_START, _END, _AMENDED}:
            continue
        facts = found.setdefault(key, Facts(key))
        if phase == _START:
            facts.start = event.span
        elif phase == _END:
            facts.end = event.span
        else:
            facts.amended = event.span
    ordered = sorted(found.values(), key=_by_start)
    return ordered, _forest(ordered)


def walk(
    operations: Sequence[OperationView],
) -> Iterator[tuple[OperationView, tuple[bool, ...]]]:
    """Yield every operation, parents first, with its path: per level, whether it is the last.

    Not by recursion: a journal may hold deeper trees than the interpreter's stack.
    """
    waiting: list[tuple[OperationView, tuple[bool, ...]]]
    waiting = [(one, (one is operations[-1],)) for one in reversed(operations)]
    while waiting:
        operation, path = waiting.pop()
        yield operation, path
        below = operation.children
        waiting += [(one, (*path, one is below[-1])) for one in reversed(below)]


def _by_start(facts: Facts) -> tuple[int, bool, str]:
    span = facts.span
    return span.start_ns, not span.root, facts.key


def _forest(ordered: Sequence[Facts]) -> tuple[OperationView, ...]:
    by_span = {facts.span.span_id: facts for facts in ordered}
    below: dict[str, list[Facts]] = {}
    tops = []
    for facts in ordered:
        parent = by_span.get(facts.span.parent_span_id)
        if parent is None or parent is facts:
            tops.append(facts)
        else:
            below.setdefault(parent.key, []).append(facts)
    reached = _reached(tops, below)
    made: dict[str, OperationView] = {}
    for facts in reversed(reached):
        children = [made[one.key] for one in below.get(facts.key, ())]
        made[facts.key] = _view(facts, tuple(children))
    return tuple(made[facts.key] for facts in tops)


def _reached(tops: Sequence[Facts], below: dict[str, list[Facts]]) -> list[Facts]:
    """All operations under `tops`, parents first."""
    reached = list(tops)
    for facts in reached:
        reached += below.get(facts.key, ())
    return reached


def _view(facts: Facts, children: tuple[OperationView, ...]) -> OperationView:
    span = facts.span
    ended = facts.end is not None
    return OperationView(
        op_id=span.op_id,
        kind=span.kind,
        name=span.name,
        outcome=span.outcome if ended else None,
        start_ns=span.start_ns,
        end_ns=span.end_ns if ended else 0,
        attempt=span.attempt,
        error_type=span.error_type,
        agent=span.agent,
        caller=span.caller,
        usage=facts.usage,
        children=children,
    )
