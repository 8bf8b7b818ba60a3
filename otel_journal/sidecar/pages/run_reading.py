"""One run as its page needs it, read from a store."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_journal.commands.reading import pages
from otel_journal.run_view import fold_run

from .run_list import starts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_journal.events import Event
    from otel_journal.run_view import RunView
    from otel_journal.store.protocol import Store

MAX_EVENTS: Final = 6_000
"""Most events of a run that its page is made of: read and drawn within a second."""
MAX_RELATED: Final = 50
"""Runs of the thread, newest first, among which the ones before and after are looked for."""
_DECISIVE: Final = frozenset({"run.start", "run.end", "run.error", "run.interrupted"})
_RESUMED: Final = "run.resumed"


class RunFacts(NamedTuple):
    """A run and what is around it."""

    view: RunView
    traces: tuple[str, ...]
    """Trace ids in order of their starts; a run that was resumed has several."""
    last_seq: int
    """Newest event of the run that was read; a stream goes on behind it."""
    cut: bool
    """True when it has more than `MAX_EVENTS` events."""
    earlier: tuple[str, ...]
    """Runs that this one goes on from."""
    later: tuple[str, ...]
    """Runs that go on from this one, oldest first."""


def read_run(store: Store, run_id: str, max_events: int = MAX_EVENTS) -> RunFacts | None:
    """Read a run; None when the store has no event of it.

    Raises:
        StoreError: the store cannot be read.
    """
    every = pages(lambda at, limit: store.events(run_id, None, at, limit))
    found = list(islice(every, max_events + 1))
    if not found:
        return None
    cut = len(found) > max_events
    events = found[:max_events]
    if cut:  # how it ended stands behind what is left out
        events += pages(lambda at, limit: store.events(run_id, _DECISIVE, at, limit))
    roots = [one.span.trace_id for one in events if one.span is not None and one.span.root]
    traces = tuple(dict.fromkeys(roots))
    view = fold_run(events)
    earlier, later = _related(store, view, traces)
    return RunFacts(view, traces, max(one.seq for one in events), cut, earlier, later)


def _related(
    store: Store, view: RunView, traces: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Runs of the same thread that this one resumes, and that resume this one."""
    if not view.thread_id:
        return (), ()
    before = _resumed_traces(store, view.run_id)
    earlier: dict[str, None] = {}
    later: dict[str, None] = {}
    for start in islice(starts(store, thread=view.thread_id), MAX_RELATED):
        if start.run_id == view.run_id or start.span is None:
            continue
        if start.span.trace_id in before:
            earlier[start.run_id] = None
        if not _resumed_traces(store, start.run_id).isdisjoint(traces):
            later[start.run_id] = None
    return tuple(earlier), tuple(reversed(later))


def _resumed_traces(store: Store, run_id: str) -> set[str]:
    return set(_targets(store.events(run_id, {_RESUMED})))


def _targets(events: Iterable[Event]) -> Iterable[str]:
    for event in events:
        for target in event.metadata.get("resumes", ()):
            if isinstance(target, dict) and isinstance(target.get("trace_id"), str):
                yield target["trace_id"]
