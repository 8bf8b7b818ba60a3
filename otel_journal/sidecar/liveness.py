"""Which processes have died, and how what they left open ends. Pure: clocks are arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from otel_journal import semconv as sc
from otel_journal.blocks import CHAIN_KINDS, END_TYPES
from otel_journal.events import CATALOGUE, NS_PER_S, ClosedBy, Event, Outcome, SpanBlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .state import Process

_START: Final = "/start"
_END: Final = "/end"
_OUTCOME: Final[Outcome] = "unknown"
_CLOSED_BY: Final[ClosedBy] = "process_died"


class Sign(NamedTuple):
    """The last sign of life of a process."""

    heard_at: float
    """Seconds of the sidecar's own monotonic clock at which it was read."""
    made_ns: int
    """Unix time in nanoseconds at which the process made it."""


class Signs:
    """When each process was last heard of, by the clock of who listens.

    Silence counts only while the sidecar really listens: it begins when it starts, and begins
    again after a time in which the store was away or a backlog was read.
    """

    def __init__(self, dead_after: float, now: float) -> None:
        """Take processes for dead after `dead_after` seconds of silence."""
        self._dead_after = dead_after
        self._last: dict[str, Sign] = {}
        self._listening_since = self._listened_at = now

    def remember(self, known: Iterable[Process], now: float) -> None:
        """Take over what an earlier life of the sidecar had heard: it counts as heard now."""
        for process in known:
            self.heard(process.id, process.last_sign_ns, now)

    def heard(self, process: str, made_ns: int, now: float) -> None:
        """Note a sign: any event, or one that an earlier life of the sidecar had read."""
        known = self._last.get(process)
        self._last[process] = Sign(now, max(made_ns, known.made_ns if known is not None else 0))

    def caught_up(self, now: float) -> None:
        """Note that everything in the store has been read.

        After a pause of half of `dead_after` or more silence begins anew: what was written
        meanwhile may still be on its way into the store.
        """
        if now - self._listened_at >= self._dead_after / 2:
            self._listening_since = now
        self._listened_at = now

    def made_ns(self, process: str) -> int:
        """Unix time in nanoseconds of the last sign; 0 for a process never heard of."""
        known = self._last.get(process)
        return known.made_ns if known is not None else 0

    def dead(self, processes: Iterable[str], now: float) -> list[str]:
        """Return those of `processes` that have been silent for too long."""
        return [process for process in processes if self._silent(process, now)]

    def forget_silent(self, keep: Iterable[str], now: float) -> None:
        """Forget the silent processes that are not in `keep`: they have nothing open."""
        kept = set(keep)
        for process in [one for one in self._last if one not in kept and self._silent(one, now)]:
            del self._last[process]

    def _silent(self, process: str, now: float) -> bool:
        known = self._last.get(process)
        heard_at = self._listening_since if known is None else known.heard_at
        return now - max(heard_at, self._listening_since) >= self._dead_after


class DatedSigns(Signs):
    """Judges silence by the dates of the signs, for a sidecar that does not stay to listen.

    The clocks of the machines have to agree within `dead_after`.
    """

    def __init__(self, dead_after: float, now: float, wall_ns: int) -> None:
        """As `Signs`; it is `wall_ns` now, Unix time in nanoseconds."""
        super().__init__(dead_after, now)
        self._oldest_ns = wall_ns - int(dead_after * NS_PER_S)

    def _silent(self, process: str, now: float) -> bool:  # noqa: ARG002 - the dates tell
        return self.made_ns(process) <= self._oldest_ns


def end_id(start: Event) -> str:
    """Return the id that the end event of a started operation has, whoever makes it."""
    return start.event_id.removesuffix(_START) + _END


def process_of(start: Event, roots: Iterable[Event]) -> str:
    """Return the process an open operation belongs to; empty when nobody can tell.

    Events of older releases, and those made by hand, name none: then it is the process of the
    run's open root operation, one of `roots`.
    """
    if start.process:
        return start.process
    return next((root.process for root in roots if root.run_id == start.run_id), "")


def made_ends(starts: Sequence[Event], process: str, made_ns: int, now_ns: int) -> list[Event]:
    """Make the end events of operations that `process` left open, children before parents.

    They have the ids of the real ones, so that a late one is recognised. Outcome and attributes
    are those of an operation that the journal itself has to end.

    Args:
        starts: Start events of what is open.
        process: Who left them.
        made_ns: Its last sign of life, Unix time in nanoseconds: nothing ends later, and
            nothing before its own start.
        now_ns: When it became known, Unix time in nanoseconds.
    """
    return [
        _made_end(start, start.span, process, made_ns, now_ns)
        for start in _children_first(starts)
        if start.span is not None
    ]


def _made_end(start: Event, span: SpanBlock, process: str, made_ns: int, now_ns: int) -> Event:
    is_run = span.root and span.kind in CHAIN_KINDS
    event_type = "run.end" if is_run else END_TYPES[span.kind]
    return Event(
        event_id=end_id(start),
        run_id=start.run_id,
        event_type=event_type,
        category=CATALOGUE[event_type],
        created_ns=now_ns,
        thread_id=start.thread_id,
        span=replace(
            span,
            end_ns=max(made_ns, span.start_ns),
            outcome=_OUTCOME,
            closed_by=_CLOSED_BY,
            attributes=_attributes(start, span),
        ),
        process=process,
    )


def _attributes(start: Event, span: SpanBlock) -> dict[str, object]:
    """Return what `blocks.end_attributes` would say, as far as a start event knows it."""
    final = {**span.attributes, sc.OUTCOME: _OUTCOME, sc.CLOSED_BY: _CLOSED_BY}
    if span.attempt > 1:
        final[sc.ATTEMPT] = span.attempt
    if span.root:
        final[sc.RUN_ID] = start.run_id
    return final


def _children_first(starts: Sequence[Event]) -> list[Event]:
    """Sort by how many open operations are above each, deepest first."""
    above = {start.span.span_id: start.span.parent_span_id for start in starts if start.span}
    depths: dict[str, int] = {}
    for start in starts:
        path: dict[str, None] = {}
        span_id = start.span.span_id if start.span is not None else ""
        while span_id in above and span_id not in depths and span_id not in path:
            path[span_id] = None
            span_id = above[span_id]
        depth = depths.get(span_id, 0)
        for below in reversed(path):
            depth += 1
            depths[below] = depth
    return sorted(starts, key=lambda start: -depths[start.span.span_id] if start.span else 0)
