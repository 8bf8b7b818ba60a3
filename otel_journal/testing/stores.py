"""The suite that every journal store passes, ours and yours. Needs pytest.

Subclass it in a test module and say how to make a store; pytest runs the cases:

    class TestMyStore(StoreConformance):
        def make_store(self, tmp_path: Path) -> Store:
            return MyStore(tmp_path / "journal")

A store that outlives its process takes `DurableStoreConformance` and says how to reopen, too.
Each case is a method that takes a store, so it can also be called by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

_CASES = ("stores_writing", "stores_reading", "stores_lifetime")
for _name in _CASES:  # before they are imported: a failed case then shows its values
    pytest.register_assert_rewrite(f"otel_journal.testing.{_name}")

from .stores_lifetime import DeletionCases, DurableCases, LifetimeCases  # noqa: E402
from .stores_reading import ReadingCases  # noqa: E402
from .stores_writing import AppendCases, PutIfAbsentCases, ValueCases  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from otel_journal.store.protocol import Store


class StoreConformance(
    ValueCases, AppendCases, PutIfAbsentCases, ReadingCases, DeletionCases, LifetimeCases
):
    """The protocol of stores, case by case."""

    def make_store(self, tmp_path: Path) -> Store:
        """Return a new, empty store; the suite closes it.

        Args:
            tmp_path: A directory of this store alone.
        """
        raise NotImplementedError

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        """Give a case an empty store."""
        yield from self._fresh(tmp_path / "store")

    @pytest.fixture
    def other_store(self, tmp_path: Path) -> Iterator[Store]:
        """Give a case a second store, which is another journal."""
        yield from self._fresh(tmp_path / "other_store")

    def _fresh(self, path: Path) -> Iterator[Store]:
        path.mkdir()
        store = self.make_store(path)
        yield store
        store.close()


class DurableStoreConformance(DurableCases, StoreConformance):
    """The protocol of stores that outlive their process: the same cases, and those of a restart."""


__all__ = ["DurableStoreConformance", "StoreConformance"]
