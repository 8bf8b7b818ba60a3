"""One PostgreSQL for all tests here, and a database of its own for each."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from servers.postgres import Postgres, find_postgres

from otel_journal.store.postgres import PostgresStore


@pytest.fixture(scope="session")
def postgres_session() -> Iterator[Postgres]:
    """Provide the server; a missing one skips the tests, under CI it fails them."""
    program = find_postgres()
    if program is None:
        message = "postgres not found; run .ci/servers"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    server = Postgres(program)
    yield server
    server.close()


@pytest.fixture
def postgres(postgres_session: Postgres) -> Postgres:
    """Provide the server, running whatever the test before did to it."""
    postgres_session.start()
    return postgres_session


@pytest.fixture
def url(postgres: Postgres) -> str:
    """Provide the URL of an empty database."""
    return postgres.new_database()


@pytest.fixture
def store(url: str) -> Iterator[PostgresStore]:
    """Provide an empty store."""
    store = PostgresStore(url)
    yield store
    store.close()
