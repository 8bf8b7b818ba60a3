"""Reading behind a cursor, and what is noticed when rows are not there any more."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from otel_journal.errors import StoreError
from otel_journal.events import Event
from otel_journal.sidecar.following import Batch, Follower
from otel_journal.sidecar.shard import Shard
from otel_journal.sidecar.state import Change, Cursor, State
from otel_journal.store import MemoryStore, Store
from otel_journal.store.sqlite import SqliteStore


def events(first: int, last: int) -> list[Event]:
    """Return events of one run each."""
    return [Event(f"{n}/0/end", f"run {n}", "node.end", "trace", n) for n in range(first, last + 1)]


def damage(path: Path, *numbers: int) -> None:
    """Make rows unreadable, as flipped bytes do."""
    connection = apsw.Connection(str(path))
    for number in numbers:
        connection.execute("UPDATE events SET body = x'7b00' WHERE seq = ?", (number,))
    connection.close()


def all_of(follower: Follower, limit: int = 7) -> tuple[list[int], dict[str, int]]:
    """Read to the end; return the numbers and all losses."""
    seen: list[int] = []
    lost: dict[str, int] = {}
    while True:
        batch: Batch = follower.next(limit)
        follower.took(batch)
        seen += [event.seq for event in batch.events]
        lost = {kind: lost.get(kind, 0) + batch.lost.get(kind, 0) for kind in lost | batch.lost}
        if batch.complete:
            return seen, lost


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    """Provide an empty state."""
    state = State(tmp_path / "state.db")
    yield state
    state.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a journal file."""
    return tmp_path / "journal.db"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    """Provide an empty store."""
    store = MemoryStore() if request.param == "memory" else SqliteStore(path)
    yield store
    store.close()


def test_batches_follow_each_other_without_a_gap(store: Store, state: State) -> None:
    """Each row once, in order; the cursor ends at the watermark."""
    store.append(events(1, 20))
    follower = Follower(store, state, "spans")
    assert follower.lag() == 20
    assert all_of(follower) == (list(range(1, 21)), {})
    assert follower.cursor == Cursor(store.epoch, 20)
    assert follower.lag() == 0
    assert not follower.next(7).moved


def test_a_batch_that_was_not_taken_comes_again(store: Store, state: State) -> None:
    """Who could not deliver reads the same once more."""
    store.append(events(1, 5))
    follower = Follower(store, state, "spans")
    first = follower.next(3)
    assert follower.next(3) == first
    assert [event.seq for event in first.events] == [1, 2, 3]
    assert not first.complete


def test_a_new_follower_goes_on_at_the_committed_cursor(store: Store, state: State) -> None:
    """Every projection has its own."""
    store.append(events(1, 5))
    state.commit(Change("spans", Cursor(store.epoch, 3)))
    assert all_of(Follower(store, state, "spans"))[0] == [4, 5]
    assert all_of(Follower(store, state, "counters"))[0] == [1, 2, 3, 4, 5]


def test_shards_share_the_rows_and_all_move_on(store: Store, state: State) -> None:
    """Together they read everything, once; the cursor passes the rows of others."""
    store.append(events(1, 40))
    seen = []
    for index in range(3):
        follower = Follower(store, state, "spans", Shard(index, 3))
        numbers, lost = all_of(follower)
        seen += numbers
        assert numbers
        assert not lost
        assert follower.cursor == Cursor(store.epoch, 40)
    assert sorted(seen) == list(range(1, 41))


def test_rows_that_were_pruned_before_they_were_read_are_counted(
    store: Store, state: State, caplog: pytest.LogCaptureFixture
) -> None:
    """At the front, in the middle and at the end; logged once."""
    store.append(events(1, 30))
    follower = Follower(store, state, "spans")
    store.prune(10)
    for number in (15, 16, 29, 30):
        store.delete_run(f"run {number}")
    with caplog.at_level(logging.WARNING):
        seen, lost = all_of(follower)
    assert seen == [*range(11, 15), *range(17, 29)]
    assert lost == {"gaps": 14}
    assert follower.cursor == Cursor(store.epoch, 30)
    assert [record.getMessage().partition(" events")[0] for record in caplog.records] == [
        "the journal lacks 12"
    ]
    assert "were gone before spans read them" in caplog.text


def test_what_is_pruned_after_it_was_read_is_no_loss(store: Store, state: State) -> None:
    """The usual life of a journal."""
    store.append(events(1, 10))
    follower = Follower(store, state, "spans")
    all_of(follower)
    store.prune(10)
    store.append(events(11, 12))
    assert all_of(follower) == ([11, 12], {})


def test_another_journal_is_read_from_its_first_event(
    path: Path, state: State, caplog: pytest.LogCaptureFixture
) -> None:
    """The file was deleted and begun anew while the sidecar was away."""
    first = SqliteStore(path)
    first.append(events(1, 10))
    state.commit(Change("spans", Cursor(first.epoch, 10)))
    first.close()
    path.unlink()
    second = SqliteStore(path)
    second.append(events(11, 13))
    follower = Follower(second, state, "spans")
    assert follower.lag() == 3
    with caplog.at_level(logging.WARNING):
        assert all_of(follower) == ([1, 2, 3], {"epoch_changes": 1})
    assert follower.cursor == Cursor(second.epoch, 3)
    assert f"of epoch {second.epoch}" in caplog.text
    second.close()


def test_a_restored_backup_is_read_on_from_its_end(
    path: Path, state: State, caplog: pytest.LogCaptureFixture
) -> None:
    """Of the same epoch, but older than the cursor: new rows must not be waited out."""
    store = SqliteStore(path)
    store.append(events(1, 10))
    store.close()
    backup = path.with_name("backup.db")
    shutil.copy(path, backup)
    store = SqliteStore(path)
    store.append(events(11, 20))
    state.commit(Change("spans", Cursor(store.epoch, 20)))
    store.close()
    restored = SqliteStore(backup)
    follower = Follower(restored, state, "spans")
    with caplog.at_level(logging.WARNING):
        assert all_of(follower) == ([], {"cursor_ahead": 1})
    assert "ends at 10, but spans had read up to 20" in caplog.text
    restored.append(events(21, 23))
    assert all_of(follower) == ([11, 12, 13], {})
    restored.close()


@pytest.mark.parametrize("damaged", [(1,), (9,), (20,), (5, 6, 7), (1, 3, 20), range(1, 21)])
@pytest.mark.parametrize("limit", [1, 7, 100])
def test_damaged_rows_are_passed_and_counted(
    path: Path, state: State, damaged: tuple[int, ...], limit: int
) -> None:
    """The others are all read; a row that nobody can decode stops nothing."""
    store = SqliteStore(path)
    store.append(events(1, 20))
    damage(path, *damaged)
    seen, lost = all_of(Follower(store, state, "spans"), limit)
    assert seen == [number for number in range(1, 21) if number not in damaged]
    assert lost == {"damaged": len(damaged)}
    store.close()


def test_a_damaged_row_behind_a_gap_is_no_gap(path: Path, state: State) -> None:
    """Each missing number is counted once, by what became of it."""
    store = SqliteStore(path)
    store.append(events(1, 20))
    damage(path, 12)
    store.prune(10)
    assert all_of(Follower(store, state, "spans"), 100)[1] == {"damaged": 1, "gaps": 10}
    store.close()


def test_a_store_that_is_away_is_an_error(store: Store, state: State) -> None:
    """It is not taken for an empty one."""
    follower = Follower(store, state, "spans")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        follower.next(7)
    with pytest.raises(StoreError, match="closed"):
        follower.lag()


def test_losses_have_the_names_of_durable_counters(store: Store, state: State) -> None:
    """One name per projection and kind."""
    store.append(events(1, 3))
    store.prune(2)
    batch = Follower(store, state, "spans").next(10)
    assert batch.gaps == 2
    assert batch.counted("spans") == {"spans_gaps": 2}
