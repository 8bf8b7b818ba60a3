"""The SQLite store and a file that is missing, foreign, damaged, full, locked or lost."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from otel_journal.errors import StoreError
from otel_journal.events import Event
from otel_journal.store.rows import SCHEMA
from otel_journal.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal of a test lies."""
    return tmp_path / "journal.db"


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def _event(number: int, content: str = "text") -> Event:
    return Event(
        event_id=f"event-{number}",
        run_id="run",
        event_type="llm.ai.response",
        category="message",
        created_ns=number,
        thread_id="thread",
        content=content,
    )


def _filled(path: Path, count: int = 3) -> str:
    """Make a journal with some events and return its epoch."""
    with closing(SqliteStore(path)) as store:
        store.append([_event(number) for number in range(count)])
        return store.epoch


def _kept(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.corrupt-*"))


def test_a_missing_folder_is_named(tmp_path: Path):
    """The error says which file, and that its folder is not there."""
    path = tmp_path / "none" / "journal.db"
    with pytest.raises(StoreError) as caught:
        SqliteStore(path)
    assert str(caught.value) == f"journal file {path}: there is no folder {path.parent}"


def test_a_folder_is_no_file(tmp_path: Path):
    """The error says which, and nothing is renamed."""
    with pytest.raises(StoreError) as caught:
        SqliteStore(tmp_path)
    assert str(caught.value) == f"journal file {tmp_path}: it is a folder"
    assert tmp_path.is_dir()


_OPEN_AS_NOBODY = """
import os, sys
from otel_journal.errors import StoreError
from otel_journal.store.sqlite import SqliteStore
if os.geteuid() == 0:  # root may write everywhere
    os.setuid(65534)
try:
    SqliteStore(sys.argv[1])
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("there", [False, True], ids=["new file", "closed journal"])
def test_a_read_only_folder_is_named(public_folder: Path, there: bool):  # noqa: FBT001
    """The error says which file, and that its folder is not writable."""
    path = public_folder / "journal.db"
    if there:
        _filled(path)
    public_folder.chmod(0o555)
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _OPEN_AS_NOBODY, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"journal file {path}: the folder {public_folder} is not writable\n"


@pytest.mark.parametrize("size", [100, 4096, 20_000])
def test_a_file_that_is_no_database_is_kept_under_another_name(
    path: Path, size: int, caplog: pytest.LogCaptureFixture
):
    """A new journal begins, and one warning names both files."""
    epoch = _filled(path)
    damaged = b"\xff" * size + path.read_bytes()[size:]
    path.write_bytes(damaged)
    with caplog.at_level(logging.WARNING), closing(SqliteStore(path)) as store:
        assert store.epoch != epoch
        assert store.read() == []
        assert len(store.append([_event(1)])) == 1
    (kept,) = _kept(path)
    assert kept.read_bytes() == damaged
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    assert kept.name in record.getMessage()


def test_a_damaged_file_is_kept_with_its_log(path: Path):
    """The log may be all that is left of the last events."""
    _filled(path)
    path.write_bytes(b"\xff" * 4096)
    log = Path(f"{path}-wal")
    log.write_bytes(b"\xfe" * 5_000)
    SqliteStore(path).close()
    (kept,) = [kept for kept in _kept(path) if kept.name.endswith("-wal")]
    assert kept.read_bytes() == b"\xfe" * 5_000
    assert kept.with_name(kept.name.removesuffix("-wal")).read_bytes() == b"\xff" * 4096


def test_an_emptied_file_is_a_new_journal(path: Path):
    """Its epoch says that the old cursors are void."""
    epoch = _filled(path)
    os.truncate(path, 0)
    with closing(SqliteStore(path)) as store:
        assert store.epoch != epoch
        assert store.read() == []


def test_a_database_of_another_program_is_refused(path: Path):
    """It is left as it was."""
    with closing(apsw.Connection(str(path))) as other:
        other.execute("CREATE TABLE customers (name)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"{path}: it is a SQLite database of another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused(path: Path):
    """The error names both numbers; the events stay."""
    _filled(path)
    with closing(apsw.Connection(str(path))) as other:
        other.pragma("user_version", SCHEMA + 6)
    with pytest.raises(StoreError, match=rf"{path}: .* {SCHEMA + 6}, .* {SCHEMA}; update"):
        SqliteStore(path)
    assert not _kept(path)


def test_a_full_disk_stops_writing_but_not_reading(path: Path):
    """Nothing of a batch that found no room is there; with room the store goes on."""
    with closing(SqliteStore(path, _max_pages=60)) as store:
        written: list[Event] = []
        with pytest.raises(StoreError, match=f"{path}: no room for it"):  # noqa: PT012
            for number in range(0, 1_000, 5):
                batch = [_event(n, "x" * 1_000) for n in range(number, number + 5)]
                written += store.append(batch)
        assert written
        assert store.read(limit=1_000) == written
        assert store.prune(written[len(written) // 2].seq) > 0
        assert len(store.append(batch)) == 5
        assert store.integrity() == []


_LIMITED = """
import resource, sys
from otel_journal.errors import StoreError
from otel_journal.events import Event
from otel_journal.store.sqlite import SqliteStore
store = SqliteStore(sys.argv[1])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
def batch(n):
    return [Event(event_id=f"{n}/{i}", run_id="run", event_type="llm.ai.response",
                  category="message", created_ns=1, content="x" * 1000) for i in range(5)]
written = []
try:
    for number in range(1000):
        written += store.append(batch(number))
except StoreError as error:
    assert sys.argv[1] in str(error), error
else:
    raise SystemExit("no limit was met")
assert written and store.read(limit=10_000) == written
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert len(store.append(batch(number))) == 5
assert store.integrity() == []
"""


def test_a_file_that_may_not_grow_stops_writing_but_not_reading(path: Path):
    """With an I/O error of the system nothing is lost either."""
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _LIMITED, str(path)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def _until_new_epoch(store: SqliteStore, epoch: str) -> list[Event]:
    """Append until the store has noticed that its file is another one; return what that holds."""
    number = 1_000
    end = time.monotonic() + 30
    while store.epoch == epoch and time.monotonic() < end:
        store.append([_event(number)])
        number += 1
        time.sleep(0.05)
    assert store.epoch != epoch
    return store.read()


def _delete(path: Path) -> None:
    path.unlink()


def _delete_all(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        Path(f"{path}{end}").unlink()


def _truncate(path: Path) -> None:
    os.truncate(path, 0)


def _replace(path: Path) -> None:
    other = path.with_name("other.db")
    _filled(other, 0)
    other.replace(path)


@pytest.mark.parametrize("lose", [_delete, _delete_all, _truncate, _replace])
def test_a_file_lost_under_a_writer_is_noticed(path: Path, lose, caplog: pytest.LogCaptureFixture):
    """The writer goes on in a file that others can open, under a new epoch."""
    with closing(SqliteStore(path)) as store:
        epoch = store.epoch
        store.append([_event(1)])
        lose(path)
        with caplog.at_level(logging.WARNING):
            found = _until_new_epoch(store, epoch)
        assert found
        assert any("of epoch" in record.getMessage() for record in caplog.records)
        with closing(SqliteStore(path)) as other:
            assert other.epoch == store.epoch
            assert other.read() == found
            assert other.integrity() == []


def test_a_locked_file_is_waited_for(path: Path):
    """For longer than SQLite itself waits; nothing is lost."""
    with closing(SqliteStore(path)) as store, closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        written: list[Event] = []
        thread = threading.Thread(target=lambda: written.extend(store.append([_event(1)])))
        thread.start()
        thread.join(6)
        assert thread.is_alive()
        assert store.read() == []
        other.execute("ROLLBACK")
        thread.join()
        assert store.read() == written
        assert written


def test_damaged_pages_are_found(path: Path):
    """`integrity` says so, and reading gives a StoreError instead of wrong events."""
    _filled(path, 500)
    with path.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * 4096 * 10)
    with closing(SqliteStore(path)) as store:
        with pytest.raises(StoreError, match=f"{path}: it is damaged"):
            store.integrity()
        with pytest.raises(StoreError, match=f"{path}: it is damaged"):
            store.read(limit=500)


def test_rows_that_break_the_schema_are_found(path: Path):
    """`integrity` names what is wrong in a file that can be read."""
    _filled(path)
    with closing(apsw.Connection(str(path))) as other:
        other.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        other.pragma("writable_schema", True)  # noqa: FBT003 - the pragma's value
        other.execute("UPDATE sqlite_schema SET sql = replace(sql, 'body BLOB', 'body INTEGER')")
    with closing(SqliteStore(path)) as store:
        assert any("body" in line for line in store.integrity())


def test_a_closed_store_says_so(path: Path):
    """By name, from every call."""
    store = SqliteStore(path)
    store.close()
    store.close()
    for call in (store.integrity, store.read, lambda: store.append([_event(1)])):
        with pytest.raises(StoreError, match=f"{path}: the store is closed"):
            call()


def test_synchronous_is_one_of_two(path: Path):
    """Anything else is a mistake of the caller."""
    with pytest.raises(ValueError, match="allowed: NORMAL, FULL"):
        SqliteStore(path, synchronous="OFF")  # type: ignore[arg-type]
    with closing(SqliteStore(path, synchronous="FULL")) as store:
        writer = store._file._writer
        assert writer is not None
        assert writer.pragma("synchronous") == 2


def test_work_that_fails_leaves_nothing(path: Path):
    """A transaction that raises half-way is undone, whatever it had written."""

    def half(connection: apsw.Connection) -> None:
        connection.execute("UPDATE journal SET watermark = 1000")
        msg = "half-way"
        raise LookupError(msg)

    with closing(SqliteStore(path)) as store:
        store.append([_event(1)])
        with pytest.raises(LookupError):
            store._file.write(half)

        assert store.watermark() == 1
        assert [event.seq for event in store.append([_event(2)])] == [2]


@pytest.mark.parametrize("left", [None, b""])
def test_the_log_of_a_lost_file_is_set_aside(path: Path, left: bytes | None):
    """A log without its file, or beside an empty one, must not become that of the next journal."""
    log = path.with_name(f"{path.name}-wal")
    with closing(SqliteStore(path)) as store:
        store.append([_event(1)])
        content = log.read_bytes()
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    log.write_bytes(content)
    with closing(SqliteStore(path)) as store:
        assert store.read() == []

    assert content in [kept.read_bytes() for kept in _kept(path)]
