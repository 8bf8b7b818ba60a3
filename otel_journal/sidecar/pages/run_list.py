"""Which runs a page of the list holds, read from a store."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_journal.commands.reading import pages
from otel_journal.commands.terminal import word_of
from otel_journal.run_view import fold_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_journal.events import Event
    from otel_journal.run_view import RunView
    from otel_journal.store.protocol import Store

ROWS: Final = 25
"""Runs of a page."""
MAX_LOOKED_AT: Final = 500
"""Runs read for one page: a filter that matches little ends here and can be taken further."""
MAX_TRACES: Final = 5_000
"""Newest runs among which a trace is looked for; the store has no index of traces."""
MAX_EVENTS: Final = 2_000
"""Events of one run that its row is made of; with more, its numbers are lower bounds."""
_AT_ONCE: Final = 100
_ENDS: Final = frozenset({"run.start", "run.end", "run.error", "run.interrupted"})
_COUNTED: Final = frozenset({"llm.end", "llm.error", "usage.amended", "tool_call.started"})


class Filter(NamedTuple):
    """What the list is narrowed to; empty fields match everything."""

    agent: str = ""
    outcome: str = ""
    """``running`` for runs in flight."""
    thread: str = ""


class Row(NamedTuple):
    """One run."""

    view: RunView
    agents: tuple[str, ...]
    """The root's agent first, then those that called models."""
    cut: bool
    """True when it has more events than were read: numbers are lower bounds."""


class Listed(NamedTuple):
    """A page of runs, newest first."""

    rows: list[Row]
    before: int | None
    """Where the page with older runs begins; None at the end."""
    looked_at: int
    """How many starts were read for it."""


def list_runs(store: Store, wanted: Filter, before: int | None, limit: int = ROWS) -> Listed:
    """Read a page of the list; every run is in it once, at its newest start.

    Raises:
        StoreError: the store cannot be read.
    """
    rows: list[Row] = []
    looked_at = 0
    for start in starts(store, before, wanted.thread):
        if len(rows) == limit or looked_at == MAX_LOOKED_AT:
            return Listed(rows, before, looked_at)
        before, looked_at = start.seq, looked_at + 1
        row = _row(store, start)
        if row is not None and matches(row, wanted):
            rows.append(row)
    return Listed(rows, None, looked_at)


def run_of_trace(store: Store, trace_id: str) -> str | None:
    """Return the run of a trace, among the newest `MAX_TRACES`; None when it is not there.

    Raises:
        StoreError: the store cannot be read.
    """
    for start in islice(starts(store), MAX_TRACES):
        if start.span is not None and start.span.trace_id == trace_id:
            return start.run_id
    return None


def starts(store: Store, before: int | None = None, thread: str = "") -> Iterator[Event]:
    """Yield the starts of runs, newest first."""
    while page := store.runs(before, _AT_ONCE, thread or None):
        yield from page
        before = page[-1].seq


def matches(row: Row, wanted: Filter) -> bool:
    """Return whether a run is one of those that are wanted."""
    if wanted.agent and wanted.agent not in row.agents:
        return False
    return not wanted.outcome or wanted.outcome == word_of(row.view.outcome)


def _row(store: Store, start: Event) -> Row | None:
    ends = list(pages(lambda at, limit: store.events(start.run_id, _ENDS, at, limit)))
    if any(one.event_type == "run.start" and one.seq > start.seq for one in ends):
        return None
    counted = pages(lambda at, limit: store.events(start.run_id, _COUNTED, at, limit))
    found = list(islice(counted, MAX_EVENTS + 1))
    view = fold_run([*ends, *found[:MAX_EVENTS]] or [start])
    own = (one.span.agent for one in (start, *ends) if one.span is not None)
    called = (spent.agent for spent in view.tokens)
    agents = tuple(dict.fromkeys(filter(None, (*own, *called))))
    return Row(view, agents, len(found) > MAX_EVENTS)
