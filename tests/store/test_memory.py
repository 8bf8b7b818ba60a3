"""`MemoryStore` passes the suite of stores."""

from __future__ import annotations

from pathlib import Path

from otel_journal.store.memory import MemoryStore
from otel_journal.testing.stores import StoreConformance


class TestMemoryStore(StoreConformance):
    """Every case of a store that ends with its process."""

    def make_store(self, tmp_path: Path) -> MemoryStore:  # noqa: ARG002 - needs no directory
        """Return an empty store."""
        return MemoryStore()
