"""Cases of the store suite: deletions, the watermark, the epoch, and the end."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Final

import pytest

from otel_journal.errors import EventError, StoreError

from .stores_samples import BEYOND, CONTENTS, Opaque, fact, facts, refusal, scattered, unnumbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_journal.events import Event
    from otel_journal.store.protocol import Store

_DELETIONS: Final[tuple[Callable[[Store, str], int], ...]] = (
    lambda store, run_id: store.delete_run(run_id),
    lambda store, _: store.delete_thread("thread-1"),
    lambda store, _: store.prune(BEYOND),
)
"""The ways to delete a run of thread-1."""


class DeletionCases:
    """What is deleted is gone everywhere, and its `seq` never comes back."""

    def test_delete_a_run(self, store: Store) -> None:
        """Only that run, from every reading; the number is that of all its events."""
        held = scattered(store)
        mine = [event for event in held if event.run_id == "run-1"]
        rest = [event for event in held if event.run_id != "run-1"]
        assert store.delete_run("run-1") == len(mine)
        _check_holds(store, rest)
        assert store.events("run-1") == []
        assert store.run_messages("run-1") == []
        assert store.delete_run("run-1") == 0

    def test_delete_a_thread(self, store: Store) -> None:
        """All its events, of every category and run; those of other threads stay."""
        held = scattered(store)
        rest = [event for event in held if event.thread_id != "thread-1"]
        assert store.delete_thread("thread-1") == len(held) - len(rest)
        _check_holds(store, rest)
        assert store.messages("thread-1") == []
        assert store.count_messages("thread-1") == 0
        assert store.runs(thread_id="thread-1") == []
        assert store.delete_thread("thread-1") == 0

    def test_delete_a_run_and_then_its_thread(self, store: Store) -> None:
        """Each counts what was still there."""
        store.append([*facts(5), *facts(3, run_id="run-2")])
        assert store.delete_run("run-1") == 5
        assert store.delete_thread("thread-1") == 3
        assert store.read() == []

    def test_prune(self, store: Store) -> None:
        """Deletes up to a `seq`, that one included, in a gap or not."""
        held = scattered(store)
        assert store.prune(0) == 0
        assert store.prune(held[3].seq - 1) == 3
        _check_holds(store, held[3:])
        assert store.prune(held[9].seq) == 7
        _check_holds(store, held[10:])
        assert store.prune(held[9].seq) == 0
        assert store.prune(BEYOND) == len(held) - 10
        _check_holds(store, [])

    def test_unknown_names_delete_nothing(self, store: Store) -> None:
        """And say so; a run is no thread."""
        written = store.append(facts(3))
        assert store.delete_run("nobody") == 0
        assert store.delete_thread("nowhere") == 0
        assert store.delete_run("thread-1") == 0
        assert store.delete_thread("run-1") == 0
        assert store.read() == written

    def test_a_deleted_event_can_be_written_again(self, store: Store) -> None:
        """The journal has forgotten its id; it gets a new place."""
        for delete in _DELETIONS:
            mark = store.append(facts(4))[-1].seq
            delete(store, "run-1")
            again = store.append(facts(4))
            assert unnumbered(again) == facts(4)
            assert again[0].seq > mark
            _check_holds(store, again)
            store.delete_run("run-1")

    def test_seq_is_never_used_again(self, store: Store) -> None:
        """Not after the newest run, thread, or everything was deleted (X41)."""
        used: set[int] = set()
        for turn, delete in enumerate(_DELETIONS):
            seqs = [event.seq for event in store.append(facts(4, run_id=f"run-{turn}"))]
            assert not used or seqs[0] > max(used)
            used.update(seqs)
            delete(store, f"run-{turn}")
            assert store.read() == []
            assert store.watermark() >= max(used)
        event, created = store.put_if_absent(fact("last", "run.end"))
        assert created
        assert event.seq > max(used)


class LifetimeCases:
    """The watermark, the epoch, the name, and the end."""

    def test_the_watermark_is_the_highest_seq(self, store: Store) -> None:
        """It grows with every event, by whatever call, and with nothing else."""
        assert store.watermark() == 0
        for number in range(3):
            seq = store.append([fact(number), fact(f"{number}b")])[-1].seq
            assert store.watermark() == seq
        event, _ = store.put_if_absent(fact("put", "run.end"))
        assert store.watermark() == event.seq > seq
        store.append([fact(0)])
        store.put_if_absent(fact("again", "run.end"))
        store.delete_thread("thread-1")
        assert store.watermark() == event.seq

    def test_the_watermark_after_a_refused_batch(self, store: Store) -> None:
        """Is not beyond the next event: who waits for it to grow is not fooled."""
        with pytest.raises(StoreError):
            store.append([fact(1), fact(2, content=Opaque())])
        mark = store.watermark()
        (event,) = store.append([fact(3)])
        assert event.seq > mark

    def test_the_epoch_is_that_of_the_journal(self, store: Store, other_store: Store) -> None:
        """Text that stays, and that no other journal has."""
        epoch = store.epoch
        assert isinstance(epoch, str)
        assert epoch
        store.append(facts(3))
        store.delete_thread("thread-1")
        assert store.epoch == epoch
        assert other_store.epoch != epoch

    def test_two_stores_share_nothing(self, store: Store, other_store: Store) -> None:
        """What one holds the other does not know."""
        store.append(facts(3))
        assert other_store.read() == []
        assert other_store.watermark() == 0
        assert len(other_store.append(facts(3))) == 3

    def test_it_has_a_name(self, store: Store) -> None:
        """A short word for logs and metrics."""
        assert isinstance(store.name, str)
        assert store.name

    def test_close_is_the_end(self, store: Store) -> None:
        """It may be repeated; every other call then raises StoreError."""
        store.append(facts(3))
        store.close()
        store.close()
        for name, call in _calls(store).items():
            error = refusal(call)
            assert error is not None, f"{name} works on a closed store"
            assert not isinstance(error, EventError), f"{name} blames the event"
        store.close()


class DurableCases:
    """What a journal that outlives its process keeps."""

    def reopen(self, store: Store) -> Store:
        """Close `store` and return the same journal opened anew; a subclass says how."""
        raise NotImplementedError

    def test_reopening_keeps_everything(self, store: Store) -> None:
        """Events, their order, the epoch and the watermark."""
        held = scattered(store)
        values = [fact(name, content=value) for name, value in CONTENTS.items()]
        held += store.append(values)
        epoch, mark = store.epoch, store.watermark()
        with closing(self.reopen(store)) as again:
            _check_holds(again, held)
            assert (again.epoch, again.watermark()) == (epoch, mark)
            assert again.append(values) == []

    def test_seq_continues_after_reopening(self, store: Store) -> None:
        """And a cursor from before stays good."""
        written = store.append(facts(5))
        with closing(self.reopen(store)) as again:
            new = again.append([fact("new")])
            assert again.read(after=written[-1].seq) == new
            assert again.read() == [*written, *new]

    def test_singletons_stay_after_reopening(self, store: Store) -> None:
        """The first one is still the first one."""
        first, _ = store.put_if_absent(fact(1, "run.end", content="first"))
        with closing(self.reopen(store)) as again:
            assert again.put_if_absent(fact(2, "run.end")) == (first, False)

    def test_seq_is_never_used_again_after_reopening(self, store: Store) -> None:
        """Not even when the newest or all events were deleted before (X41)."""
        with ExitStack() as opened:
            mark = store.append(facts(2, run_id="kept", thread_id="kept"))[-1].seq
            for turn, delete in enumerate(_DELETIONS):
                mark = store.append(facts(4, run_id=f"run-{turn}"))[-1].seq
                delete(store, f"run-{turn}")
                store = self.reopen(store)
                opened.callback(store.close)
                assert store.watermark() >= mark
                (event,) = store.append([fact(f"after-{turn}", run_id="kept")])
                assert event.seq > mark

    def test_deletions_stay_after_reopening(self, store: Store) -> None:
        """What was deleted does not come back."""
        held = scattered(store)
        rest = [event for event in held if event.run_id != "run-1"]
        store.delete_run("run-1")
        with closing(self.reopen(store)) as again:
            _check_holds(again, rest)

    def test_a_refused_batch_is_not_there_after_reopening(self, store: Store) -> None:
        """Not even in part."""
        written = store.append(facts(2))
        with pytest.raises(StoreError):
            store.append([fact("a"), fact("b", content=Opaque())])
        with closing(self.reopen(store)) as again:
            assert again.read() == written


def _check_holds(store: Store, held: list[Event]) -> None:
    """Check that no reading knows more or less than `held`."""
    assert store.read() == held
    for run in {event.run_id for event in held}:
        mine = [event for event in held if event.run_id == run]
        assert store.events(run) == mine
        assert store.run_messages(run) == [e for e in mine if e.category == "message"][-50:]
    for thread in {event.thread_id for event in held}:
        feed = [e for e in held if e.thread_id == thread and e.category == "message"]
        assert store.messages(thread, limit=500) == feed
        assert store.count_messages(thread) == len(feed)
    assert store.runs() == [e for e in held if e.event_type == "run.start"][::-1]


def _calls(store: Store) -> dict[str, Callable[[], object]]:
    return {
        "append": lambda: store.append([fact("late")]),
        "append of nothing": lambda: store.append([]),
        "put_if_absent": lambda: store.put_if_absent(fact("late")),
        "read": store.read,
        "events": lambda: store.events("run-1"),
        "events of no type": lambda: store.events("run-1", types=[]),
        "messages": lambda: store.messages("thread-1"),
        "run_messages": lambda: store.run_messages("run-1"),
        "count_messages": lambda: store.count_messages("thread-1"),
        "runs": store.runs,
        "watermark": store.watermark,
        "delete_thread": lambda: store.delete_thread("thread-1"),
        "delete_run": lambda: store.delete_run("run-1"),
        "prune": lambda: store.prune(BEYOND),
    }
