"""``otel-journal migrate``: what it says of a store, and what it does to it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_journal import StoreError, open_store
from otel_journal.commands.migrate import migrate
from otel_journal.store.rows import SCHEMA
from otel_journal.store.sqlite_file import APPLICATION_ID


def run(*arguments: str) -> tuple[int, str]:
    """Run the command; return what it returns, and its output."""
    result = CliRunner().invoke(migrate, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert isinstance(result.return_value, int)
    return result.return_value, result.output


def old_journal(path: Path, schema: int = 0) -> str:
    """Make a journal without tables, of a release that had none yet; return its URL."""
    with closing(sqlite3.connect(path)) as file:
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute(f"PRAGMA user_version = {schema}")
        file.commit()
    return f"sqlite:///{path}"


def test_nothing_to_do(tmp_path: Path) -> None:
    """A store of this release: said, with and without --check, and as JSON."""
    url = f"sqlite:///{tmp_path}/j.db"
    open_store(url).close()

    assert run("--store", url) == (0, f"schema {SCHEMA}, nothing to do\n")
    assert run("--store", url, "--check") == (0, f"schema {SCHEMA}, nothing to do\n")
    code, output = run("--store", url, "--json")
    assert (code, json.loads(output)) == (
        0,
        {"before": SCHEMA, "after": SCHEMA, "needed": SCHEMA},
    )


def test_an_older_store_is_migrated(tmp_path: Path) -> None:
    """Checking changes nothing and fails; migrating says from where to where."""
    path = tmp_path / "j.db"
    url = old_journal(path)
    before = path.read_bytes()

    code, said = run("--store", url, "--check")
    assert code == 1
    assert said == f"schema 0, this release needs {SCHEMA}: run otel-journal migrate\n"
    assert path.read_bytes() == before
    assert run("--store", url) == (0, f"schema 0 is now {SCHEMA}\n")
    assert run("--store", url, "--check")[0] == 0
    with closing(open_store(url, read_only=True)) as store:
        assert store.read() == []


def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    """Only a newer release can help."""
    path = tmp_path / "j.db"
    url = old_journal(path, 99)
    before = path.read_bytes()

    with pytest.raises(StoreError, match=r"its schema is 99.*update otel-journal"):
        run("--store", url)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"no database " * 500])
def test_what_is_no_store_is_left_alone(tmp_path: Path, content: bytes | None) -> None:
    """Nothing is made, renamed or changed."""
    path = tmp_path / "j.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=r"j\.db"):
        run("--store", f"sqlite:///{path}")

    assert [p.read_bytes() for p in tmp_path.iterdir()] == ([] if content is None else [content])


def test_a_memory_store_has_no_tables() -> None:
    """There is nothing to migrate, and the message says what has."""
    with pytest.raises(StoreError, match="'memory:' has no tables; allowed: sqlite:///PATH"):
        run("--store", "memory:")
