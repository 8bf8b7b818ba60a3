"""`open_store`: from a URL to a store, or one clear message."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from otel_journal import Journal, Settings, StoreError, open_store
from otel_journal.store import existing, opening


@pytest.mark.parametrize(
    "url",
    [
        "",
        "memory",
        "memory:x",
        "journal.db",
        "sqlite://journal.db",
        "sqlite:///",
        "sqlite:///j.db?synchronous=OFF",
        "sqlite:///j.db?mode=ro",
        "sqlite:///j.db#x",
        "mysql://host/name",
    ],
)
def test_what_is_not_allowed_is_named(url: str) -> None:
    """The message holds the value and what is allowed."""
    with pytest.raises(StoreError) as raised:
        open_store(url)

    assert repr(url) in str(raised.value)
    assert opening.ALLOWED in str(raised.value)


def test_a_password_is_not_shown() -> None:
    """A URL in a message is without what may be secret."""
    with pytest.raises(StoreError) as raised:
        open_store("mysql://user:secret@host/name")

    assert "secret" not in str(raised.value)
    assert "mysql://***@host/name" in str(raised.value)


def test_relative_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes: beside the process; four: absolute. Escapes are read."""
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///a.db", f"sqlite:///{tmp_path}/b%20c.db?synchronous=full"):
        store = open_store(url)
        store.close()

    assert (tmp_path / "a.db").exists()
    assert (tmp_path / "b c.db").exists()


def test_the_driver_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without psycopg the message says what to install."""
    monkeypatch.setattr(opening, "find_spec", lambda _: None)

    with pytest.raises(StoreError, match=r"pip install 'otel-journal\[postgres\]'"):
        open_store("postgresql://host/name")


def test_a_journal_opens_and_closes_the_store_of_its_settings(tmp_path: Path) -> None:
    """A store that the journal opened is the journal's to close."""
    path = tmp_path / "j.db"
    with Journal(Settings(store=f"sqlite:///{path}", metrics=False)) as journal:
        journal.annotate("run", "note")
        assert journal.flush()
        store = journal.store
    with pytest.raises(StoreError):
        store.read()
    again = open_store(f"sqlite:///{path}")

    found = [event.event_type for event in again.read() if event.event_type != "process.beat"]
    assert found == ["middleware:note"]
    again.close()


def test_a_store_that_cannot_be_opened_does_not_stop_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One clear error in the log; the journal records without a store."""
    url = f"sqlite:///{tmp_path}/missing/j.db"
    with (
        caplog.at_level(logging.ERROR, "otel_journal"),
        Journal(Settings(store=url, metrics=False)) as journal,
    ):
        assert journal.store is None

    (record,) = caplog.records
    assert "runs without a store" in record.getMessage()
    assert "missing" in record.getMessage()


@pytest.mark.parametrize("content", [None, b"", b"keep me"])
def test_looking_into_a_store_makes_and_moves_nothing(
    tmp_path: Path, content: bytes | None
) -> None:
    """A mistyped path is an error, and whatever lies there stays as it is."""
    path = tmp_path / "j.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=r"j\.db"):
        existing(f"sqlite:///{path}")

    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([] if content is None else [content])


def test_what_is_there_can_be_looked_into(tmp_path: Path) -> None:
    """A store that exists, and a store that is no file."""
    url = f"sqlite:///{tmp_path}/j.db"
    open_store(url).close()

    assert existing(url) == url
    assert existing("postgresql://host/name") == "postgresql://host/name"
