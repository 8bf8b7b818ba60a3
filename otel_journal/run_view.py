"""What a run came to, read back from its events: a pure fold that no order of delivery changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from . import semconv as sc
from .blocks import MODEL_KINDS
from .events import Event, Kind, Outcome, Usage
from .messages import text_of
from .run_operations import OperationView, operations_of, walk
from .run_tools import ToolCallView, tool_calls_of
from .summary import Spender, Spent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .run_operations import Facts

__all__ = [
    "FailureView",
    "MessageView",
    "OperationView",
    "RunView",
    "SpentView",
    "ToolCallView",
    "fold_run",
    "message_of",
    "walk",
]

_UNNUMBERED: Final = 1 << 63
"""Place of events that no store has numbered: they are newer than all that one has."""
_ROLES: Final = {"llm.human.input": "human", "llm.ai.response": "ai", "llm.tool.result": "tool"}


class MessageView(msgspec.Struct, frozen=True):
    """One message of the feed."""

    event_id: str
    seq: int
    """Position in the store; 0 before a store has numbered it."""
    created_ns: int
    """Unix time in nanoseconds."""
    role: str
    """``human``, ``ai`` or ``tool``; else the event type, which this release does not know."""
    caller: str
    """Who asked for it; empty for results of tools."""
    text: str
    content: Any = None
    """The row as it was stored."""


class SpentView(msgspec.Struct, frozen=True):
    """Model calls and tokens of one agent, caller, provider and model."""

    agent: str
    caller: str
    provider: str
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    details: dict[str, int]
    """Subsets of input or output; never added to them."""


class FailureView(msgspec.Struct, frozen=True):
    """An exception, at the innermost operation that it ended."""

    op_id: str
    name: str
    """Name of the operation."""
    type: str
    message: str


class RunView(msgspec.Struct, frozen=True):
    """Everything that the events of one run say about it."""

    run_id: str
    thread_id: str
    name: str
    """Name of the first root operation; empty when none is known."""
    kind: Kind | None
    outcome: Outcome | None
    """Outcome of the root operation that ended last; None while one is open or none is known."""
    start_ns: int
    """Unix time in nanoseconds at which the first root operation began."""
    end_ns: int
    """Unix time in nanoseconds at which the last root operation ended; 0 while one is open."""
    operations: tuple[OperationView, ...]
    """Root operations, each with those below it, in order of their starts."""
    messages: tuple[MessageView, ...]
    tool_calls: tuple[ToolCallView, ...]
    """Tool calls in order of their starts; `tool_call` finds them by id."""
    tokens: tuple[SpentView, ...]
    input_tokens: int
    output_tokens: int
    model_calls: int
    """Model calls that have ended, failed ones included."""
    failures: tuple[FailureView, ...]

    @property
    def total_tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    def tool_call(self, call_id: str) -> ToolCallView | None:
        """The newest call with this id: retries, and some providers' turns, share one."""
        return next((call for call in reversed(self.tool_calls) if call.call_id == call_id), None)

    def tokens_by(self, dimension: str) -> dict[str, Spent]:
        """Totals per ``agent``, ``caller``, ``provider`` or ``model``.

        Raises:
            ValueError: any other dimension.
        """
        if dimension not in Spender._fields:
            msg = f"dimension {dimension!r} is not allowed; allowed: {', '.join(Spender._fields)}"
            raise ValueError(msg)
        folded: dict[str, Spent] = {}
        for row in self.tokens:
            into = folded.setdefault(getattr(row, dimension), Spent())
            into.calls += row.calls
            into.book(Usage(row.input_tokens, row.output_tokens, row.details))
        return folded


def fold_run(events: Iterable[Event]) -> RunView:
    """Fold the events of one run, delivered in any order and any number of times.

    Event types that this release does not know are skipped, unless they are messages.

    Raises:
        ValueError: there is no event, or there are events of several runs.
    """
    ordered = _in_order(events)
    run_id = _run_id(ordered)
    facts, tree = operations_of(ordered)
    roots = [known for known in facts if known.span.root]
    ended = [known for known in roots if known.end is not None]
    over = bool(roots) and len(ended) == len(roots)
    last = max(ended, key=_end_of) if over else None
    tokens = _tokens(ordered)
    return RunView(
        run_id=run_id,
        thread_id=next((event.thread_id for event in ordered if event.thread_id), ""),
        name=roots[0].span.name if roots else "",
        kind=roots[0].span.kind if roots else None,
        outcome=last.span.outcome if last is not None else None,
        start_ns=min((known.span.start_ns for known in roots), default=ordered[0].created_ns),
        end_ns=last.span.end_ns if last is not None else 0,
        operations=tree,
        messages=tuple(message_of(event) for event in ordered if event.category == "message"),
        tool_calls=tool_calls_of(ordered),
        tokens=tokens,
        input_tokens=sum(row.input_tokens for row in tokens),
        output_tokens=sum(row.output_tokens for row in tokens),
        model_calls=sum(row.calls for row in tokens),
        failures=_failures(facts),
    )


def message_of(event: Event) -> MessageView:
    """Read an event of category ``message``."""
    content = event.content
    said = content.get("content") if isinstance(content, dict) else content
    return MessageView(
        event_id=event.event_id,
        seq=event.seq,
        created_ns=event.created_ns,
        role=_ROLES.get(event.event_type, event.event_type),
        caller=str(event.metadata.get("caller", "")),
        text=text_of(said),
        content=content,
    )


def _in_order(events: Iterable[Event]) -> list[Event]:
    """Every event once, as the store has it: by its number there, else by its moment."""
    found: dict[str, Event] = {}
    for event in events:
        known = found.get(event.event_id)
        if known is None or event.seq > known.seq:
            found[event.event_id] = event
    return sorted(found.values(), key=_place)


def _place(event: Event) -> tuple[int, int, str]:
    return event.seq or _UNNUMBERED, event.created_ns, event.event_id


def _run_id(events: Sequence[Event]) -> str:
    runs = sorted({event.run_id for event in events})
    if len(runs) == 1:
        return runs[0]
    msg = f"events of {len(runs)} runs ({', '.join(runs[:3])}) are not allowed; allowed: of one run"
    raise ValueError(msg)


def _end_of(known: Facts) -> tuple[int, str]:
    return known.span.end_ns, known.key


def _tokens(events: Sequence[Event]) -> tuple[SpentView, ...]:
    """One row per spender: each call's end, and what was amended after it, add up to its usage."""
    spent: dict[Spender, Spent] = {}
    for event in events:
        span = event.span
        if span is None or span.kind not in MODEL_KINDS:
            continue
        amended = event.event_type == "usage.amended"
        if not amended and event.event_type not in {"llm.end", "llm.error"}:
            continue
        who = Spender(
            span.agent,
            span.caller,
            span.attributes.get(sc.PROVIDER_NAME, ""),
            span.attributes.get(sc.REQUEST_MODEL, ""),
        )
        account = spent.setdefault(who, Spent())
        account.calls += not amended
        if span.usage is not None:
            account.book(span.usage)
    return tuple(
        SpentView(*who, account.calls, account.input_tokens, account.output_tokens, account.details)
        for who, account in sorted(spent.items())
    )


def _failures(facts: Iterable[Facts]) -> tuple[FailureView, ...]:
    found = []
    for known in facts:
        failure = known.span.failure
        if failure is not None:
            op_id, name = known.span.op_id, known.span.name
            found.append(FailureView(op_id, name, failure.type, failure.message))
    return tuple(found)
