"""Durable journals behind one small protocol, and the sink that fills them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from otel_journal.errors import StoreError
from otel_journal.stats import SinkCounts

from .memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from otel_journal.events import Event


class Store(Protocol):
    """What every journal store can do. Events are immutable; `seq` never repeats."""

    name: str

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Add a batch, all or nothing; events whose `event_id` is known are skipped.

        Returns:
            What was new, numbered.
        """
        ...

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Events with ``seq > after`` in the order they were committed."""
        ...

    def events(
        self,
        run_id: str,
        types: Collection[str] | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[Event]:
        """Events of one run, filtered before the limit is applied."""
        ...

    def messages(
        self,
        thread_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of a thread, ascending: the last ones, or the first ones with `after`."""
        ...

    def count_messages(self, thread_id: str) -> int:
        """How many messages a thread's feed holds."""
        ...

    def close(self) -> None:
        """Release resources."""
        ...


class StoreSink:
    """Writes a journal's events into a store."""

    name = "store"

    def __init__(self, store: Store) -> None:
        """Fill `store`."""
        self.store = store
        self.counts = SinkCounts()

    def write(self, events: Sequence[Event]) -> None:
        """Append a batch; replays that the store knows count as exported."""
        self.store.append(events)
        self.counts.exported += len(events)

    def flush(self, timeout: float) -> bool:  # noqa: ARG002 - the protocol of sinks
        """Return True: `write` commits."""
        return True

    def close(self, timeout: float) -> bool:  # noqa: ARG002 - the protocol of sinks
        """Return True; the store belongs to whoever opened it."""
        return True


def open_store(url: str) -> Store:
    """Open the store behind a URL: ``memory:`` keeps events until the process ends.

    Raises:
        StoreError: the URL names no kind of store.
    """
    if url == "memory:":
        return MemoryStore()
    msg = f"store URL {url!r} is not allowed; allowed: memory:"
    raise StoreError(msg)


__all__ = ["MemoryStore", "Store", "StoreSink", "open_store"]
