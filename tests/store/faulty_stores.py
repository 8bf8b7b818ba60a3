"""Memory stores with one fault each, and the case of the suite that has to notice it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from otel_journal.errors import EventError, StoreError
from otel_journal.events import Event
from otel_journal.store import memory, rows
from otel_journal.store.memory import MemoryStore

FAULTS: dict[type[MemoryStore], str] = {}
"""Faulty store -> name of the case."""

DURABLE_FAULTS: dict[type[MemoryStore], str] = {}
"""The same for stores that lose something when they are opened again."""

Fault = type[MemoryStore]


def caught_by(case: str) -> Callable[[Fault], Fault]:
    """Enter a store into `FAULTS`."""

    def enter(fault: Fault) -> Fault:
        FAULTS[fault] = f"test_{case}"
        return fault

    return enter


def caught_on_reopening_by(case: str) -> Callable[[Fault], Fault]:
    """Enter a store into `DURABLE_FAULTS`."""

    def enter(fault: Fault) -> Fault:
        DURABLE_FAULTS[fault] = f"test_{case}"
        return fault

    return enter


# --- writing ---------------------------------------------------------------------------------


@caught_by("what_is_not_allowed_is_refused_with_its_whole_batch")
class TakesAnyName(MemoryStore):
    """No limits on ids."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Skip the check."""
        new = [self._add(rows.row_of(event)) for event in events if event.event_id not in self._ids]
        return [rows.decode(*row) for row in new]


@caught_by("what_is_not_allowed_is_refused_with_its_whole_batch")
class PutsAnyName(MemoryStore):
    """No limits on ids in `put_if_absent`."""

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Skip the check."""
        row = self._add(rows.row_of(event))
        return rows.decode(*row), True


@caught_by("what_is_not_allowed_is_refused_with_its_whole_batch")
class TakesAnyContent(MemoryStore):
    """Odd parts of the content become text."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Write text in place of what is no JSON."""
        plain = [json.loads(json.dumps(event.content, default=str)) for event in events]
        return super().append(
            [replace(event, content=content) for event, content in zip(events, plain, strict=True)]
        )


@caught_by("what_is_not_allowed_is_refused_with_its_whole_batch")
class BlamesItself(MemoryStore):
    """An event that is not allowed looks like a store that is away."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Raise the wider error."""
        try:
            return super().append(events)
        except EventError as error:
            raise StoreError(str(error)) from None


@caught_by("a_refused_batch_leaves_no_trace")
class WritesHalfABatch(MemoryStore):
    """Events before the bad one stay."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Write one at a time."""
        return [new for event in events for new in super(WritesHalfABatch, self).append([event])]


@caught_by("a_refused_batch_leaves_no_trace")
class RemembersRefused(MemoryStore):
    """The ids of a refused batch count as known."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Forget that the batch was refused."""
        refused = self.__dict__.setdefault("refused", set())
        try:
            return super().append([event for event in events if event.event_id not in refused])
        except StoreError:
            refused.update(event.event_id for event in events)
            raise


@caught_by("the_same_batch_twice")
class WritesTwice(MemoryStore):
    """No ids are known."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Forget all ids first."""
        self._ids.clear()
        return super().append(events)


@caught_by("an_event_twice_in_a_batch")
class SeesNoTwinsInABatch(MemoryStore):
    """Only ids of earlier batches are known."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Look before writing, not while."""
        new = [event for event in events if event.event_id not in self._ids]
        return [rows.decode(*self._add(rows.row_of(event))) for event in new]


@caught_by("an_event_twice_in_a_batch")
class LastTwinWins(MemoryStore):
    """Of an event twice in a batch the second one counts."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Let a dict choose."""
        return super().append(list({event.event_id: event for event in events}.values()))


@caught_by("a_batch_that_is_known_in_part")
class SkipsBatchesKnownInPart(MemoryStore):
    """One known event makes the batch known."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Look at any event."""
        known = any(event.event_id in self._ids for event in events)
        return [] if known else super().append(events)


@caught_by("the_same_batch_twice")
class ReturnsKnownEvents(MemoryStore):
    """What was skipped comes back as if it were new."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Return the rows behind all ids."""
        super().append(events)
        return [rows.decode(*self._ids[event.event_id]) for event in events]


@caught_by("event_ids_are_known_across_runs")
class KnowsIdsPerRun(MemoryStore):
    """An id of another run is unknown."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Ask the run only."""
        self._ids = {name: row for name, row in self._ids.items() if row.run_id == events[0].run_id}
        return super().append(events)


@caught_by("the_seq_of_what_is_given_is_ignored")
class KeepsTheGivenSeq(MemoryStore):
    """A seq in an event counts."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Return it, too."""
        new = super().append(events)
        return [replace(n, seq=e.seq or n.seq) for n, e in zip(new, events, strict=True)]


@caught_by("a_batch_over_runs_and_threads")
class OneRunPerBatch(MemoryStore):
    """All events go to the run of the first one."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Take the run from the first event."""
        run_id = events[0].run_id
        return super().append([replace(event, run_id=run_id) for event in events])


@caught_by("a_big_batch")
class LimitsParameters(MemoryStore):
    """A statement takes 32766 values."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Refuse more."""
        if len(events) * len(memory._Row._fields) > 32766:
            msg = "too many SQL variables"
            raise StoreError(msg)
        return super().append(events)


@caught_by("ids_differ_by_every_character")
class FoldsCase(MemoryStore):
    """A run is found by any spelling."""

    def events(self, run_id, types=None, after=0, limit=500) -> list[Event]:
        """Compare as some collations do."""
        found = [event for event in self.read() if event.run_id.lower() == run_id.lower()]
        return found if types is None else super().events(run_id, types, after, limit)


@caught_by("the_longest_names_are_allowed")
class CountsBytes(MemoryStore):
    """64 bytes are the limit."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Refuse more."""
        if any(len(event.run_id.encode()) > 64 for event in events):
            msg = "too long"
            raise EventError(msg)
        return super().append(events)


@caught_by("writers_at_once")
class ShowsSeqOutOfOrder(MemoryStore):
    """Numbers are given before the commit: a follower passes by what commits late."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Wait between the number and the row."""
        with self._lock:
            first = self._seq + 1
            self._seq += len(events)
        time.sleep(0.002 * (first % 4))
        with self._lock:
            last, self._seq = self._seq, first - 1
            new = [rows.decode(*self._add(rows.row_of(event))) for event in events]
            self._seq = last
            for view in self._views.values():
                view.sort()
        return new


@caught_by("writers_at_once")
class MixesBatches(MemoryStore):
    """Batches of several threads are woven into each other: one of them loses an event."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Write without a lock."""
        new = []
        for event in events:
            seq = self._seq
            time.sleep(0.0005)
            self._seq = seq
            new.append(rows.decode(*self._add(rows.row_of(event))))
        return new


@caught_by("the_same_batch_from_writers_at_once")
class ChecksWithoutALock(MemoryStore):
    """Looks whether an event is known, and writes later."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Wait in between."""
        new = [event for event in events if event.event_id not in self._ids]
        time.sleep(0.02)
        return [rows.decode(*self._add(rows.row_of(event))) for event in new]


# --- values ----------------------------------------------------------------------------------


@caught_by("every_field_comes_back")
class RoundsToMicroseconds(MemoryStore):
    """The moment loses three digits."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Divide by a thousand."""
        return super().append([replace(e, created_ns=e.created_ns // 1000 * 1000) for e in events])


@caught_by("every_field_comes_back")
class ForgetsMetadata(MemoryStore):
    """Metadata is not stored."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Leave it out."""
        return super().append([replace(event, metadata={}) for event in events])


@caught_by("every_field_comes_back")
class ForgetsLinks(MemoryStore):
    """Links of the span block are not stored."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Leave them out."""
        return super().append(
            [
                event if event.span is None else replace(event, span=replace(event.span, links=()))
                for event in events
            ]
        )


@caught_by("content_of_every_kind_comes_back")
class EmptyIsNone(MemoryStore):
    """Empty content becomes none."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Write it so."""
        return super().append([replace(event, content=event.content or None) for event in events])


@caught_by("content_of_every_kind_comes_back")
class WholeFloatsAreInts(MemoryStore):
    """1.0 comes back as 1."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Write it so."""
        return super().append(
            [
                replace(event, content=int(event.content))
                if isinstance(event.content, float) and event.content.is_integer()
                else event
                for event in events
            ]
        )


@caught_by("content_of_every_kind_comes_back")
class SplitsLines(MemoryStore):
    """Unicode's line separators end a line, and lose what comes after."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Keep the first line."""
        return super().append(
            [
                replace(event, content="".join(event.content.splitlines()[:1]))
                if isinstance(event.content, str)
                else event
                for event in events
            ]
        )


@caught_by("a_reader_cannot_change_what_is_stored")
class SharesWithReaders(MemoryStore):
    """Every reader gets the same object."""

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Keep what was read once."""
        cache = self.__dict__.setdefault("cache", {})
        return [cache.setdefault(e.seq, e) for e in super().read(after, limit)]


@caught_by("the_writer_cannot_change_what_is_stored")
class SharesWithWriters(MemoryStore):
    """What is returned holds the writer's own content."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Keep the given events."""
        given = self.__dict__.setdefault("given", {})
        given.update({event.event_id: event for event in events})
        return super().append(events)

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Return the given events."""
        given = self.__dict__.get("given", {})
        return [replace(given.get(e.event_id, e), seq=e.seq) for e in super().read(after, limit)]


# --- put_if_absent ---------------------------------------------------------------------------


@caught_by("one_of_many_writers_wins")
class PutsWithoutALock(MemoryStore):
    """Looks and writes in two steps."""

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Wait in between."""
        found = self.events(event.run_id, [event.event_type])
        time.sleep(0.02)
        return (found[0], False) if found else (self.append([event])[0], True)


@caught_by("it_is_one_per_thread_run_and_type")
class PutsOncePerRun(MemoryStore):
    """The thread does not count."""

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Look at the run alone."""
        found = self.events(event.run_id, [event.event_type])
        return (found[0], False) if found else super().put_if_absent(event)


@caught_by("the_first_one_stays")
class PutReturnsTheGivenEvent(MemoryStore):
    """The caller gets its own event back, not the one that is stored."""

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Return what was given."""
        held, created = super().put_if_absent(event)
        return replace(event, seq=held.seq), created


@caught_by("the_first_one_stays")
class PutReplaces(MemoryStore):
    """The last one counts."""

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Delete what is there."""
        self.delete_run(event.run_id)
        return super().put_if_absent(event)


@caught_by("it_sees_what_append_wrote")
class PutKnowsOnlyPuts(MemoryStore):
    """What `append` wrote does not count."""

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Ask its own list."""
        put = self.__dict__.setdefault("put", {})
        if (found := put.get((event.run_id, event.event_type))) is not None:
            return found, False
        put[event.run_id, event.event_type] = new = self.append([event])[0]
        return new, True


@caught_by("a_known_id_is_not_written_again")
class PutIgnoresIds(MemoryStore):
    """An id can be there twice."""

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Forget the ids first."""
        self._ids.clear()
        return super().put_if_absent(event)


# --- reading ---------------------------------------------------------------------------------


@caught_by("read_equals_a_scan")
class ReadsByPosition(MemoryStore):
    """The cursor counts rows."""

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Slice."""
        return super().read(0, 10**6)[max(0, after) :][:limit]


@caught_by("read_equals_a_scan")
class CursorIsIncluded(MemoryStore):
    """``seq >= after``."""

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Begin one earlier."""
        return super().read(after - 1, limit)


@caught_by("events_of_a_run_equal_a_scan")
class FiltersAfterTheLimit(MemoryStore):
    """A page is filtered, not the run."""

    def events(self, run_id, types=None, after=0, limit=500) -> list[Event]:
        """Filter the page."""
        found = super().events(run_id, None, after, limit)
        return [event for event in found if types is None or event.event_type in types]


@caught_by("types_none_and_empty")
class NoTypeIsEveryType(MemoryStore):
    """An empty filter is none."""

    def events(self, run_id, types=None, after=0, limit=500) -> list[Event]:
        """Take the empty one for None."""
        return super().events(run_id, types or None, after, limit)


@caught_by("the_feed_of_a_thread_equals_a_scan")
class LimitZeroIsNoLimit(MemoryStore):
    """0 gives everything."""

    def messages(self, thread_id, before=None, after=None, limit=50) -> list[Event]:
        """Take 0 for None."""
        return super().messages(thread_id, before, after, limit or 10**6)


@caught_by("a_negative_limit_is_an_error")
class NegativeLimitIsNothing(MemoryStore):
    """A negative limit of runs gives nothing."""

    def runs(self, before=None, limit=50, thread_id=None) -> list[Event]:
        """Take it for 0."""
        return super().runs(before, max(0, limit), thread_id)


@caught_by("the_feed_of_a_thread_equals_a_scan")
class OneCursorAtATime(MemoryStore):
    """With both cursors, `before` wins."""

    def messages(self, thread_id, before=None, after=None, limit=50) -> list[Event]:
        """Drop the other one."""
        return super().messages(thread_id, before, None if before else after, limit)


@caught_by("the_feed_of_a_run_equals_a_scan")
class LastOnesAfterACursor(MemoryStore):
    """A page after a cursor is at the end."""

    def run_messages(self, run_id, before=None, after=None, limit=50) -> list[Event]:
        """Cut at the wrong side."""
        found = super().run_messages(run_id, before, after, max(limit, 10**6))
        return found[max(0, len(found) - limit) :]


@caught_by("pages_of_a_feed")
class FirstOnesByDefault(MemoryStore):
    """A page without cursors is at the start."""

    def messages(self, thread_id, before=None, after=None, limit=50) -> list[Event]:
        """Add a cursor."""
        return super().messages(thread_id, before, after or 0, limit)


@caught_by("paging_backward_gives_everything_once")
class BeforeIsIncluded(MemoryStore):
    """``seq <= before``."""

    def messages(self, thread_id, before=None, after=None, limit=50) -> list[Event]:
        """End one later; pages of one would never end."""
        found = super().messages(thread_id, before and before + 1, after, limit)
        return found if before is None or len(found) > 1 else []


@caught_by("paging_forward_gives_everything_once")
class PagesSkipOne(MemoryStore):
    """Each page but the first one begins one late."""

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Move the cursor."""
        return super().read(after + 1 if after else 0, limit)


@caught_by("default_limits")
class AnotherDefault(MemoryStore):
    """20 runs by default."""

    def runs(self, before=None, limit=20, thread_id=None) -> list[Event]:
        """Give fewer."""
        return super().runs(before, limit, thread_id)


@caught_by("runs_equal_a_scan")
class OldestRunsFirst(MemoryStore):
    """Runs in order of their start."""

    def runs(self, before=None, limit=50, thread_id=None) -> list[Event]:
        """Turn them around."""
        return super().runs(before, limit, thread_id)[::-1]


@caught_by("the_empty_thread_is_a_thread")
class EmptyThreadIsEveryThread(MemoryStore):
    """Runs without a thread are all runs."""

    def runs(self, before=None, limit=50, thread_id=None) -> list[Event]:
        """Take the empty text for None."""
        return super().runs(before, limit, thread_id or None)


@caught_by("messages_are_what_the_category_says")
class CountsEverything(MemoryStore):
    """Traces are counted as messages."""

    def count_messages(self, thread_id: str) -> int:
        """Count the thread."""
        return len(self._views.get(("thread", thread_id), ()))


@caught_by("unknown_names")
class UnknownRunIsAnError(MemoryStore):
    """A run that is not there raises."""

    def run_messages(self, run_id, before=None, after=None, limit=50) -> list[Event]:
        """Look it up."""
        if ("run", run_id) not in self._views:
            msg = "no such run"
            raise StoreError(msg)
        return super().run_messages(run_id, before, after, limit)


# --- deleting, and the rest of a life --------------------------------------------------------


@caught_by("seq_is_never_used_again")
class UsesSeqAgain(MemoryStore):
    """The next seq is one more than the highest that is there."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Ask the rows."""
        self._seq = max((row.seq for row in self._ids.values()), default=0)
        return super().append(events)


@caught_by("delete_a_run")
class LeavesTheFeed(MemoryStore):
    """A deleted run stays in the feed of its thread."""

    def delete_run(self, run_id: str) -> int:
        """Put the feeds back."""
        feeds = {name: rows for name, rows in self._views.items() if name[0] == "feed"}
        deleted = super().delete_run(run_id)
        self._views.update(feeds)
        return deleted


@caught_by("delete_a_thread")
class DeletesMessagesOnly(MemoryStore):
    """Traces of a deleted thread stay."""

    def delete_thread(self, thread_id: str) -> int:
        """Delete the feed."""
        return self._delete(lambda: self._views.get(("feed", thread_id), []))


@caught_by("delete_a_run_and_then_its_thread")
class CountsNoDeletions(MemoryStore):
    """Nobody knows how many were deleted."""

    def delete_run(self, run_id: str) -> int:
        """Return 0."""
        super().delete_run(run_id)
        return 0


@caught_by("prune")
class PrunesOneLess(MemoryStore):
    """``seq < up_to``."""

    def prune(self, up_to: int) -> int:
        """End one earlier."""
        return super().prune(up_to - 1)


@caught_by("a_deleted_event_can_be_written_again")
class RemembersDeletedIds(MemoryStore):
    """A deleted event counts as known."""

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Keep a list of all ids."""
        ever = self.__dict__.setdefault("ever", set())
        new = super().append([event for event in events if event.event_id not in ever])
        ever.update(event.event_id for event in new)
        return new


@caught_by("the_watermark_is_the_highest_seq")
class WatermarkShrinks(MemoryStore):
    """The watermark is the highest seq that is there."""

    def watermark(self) -> int:
        """Ask the rows."""
        return max((row.seq for row in self._ids.values()), default=0)


@caught_by("the_epoch_is_that_of_the_journal")
class OneEpochForAll(MemoryStore):
    """Every journal has the same epoch."""

    def __init__(self) -> None:
        """Take a fixed one."""
        super().__init__()
        self.epoch = "epoch"


@caught_by("two_stores_share_nothing")
class SharesIdsOfAllStores(MemoryStore):
    """Ids are known to every store of the process."""

    shared: set[str] = set()  # noqa: RUF012 - the fault

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Ask the class."""
        new = super().append([event for event in events if event.event_id not in self.shared])
        self.shared.update(event.event_id for event in new)
        return new


@caught_by("close_is_the_end")
class NeverCloses(MemoryStore):
    """A closed store works on."""

    def close(self) -> None:
        """Do nothing."""


@caught_by("close_is_the_end")
class ClosesOnce(MemoryStore):
    """A second close raises."""

    def close(self) -> None:
        """Check first."""
        self._check_open()
        super().close()


# --- reopening -------------------------------------------------------------------------------


class Durable(MemoryStore):
    """A store whose state outlives it, as that of a file does."""

    def reopened(self) -> Durable:
        """Close this store and return one with the same state."""
        again = type(self)()
        again.epoch, again._seq = self.epoch, self._seq
        again._ids, again._views = dict(self._ids), dict(self._views)
        self.close()
        return again


@caught_on_reopening_by("reopening_keeps_everything")
class NewEpochEachTime(Durable):
    """The epoch is that of the process."""

    def reopened(self) -> Durable:
        """Make a new one."""
        again = super().reopened()
        again.epoch = type(self)().epoch
        return again


@caught_on_reopening_by("reopening_keeps_everything")
class LosesTheLast(Durable):
    """The last event was not yet on disk."""

    def reopened(self) -> Durable:
        """Drop it."""
        again = super().reopened()
        again._delete(lambda: again._views[("all",)][-1:])
        return again


@caught_on_reopening_by("seq_continues_after_reopening")
class CountsAnew(Durable):
    """Seq begins at 1 again."""

    def reopened(self) -> Durable:
        """Forget the counter."""
        again = super().reopened()
        again._seq = 0
        return again


@caught_on_reopening_by("seq_is_never_used_again_after_reopening")
class CountsFromTheRows(Durable):
    """The next seq is one more than the highest that is there."""

    def reopened(self) -> Durable:
        """Ask the rows."""
        again = super().reopened()
        again._seq = max((row.seq for row in again._ids.values()), default=0)
        return again


@caught_on_reopening_by("singletons_stay_after_reopening")
class PutsOncePerProcess(Durable):
    """What a run has once it has once per process."""

    def reopened(self) -> Durable:
        """Forget them."""
        again = super().reopened()
        again._views = {name: view for name, view in again._views.items() if name[0] != "kin"}
        return again


@caught_on_reopening_by("deletions_stay_after_reopening")
class UndoesDeletions(Durable):
    """What was deleted comes back."""

    def delete_run(self, run_id: str) -> int:
        """Keep a copy."""
        self.undone = dict(self._ids), dict(self._views)
        return super().delete_run(run_id)

    def reopened(self) -> Durable:
        """Take the copy."""
        again = super().reopened()
        again._ids, again._views = self.undone
        return again
