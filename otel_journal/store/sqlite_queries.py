"""The SQL of the SQLite store: every page is read through an index, in order, without sorting."""

from __future__ import annotations

from typing import Final

_EVENTS: Final = """
SELECT seq, event_id, run_id, thread_id, event_type, category, created_ns, body FROM events
"""

INSERT: Final = """
INSERT INTO events (seq, event_id, run_id, thread_id, event_type, category, created_ns, body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (event_id) DO NOTHING
"""
NEW: Final = "SELECT seq FROM events WHERE seq > ? ORDER BY seq"
TAKE_BACK: Final = "DELETE FROM events WHERE seq > ?"
WATERMARK: Final = "SELECT watermark FROM journal"
RAISE_WATERMARK: Final = "UPDATE journal SET watermark = ?"
EPOCH: Final = "SELECT epoch FROM journal"
BEGIN_JOURNAL: Final = "INSERT INTO journal (only, epoch, watermark) VALUES (1, ?, 0)"

READ: Final = _EVENTS + "WHERE seq > ? ORDER BY seq LIMIT ?"
SAME_FACT: Final = (
    _EVENTS + "WHERE run_id = ? AND event_type = ? AND thread_id = ? ORDER BY seq LIMIT 1"
)
SAME_ID: Final = _EVENTS + "WHERE event_id = ?"
OF_RUN: Final = _EVENTS + "WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
RUNS: Final = (
    _EVENTS + "WHERE event_type = 'run.start' AND seq < ? ORDER BY event_type, seq DESC LIMIT ?"
)
RUNS_OF_THREAD: Final = (
    _EVENTS
    + "WHERE event_type = 'run.start' AND thread_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
)
COUNT_MESSAGES: Final = "SELECT count(*) FROM events WHERE thread_id = ? AND category = 'message'"

_FEED: Final = (
    _EVENTS
    + "WHERE {} = ? AND category = 'message' AND seq > ? AND seq < ? ORDER BY seq {} LIMIT ?"
)
THREAD_FIRST: Final = _FEED.format("thread_id", "ASC")
THREAD_LAST: Final = _FEED.format("thread_id", "DESC")
RUN_FIRST: Final = _FEED.format("run_id", "ASC")
RUN_LAST: Final = _FEED.format("run_id", "DESC")

DELETE_THREAD: Final = "DELETE FROM events WHERE thread_id = ?"
DELETE_RUN: Final = "DELETE FROM events WHERE run_id = ?"
PRUNE: Final = "DELETE FROM events WHERE seq <= ?"


def of_types(count: int) -> str:
    """Return the query for events of a run that have one of `count` types."""
    marks = ", ".join("?" * count)
    return (
        _EVENTS + f"WHERE run_id = ? AND seq > ? AND event_type IN ({marks}) ORDER BY seq LIMIT ?"
    )
