"""``otel-journal import-checkpoint`` on files that real graphs and a real checkpointer wrote."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, StoreError
from otel_journal.checkpoint_import import import_run_id, unix_ns
from otel_journal.commands.import_checkpoint import (
    Imported,
    checkpoints_in,
    import_checkpoint,
    import_thread,
)
from otel_journal.events import Event
from otel_journal.store import MemoryStore, open_store
from otel_journal.testing import ScriptedModel, ai, tool_call

SAID = ["one", "", "for a", "first", "two", "second"]
KINDS = ["human", "ai", "tool", "ai", "human", "ai"]


def play(path: Path, thread_id: str) -> None:
    """Play two turns of an agent, the first with a tool call, with a checkpointer."""

    @tool
    def get(q: str) -> str:
        """Get."""
        return f"for {q}"

    script = [ai("", tool_call("get", {"q": "a"}, "A")), ai("first"), ai("second")]
    where: Any = {"configurable": {"thread_id": thread_id}}
    with SqliteSaver.from_conn_string(str(path)) as saver:
        agent = create_agent(ScriptedModel(script=script), [get], checkpointer=saver)
        for text in ("one", "two"):
            agent.invoke({"messages": [("user", text)]}, where)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Provide a file with the checkpoints of thread ``t``."""
    path = tmp_path / "checks #1?.db"
    play(path, "t")
    return path


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Provide the URL of a store that is not there yet."""
    return f"sqlite:///{tmp_path}/journal.db"


def run(url: str, path: Path, *arguments: str) -> Result:
    """Run the command as `cli.main` does; its exit code is the return value."""
    given = ["--store", url, "--checkpoints", str(path), *arguments]
    return CliRunner().invoke(import_checkpoint, given, standalone_mode=False)


def told(result: Result) -> tuple[int, list[dict[str, Any]]]:
    """Return exit code and JSON lines of a run that did not raise."""
    assert result.exception is None, result.exception
    return result.return_value, [json.loads(line) for line in result.stdout.splitlines()]


def feed(url: str, thread_id: str = "t") -> list[Event]:
    """Read the feed of a thread."""
    store = open_store(url)
    try:
        return store.messages(thread_id)
    finally:
        store.close()


def test_two_turns(url: str, path: Path) -> None:
    """The feed is what was said, a run per turn, at the time of the checkpoint."""
    result = run(url, path)
    assert result.stdout == "t: 6 messages in 2 turns imported.\n"
    assert result.return_value == 0
    events = feed(url)
    assert [event.content["type"] for event in events] == KINDS
    assert [event.content["content"] for event in events] == SAID
    assert events[1].content["tool_calls"][0]["args"] == {"q": "a"}
    assert events[2].content["tool_call_id"] == "A"
    assert [event.run_id for event in events] == [
        import_run_id("t", turn) for turn in (1, 1, 1, 1, 2, 2)
    ]
    with SqliteSaver.from_conn_string(str(path)) as saver:
        newest = saver.get_tuple({"configurable": {"thread_id": "t"}})
    assert newest is not None
    assert {event.created_ns for event in events} == {unix_ns(newest.checkpoint["ts"])}


def test_again(url: str, path: Path) -> None:
    """A second import changes nothing and says so, also when the thread has gone on."""
    run(url, path)
    before = feed(url)
    play(path, "t")
    code, rows = told(run(url, path, "--json"))
    assert code == 0
    assert [(row["status"], row["reason"]) for row in rows] == [("skipped", "has messages already")]
    assert feed(url) == before


def test_only_threads_without_messages(url: str, path: Path) -> None:
    """The guard is per thread: another one that has messages does not matter."""
    run(url, path)
    play(path, "u")
    code, rows = told(run(url, path, "--json"))
    assert code == 0
    assert [(row["thread_id"], row["status"]) for row in rows] == [
        ("t", "skipped"),
        ("u", "imported"),
    ]
    assert len(feed(url, "u")) == len(SAID)


def test_history_comes_before_the_first_run(url: str, path: Path) -> None:
    """What is recorded after the import follows it in the feed."""
    run(url, path)
    store = open_store(url)
    settings = Settings(spans="none", metrics=False)
    with Journal(settings, registry=CollectorRegistry(), store=store) as journal:
        where: Any = {
            "callbacks": [journal.handler()],
            "run_id": uuid4(),
            "configurable": {"thread_id": "t"},
        }
        agent = create_agent(ScriptedModel(script=[ai("third")]), [])
        agent.invoke({"messages": [("user", "three")]}, where)
        assert journal.flush()
    store.close()
    assert [event.content["content"] for event in feed(url)] == [*SAID, "three", "third"]


def test_a_thread_with_recorded_messages_is_left_alone(url: str, path: Path) -> None:
    """A feed that a run has begun is not seeded afterwards."""
    store = open_store(url)
    own = Event("e", "r", "llm.human.input", "message", 1, "t", content={"type": "human"})
    (kept,) = store.append([own])
    store.close()
    assert told(run(url, path, "--json"))[1][0]["status"] == "skipped"
    assert feed(url) == [kept]


def test_chosen_threads(url: str, path: Path) -> None:
    """--thread chooses; a thread that is not there is told, and the others go in."""
    play(path, "u")
    code, rows = told(run(url, path, "--json", "--thread", "x", "--thread", "u"))
    assert code == 1
    assert [(row["thread_id"], row["status"], row["reason"]) for row in rows] == [
        ("x", "failed", "no checkpoint"),
        ("u", "imported", ""),
    ]
    assert feed(url) == []


def test_long_thread_id(url: str, path: Path) -> None:
    """An id that no store takes is told on stderr, once; the other threads go in."""
    long = "l" * 65
    play(path, long)
    result = run(url, path)
    assert result.return_value == 1
    assert result.stdout == "t: 6 messages in 2 turns imported.\n"
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"{long}: failed: thread_id ")
    assert "1 to 64 characters" in line


def test_two_imports_at_once(url: str, path: Path) -> None:
    """However many import at the same time, one seeds."""
    open_store(url).close()
    gate = threading.Barrier(4)
    code = (
        "import sys; from otel_journal.commands.import_checkpoint import import_checkpoint;"
        "sys.stdin.readline(); sys.exit(import_checkpoint(standalone_mode=False))"
    )
    rows: list[dict[str, Any]] = []

    def one() -> None:
        arguments = [sys.executable, "-c", code, "--store", url, "--checkpoints", str(path)]
        with subprocess.Popen(  # noqa: S603 - our own program
            [*arguments, "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            gate.wait(60)
            out, _ = process.communicate("go\n", timeout=120)
        assert process.returncode == 0
        rows.extend(json.loads(line) for line in out.splitlines())

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["status"] for row in rows) == ["imported", "skipped", "skipped", "skipped"]
    assert [event.content["content"] for event in feed(url)] == SAID


def test_race_between_check_and_write(path: Path) -> None:
    """Of two imports that both found the feed empty, one writes, and the other says so."""
    gate = threading.Barrier(2)

    class LateStore(MemoryStore):
        def count_messages(self, thread_id: str) -> int:
            count = super().count_messages(thread_id)
            gate.wait(60)
            return count

    store = LateStore()
    rows: list[Imported] = []

    def one() -> None:
        with checkpoints_in(str(path)) as saver:
            rows.append(import_thread(store, saver, "t"))

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((row.status, row.messages) for row in rows) == [("imported", 6), ("skipped", 0)]
    assert [event.content["content"] for event in store.messages("t")] == SAID


def test_state_without_messages(url: str, tmp_path: Path) -> None:
    """A graph that keeps no messages gives nothing, and that is no error."""
    path = tmp_path / "other.db"
    graph: Any = StateGraph(dict)
    graph.add_node("n", lambda state: state)
    graph.add_edge(START, "n")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph.compile(checkpointer=saver).invoke({"a": 1}, {"configurable": {"thread_id": "t"}})
    code, rows = told(run(url, path, "--json"))
    assert code == 0
    assert rows[0]["reason"] == "no messages in its checkpoint"


def test_damaged_checkpoint(url: str, path: Path) -> None:
    """A checkpoint that cannot be read fails its thread and no other."""
    play(path, "u")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE checkpoints SET checkpoint = x'c1' WHERE thread_id = 't'")
    connection.close()
    code, rows = told(run(url, path, "--json"))
    assert code == 1
    assert [(row["thread_id"], row["status"]) for row in rows] == [
        ("t", "failed"),
        ("u", "imported"),
    ]
    assert "cannot be read" in rows[0]["reason"]


def test_file_is_only_read(url: str, path: Path) -> None:
    """A file without a write-ahead log is imported and stays without one, bit by bit."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    before = path.read_bytes()
    assert told(run(url, path, "--json"))[0] == 0
    assert path.read_bytes() == before
    assert len(feed(url)) == len(SAID)


def test_no_file(url: str, tmp_path: Path) -> None:
    """A path that leads nowhere is named, and neither file is made."""
    path = tmp_path / "none.db"
    assert_refused(run(url, path), path)
    assert list(tmp_path.iterdir()) == []


def test_no_database(url: str, tmp_path: Path) -> None:
    """A file that is no database is named."""
    path = tmp_path / "text.db"
    path.write_text("no database, but long enough to have a header" * 100)
    assert_refused(run(url, path), path)
    assert_refused(run(url, tmp_path), tmp_path)


def test_no_checkpoints(url: str, tmp_path: Path) -> None:
    """A database of something else, such as a store, is named."""
    path = tmp_path / "journal.db"
    open_store(url).close()
    result = run(url, path)
    assert_refused(result, path)
    assert "no such table" in str(result.exception)


def assert_refused(result: Result, path: Path) -> None:
    """One error, which the command line shows as one line with exit code 2, names the path."""
    assert isinstance(result.exception, StoreError)
    assert str(path) in str(result.exception)
    assert result.output == ""


def test_empty_file_of_checkpoints(url: str, tmp_path: Path) -> None:
    """A checkpointer that has seen nothing has nothing to import."""
    path = tmp_path / "empty.db"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
    assert run(url, path).stdout == "No threads.\n"
    assert told(run(url, path, "--json")) == (0, [])


def test_reader_not_installed(url: str, path: Path) -> None:
    """Without the checkpointer's package one message says what to install."""
    code = (
        "import sys; sys.modules['langgraph.checkpoint.sqlite'] = None\n"
        "from otel_journal.commands.import_checkpoint import import_checkpoint\n"
        "from otel_journal import StoreError\n"
        "try: import_checkpoint(standalone_mode=False)\n"
        "except StoreError as error: print(error)"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", code, "--store", url, "--checkpoints", str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "pip install langgraph-checkpoint-sqlite" in done.stdout
