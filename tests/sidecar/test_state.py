"""The sidecar's own file: what goes in comes out, whole or not at all, whatever happens to it."""

from __future__ import annotations

import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from otel_journal.errors import SidecarError
from otel_journal.events import Event, Failure, Link, SpanBlock, StreamTiming, Usage
from otel_journal.sidecar import state as state_module
from otel_journal.sidecar.otlp.delivery import DeadLetter
from otel_journal.sidecar.state import (
    DEAD_LETTERS_FORGOTTEN,
    MADE_FORGOTTEN,
    Change,
    Cursor,
    OperationKey,
    Process,
    State,
)
from otel_journal.sidecar.state_schema import SCHEMA, StateDamagedError
from otel_journal.store.sqlite import SqliteStore

_WRITER = Path(__file__).with_name("state_writer.py")
_KILLS = 15


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the state of a test lies."""
    return tmp_path / "state.db"


def _block(number: int, **more: Any) -> SpanBlock:
    ids = (f"op-{number}", "node", "node", "0" * 32, f"{number:016x}")
    return SpanBlock(*ids, 1, {"n": number}, **more)


def _start(number: int) -> Event:
    span = _block(number)
    return Event(f"op-{number}/1/start", "run", "node.start", "trace", number, span=span)


def _end(number: int) -> Event:
    span = _block(number, end_ns=number, outcome="ok")
    return Event(f"op-{number}/1/end", "run", "node.end", "trace", number, span=span)


def _key(number: int) -> OperationKey:
    return OperationKey(f"op-{number}", f"{number:016x}")


def _full_event() -> Event:
    """Every field of every struct differs from its default."""
    block = _block(
        7,
        parent_span_id="b" * 16,
        root=True,
        remote_parent=True,
        sampled=False,
        recording=False,
        trace_state="a=b",
        end_ns=2**62,
        outcome="error",
        error_type="ValueError",
        links=(Link("1" * 32, "2" * 16, "resumes"), Link("3" * 32, "4" * 16, "requested_by")),
        agent="helper",
        caller="subagent:x",
        attempt=3,
        usage=Usage(1, 2, {"cache_read": 1}),
        cached=True,
        stream=StreamTiming(5, (1, 2, 3), 6),
        inference_calls=4,
        tool_calls=5,
        closed_by="process_died",
        failure=Failure("ValueError", "no \u20ac\x00\U0001f600", "frames"),
        usage_tracked=False,
    )
    return Event(
        "op-7/1/end",
        "run",
        "run.error",
        "error",
        2**62,
        thread_id="thread",
        content={"list": [1, 2.5, None, "\u20ac"]},
        metadata={"deep": {"er": [True]}},
        span=block,
        seq=9,
        process="p" * 16,
    )


def _parts(state: State) -> dict[str, Any]:
    """Return all that a state holds, to compare."""
    return {
        "cursors": [state.cursor(name) for name in ("spans", "counters")],
        "totals": state.totals(),
        "open": state.open_operations(),
        "processes": state.processes(),
        "made": state.made(1_000),
        "counters": state.counters(),
        "dead_letters": state.dead_letters(),
    }


def _filled(path: Path) -> dict[str, Any]:
    with closing(State(path)) as state:
        state.commit(
            Change(
                "counters",
                Cursor("e", 5),
                totals={"x": [1]},
                opened=[_start(1)],
                processes=[Process("p", {"a": 1}, 3, "sidecar")],
                made=[_end(2)],
                dead_letters=[DeadLetter(_end(3), "refused", "400")],
                counted={"sent": 4},
            )
        )
        return _parts(state)


def test_a_new_state_knows_nothing(path: Path):
    """It is made by opening it, and only its owner may read it."""
    with closing(State(path)) as state:
        assert _parts(state) == {
            "cursors": [None, None],
            "totals": None,
            "open": [],
            "processes": [],
            "made": [],
            "counters": {},
            "dead_letters": [],
        }
        assert state.closed(["op-1/1/end"]) == set()
    assert path.stat().st_mode & 0o077 == 0


def test_events_come_back_as_they_were(path: Path):
    """From the trail, from what was made, and from dead letters, after a restart too."""
    event = _full_event()
    letter = DeadLetter(event, "refused", "bad \ud800 \x1b[31m")
    with closing(State(path)) as state:
        state.commit(Change("spans", None, opened=[event], made=[event], dead_letters=[letter]))
    with closing(State(path)) as state:
        assert state.open_operations() == [event]
        assert state.made(10) == [event]
        (stored,) = state.dead_letters()
    assert (stored.id, stored.event, stored.reason) == (1, event, "refused")
    assert stored.detail == "bad ? \x1b[31m"
    assert stored.at_ns > 0


def test_everything_is_there_after_a_restart(path: Path):
    """All parts, as they were."""
    before = _filled(path)
    with closing(State(path)) as state:
        assert _parts(state) == before
    assert before["cursors"] == [None, Cursor("e", 5)]
    assert before["totals"] == {"x": [1]}
    assert before["processes"] == [Process("p", {"a": 1}, 3, "sidecar")]
    assert before["counters"] == {"sent": 4}


def test_projections_have_cursors_of_their_own(path: Path):
    """And what a change does not name stays."""
    with closing(State(path)) as state:
        state.commit(Change("spans", Cursor("e", 1)))
        state.commit(Change("counters", Cursor("e", 2), totals={"n": 1}))
        state.commit(Change("spans", Cursor("f", 3)))
        state.commit(Change("spans", None, counted={"held": 1}))
        assert state.cursor("spans") == Cursor("f", 3)
        assert state.cursor("counters") == Cursor("e", 2)
        assert state.totals() == {"n": 1}


def test_counters_add_up(path: Path):
    """Each commit adds to them, also below zero."""
    with closing(State(path)) as state:
        state.commit(Change("spans", None, counted={"lost": 2, "gaps": 1}))
        state.commit(Change("spans", None, counted={"lost": 3, "sent": 0}))
        assert state.counters() == {"gaps": 1, "lost": 5, "sent": 0}


def test_ends_close_what_was_opened(path: Path):
    """In this change or an earlier one; an end without a start is fine."""
    with closing(State(path)) as state:
        state.commit(Change("counters", None, opened=[_start(1), _start(2), _start(3)]))
        state.commit(Change("counters", None, opened=[_start(4)], ended=[_key(2), _key(4)]))
        state.commit(Change("counters", None, ended=[_key(9)]))
        assert state.open_operations() == [_start(1), _start(3)]


def test_a_made_end_is_made_once(path: Path):
    """It waits until it is sent, stays known afterwards, and is not made again."""
    with closing(State(path)) as state:
        state.commit(Change("counters", None, made=[_end(1), _end(2), _end(1)]))
        assert state.made(1) == [_end(1)]
        assert state.made(9) == [_end(1), _end(2)]
        state.commit(Change("spans", None, made_sent=[_end(1).event_id]))
        state.commit(Change("counters", None, made=[_end(1)]))
        assert state.made(9) == [_end(2)]
        ids = [_end(n).event_id for n in (1, 2, 3)]
        assert state.closed(ids) == set(ids[:2])


def test_two_projections_tell_of_one_process(path: Path):
    """The newest sign counts, and who knows less of a process does not erase what is known."""
    with closing(State(path)) as state:
        state.commit(Change("counters", None, processes=[Process("p", {"a": 1}, 9, "inline")]))
        state.commit(Change("spans", None, processes=[Process("p", {}, 5)]))
        assert state.processes() == [Process("p", {"a": 1}, 9, "inline")]
        state.commit(Change("spans", None, processes=[Process("p", {"a": 2}, 11, "sidecar")]))
        assert state.processes() == [Process("p", {"a": 2}, 11, "sidecar")]
        state.commit(Change("counters", None, gone=["p", "q"]))
        assert state.processes() == []


def test_dead_letters_come_in_pages(path: Path):
    """By number; a number is never given again."""
    with closing(State(path)) as state:
        letters = [DeadLetter(_end(n), "refused", f"{n}") for n in range(1, 6)]
        state.commit(Change("spans", None, dead_letters=letters))
        assert [one.id for one in state.dead_letters(limit=2)] == [1, 2]
        assert [one.detail for one in state.dead_letters(after=2, limit=2)] == ["3", "4"]
        assert state.drop_dead_letters([4, 5, 77]) == 2
        state.commit(Change("spans", None, dead_letters=letters[:1]))
        assert [one.id for one in state.dead_letters()] == [1, 2, 3, 6]


def test_a_dead_letter_is_tried_again(path: Path):
    """It comes back through `made` with its id, and is not taken for an end the sidecar made."""
    event = _full_event()
    with closing(State(path)) as state:
        letters = [DeadLetter(event, "refused", ""), DeadLetter(_end(1), "too_large", "")]
        state.commit(Change("spans", None, dead_letters=letters))
        assert state.retry_dead_letters([1, 99]) == 1
        assert state.made(10) == [event]
        assert [one.event for one in state.dead_letters()] == [_end(1)]
        assert state.closed([event.event_id]) == set()
        again = DeadLetter(event, "refused", "again")
        state.commit(Change("spans", None, made_sent=[event.event_id], dead_letters=[again]))
        assert state.made(10) == []
        assert [one.detail for one in state.dead_letters()] == ["", "again"]


def test_no_table_grows_without_bound(path: Path, monkeypatch: pytest.MonkeyPatch):
    """What is too old goes first, and is counted."""
    for name in ("MAX_CLOSED", "MAX_MADE", "MAX_DEAD_LETTERS"):
        monkeypatch.setattr(state_module, name, 3)
    ends = [_end(n) for n in range(10)]
    with closing(State(path)) as state:
        for some in (ends[:5], ends[5:]):
            letters = [DeadLetter(event, "refused", "") for event in some]
            state.commit(Change("spans", None, made=some, dead_letters=letters))
        assert state.made(10) == ends[-3:]
        assert state.closed([event.event_id for event in ends]) == {
            event.event_id for event in ends[-3:]
        }
        assert [one.event for one in state.dead_letters()] == ends[-3:]
        assert state.counters() == {MADE_FORGOTTEN: 7, DEAD_LETTERS_FORGOTTEN: 7}


def test_dead_letters_are_bounded_in_bytes(path: Path, monkeypatch: pytest.MonkeyPatch):
    """The newest is kept, however large it is."""
    monkeypatch.setattr(state_module, "MAX_DEAD_LETTER_BYTES", 5_000)
    with closing(State(path)) as state:
        for size in (2_000, 2_000, 2_000, 9_000):
            letter = DeadLetter(_end(1), "refused", "x" * size)
            state.commit(Change("spans", None, dead_letters=[letter]))
        assert [one.id for one in state.dead_letters()] == [4]
        assert state.counters() == {DEAD_LETTERS_FORGOTTEN: 3}


def test_threads_share_a_state(path: Path):
    """Who comes while another one commits waits, and sees all of that commit."""
    inside, tried = threading.Event(), threading.Event()
    seen: list[int] = []

    def slow() -> Iterator[Event]:
        inside.set()
        tried.wait(0.3)  # in vain: the others are kept waiting
        yield _start(1)

    def read() -> None:
        seen.append(state.counters().get("both", 0))
        tried.set()

    def write() -> None:
        state.commit(Change("counters", Cursor("e", 2), counted={"both": 1}))
        seen.append(state.counters()["both"])
        tried.set()

    with closing(State(path)) as state:
        change = Change("spans", Cursor("e", 1), opened=slow(), counted={"both": 1})
        threads = [threading.Thread(target=work) for work in (read, write)]
        committing = threading.Thread(target=state.commit, args=(change,))
        committing.start()
        assert inside.wait(30)
        for thread in threads:
            thread.start()
        for thread in (committing, *threads):
            thread.join()
    assert len(seen) == 2
    assert min(seen) >= 1
    assert max(seen) == 2


def _writer(path: Path, where: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, str(_WRITER), str(path), where], stdout=subprocess.PIPE, text=True
    )


def _whole(path: Path) -> int:
    """Check that all parts tell of the same last change; return its number."""
    with closing(State(path)) as state:
        cursor = state.cursor("counters")
        if cursor is None:
            assert _parts(state)["totals"] is None
            return 0
        number = cursor.seq
        assert (state.totals() or {})["number"] == number
        assert state.counters() == {"changes": number}
        assert [event.event_id for event in state.open_operations()] == [f"op-{number}/1/start"]
        assert [event.event_id for event in state.made(9)] == [f"op-{number}/1/end"]
        assert [process.last_sign_ns for process in state.processes()] == [number]
        letters = state.dead_letters(limit=100_000)
        assert [one.detail for one in letters] == [str(n) for n in range(1, number + 1)]
        ids = [f"op-{n}/1/end" for n in range(1, number + 2)]
        assert state.closed(ids) == set(ids[:-1])
        return number


def _check_log(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was taken for damaged or lost."""
    assert caplog.messages == []


def test_what_was_committed_survives_kills(path: Path, caplog: pytest.LogCaptureFixture):
    """At any moment: never half a change, nothing acknowledged is lost, the lock is free."""
    chance = random.Random(11)  # noqa: S311 - any numbers do
    for _ in range(_KILLS):
        with _writer(path, "never") as writer:
            assert writer.stdout is not None
            acknowledged = [writer.stdout.readline() for _ in range(chance.randrange(1, 40))]
            threading.Event().wait(chance.random() / 100)
            writer.kill()
            acknowledged += writer.stdout.read().splitlines()
        assert _whole(path) >= int(acknowledged[-1])
    _check_log(caplog)


def test_a_kill_between_two_statements_undoes_the_change(
    path: Path, caplog: pytest.LogCaptureFixture
):
    """Before each statement of a commit in turn, and in the middle of COMMIT."""
    for_one = _statements(path)
    assert len(for_one) > 10
    with closing(State(path)) as state:
        cursor = state.cursor("counters")
    assert cursor is not None
    places = [f"statement:{n}" for n in range(1, len(for_one) + 1)]
    for place in (*places, "commit"):
        with _writer(path, place) as writer:
            assert writer.stdout is not None
            assert writer.stdout.read() == "", place
        assert writer.returncode == -9, place
        assert _whole(path) == cursor.seq, place
    _check_log(caplog)


def test_a_kill_after_the_commit_keeps_the_change(path: Path):
    """Though nobody was told: who repeats it must expect that."""
    for number in range(1, 4):
        with _writer(path, "written") as writer:
            assert writer.stdout is not None
            assert writer.stdout.read() == ""
        assert _whole(path) == number


def _statements(path: Path) -> list[str]:
    """Return the statements of one commit, made with the first change there is."""
    from state_writer import change  # noqa: PLC0415 - it lies beside this file

    traced: list[str] = []
    with closing(State(path)) as state:
        state.commit(change(1))
        state._connection.set_exec_trace(lambda _, query, __: not traced.append(query))
        state.commit(change(2))
    return traced


@pytest.fixture(autouse=True)
def _writer_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this file import the writer: with importlib mode its folder is not on the path."""
    monkeypatch.syspath_prepend(str(_WRITER.parent))


def test_a_second_sidecar_is_refused(path: Path):
    """The message names the file and who has it, at once; later it may have it."""
    with _writer(path, "never") as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        told = f"state file {path}: process {writer.pid} works with it"
        with pytest.raises(SidecarError, match=told) as refused:
            State(path)
        assert f"{path}.lock" in str(refused.value)
        writer.kill()
        writer.wait()
        State(path).close()


def test_one_process_cannot_have_it_twice(path: Path, tmp_path: Path):
    """Not by another name of the file either."""
    (tmp_path / "alias.db").symlink_to(path)
    with closing(State(path)):
        for name in (path, tmp_path / "alias.db", str(path)):
            with pytest.raises(SidecarError, match=f"process {os.getpid()} works with it"):
                State(name)
    with closing(State(tmp_path / "alias.db")):
        pass


def test_a_holder_who_wrote_no_pid_is_told_without_one(path: Path):
    """Rather than naming the one before it."""
    fcntl = pytest.importorskip("fcntl")
    lock = path.with_name("state.db.lock")
    for said in (b"", b"?", b"4194304999\n", b"99999999999999999999999\n"):
        lock.write_bytes(said)
        with lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(SidecarError, match=r"process .*works with it"):
                State(path)


def test_a_system_without_such_locks_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two sidecars on one file would be worse than none."""
    monkeypatch.setattr("otel_journal.sidecar.state_lock.fcntl", None)
    with pytest.raises(SidecarError, match=f"state file {path}: this system has no flock"):
        State(path)
    assert list(path.parent.iterdir()) == []


def test_a_missing_folder_is_named(path: Path):
    """In one line."""
    inside = path / "no" / "state.db"
    with pytest.raises(SidecarError) as refused:
        State(inside)
    assert str(refused.value) == f"state file {inside}: there is no folder {inside.parent}"


def test_a_folder_is_no_state_file(path: Path):
    """And the lock is free again after a refusal."""
    path.mkdir()
    with pytest.raises(SidecarError, match=f"state file {path}: it is a folder"):
        State(path)
    path.rmdir()
    State(path).close()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


_OPEN_AS_NOBODY = """
import os, sys
from otel_journal.errors import SidecarError
from otel_journal.sidecar.state import State
if os.geteuid() == 0:  # root may write everywhere
    os.setuid(65534)
try:
    State(sys.argv[1])
except SidecarError as error:
    print(error)
"""


def test_a_read_only_folder_is_named(public_folder: Path):
    """The error says which file, and that its folder is not writable."""
    path = public_folder / "state.db"
    public_folder.chmod(0o555)
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _OPEN_AS_NOBODY, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == f"state file {path}: the folder {public_folder} is not writable\n"


def _begun_anew(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    """Open a state that begins anew; return what was told."""
    with caplog.at_level(logging.WARNING), closing(State(path)) as state:
        assert state.cursor("counters") is None
        state.commit(Change("counters", Cursor("new", 1)))
    _filled(path)
    (told,) = caplog.messages
    assert told.startswith(f"state file {path}: ")
    assert "all counters start again" in told
    return told


def _overwrite(path: Path, start: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[start : start + len(data)] = data
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "no database": lambda path: path.write_bytes(b"not a database at all" * 500),
    "header": lambda path: _overwrite(path, 0, b"\xff" * 100),
    "all pages but the first": lambda path: _overwrite(path, 4096, b"\xff" * 40_000),
    "truncated in the middle": lambda path: os.truncate(path, path.stat().st_size // 2),
    "an index": lambda path: _overwrite(
        path, _page_of(path, "sqlite_autoindex_closed_1"), b"\xff" * 99
    ),
    "an event that is none": lambda path: _execute(path, "UPDATE made SET body = x'5b'"),
    "totals that are none": lambda path: _execute(path, "UPDATE totals SET body = x'31'"),
}


def _page_of(path: Path, table: str) -> int:
    """Return where the first page of a table or index begins."""
    with closing(apsw.Connection(str(path))) as other:
        query = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        page: int = other.execute(query, (table,)).get
        size: int = other.pragma("page_size")
    return (page - 1) * size


def _execute(path: Path, query: str) -> None:
    with closing(apsw.Connection(str(path))) as other:
        other.execute(query)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_kept_under_another_name(
    path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
):
    """A new one begins, and one warning says so, and that the counters start again."""
    _filled(path)
    damage(path)
    damaged = path.read_bytes()
    told = _begun_anew(path, caplog)
    (kept,) = path.parent.glob("state.db.corrupt-*[0-9]")
    assert kept.read_bytes() == damaged
    assert "it is damaged" in told
    assert kept.name in told


def test_a_file_that_is_empty_or_gone_is_told(path: Path, caplog: pytest.LogCaptureFixture):
    """A sidecar worked with it before: its counters do not start again in silence."""
    _filled(path)
    os.truncate(path, 0)
    assert "it is empty or gone" in _begun_anew(path, caplog)
    caplog.clear()
    path.unlink()
    assert "it is empty or gone" in _begun_anew(path, caplog)


def test_the_log_of_a_file_that_is_gone_is_not_read(path: Path, caplog: pytest.LogCaptureFixture):
    """SQLite would take it for that of the new file."""
    with _writer(path, "never") as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        writer.kill()
    path.unlink()
    assert "its log is there" in _begun_anew(path, caplog)
    assert list(path.parent.glob("state.db.corrupt-*-wal"))


def test_damage_that_is_met_late_is_told(path: Path):
    """The message says that a new start helps, and it does."""
    with closing(State(path)) as state:
        state.commit(Change("counters", Cursor("e", 1), totals={"x": "y" * 50_000}))
        with closing(apsw.Connection(str(path))) as other:  # its commit makes pages be read anew
            other.execute("INSERT INTO counters VALUES ('other', 1)")
            other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 40_000)
        with pytest.raises(StateDamagedError, match=f"state file {path}: it is damaged.*new start"):
            state.totals()
        with pytest.raises(SidecarError):
            state.commit(Change("counters", Cursor("e", 2), totals={}))
    with closing(State(path)) as state:
        assert state.cursor("counters") is None


def test_a_file_that_is_removed_is_noticed(path: Path, caplog: pytest.LogCaptureFixture):
    """SQLite alone would go on writing where nobody looks."""
    state = State(path)
    state.commit(Change("counters", Cursor("e", 1)))
    path.unlink()
    with pytest.raises(StateDamagedError, match=f"state file {path}: it was removed or replaced"):
        state.commit(Change("counters", Cursor("e", 2)))
    with pytest.raises(StateDamagedError):
        state.counters()
    state.close()
    caplog.clear()
    assert "it is empty or gone" in _begun_anew(path, caplog)


def test_a_file_that_is_replaced_keeps_its_own_past(path: Path, caplog: pytest.LogCaptureFixture):
    """A backup that was put in its place is not mixed with the log of the file that was there."""
    _filled(path)
    backup = path.with_name("backup.db")
    shutil.copy(path, backup)
    state = State(path)
    for number in range(6, 9):
        state.commit(Change("counters", Cursor("e", number)))
    backup.rename(path)
    with pytest.raises(StateDamagedError, match="removed or replaced"):
        state.commit(Change("counters", Cursor("e", 9)))
    state.close()
    assert "it was replaced; its log is kept as state.db.corrupt-" in caplog.text
    with closing(State(path)) as restored:
        assert restored.cursor("counters") == Cursor("e", 5)


def test_the_log_that_came_with_a_replacement_stays(path: Path, caplog: pytest.LogCaptureFixture):
    """It is not ours."""
    state = State(path)
    state.commit(Change("counters", Cursor("e", 1)))
    for end in ("", "-wal"):
        other = path.with_name("other" + end)
        other.write_bytes(b"other")
        other.rename(path.with_name(path.name + end))
    state.close()
    assert path.with_name("state.db-wal").read_bytes() == b"other"
    assert caplog.messages == []


def test_a_newer_schema_is_refused(path: Path):
    """The file is not touched, and the message says what to do."""
    _filled(path)
    _execute(path, f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(SidecarError) as refused:
        State(path)
    assert str(refused.value) == (
        f"state file {path}: its schema is {SCHEMA + 1}, this release knows up to {SCHEMA}; "
        "update otel-journal"
    )
    _execute(path, f"PRAGMA user_version = {SCHEMA}")
    with closing(State(path)) as state:
        assert state.cursor("counters") == Cursor("e", 5)


def test_a_journal_is_no_state_file(path: Path):
    """Nor is any other database: it is not touched."""
    SqliteStore(path).close()
    before = path.read_bytes()
    with pytest.raises(SidecarError, match=f"state file {path}: .*of another program"):
        State(path)
    assert path.read_bytes() == before


def test_a_full_disk_leaves_the_old_state_whole(path: Path):
    """The error says what is the matter, and a later commit works without a restart."""
    before = _filled(path)
    with closing(State(path)) as state:
        pages = state._connection.pragma("page_count")
        state._connection.pragma("max_page_count", pages)
        change = Change(
            "counters",
            Cursor("e", 6),
            totals={"x": "y" * 50_000},
            ended=[_key(1)],
            made_sent=[_end(2).event_id],
            counted={"sent": 1},
        )
        for _ in range(3):
            with pytest.raises(SidecarError, match=f"state file {path}: no room for it") as full:
                state.commit(change)
            assert not isinstance(full.value, StateDamagedError)
            assert _parts(state) == before
        state._connection.pragma("max_page_count", pages + 100)
        state.commit(change)
        assert state.cursor("counters") == Cursor("e", 6)
        assert state.counters() == {"sent": 5}


_LIMITED = """
import resource, sys
from otel_journal.errors import SidecarError
from otel_journal.sidecar.state import Change, Cursor, State
state = State(sys.argv[1])
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
written = 0
try:
    for number in range(1, 1000):
        state.commit(Change("s", Cursor("e", number), totals={"n": number, "pad": "x" * 20_000}))
        written = number
except SidecarError as error:
    assert f"state file {sys.argv[1]}: " in str(error), error
else:
    raise SystemExit("no limit was met")
assert written and state.cursor("s").seq == state.totals()["n"] == written
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
state.commit(Change("s", Cursor("e", written + 1), totals={"n": 0}))
assert state.cursor("s").seq == written + 1
"""


def test_a_file_that_may_not_grow_stops_commits_but_not_reads(path: Path):
    """With an I/O error of the system nothing is lost either."""
    ran = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", _LIMITED, str(path)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_cannot_be_written_changes_nothing(path: Path):
    """A number beyond those of SQLite; the transaction is over afterwards."""
    with closing(State(path)) as state:
        with pytest.raises(SidecarError, match="a number is too large"):
            state.commit(Change("s", Cursor("e", 1), counted={"n": 2**70}))
        assert state.cursor("s") is None
        state.commit(Change("s", Cursor("e", 1)))


def test_a_closed_state_says_so(path: Path):
    """From every call; closing again is harmless, and does not free the lock of the next one."""
    state = State(path)
    state.close()
    with closing(State(path)):
        state.close()
        for call in (state.totals, state.counters, lambda: state.commit(Change("s", None))):
            with pytest.raises(SidecarError, match=f"{path}: it is closed"):
                call()
        with pytest.raises(SidecarError, match="works with it"):
            State(path)


def test_what_need_not_be_there_is_not_made(path: Path):
    """With ``make=False`` neither the file nor its lock appears, and damage stays as it is."""
    with pytest.raises(SidecarError, match=f"state file {path}: there is no such file"):
        State(path, make=False)
    assert list(path.parent.iterdir()) == []
    path.write_bytes(b"no database" * 1_000)
    with pytest.raises(SidecarError, match=f"state file {path}: it is damaged"):
        State(path, make=False)
    assert path.read_bytes() == b"no database" * 1_000
