"""Opening: created once, refused clearly, and never with the password in a message."""

from __future__ import annotations

import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from servers.postgres import PASSWORD, Postgres
from servers.process import free_port

from otel_journal import StoreError
from otel_journal.store.postgres import PostgresStore
from otel_journal.store.rows import SCHEMA
from otel_journal.testing.stores_samples import fact

WRONG = "wr0ng-secret"


def refused(url: str) -> str:
    """Return why a store cannot be opened; neither password is in it or in its traceback."""
    with pytest.raises(StoreError) as caught:
        PostgresStore(url, patience=0.5)
    shown = "".join(traceback.format_exception_only(caught.value)) + repr(caught.value.__cause__)
    assert PASSWORD not in shown
    assert WRONG not in shown
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_wrong_password(postgres: Postgres) -> None:
    """Is said so."""
    message = refused(postgres.url(password=WRONG))
    assert "password authentication failed" in message
    assert "postgresql://postgres@127.0.0.1:" in message


def test_a_missing_database(postgres: Postgres) -> None:
    """Is named."""
    assert '"nowhere" does not exist' in refused(postgres.url("nowhere"))


def test_nobody_listens() -> None:
    """The address is named."""
    port = free_port()
    message = refused(f"postgresql://someone:{WRONG}@127.0.0.1:{port}/journal")
    assert f"postgresql://someone@127.0.0.1:{port}/journal" in message


def test_an_unknown_host() -> None:
    """Is named."""
    assert "nowhere.invalid" in refused(f"postgresql://someone:{WRONG}@nowhere.invalid/journal")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{WRONG}@tail@127.0.0.1/journal",
        f"postgresql://user:{WRONG}/tail@127.0.0.1/journal",
        f"postgresql://user:pass/{WRONG}@127.0.0.1/journal",
        f"postgresql://user:{WRONG}%zz@127.0.0.1/journal",
        f"postgresql://user:pass@{WRONG}@127.0.0.1/journal",
        f"postgresql://user:{WRONG}",
        f"host=127.0.0.1 password={WRONG}",
        f"mysql://user:{WRONG}@127.0.0.1/journal",
    ],
)
def test_a_url_that_cannot_be_read_is_not_repeated(url: str) -> None:
    """Reserved characters in a password move parts of it to where messages show them."""
    assert "percent-encoded" in refused(url)


def test_the_store_does_not_show_the_password(store: PostgresStore) -> None:
    """Not when it is printed."""
    assert repr(store).startswith("PostgresStore('postgresql://postgres@127.0.0.1:")
    assert PASSWORD not in repr(store)


def test_a_newer_schema_is_refused(url: str, store: PostgresStore) -> None:
    """With both numbers, and nothing is changed."""
    store.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE otel_journal SET schema = %s", [SCHEMA + 6])
        message = refused(url)
        assert f"schema {SCHEMA + 6}," in message
        assert f"up to {SCHEMA}" in message
        assert connection.execute("SELECT schema FROM otel_journal").fetchone() == (SCHEMA + 6,)


def test_many_openers_make_one_journal(url: str) -> None:
    """Eight at once on an empty database: one epoch."""
    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(lambda _: PostgresStore(url), range(8)))
    assert len({store.epoch for store in stores}) == 1
    for number, store in enumerate(stores):
        with closing(store):
            assert len(store.append([fact(number)])) == 1


def test_a_journal_that_was_replaced_is_refused(url: str, store: PostgresStore) -> None:
    """Cursors of the old one mean nothing in the new one."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP VIEW otel_journal_settled")
        connection.execute("DROP TABLE otel_journal, otel_journal_events")
    PostgresStore(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(StoreError, match="was replaced"):
        store.read()


def test_text_that_no_column_can_hold_is_not_found(store: PostgresStore) -> None:
    """Asking for it gives nothing; writing it is refused."""
    store.append([fact("a")])
    for text in ("a\0b", "\ud800"):
        assert store.events(text) == []
        assert store.messages(text) == []
        assert store.count_messages(text) == 0
        assert store.runs(thread_id=text) == []
        assert store.events("run-1", types=[text]) == []
        assert store.delete_thread(text) == 0
        with pytest.raises(StoreError):
            store.append([fact("b"), fact("c", run_id=text)])
    assert len(store.read()) == 1
