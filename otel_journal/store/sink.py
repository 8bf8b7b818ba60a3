"""The sink that fills a store, and says what was new there."""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Final

from otel_journal.errors import EventError, StoreError
from otel_journal.stats import SinkCounts

from .past import Past, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_journal.events import Event

    from .protocol import Store

MAX_BACKLOG: Final = 65_536
"""Events kept while the store is away; some 100 MB of feed at most, minutes of a busy process."""

FIRST_PAUSE_S: Final = 0.1
MAX_PAUSE_S: Final = 5.0
"""Shortest and longest pause before a store that failed is tried again."""


class StoreSink:
    """Writes a journal's events into a store: the worker does, and whoever flushes.

    The store comes first: what it knows already, from another handler, process or an earlier
    life of this one, has had its span and its count. While the store is away, events wait here,
    in order and up to `MAX_BACKLOG`, and the other sinks do not wait for them. What resumes a run
    that only the store remembers is linked to it here, unless the store is away.
    """

    name = "store"

    def __init__(
        self,
        store: Store,
        *,
        failed: Callable[[str, BaseException], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Fill `store`; tell `failed` (place, error) why that was not possible."""
        self.store = store
        self.counts = SinkCounts()
        self._failed = failed
        self._past = Past(store, failed=failed)
        self._clock = clock
        self._lock = threading.Lock()
        self._backlog: deque[Event] = deque()
        self._pause = FIRST_PAUSE_S
        self._try_at = 0.0

    @property
    def behind(self) -> bool:
        """True while the store is away, and events wait for it."""
        return bool(self._backlog)

    def admit(self, events: Sequence[Event]) -> Sequence[Event]:
        """Store a batch; return what the other sinks should see of it.

        That is what was new in the store, or everything while the store is away: the other
        sinks do not depend on it.
        """
        admitted: list[Event] = []
        left = events
        with self._lock:
            if not self._backlog and self._clock() >= self._try_at:
                left = self._take_in(events, admitted)
                if not left:
                    return admitted
            self._keep(left)
        self.catch_up()
        return [*admitted, *left]

    def _take_in(self, events: Sequence[Event], admitted: list[Event]) -> Sequence[Event]:
        """Store events, and add to `admitted` what was new; return those that have to wait."""
        parts = parts_of(events)
        for number, part in enumerate(parts):
            completed = self._past.complete(part)
            new = self._append(completed)
            if new is None:
                return [*completed, *chain.from_iterable(parts[number + 1 :])]
            admitted.extend(new)
        return ()

    def write(self, events: Sequence[Event]) -> None:
        """Store a batch, for a pipeline without other sinks."""
        self.admit(events)

    def catch_up(self) -> bool:
        """Store what waits, if it is time to try again; True when nothing waits any more."""
        with self._lock:
            if self._backlog and self._clock() >= self._try_at:
                waiting = list(self._backlog)
                if self._append(waiting) is not None:
                    self._backlog.clear()
            return not self._backlog

    def _append(self, events: Sequence[Event]) -> Sequence[Event] | None:
        """Return what was new; None when the store is away."""
        try:
            new = self._append_allowed(events)
        except StoreError as error:
            self._failed("store", error)
            self._try_at = self._clock() + self._pause
            self._pause = min(MAX_PAUSE_S, 2 * self._pause)
            return None
        self._pause = FIRST_PAUSE_S
        return new

    def _append_allowed(self, events: Sequence[Event]) -> Sequence[Event]:
        try:
            new = self.store.append(events)
        except EventError as error:
            if len(events) == 1:
                self.counts.dropped["serialise"] += 1
                self._failed("store", error)
                return events  # what cannot be stored is still a span and a count
            half = len(events) // 2
            return [*self._append_allowed(events[:half]), *self._append_allowed(events[half:])]
        self.counts.exported += len(events)
        return new

    def _keep(self, events: Sequence[Event]) -> None:
        self._backlog.extend(events)
        excess = len(self._backlog) - MAX_BACKLOG
        for _ in range(excess):
            self._backlog.popleft()
        if excess > 0:
            self.counts.dropped["store_error"] += excess

    def flush(self, timeout: float) -> bool:
        """Try until `timeout` seconds are over; True when everything taken is in the store."""
        deadline = self._clock() + timeout
        self._try_at = 0.0
        while not self.catch_up():
            left = deadline - self._clock()
            if left <= 0:
                return False
            time.sleep(min(left, FIRST_PAUSE_S))
        return True

    def close(self, timeout: float) -> bool:
        """Flush; what still waits then is dropped. The store belongs to whoever opened it."""
        complete = self.flush(timeout)
        self.counts.dropped["shutdown"] += len(self._backlog)
        self._backlog.clear()
        return complete

    def forked(self) -> None:
        """Forget what the parent still has to store."""
        self._lock = threading.Lock()
        self._backlog.clear()
        self._try_at = 0.0
