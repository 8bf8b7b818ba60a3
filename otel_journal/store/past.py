"""What a store knows of the run that a resumed run goes on from, when this process does not.

The ledger links a resume to the pause it remembers. When the pause happened in another process,
or before a restart, its ``run.resumed`` says that nothing was found. The sink of the store, which
may read, then looks there, and completes the events of the resumed run before anyone sees them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from otel_journal import semconv as sc
from otel_journal.errors import StoreError
from otel_journal.events import Link
from otel_journal.lineage import UNFINISHED, RecentlyUsed

from .steps import ENDS, STARTS, Steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_journal.events import Event, SpanBlock

    from .protocol import Store
    from .steps import Step

MAX_RUNS: Final = 64
"""Resumed runs that are completed at a time; of more, the first ones stay without links."""

MAX_EVENTS: Final = 10_000
"""Events of the paused run that are read; later steps of a longer one count as first attempts."""

MAX_THREADS: Final = 10_000
"""Threads remembered for having been completed: there the ledger's own numbers fall behind."""

_PAGE: Final = 500
_CANDIDATES: Final = 20
"""Newest runs of a thread among which the paused one is looked for."""

_GOES_ON: Final = UNFINISHED | {"interrupted", None}
"""Outcomes of a run that another one may go on from; None: its process died."""

_ROOT_ENDS: Final = ("run.end", "run.error", "run.interrupted")


def parts_of(events: Sequence[Event]) -> Sequence[Sequence[Event]]:
    """Cut a batch before each resume: what it goes on from may be the run before, in the batch."""
    cuts = [at for at, event in enumerate(events) if event.event_type == "run.resumed" and at]
    if not cuts:
        return (events,)
    return [events[low:high] for low, high in pairwise([0, *cuts, len(events)])]


class _Execution(NamedTuple):
    attempt: int
    trace_id: str
    span_id: str


_Executions: TypeAlias = "dict[Step, _Execution]"


class _Resumed:
    """A resumed run that is in progress, and what it goes on from."""

    def __init__(self, root: str, link: Link | None, executions: _Executions) -> None:
        self.root = root
        """Event id of its root, without the phase."""
        self.link = link
        self._executions = executions
        self._steps = Steps()
        self._added: dict[Step, int] = {}
        """Step -> attempts made before this run, as far as its events do not count them."""

    def completed(self, event: Event) -> Event:
        """Return an event of the run with the links and the attempt that it lacks."""
        span = event.span
        if span is None:
            return self._with_target(event) if event.event_id == f"{self.root}/resumed" else event
        if event.event_id == f"{self.root}/end":
            if self.link is None or self.link in span.links:
                return event
            span = msgspec.structs.replace(span, links=(*span.links, self.link))
        else:
            span = self._as_attempt(span)
        return msgspec.structs.replace(event, span=span)

    def _with_target(self, event: Event) -> Event:
        if self.link is None or event.metadata.get("resumes"):
            return event
        target = {"trace_id": self.link.trace_id, "span_id": self.link.span_id}
        metadata = {**event.metadata, "resumes": [target]}
        return msgspec.structs.replace(event, metadata=metadata)

    def _as_attempt(self, span: SpanBlock) -> SpanBlock:
        step = self._steps.of(span)
        if step is None or (before := self._executions.get(step)) is None:
            return span
        # The first event of a step tells how far the ledger had counted.
        added = self._added.setdefault(step, max(0, before.attempt + 1 - span.attempt))
        if not added:
            return span
        attempt, links, attributes = span.attempt + added, span.links, span.attributes
        if span.end_ns:
            attributes = {**attributes, sc.ATTEMPT: attempt}
            if not any(link.relation == "previous_attempt" for link in links):
                links = (*links, Link(before.trace_id, before.span_id, "previous_attempt"))
        return msgspec.structs.replace(span, attempt=attempt, links=links, attributes=attributes)


class Past:
    """Completes the events of resumed runs from a store; for one thread at a time."""

    def __init__(self, store: Store, *, failed: Callable[[str, BaseException], None]) -> None:
        """Look into `store`; tell `failed` (place, error) why that was not possible."""
        self._store = store
        self._failed = failed
        self._resumed: RecentlyUsed[_Resumed] = RecentlyUsed(MAX_RUNS)
        """Run id -> the resumed run."""
        self._threads: RecentlyUsed[bool] = RecentlyUsed(MAX_THREADS)

    def complete(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return the events, those of resumed runs with the links that they lack. Never raises.

        The store is read once for each run that resumes something unknown. The same events give
        the same result in every process.
        """
        if not self._resumed and all(event.event_type != "run.resumed" for event in events):
            return events
        return [self._completed(event) for event in events]

    def _completed(self, event: Event) -> Event:
        if event.event_type == "run.resumed":
            self._look_up(event)
        resumed = self._resumed.get(event.run_id)
        if resumed is None:
            return event
        if event.event_type == "run.start":
            del self._resumed[event.run_id]  # the caller uses the id for another run
            return event
        if event.event_id == f"{resumed.root}/end":
            del self._resumed[event.run_id]
        return resumed.completed(event)

    def _look_up(self, event: Event) -> None:
        known = bool(event.metadata.get("resumes"))
        if not event.thread_id or (known and event.thread_id not in self._threads):
            return
        root = event.event_id.rpartition("/")[0]
        try:
            start = self._paused(event, root)
            if start is None or start.span is None:
                return
            executions = self._read(start)
        except StoreError as error:  # without links the run is whole
            self._failed("store", error)
            return
        link = None if known else Link(start.span.trace_id, start.span.span_id, "resumes")
        self._resumed.remember(event.run_id, _Resumed(root, link, executions))
        self._threads.remember(event.thread_id, value=True)

    def _paused(self, event: Event, root: str) -> Event | None:
        """Start of the newest earlier run of the thread, if that is one to go on from."""
        for start in self._store.runs(thread_id=event.thread_id, limit=_CANDIDATES):
            before = start.event_id.rpartition("/")[0]
            if before == root or start.created_ns >= event.created_ns:
                continue
            ends = self._store.events(start.run_id, _ROOT_ENDS, after=start.seq)
            end = next((end for end in ends if end.event_id == f"{before}/end"), None)
            outcome = end.span.outcome if end is not None and end.span is not None else None
            return start if outcome in _GOES_ON else None
        return None

    def _read(self, start: Event) -> _Executions:
        """Return the newest execution of each step of a run."""
        executions: _Executions = {}
        steps, after = Steps(), start.seq
        trace_id = start.span.trace_id if start.span is not None else ""
        for _ in range(MAX_EVENTS // _PAGE):
            page = self._store.events(start.run_id, STARTS | ENDS, after=after, limit=_PAGE)
            for event in page:
                span = event.span
                if span is None or span.trace_id != trace_id:
                    continue
                step = steps.of(span)
                if step is not None:
                    executions[step] = _Execution(span.attempt, trace_id, span.span_id)
            if len(page) < _PAGE:
                break
            after = page[-1].seq
        return executions
