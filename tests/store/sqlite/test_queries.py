"""Every page of the SQLite store comes through an index, and in order without sorting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from otel_journal.events import Event
from otel_journal.store import sqlite_queries as sql
from otel_journal.store.sqlite import SqliteStore

_PLANS = {
    "read": (sql.READ, (0, 50), "INTEGER PRIMARY KEY (rowid>?)"),
    "events": (sql.OF_RUN, ("run", 0, 50), "events_by_run (run_id=? AND rowid>?)"),
    "events of types": (
        sql.of_types(2),
        ("run", 0, "a", "b", 50),
        "events_by_run (run_id=? AND rowid>?)",
    ),
    "messages, first": (
        sql.THREAD_FIRST,
        ("thread", 0, 99, 50),
        "events_by_thread (thread_id=? AND category=? AND rowid>? AND rowid<?)",
    ),
    "messages, last": (
        sql.THREAD_LAST,
        ("thread", 0, 99, 50),
        "events_by_thread (thread_id=? AND category=? AND rowid>? AND rowid<?)",
    ),
    "run_messages, first": (
        sql.RUN_FIRST,
        ("run", 0, 99, 50),
        "messages_by_run (run_id=? AND rowid>? AND rowid<?)",
    ),
    "run_messages, last": (
        sql.RUN_LAST,
        ("run", 0, 99, 50),
        "messages_by_run (run_id=? AND rowid>? AND rowid<?)",
    ),
    "runs": (sql.RUNS, (99, 50), "runs (event_type=? AND rowid<?)"),
    "runs of a thread": (
        sql.RUNS_OF_THREAD,
        ("thread", 99, 50),
        "runs_by_thread (thread_id=? AND rowid<?)",
    ),
    "count_messages": (
        sql.COUNT_MESSAGES,
        ("thread",),
        "events_by_thread (thread_id=? AND category=?)",
    ),
    "delete_thread": (sql.DELETE_THREAD, ("thread",), "events_by_thread (thread_id=?)"),
    "delete_run": (sql.DELETE_RUN, ("run",), "events_by_run (run_id=?)"),
    "prune": (sql.PRUNE, (50,), "INTEGER PRIMARY KEY (rowid<?)"),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A journal with some runs of one thread."""
    with closing(SqliteStore(tmp_path / "journal.db")) as store:
        store.append(
            [
                Event(
                    event_id=f"event-{number}",
                    run_id=f"run-{number // 10}",
                    event_type="node.end" if number % 10 else "run.start",
                    category="trace" if number % 2 else "message",
                    created_ns=number,
                    thread_id="thread",
                )
                for number in range(200)
            ]
        )
        yield store


@pytest.mark.parametrize("name", _PLANS)
def test_a_page_comes_through_its_index(store: SqliteStore, name: str):
    """One search, from the cursor on; no scan, and no sorting of more than the page."""
    query, values, index = _PLANS[name]
    plan = [row[-1] for row in store._file.read(f"EXPLAIN QUERY PLAN {query}", values)]
    assert len(plan) == 1
    assert plan[0].startswith("SEARCH events USING ")
    assert plan[0].endswith(index)
