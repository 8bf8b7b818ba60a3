"""A SQLite journal opened to be read only: by its rights as a file, and without a trace."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest
from store.reader_and_writer import ReaderAndWriter

from otel_journal.errors import StoreError
from otel_journal.store import open_store, sqlite_file
from otel_journal.store.protocol import Store
from otel_journal.store.sqlite import SqliteStore
from otel_journal.testing.stores import StoreConformance
from otel_journal.testing.stores_samples import fact, facts

NOBODY = 65_534
"""An account that owns nothing."""

READ_AS_NOBODY = """
import os, sys
sys.path.insert(0, sys.argv[3])
from otel_journal.store import open_store
from otel_journal.store.sqlite import SqliteStore  # while root's files can still be imported
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
store = open_store(sys.argv[1], read_only=True)
print(len(store.read()), store.watermark(), flush=True)
sys.stdin.readline()
print(len(store.read()), store.watermark(), flush=True)
"""

WRITE_AND_DIE = """
import os, sys
from otel_journal.store import open_store
from otel_journal.testing.stores_samples import facts
store = open_store(sys.argv[1])
store.append(facts(7))
os._exit(0)
"""


def reader_of(path: Path) -> Store:
    """Open a journal to be read."""
    return open_store(f"sqlite:///{path}", read_only=True)


def write_and_die(path: Path) -> None:
    """Let a process write 7 events and end without closing anything."""
    command = [sys.executable, "-c", WRITE_AND_DIE, f"sqlite:///{path}"]
    subprocess.run(command, check=True)  # noqa: S603 - our own program


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Everything in a folder, with the times of change."""
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(folder.iterdir())}


class TestReadOnlySqliteStore(StoreConformance):
    """Every case of the suite, where what is read comes from a second opening."""

    def make_store(self, tmp_path: Path) -> Store:
        """Open a file twice."""
        writer = SqliteStore(tmp_path / "journal.db")
        return ReaderAndWriter(writer, reader_of(tmp_path / "journal.db"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a journal of 7 events that nobody has open."""
    path = tmp_path / "journal" / "j.db"
    path.parent.mkdir()
    with closing(SqliteStore(path)) as store:
        store.append(facts(7))
    return path


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Provide a folder that every account can look into; those of pytest are private."""
    with tempfile.TemporaryDirectory(prefix="journal-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def test_every_write_is_refused(path: Path) -> None:
    """With a message that says why; reading goes on."""
    with closing(reader_of(path)) as store:
        writes: tuple[Callable[[], object], ...] = (
            partial(store.append, [fact("new")]),
            partial(store.append, []),
            partial(store.put_if_absent, fact("new", "run.start", run_id="r2")),
            partial(store.delete_thread, "thread-1"),
            partial(store.delete_run, "run-1"),
            partial(store.prune, 3),
        )
        for write in writes:
            with pytest.raises(StoreError, match=r"j\.db: opened read-only"):
                write()
        assert len(store.read()) == 7


def test_nothing_is_left_behind(path: Path) -> None:
    """Not even the files of a log, which any other opening makes."""
    before = tree(path.parent)
    with closing(reader_of(path)) as store:
        assert len(store.read()) == store.watermark() == 7
        assert tree(path.parent) == before
    assert tree(path.parent) == before


def test_a_log_that_a_killed_writer_left_is_read(tmp_path: Path) -> None:
    """And is still there afterwards, for the next writer."""
    path = tmp_path / "j.db"
    write_and_die(path)
    log = tmp_path / "j.db-wal"
    size, content = log.stat().st_size, path.read_bytes()
    assert size
    with closing(reader_of(path)) as store:
        assert len(store.read()) == 7
    assert (log.stat().st_size, path.read_bytes()) == (size, content)


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="changes the account")
@pytest.mark.parametrize("live", [False, True])
def test_the_right_to_read_is_enough(public_folder: Path, *, live: bool) -> None:
    """Folder and file belong to another account and may not be written; a writer may be there."""
    path = public_folder / "j.db"
    with closing(SqliteStore(path)) as store:
        store.append(facts(7))
    writer = SqliteStore(path) if live else None
    if writer is not None:
        writer.append(facts(3, "run-2"))
    for file in path.parent.iterdir():
        file.chmod(0o444)
    path.parent.chmod(0o555)
    here = str(Path(sqlite_file.__file__).parents[2])
    command = [sys.executable, "-c", READ_AS_NOBODY, f"sqlite:///{path}", str(NOBODY), here]
    with subprocess.Popen(  # noqa: S603 - our own program
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        seen = 10 if live else 7
        assert child.stdout.readline().split() == [str(seen)] * 2
        with closing(writer or SqliteStore(path)) as store:
            store.append(facts(2, "run-3"))
            for file in path.parent.iterdir():  # the log of a writer that came later
                file.chmod(0o444)
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.readline().split() == [str(seen + 2)] * 2


def test_what_is_written_meanwhile_is_seen(path: Path) -> None:
    """A writer that comes, goes, and comes again; the reader is opened once."""
    with closing(reader_of(path)) as store:
        for number in range(1, 5):
            with closing(SqliteStore(path)) as writer:
                writer.append([fact(f"a{number}")])
                assert len(store.read()) == 7 + 2 * number - 1
                writer.append([fact(f"b{number}")])
                assert len(store.read()) == 7 + 2 * number
            assert len(store.read()) == store.watermark() == 7 + 2 * number


def test_a_reader_does_not_stop_checkpoints(path: Path) -> None:
    """Between its calls it holds nothing: the whole log is written back and emptied."""
    with closing(SqliteStore(path)) as writer, closing(reader_of(path)) as store:
        writer.append(facts(100, "run-2"))
        assert len(store.read()) == 107
        # With the same library: SQLite's locks do not hold between two in one process.
        with closing(apsw.Connection(str(path))) as other:
            ((busy, _, _),) = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            assert busy == 0
            assert path.with_name("j.db-wal").stat().st_size == 0
        assert len(store.read()) == 107


def test_what_is_not_there_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    """A missing file, a missing folder, a folder, an empty file."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    for name in ("missing.db", "no/such.db", "folder", "empty"):
        with pytest.raises(StoreError, match=name):
            reader_of(tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "folder"]


def test_what_is_no_journal_stays_as_it_is(tmp_path: Path) -> None:
    """Another program's database, and a text."""
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE mine (x)")
    (tmp_path / "text.db").write_text("no database " * 500)
    before = tree(tmp_path)
    with pytest.raises(StoreError, match=r"other\.db: it is a SQLite database, but no journal"):
        reader_of(tmp_path / "other.db")
    with pytest.raises(StoreError, match=r"text\.db: it is damaged"):
        reader_of(tmp_path / "text.db")
    assert tree(tmp_path) == before


def test_a_damaged_journal_stays_where_it_is(path: Path) -> None:
    """Found when it is opened or read; never renamed, never repaired."""
    with closing(SqliteStore(path)) as writer:
        writer.append([fact(n, content="x" * 500) for n in range(1, 200)])
    content = bytearray(path.read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    path.write_bytes(content)
    before = tree(path.parent)
    with pytest.raises(StoreError, match="damaged"):
        reader_of(path).read()
    assert tree(path.parent) == before


def test_a_schema_of_another_release(path: Path) -> None:
    """A newer one is refused; an older one is read if it says enough, else `migrate` is named."""

    def change(*statements: str) -> None:
        with closing(sqlite3.connect(path)) as file:
            for statement in statements:
                file.execute(statement)
            file.commit()

    change("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="its schema is 99, this release knows up to"):
        reader_of(path)
    change("PRAGMA user_version = 0")
    with closing(reader_of(path)) as store:
        assert len(store.read()) == 7
    change("ALTER TABLE events RENAME COLUMN body TO payload")
    before = tree(path.parent)
    with pytest.raises(StoreError, match=r"its schema is 0.*otel-journal migrate"):
        reader_of(path)
    assert tree(path.parent) == before


def test_a_journal_that_took_the_place_is_noticed(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that goes is an error while it is away; another one has another epoch."""
    other = tmp_path / "other.db"
    with closing(SqliteStore(other)) as store:
        store.append(facts(2))
    with closing(reader_of(path)) as store:
        first = store.epoch
        assert len(store.read()) == 7
        path.rename(tmp_path / "away.db")
        store._file._look_at = 0.0  # type: ignore[attr-defined]  # not to wait a second
        with pytest.raises(StoreError, match="no store at"):
            store.read()
        other.rename(path)
        with caplog.at_level(logging.WARNING, "otel_journal"):
            assert len(store.read()) == 2
        assert store.epoch != first
    (record,) = caplog.records
    assert "another journal" in record.getMessage()


def test_a_log_without_its_index(tmp_path: Path) -> None:
    """Rows may be missing without it, so it is refused; opening for writing repairs it."""
    path = tmp_path / "j.db"
    write_and_die(path)
    (tmp_path / "j.db-shm").unlink()
    before = tree(tmp_path)
    with pytest.raises(StoreError, match="its log has no index"):
        reader_of(path)
    assert tree(tmp_path) == before
    SqliteStore(path).close()
    with closing(reader_of(path)) as store:
        assert len(store.read()) == 7


def test_reading_across_a_fork(path: Path) -> None:
    """Parent and child go on, each with a connection of its own."""
    with closing(SqliteStore(path)) as writer, closing(reader_of(path)) as store:
        assert len(store.read()) == 7
        child = os.fork()
        if not child:
            os._exit(len(store.read()))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        writer.append([fact("later")])
        assert len(store.read()) == 8


def test_memory_cannot_be_shared() -> None:
    """There is nothing to open a second time."""
    with pytest.raises(StoreError, match="cannot be shared"):
        open_store("memory:", read_only=True)
