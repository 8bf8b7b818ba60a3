"""A journal in memory: for tests, demos, and as the plainest reading of the store's contract."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from uuid import uuid4

from otel_journal.errors import StoreError

from . import rows
from .checks import checked, checked_limit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from otel_journal.events import Category, Event

_Name: TypeAlias = tuple[str, ...]
"""What a view shows, e.g. ``("feed", thread_id)``."""

_ALL: Final[_Name] = ("all",)
_STARTS: Final[_Name] = ("starts",)


class _Row(NamedTuple):
    """An event as `rows.decode` takes it: no part of it can change."""

    seq: int
    event_id: str
    run_id: str
    thread_id: str
    event_type: str
    category: Category
    created_ns: int
    body: bytes


class MemoryStore:
    """Keeps every event in one process; unbounded, gone with the process.

    A page costs O(log n + page), whatever it is filtered by: each filter has its own view, a list
    of rows by `seq`. Events are kept encoded, so that they are copies on both sides.
    """

    name = "memory"

    def __init__(self) -> None:
        """Start empty."""
        self.epoch = uuid4().hex
        self._lock = threading.Lock()
        self._closed = False
        self._seq = 0
        self._ids: dict[str, _Row] = {}
        self._views: dict[_Name, list[_Row]] = {}

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Add a batch; events whose `event_id` is known, or repeated in it, are skipped.

        Raises:
            StoreError: an event is not allowed or the store is closed; nothing was written.
        """
        given = [rows.row_of(event) for event in checked(events)]
        with self._lock:
            self._check_open()
            new = [self._add(row) for row in given if row[0] not in self._ids]
        return _decoded(new)

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Add an event unless its run has one of the same type in the same thread.

        Returns:
            The event that the store holds now, and whether this call wrote it.

        Raises:
            StoreError: the event is not allowed or the store is closed.
        """
        given = rows.row_of(*checked([event]))
        with self._lock:
            self._check_open()
            first = self._views.get(_kin(event), [None])[0] or self._ids.get(event.event_id)
            row = first or self._add(given)
        return rows.decode(*row), first is None

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Events with ``seq > after`` in commit order."""
        return self._page(_ALL, None, after, limit)

    def events(
        self,
        run_id: str,
        types: Collection[str] | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[Event]:
        """Events of one run in order; `types` and `after` apply before `limit`."""
        if types is None:
            return self._page(("run", run_id), None, after, limit)
        checked_limit(limit)
        with self._lock:
            self._check_open()
            parts = [
                self._slice(("type", run_id, event_type), None, after, limit)
                for event_type in set(types)
            ]
        return _decoded(sorted(chain.from_iterable(parts), key=_seq)[:limit])

    def messages(
        self,
        thread_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of a thread, ascending; cursors are exclusive and may fall in gaps."""
        return self._page(("feed", thread_id), before, after, limit)

    def run_messages(
        self,
        run_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of one run, paged as `messages`."""
        return self._page(("run feed", run_id), before, after, limit)

    def count_messages(self, thread_id: str) -> int:
        """How many messages a thread's feed holds."""
        with self._lock:
            self._check_open()
            return len(self._views.get(("feed", thread_id), ()))

    def runs(
        self, before: int | None = None, limit: int = 50, thread_id: str | None = None
    ) -> list[Event]:
        """``run.start`` events, newest first, with ``seq < before``; of one thread if given."""
        view = _STARTS if thread_id is None else ("starts", thread_id)
        return self._page(view, before, None, limit)[::-1]

    def watermark(self) -> int:
        """Highest `seq` given so far, 0 at first."""
        with self._lock:
            self._check_open()
            return self._seq

    def delete_thread(self, thread_id: str) -> int:
        """Delete all events of a thread; return how many."""
        return self._delete(lambda: self._views.get(("thread", thread_id), []))

    def delete_run(self, run_id: str) -> int:
        """Delete all events of a run; return how many."""
        return self._delete(lambda: self._views.get(("run", run_id), []))

    def prune(self, up_to: int) -> int:
        """Delete all events with ``seq <= up_to``; return how many."""
        return self._delete(lambda: self._slice(_ALL, up_to + 1, 0, self._seq))

    def close(self) -> None:
        """Forget everything; safe to repeat. Every other call then raises StoreError."""
        with self._lock:
            self._closed = True
            self._ids.clear()
            self._views.clear()

    def _add(self, given: rows.Row) -> _Row:
        self._seq += 1
        row = _Row(self._seq, *given)
        self._ids[row.event_id] = row
        for name in _views_of(row):
            self._views.setdefault(name, []).append(row)
        return row

    def _delete(self, find: Callable[[], Sequence[_Row]]) -> int:
        with self._lock:
            self._check_open()
            dead = {row.seq: row for row in find()}
            for row in dead.values():
                del self._ids[row.event_id]
            for name in {name for row in dead.values() for name in _views_of(row)}:
                left = [row for row in self._views[name] if row.seq not in dead]
                if left:
                    self._views[name] = left
                else:
                    del self._views[name]
        return len(dead)

    def _page(self, name: _Name, before: int | None, after: int | None, limit: int) -> list[Event]:
        checked_limit(limit)
        with self._lock:
            self._check_open()
            page = self._slice(name, before, after, limit)
        return _decoded(page)

    def _slice(self, name: _Name, before: int | None, after: int | None, limit: int) -> list[_Row]:
        """The rows between the cursors: the first ones with `after`, else the last ones."""
        view = self._views.get(name, [])
        low = 0 if after is None else bisect_right(view, after, key=_seq)
        high = len(view) if before is None else bisect_left(view, before, key=_seq)
        if after is None:
            return view[max(low, high - limit) : high]
        return view[low : min(high, low + limit)]

    def _check_open(self) -> None:
        if self._closed:
            msg = "the store is closed"
            raise StoreError(msg)


_seq: Final = attrgetter("seq")


def _views_of(row: _Row) -> list[_Name]:
    names: list[_Name] = [
        _ALL,
        _kin(row),
        ("run", row.run_id),
        ("thread", row.thread_id),
        ("type", row.run_id, row.event_type),
    ]
    if row.category == "message":
        names += [("feed", row.thread_id), ("run feed", row.run_id)]
    if row.event_type == "run.start":
        names += [_STARTS, ("starts", row.thread_id)]
    return names


def _kin(event: Event | _Row) -> _Name:
    """The view of what `put_if_absent` keeps to one."""
    return ("kin", event.thread_id, event.run_id, event.event_type)


def _decoded(found: Sequence[_Row]) -> list[Event]:
    return [rows.decode(*row) for row in found]
