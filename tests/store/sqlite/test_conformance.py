"""The suite that every store passes, on a file."""

from __future__ import annotations

from pathlib import Path

from otel_journal.store.protocol import Store
from otel_journal.store.sqlite import SqliteStore
from otel_journal.testing.stores import DurableStoreConformance


class TestSqliteStore(DurableStoreConformance):
    """Every case, with the defaults."""

    def make_store(self, tmp_path: Path) -> Store:
        """Make a file in the folder of the case."""
        return SqliteStore(tmp_path / "journal.db")

    def reopen(self, store: Store) -> Store:
        """Close the file and open it again."""
        assert isinstance(store, SqliteStore)
        store.close()
        return SqliteStore(store._file.path)
