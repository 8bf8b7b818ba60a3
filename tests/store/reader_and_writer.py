"""A store for the suite whose every answer comes from a second, read-only opening of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from otel_journal.events import Event
from otel_journal.store.protocol import Store


class ReaderAndWriter(Store):
    """Writes with one store and reads with another; both lead to the same journal."""

    def __init__(self, writer: Store, reader: Store) -> None:
        """Take both; they are closed together."""
        self._writer = writer
        self._reader = reader
        self.name = reader.name

    @property
    def epoch(self) -> str:
        """Read."""
        return self._reader.epoch

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Read."""
        return self._reader.read(after, limit)

    def events(
        self,
        run_id: str,
        types: Collection[str] | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[Event]:
        """Read."""
        return self._reader.events(run_id, types, after, limit)

    def messages(
        self,
        thread_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """Read."""
        return self._reader.messages(thread_id, before, after, limit)

    def run_messages(
        self,
        run_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """Read."""
        return self._reader.run_messages(run_id, before, after, limit)

    def count_messages(self, thread_id: str) -> int:
        """Read."""
        return self._reader.count_messages(thread_id)

    def runs(
        self, before: int | None = None, limit: int = 50, thread_id: str | None = None
    ) -> list[Event]:
        """Read."""
        return self._reader.runs(before, limit, thread_id)

    def watermark(self) -> int:
        """Read."""
        return self._reader.watermark()

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Write."""
        return self._writer.append(events)

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Write."""
        return self._writer.put_if_absent(event)

    def delete_thread(self, thread_id: str) -> int:
        """Write."""
        return self._writer.delete_thread(thread_id)

    def delete_run(self, run_id: str) -> int:
        """Write."""
        return self._writer.delete_run(run_id)

    def prune(self, up_to: int) -> int:
        """Write."""
        return self._writer.prune(up_to)

    def close(self) -> None:
        """Close both."""
        self._reader.close()
        self._writer.close()
