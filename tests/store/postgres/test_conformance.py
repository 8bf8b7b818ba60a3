"""The suite that every durable store passes, on a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.postgres import Postgres

from otel_journal.store.postgres import PostgresStore
from otel_journal.store.protocol import Store
from otel_journal.testing.stores import DurableStoreConformance


class TestPostgresStore(DurableStoreConformance):
    """Every case, in a database of its own."""

    @pytest.fixture(autouse=True)
    def _server(self, postgres: Postgres) -> None:
        self.server = postgres
        self.urls: dict[Store, str] = {}

    def make_store(self, tmp_path: Path) -> Store:  # noqa: ARG002 - PostgreSQL has its own place
        """Open a store in a new database."""
        return self._open(self.server.new_database())

    def reopen(self, store: Store) -> Store:
        """Open the same database again."""
        store.close()
        return self._open(self.urls[store])

    def _open(self, url: str) -> Store:
        store = PostgresStore(url)
        self.urls[store] = url
        return store
