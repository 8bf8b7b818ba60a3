"""Many processes on one file: killed at random, side by side, and forked from one another."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from otel_journal.events import Event
from otel_journal.store.sqlite import SqliteStore

_WRITER = Path(__file__).with_name("writer.py")
_BATCH = 5
_KILLS = 15
_PROCESSES = 4
_BATCHES = 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal of a test lies."""
    return tmp_path / "journal.db"


def _event(number: int, run_id: str = "run") -> Event:
    return Event(
        event_id=f"{run_id}/{number}",
        run_id=run_id,
        event_type="llm.ai.response",
        category="message",
        created_ns=number,
        thread_id="thread",
    )


def _writer(path: Path, name: str, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, str(_WRITER), str(path), name, str(batches)],
        stdout=subprocess.PIPE,
        text=True,
    )


def _all(store: SqliteStore) -> list[Event]:
    found: list[Event] = []
    while page := store.read(found[-1].seq if found else 0, 5_000):
        found += page
    return found


def test_what_was_acknowledged_survives_kills(path: Path):
    """Each acknowledged batch is there whole and once, and the file is sound."""
    chance = random.Random(7)  # noqa: S311 - any numbers do
    acknowledged: dict[str, int] = {}
    for turn in range(_KILLS):
        name = f"writer-{turn}"
        with _writer(path, name, 0) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(chance.randrange(1, 60))]
            process.kill()
            lines += process.stdout.readlines()
        acknowledged[name] = sum(line.endswith("\n") for line in lines)
    with closing(SqliteStore(path)) as store:
        found = _all(store)
        batches = Counter(event.event_id.rpartition("/")[0] for event in found)
        assert len({event.event_id for event in found}) == len(found)
        assert set(batches.values()) == {_BATCH}
        for name, count in acknowledged.items():
            assert count > 0
            assert all(f"{name}/{batch}" in batches for batch in range(count))
        assert store.integrity() == []


def test_processes_write_one_file_and_a_reader_misses_nothing(path: Path):
    """All events of four writers come past a reader that follows, each once and in order."""
    total = _PROCESSES * _BATCHES * _BATCH
    with closing(SqliteStore(path)) as store:
        writers = [_writer(path, f"writer-{n}", _BATCHES) for n in range(_PROCESSES)]
        acknowledging = [threading.Thread(target=writer.communicate) for writer in writers]
        for thread in acknowledging:
            thread.start()
        seen: list[Event] = []
        while any(writer.poll() is None for writer in writers):
            seen += store.read(seen[-1].seq if seen else 0, 50)
        for thread in acknowledging:
            thread.join()
        assert [writer.returncode for writer in writers] == [0] * _PROCESSES
        while page := store.read(seen[-1].seq if seen else 0):
            seen += page
        assert len({event.event_id for event in seen}) == total
        assert len({event.seq for event in seen}) == len(seen) == total
        assert seen == _all(store)


def _child(store: SqliteStore, number: int) -> None:
    for turn in range(20):
        store.append([_event(turn, f"child-{number}")])
    assert store.events(f"child-{number}")


def test_forked_children_and_their_parent_share_a_store(path: Path):
    """A store made before the fork goes on working on both sides, while threads use it."""
    fork = multiprocessing.get_context("fork")
    stop = threading.Event()
    with closing(SqliteStore(path)) as store:
        store.append([_event(0, "parent")])

        def write() -> None:
            number = 1
            while not stop.is_set():
                store.append([_event(number, "parent")])
                number += 1

        thread = threading.Thread(target=write)
        children = [fork.Process(target=_child, args=(store, n)) for n in range(4)]
        thread.start()
        try:
            for child in children:
                child.start()
            for child in children:
                child.join()
        finally:
            stop.set()
            thread.join()
        assert [child.exitcode for child in children] == [0] * 4
        for n in range(4):
            assert len(store.events(f"child-{n}")) == 20
        assert store.integrity() == []
