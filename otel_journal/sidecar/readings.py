"""How a sidecar is: what its probes say and what its own series show."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from otel_journal.errors import SidecarError, StoreError
from otel_journal.events import NS_PER_S

from .exposition import METRICS, OTLP, SidecarStats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_journal.store import Store

    from .books import Books
    from .following import Follower
    from .otlp.counts import ExportCounts
    from .relay import Relay
    from .state import State
    from .workers import Worker

OUTAGE_S: Final = 60.0
"""Seconds without an accepted request, while there is something to send, that a probe tells of."""
MOST_PENDING: Final = 1_000
"""Largest count of events behind a cursor where `seq` has gaps: they have to be read for it."""

_SQLITE: Final = "sqlite:///"
_SPARSE: Final = "postgresql"

_logger: Final = logging.getLogger("otel_journal")


class Readings:
    """What probes and scrapes ask; called from any thread."""

    def __init__(self, url: str, counts: ExportCounts) -> None:
        """Answer for the journal at `url`, and the requests that `counts` counts."""
        self._url = url
        self._counts = counts
        self._waiting = "the journal is being opened"
        self._store: Store | None = None
        self._state: State | None = None
        self._books: Books | None = None
        self._relay: Relay | None = None
        self._workers: Sequence[Worker] = ()

    def waiting(self, reason: str) -> None:
        """Say why there is no journal yet; logged when it changes."""
        if reason != self._waiting:
            _logger.warning("waiting for the journal: %s", reason)
        self._waiting = reason

    def watch(
        self, store: Store, state: State, books: Books, relay: Relay, workers: Sequence[Worker]
    ) -> None:
        """Answer for these from now on."""
        self._store, self._state = store, state
        self._books, self._relay, self._workers = books, relay, workers
        self._waiting = ""

    def store(self) -> Store:
        """Return the journal.

        Raises:
            StoreError: it is not there yet.
        """
        if self._store is None:
            raise StoreError(self._waiting)
        return self._store

    def metrics_ready(self) -> bool:
        """Return whether the totals hold all that the journal held at the start."""
        return self._books is not None and self._books.caught_up

    def problems(self) -> list[str]:
        """Return why nobody should rely on this sidecar now, one reason each."""
        if self._waiting:
            return [self._waiting]
        found = [f"{worker.name}: {worker.problem}" for worker in self._workers if worker.problem]
        if not self.metrics_ready():
            found.append("the totals have not caught up with the journal yet")
        export = self._counts.snapshot()
        failing_s = time.time() - export.retrying_since if export.retrying_since else 0.0
        if export.held:
            found.append(f"nothing is sent ({export.held}): {export.last_error}")
        elif failing_s > OUTAGE_S:
            found.append(f"nothing could be sent for {failing_s:.0f} s: {export.last_error}")
        return found

    def stats(self) -> SidecarStats:
        """Return everything that a scrape shows besides the folded events."""
        export = self._counts.snapshot()
        store, state, books, relay = self._store, self._state, self._books, self._relay
        if store is None or state is None or books is None or relay is None:
            return SidecarStats(export, store_up=False)
        followers = {OTLP: relay.follower, METRICS: books.follower}
        try:
            pending = {sink: _pending(store, follower) for sink, follower in followers.items()}
            oldest = {sink: _oldest_s(store, follower) for sink, follower in followers.items()}
            up = True
        except StoreError:
            pending, oldest, up = {}, {}, False
        try:
            counters = {**state.counters(), **books.counters}
            letters = state.dead_letter_count()
        except SidecarError:
            counters, letters = books.counters, 0
        return SidecarStats(
            export,
            counters,
            pending,
            oldest,
            letters,
            books.working,
            up,
            store.name,
            _size(self._url),
        )


def _pending(store: Store, follower: Follower) -> int:
    """How many events are behind the cursor; at most `MOST_PENDING` where `seq` has gaps."""
    lag = follower.lag()
    if not lag or store.name != _SPARSE:
        return lag
    return len(store.read(follower.position(), MOST_PENDING))


def _oldest_s(store: Store, follower: Follower) -> float:
    """Age of the first event behind the cursor; 0.0 when there is none."""
    if not follower.lag():
        return 0.0
    for event in store.read(follower.position(), 1):
        return max(0.0, (time.time_ns() - event.created_ns) / NS_PER_S)
    return 0.0


def _size(url: str) -> int | None:
    """Bytes of a SQLite journal and its log; None for others, or when it cannot be told."""
    if not url.startswith(_SQLITE):
        return None
    path = unquote(urlsplit(url).path)[1:]
    try:
        return sum(
            file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists()
        )
    except OSError:
        return None
