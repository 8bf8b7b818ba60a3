"""A PostgreSQL journal opened to be read only, by an account that may do nothing else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
from servers.postgres import Postgres
from store.reader_and_writer import ReaderAndWriter

from otel_journal.errors import StoreError
from otel_journal.store import open_store
from otel_journal.store.postgres import PostgresStore
from otel_journal.store.protocol import Store
from otel_journal.testing.stores import StoreConformance
from otel_journal.testing.stores_samples import fact, facts


class TestReadOnlyPostgresStore(StoreConformance):
    """Every case of the suite, where what is read comes from a second opening."""

    @pytest.fixture(autouse=True)
    def _server(self, postgres: Postgres) -> None:
        self.server = postgres

    def make_store(self, tmp_path: Path) -> Store:  # noqa: ARG002 - PostgreSQL has its own place
        """Open a new database twice."""
        url = self.server.new_database()
        return ReaderAndWriter(PostgresStore(url), open_store(url, read_only=True))


def test_every_write_is_refused(store: PostgresStore, url: str) -> None:
    """With a message that says why; reading goes on."""
    store.append(facts(7))
    with closing(open_store(url, read_only=True)) as reader:
        writes: tuple[Callable[[], object], ...] = (
            partial(reader.append, [fact("new")]),
            partial(reader.append, []),
            partial(reader.put_if_absent, fact("new", "run.start", run_id="r2")),
            partial(reader.delete_thread, "thread-1"),
            partial(reader.delete_run, "run-1"),
            partial(reader.prune, 10**18),
        )
        for write in writes:
            with pytest.raises(StoreError, match="opened read-only"):
                write()
        assert len(reader.read()) == 7


def test_the_server_refuses_too(store: PostgresStore, url: str) -> None:
    """The session is read-only, whatever statement runs in it."""
    store.append(facts(7))
    with closing(PostgresStore(url, read_only=True)) as reader:
        statement = "DELETE FROM otel_journal_events"
        with pytest.raises(StoreError, match="read-only transaction"):
            reader._link.run(lambda connection: connection.execute(statement))
        assert len(reader.read()) == 7


def test_the_right_to_read_is_enough(store: PostgresStore, url: str) -> None:
    """An account with SELECT on the journal's tables, and nothing else."""
    store.append(facts(7))
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS journal_reader")
        owner.execute("CREATE ROLE journal_reader LOGIN PASSWORD 'reads'")
        owner.execute("GRANT SELECT ON otel_journal, otel_journal_settled, otel_journal_events"
                      " TO journal_reader")  # fmt: skip
        given = psycopg.conninfo.conninfo_to_dict(url)
        place = f"{given['host']}:{given['port']}/{given['dbname']}"
        mine = f"postgresql://journal_reader:reads@{place}"
        with closing(open_store(mine, read_only=True)) as reader:
            assert len(reader.read()) == 7
        owner.execute("DROP OWNED BY journal_reader")
        owner.execute("DROP ROLE journal_reader")


def test_nothing_is_made(url: str) -> None:
    """A database without a journal stays without one."""
    with pytest.raises(StoreError, match="holds no journal"):
        open_store(url, read_only=True)
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT count(*) FROM pg_class WHERE relname ~ '^otel_journal'")
        assert found.fetchone() == (0,)


def test_a_schema_of_another_release(store: PostgresStore, url: str) -> None:
    """A newer one is refused; an older one is read if it says enough, else `migrate` is named."""
    store.append(facts(7))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE otel_journal SET schema = 99")
        with pytest.raises(StoreError, match="has schema 99"):
            open_store(url, read_only=True)
        connection.execute("UPDATE otel_journal SET schema = -1")
        with closing(open_store(url, read_only=True)) as reader:
            assert len(reader.read()) == 7
        connection.execute("ALTER VIEW otel_journal_settled RENAME COLUMN body TO payload")
        with pytest.raises(StoreError, match=r"has schema -1.*otel-journal migrate"):
            open_store(url, read_only=True)
        assert connection.execute("SELECT schema FROM otel_journal").fetchone() == (-1,)
