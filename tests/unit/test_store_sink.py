"""`StoreSink`: the store comes first, may be away, and says what was new."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence

import pytest

from otel_journal.errors import StoreError
from otel_journal.events import Event
from otel_journal.reports import Reports
from otel_journal.store import MemoryStore, StoreSink, sink


def note(number: int, content: object = None) -> Event:
    """Return an event."""
    return Event(f"{number}/0/note", "run", "annotation:n", "trace", number, content=content)


class AwayStore(MemoryStore):
    """A store that can be away."""

    away = False

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Append, unless away."""
        if self.away:
            msg = "store /j.db is away"
            raise StoreError(msg)
        return super().append(events)


@pytest.fixture
def store() -> AwayStore:
    """Provide a store."""
    return AwayStore()


@pytest.fixture
def clock() -> list[float]:
    """Provide the time that the sink sees, to be changed."""
    return [0.0]


@pytest.fixture
def filler(store: AwayStore, clock: list[float]) -> StoreSink:
    """Provide a sink for the store."""
    return StoreSink(store, failed=Reports().failed, clock=lambda: clock[0])


def stored(store: AwayStore) -> list[str]:
    """Return ids in the order of the store."""
    return [event.event_id for event in store.read()]


def test_what_was_new_is_let_through(filler: StoreSink, store: AwayStore) -> None:
    """What the store knows is exported, and nobody else's business any more."""
    store.append([note(1)])

    admitted = filler.admit([note(1), note(2)])

    assert [event.event_id for event in admitted] == ["2/0/note"]
    assert filler.counts.exported == 2


def test_a_store_that_is_away_gets_everything_in_order(
    filler: StoreSink, store: AwayStore, clock: list[float]
) -> None:
    """Others see events at once; the store gets them when it is back, oldest first."""
    store.away = True
    assert len(filler.admit([note(1)])) == 1
    assert len(filler.admit([note(2)])) == 1
    store.away = False
    assert not filler.catch_up(), "the pause is not over"
    clock[0] += sink.MAX_PAUSE_S
    filler.admit([note(3)])

    assert stored(store) == ["1/0/note", "2/0/note", "3/0/note"]
    assert filler.counts.exported == 3
    assert not sum(filler.counts.dropped.values())


def test_pauses_grow_and_start_over(
    filler: StoreSink, store: AwayStore, clock: list[float]
) -> None:
    """A store that stays away is asked less and less often, up to a limit."""
    store.away = True
    tries = []
    while clock[0] < 30:
        before = filler._try_at
        filler.admit([note(len(tries))])
        if filler._try_at != before:
            tries.append(clock[0])
        clock[0] += 0.05
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]

    assert gaps[0] == pytest.approx(sink.FIRST_PAUSE_S, abs=0.06)
    assert gaps[-1] == pytest.approx(sink.MAX_PAUSE_S, abs=0.06)
    assert gaps == sorted(gaps)


def test_the_backlog_is_bounded(
    filler: StoreSink, store: AwayStore, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the cap the oldest go, and are counted."""
    monkeypatch.setattr(sink, "MAX_BACKLOG", 2)
    store.away = True
    for number in range(5):
        filler.admit([note(number)])
    store.away = False
    clock[0] += sink.MAX_PAUSE_S
    assert filler.catch_up()

    assert stored(store) == ["3/0/note", "4/0/note"]
    assert filler.counts.dropped["store_error"] == 3
    assert filler.counts.exported == 2


def test_one_bad_event_does_not_keep_the_rest_out(
    filler: StoreSink, store: AwayStore, caplog: pytest.LogCaptureFixture
) -> None:
    """What no store takes is dropped and named; it still is a span and a count."""
    bad = Event("x" * 65, "run", "annotation:n", "trace", 1)

    with caplog.at_level(logging.ERROR, "otel_journal"):
        admitted = filler.admit([note(1), bad, note(2), note(3, content="\ud800")])

    assert stored(store) == ["1/0/note", "2/0/note"]
    assert len(admitted) == 4
    assert filler.counts.dropped["serialise"] == 2
    assert "event_id" in caplog.text


@pytest.mark.parametrize("thread", ["x" * 65, "a\nb", "a\x7f", "\ud800"])
def test_an_id_that_no_store_takes(filler: StoreSink, store: AwayStore, thread: str) -> None:
    """Too long, control characters, lone surrogates: refused alike, and counted."""
    filler.admit([Event("1/0/note", "run", "annotation:n", "trace", 1, thread_id=thread)])
    filler.admit([Event("2/0/note", "run", "annotation:n", "trace", 1, thread_id="Zoë 1")])

    assert stored(store) == ["2/0/note"]
    assert filler.counts.dropped["serialise"] == 1


def test_flush_says_whether_everything_is_stored(filler: StoreSink, store: AwayStore) -> None:
    """Flush does not wait out the pause, and is honest."""
    store.away = True
    filler.admit([note(1)])
    assert not filler.flush(0.0)
    store.away = False

    assert filler.flush(0.0)
    assert stored(store) == ["1/0/note"]


def test_what_waits_at_the_end_is_counted(filler: StoreSink, store: AwayStore) -> None:
    """Closing with a store that is away loses its backlog, and says so."""
    store.away = True
    filler.admit([note(1)])

    assert not filler.close(0.0)
    assert filler.counts.dropped["shutdown"] == 1


def test_a_forked_child_stores_nothing_of_its_parent(filler: StoreSink, store: AwayStore) -> None:
    """The backlog is the parent's to store."""
    store.away = True
    filler.admit([note(1)])
    filler.forked()
    store.away = False

    assert filler.flush(0.0)
    assert stored(store) == []


def test_a_failure_is_logged_once(
    filler: StoreSink, store: AwayStore, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """A store that stays away fills no log."""
    store.away = True
    with caplog.at_level(logging.ERROR, "otel_journal"):
        for number in range(5):
            filler.admit([note(number)])
            clock[0] += sink.MAX_PAUSE_S

    assert [record.getMessage() for record in caplog.records] == [
        "otel-journal: store failed; counted, not repeated: store /j.db is away"
    ]
