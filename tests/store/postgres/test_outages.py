"""The server restarts, crashes, cuts connections or stays away."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from servers.postgres import Postgres

from otel_journal import StoreError
from otel_journal.store.postgres import PostgresStore
from otel_journal.testing.stores_samples import fact, facts

PATIENCE_S = 60.0
BATCH = 5


def terminate_others(url: str) -> int:
    """Cut every other connection to the database; return how many there were."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    return len(rows)


class Writers:
    """Threads that append batches to one store until told to stop."""

    def __init__(self, store: PostgresStore, count: int = 4) -> None:
        """Start `count` threads."""
        self._store = store
        self._stop = threading.Event()
        self.sent: list[str] = []
        self.returned: list[str] = []
        self.errors: list[StoreError] = []
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, more: int) -> None:
        """Wait until `more` events were acknowledged from now on."""
        goal = len(self.returned) + more
        deadline = time.monotonic() + PATIENCE_S
        while len(self.returned) < goal and not self.errors:
            assert time.monotonic() < deadline, "the writers make no progress"
            time.sleep(0.01)

    def finish(self) -> None:
        """Let every thread finish its batch."""
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _write(self, writer: int) -> None:
        turn = 0
        try:
            while not self._stop.is_set():
                batch = [fact(f"{writer}-{turn}-{n}") for n in range(BATCH)]
                self.sent += [event.event_id for event in batch]
                self.returned += [event.event_id for event in self._store.append(batch)]
                turn += 1
        except StoreError as error:
            self.errors.append(error)


@contextmanager
def writing(store: PostgresStore) -> Iterator[Writers]:
    """Write while the block runs; then every event is there once and was returned once."""
    writers = Writers(store)
    try:
        writers.wait_for(50)
        yield writers
        writers.wait_for(50)
    finally:
        writers.finish()
    assert writers.errors == []
    held = [event.event_id for event in store.read(limit=10**6)]
    assert sorted(held) == sorted(writers.sent)
    assert sorted(writers.returned) == sorted(writers.sent)


@pytest.mark.parametrize("crash", [False, True])
def test_a_restart_while_writing_loses_and_doubles_nothing(
    postgres: Postgres, url: str, *, crash: bool
) -> None:
    """Each event is stored once, and returned as new once, commits without an answer included."""
    store = PostgresStore(url, patience=PATIENCE_S)
    with writing(store):
        for _ in range(2):
            postgres.stop(crash=crash)
            postgres.start()
    store.close()


def test_terminated_connections_while_writing(url: str) -> None:
    """An administrator cuts all connections, again and again."""
    store = PostgresStore(url, patience=PATIENCE_S)
    with writing(store) as writers:
        for _ in range(10):
            terminate_others(url)
            writers.wait_for(20)
    store.close()


def test_an_idle_connection_that_was_cut_is_replaced(url: str, store: PostgresStore) -> None:
    """Every kind of call works at once."""
    written = store.append(facts(3))
    for call in (
        store.read,
        store.watermark,
        lambda: store.append(facts(3)),
        lambda: store.put_if_absent(fact("end", "run.end")),
        lambda: store.delete_run("nobody"),
    ):
        assert terminate_others(url) == 1
        call()
    assert store.read()[:3] == written


def test_a_server_that_stays_away_is_an_error_within_the_bound(
    postgres: Postgres, url: str
) -> None:
    """Without the password; when it is back the same store works."""
    store = PostgresStore(url, patience=1.0)
    first = store.append(facts(2))
    postgres.stop()
    for call in (store.read, lambda: store.append([fact("lost")]), lambda: PostgresStore(url)):
        start = time.monotonic()
        with pytest.raises(StoreError, match=r"127\.0\.0\.1") as caught:
            call()
        assert time.monotonic() - start < 30
        assert "s3cret" not in str(caught.value)
    postgres.start()
    assert store.read() == first
    assert len(store.append([fact("lost")])) == 1
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_has_connections_of_its_own(store: PostgresStore) -> None:
    """Parent and child write with the same store and do not disturb each other."""
    store.append([fact("before")])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for n in range(20):
                store.append([fact(f"child-{n}")])
            store.close()
            status = 0
        finally:
            os._exit(status)
    for n in range(20):
        store.append([fact(f"parent-{n}")])
    assert os.waitpid(child, 0)[1] == 0
    assert len(store.read()) == 41
