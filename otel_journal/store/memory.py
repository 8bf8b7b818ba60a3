"""A journal in memory: for tests, demos, and as the plainest reading of the store's contract."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from otel_journal.events import Event


class MemoryStore:
    """Keeps every event in one process; unbounded, gone with the process."""

    name = "memory"

    def __init__(self) -> None:
        """Start empty."""
        self._lock = threading.Lock()
        self._log: list[Event] = []
        self._ids: set[str] = set()
        self._runs: dict[str, list[Event]] = {}
        self._feeds: dict[str, list[Event]] = {}

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Add a batch; events whose `event_id` is known, or repeated in it, are skipped."""
        new: list[Event] = []
        with self._lock:
            for event in events:
                if event.event_id in self._ids:
                    continue
                self._ids.add(event.event_id)
                numbered = msgspec.structs.replace(event, seq=len(self._log) + 1)
                self._log.append(numbered)
                self._runs.setdefault(event.run_id, []).append(numbered)
                if event.category == "message":
                    self._feeds.setdefault(event.thread_id, []).append(numbered)
                new.append(numbered)
        return new

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Events with ``seq > after`` in commit order."""
        with self._lock:
            return self._log[after : after + _checked(limit)]

    def events(
        self,
        run_id: str,
        types: Collection[str] | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[Event]:
        """Events of one run in order; `types` and `after` apply before `limit`."""
        with self._lock:
            found = self._runs.get(run_id, [])
            found = found[bisect_right(found, after, key=_seq) :]
        if types is not None:
            found = [event for event in found if event.event_type in types]
        return found[: _checked(limit)]

    def messages(
        self,
        thread_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of a thread, ascending; cursors are exclusive and may fall in gaps."""
        limit = _checked(limit)
        with self._lock:
            feed = self._feeds.get(thread_id, [])
            low = 0 if after is None else bisect_right(feed, after, key=_seq)
            high = len(feed) if before is None else bisect_left(feed, before, key=_seq)
            page = feed[low:high]
        return page[:limit] if after is not None else page[max(0, len(page) - limit) :]

    def count_messages(self, thread_id: str) -> int:
        """How many messages a thread's feed holds."""
        with self._lock:
            return len(self._feeds.get(thread_id, ()))

    def close(self) -> None:
        """Nothing to release."""


def _seq(event: Event) -> int:
    return event.seq


def _checked(limit: int) -> int:
    if limit < 0:
        msg = f"limit {limit} is not allowed; allowed: 0 or more"
        raise ValueError(msg)
    return limit
