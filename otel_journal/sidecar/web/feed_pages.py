"""The JSON of the feed: what a page holds, and how it is read from a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from otel_journal.commands.runs import RunRow
from otel_journal.events import Event, Kind, Outcome
from otel_journal.run_view import MessageView, RunView, fold_run, message_of
from otel_journal.spans import END_EVENTS

from .watch import Mark, mark_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_journal.store.protocol import Store

MAX_RUN_EVENTS: Final = 20_000
"""Most events that a run's view is made of; it is made in memory."""
_READ_AT_ONCE: Final = 500
_RUN_START: Final = "run.start"
_DECISIVE: Final = frozenset(
    {_RUN_START, "run.end", "run.error", "run.interrupted", "llm.end", "llm.error", "usage.amended"}
)
"""Events that decide what a row of the list shows; the rest of a run need not be read."""
_TRACE_ID: Final = "{trace_id}"


class TooLargeError(Exception):
    """A run has more events than a view is made of."""


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parameters of the page that follows or precedes."""

    before: int | None = None
    after: int | None = None


class FeedMessage(MessageView, frozen=True):
    """A message, and the run it belongs to."""

    run_id: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What all pages say.

    `next` and `prev` are null where nothing more was there. Who has read to the end asks again
    with ``after`` = the last `seq` it saw, once `watermark` has grown.
    """

    next: Cursor | None = None
    prev: Cursor | None = None
    watermark: int
    """Highest `seq` of the store before this page was read."""
    epoch: str
    """The journal that all `seq` belong to; with another one they begin anew."""


class RunsPage(Page, frozen=True, kw_only=True):
    """Runs, newest first; `next` leads to older ones."""

    runs: list[RunRow]


class EventsPage(Page, frozen=True, kw_only=True):
    """Events of a run, oldest first; `prev` is always null."""

    events: list[Event]


class MessagesPage(Page, frozen=True, kw_only=True):
    """Messages of a thread, oldest first."""

    messages: list[FeedMessage]


class TraceLink(msgspec.Struct, frozen=True):
    """A trace that a run is in."""

    trace_id: str
    url: str
    """Where it can be looked at; empty when the sidecar was not told."""


class RunAnswer(msgspec.Struct, frozen=True):
    """A run as a whole."""

    run: RunView
    traces: list[TraceLink]
    """In order of their starts; a run that was resumed has several."""
    watermark: int
    epoch: str


class RunChange(msgspec.Struct, frozen=True):
    """A run starts or ends."""

    seq: int
    event_type: str
    run_id: str
    thread_id: str
    name: str
    kind: Kind | None
    outcome: Outcome | None
    """None at its start."""
    start_ns: int
    end_ns: int


def runs_page(
    store: Store, before: int | None, limit: int, thread_id: str | None = None
) -> RunsPage:
    """Read a page of runs; each run is in the list once, at its newest start."""
    mark = mark_of(store)
    rows: list[RunRow] = []
    at = before
    while starts := store.runs(at, limit + 1, thread_id):
        for start in starts:
            row = _row(store, start, thread_id)
            if row is not None and len(rows) == limit:
                return RunsPage(
                    runs=rows, next=Cursor(before=at), watermark=mark.seq, epoch=mark.epoch
                )
            at = start.seq
            if row is not None:
                rows.append(row)
    return RunsPage(runs=rows, watermark=mark.seq, epoch=mark.epoch)


def run_answer(store: Store, run_id: str, trace_url: str = "") -> tuple[RunAnswer | None, Mark]:
    """Read a run; None when there is no event of it.

    Raises:
        TooLargeError: it has more than `MAX_RUN_EVENTS` events.
    """
    mark = mark_of(store)
    events = _events_of(store, run_id)
    if not events:
        return None, mark
    traces: dict[str, None] = {}
    for event in events:
        if event.span is not None and event.span.root:
            traces[event.span.trace_id] = None
    links = [
        TraceLink(one, trace_url.replace(_TRACE_ID, one) if trace_url else "") for one in traces
    ]
    return RunAnswer(fold_run(events), links, mark.seq, mark.epoch), mark


def events_page(
    store: Store, run_id: str, types: Collection[str] | None, after: int | None, limit: int
) -> tuple[EventsPage | None, Mark]:
    """Read a page of a run's events; None when the store has no event of the run at all."""
    mark = mark_of(store)
    found = store.events(run_id, types, after or 0, limit + 1)
    if not found and not store.events(run_id, limit=1):
        return None, mark
    events = found[:limit]
    more = Cursor(after=events[-1].seq) if len(found) > limit else None
    return EventsPage(events=events, next=more, watermark=mark.seq, epoch=mark.epoch), mark


def messages_page(
    store: Store, thread_id: str, before: int | None, after: int | None, limit: int
) -> MessagesPage:
    """Read a page of a thread's feed; cursors lead through all of it."""
    mark = mark_of(store)
    found = store.messages(thread_id, before=before, after=after, limit=limit)
    if found:
        first: int | None = found[0].seq
        last: int | None = found[-1].seq
    else:
        first = before if after is None else after + 1
        last = after if before is None else before - 1
    prev = following = None
    if first is not None and store.messages(thread_id, before=first, limit=1):
        prev = Cursor(before=first)
    if last is not None and store.messages(thread_id, after=last, limit=1):
        following = Cursor(after=last)
    messages = [feed_message(event) for event in found]
    return MessagesPage(
        messages=messages, next=following, prev=prev, watermark=mark.seq, epoch=mark.epoch
    )


def feed_message(event: Event) -> FeedMessage:
    """Read an event of category ``message``."""
    return FeedMessage(**msgspec.structs.asdict(message_of(event)), run_id=event.run_id)


def run_change(event: Event) -> RunChange | None:
    """Read an event that starts or ends a run; None for all others."""
    span = event.span
    start = event.event_type == _RUN_START
    if not start and (span is None or not span.root or event.event_type not in END_EVENTS):
        return None
    return RunChange(
        seq=event.seq,
        event_type=event.event_type,
        run_id=event.run_id,
        thread_id=event.thread_id,
        name=span.name if span else "",
        kind=span.kind if span else None,
        outcome=span.outcome if span and not start else None,
        start_ns=span.start_ns if span else event.created_ns,
        end_ns=span.end_ns if span and not start else 0,
    )


def _row(store: Store, start: Event, thread_id: str | None) -> RunRow | None:
    """The row of a run at its newest start in the list, so that no two pages have it."""
    events = _events_of(store, start.run_id, _DECISIVE) or [start]
    for event in events:
        listed = thread_id is None or event.thread_id == thread_id
        if event.event_type == _RUN_START and listed and event.seq > start.seq:
            return None
    return msgspec.convert(fold_run(events), RunRow, from_attributes=True)


def _events_of(store: Store, run_id: str, types: Collection[str] | None = None) -> list[Event]:
    events: list[Event] = []
    while page := store.events(run_id, types, events[-1].seq if events else 0, _READ_AT_ONCE):
        events += page
        if len(events) > MAX_RUN_EVENTS:
            raise TooLargeError
    return events
