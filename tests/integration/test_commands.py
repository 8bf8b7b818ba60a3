"""The commands that read a store, on SQLite files that real graphs have filled."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import apsw
import click
import pytest
from click.testing import CliRunner, Result
from langchain.agents import create_agent
from langchain_core.tools import tool
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, StoreError
from otel_journal.commands import terminal
from otel_journal.commands.check import check, check_store
from otel_journal.commands.prune import prune
from otel_journal.commands.runs import newest_runs, runs
from otel_journal.commands.show import show
from otel_journal.commands.tail import Tail, follow, tail
from otel_journal.events import Event
from otel_journal.run_view import fold_run
from otel_journal.store import MemoryStore, open_store
from otel_journal.testing import ScriptedModel, ai, tool_call

EVIL = "red \x1b[31m \x9b31m \u202e bell \x07 \U0001f468\u200d\U0001f469"
DAY_NS = 86_400 * 10**9


def new_journal(store: Any) -> Journal:
    """Make a journal with a store and nothing else."""
    settings = Settings(spans="none", metrics=False)
    return Journal(settings, registry=CollectorRegistry(), store=store)


def play(journal: Journal, thread_id: str, answer: str = "done") -> UUID:
    """Play an agent that calls one tool twice; return its run id."""

    @tool
    def get(q: str) -> str:
        """Get."""
        return f"for {q}"

    asked = ai("", tool_call("get", {"q": "a"}, "A"), tool_call("get", {"q": "c"}, "C"))
    agent = create_agent(ScriptedModel(script=[asked, ai(answer)]), [get], name="helper")
    run_id = uuid4()
    where = {"thread_id": thread_id}
    agent.invoke(
        {"messages": [("user", "go")]},
        {"callbacks": [journal.handler()], "run_id": run_id, "configurable": where},
    )
    assert journal.flush()
    return run_id


class Filled:
    """A store in a file with three runs: two in thread ``t``, one left open in ``u``."""

    def __init__(self, path: Path) -> None:
        """Fill it."""
        self.path = path
        self.url = f"sqlite:///{path}"
        store = open_store(self.url)
        with new_journal(store) as journal:
            self.first = play(journal, "t", "one\ntwo")
            self.second = play(journal, "t", EVIL)
            self.left = uuid4()
            handler = journal.handler(thread_id="u")
            handler.on_chain_start({}, {}, run_id=self.left, name="slow")
            assert journal.flush()
        self.count = len(store.read(limit=1_000))
        store.close()

    def view(self, run_id: UUID) -> Any:
        """Fold a run."""
        store = open_store(self.url)
        try:
            return fold_run(store.events(str(run_id), limit=1_000))
        finally:
            store.close()


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    """Provide a filled store."""
    return Filled(tmp_path / "journal.db")


def run(command: click.Command, *arguments: str, encoding: str = "utf-8", **env: str) -> Result:
    """Run a command as `cli.main` does; its exit code is the return value."""
    runner = CliRunner(charset=encoding, env=env)
    return runner.invoke(command, arguments, standalone_mode=False)


def printed(command: click.Command, *arguments: str, **options: str) -> list[str]:
    """Run a command that must succeed; return its lines."""
    result = run(command, *arguments, **options)
    assert result.exception is None, result.exception
    assert result.return_value in {None, 0}
    return result.stdout.splitlines()


def objects(command: click.Command, *arguments: str) -> list[Any]:
    """Run a command with ``--json``; return what its lines hold."""
    return [json.loads(line) for line in printed(command, *arguments, "--json")]


COMMANDS = [
    (runs, ()),
    (show, ("x",)),
    (tail, ("x",)),
    (check, ()),
    (prune, ("--up-to", "1")),
]


@pytest.mark.parametrize(("command", "arguments"), COMMANDS, ids=lambda v: getattr(v, "name", ""))
class TestStoreOption:
    """Which store is read."""

    def test_missing(self, command: click.Command, arguments: tuple[str, ...]) -> None:
        """One message says both ways to name it."""
        error = run(command, *arguments).exception
        assert isinstance(error, click.UsageError)
        assert error.message == "no store: give --store URL or set OTEL_JOURNAL_STORE"

    def test_not_allowed(self, command: click.Command, arguments: tuple[str, ...]) -> None:
        """The message of `open_store` names the URL and what is allowed."""
        error = run(command, *arguments, "--store", "ftp://x").exception
        assert isinstance(error, StoreError)
        assert str(error).startswith("store URL 'ftp://x' is not allowed; allowed: memory:")

    def test_environment(self, command: click.Command, arguments: tuple[str, ...]) -> None:
        """The variable is as good as the option."""
        error = run(command, *arguments, OTEL_JOURNAL_STORE="ftp://x").exception
        assert isinstance(error, StoreError)


class TestRuns:
    """`otel-journal runs`."""

    def test_newest_first(self, filled: Filled) -> None:
        """A line for each run, with outcome, calls and tokens that equal the run's view."""
        rows = objects(runs, "--store", filled.url)
        ids = [row["run_id"] for row in rows]
        assert ids == [str(filled.left), str(filled.second), str(filled.first)]
        view = filled.view(filled.first)
        row = rows[-1]
        assert row["name"] == view.name == "invoke_agent helper"
        assert (row["outcome"], row["thread_id"]) == ("ok", "t")
        assert (row["model_calls"], row["input_tokens"], row["output_tokens"]) == (2, 14, 6)
        assert (row["start_ns"], row["end_ns"]) == (view.start_ns, view.end_ns)

    def test_limit_and_thread(self, filled: Filled) -> None:
        """Both may be given."""
        given = ("--store", filled.url, "--thread", "t")
        assert len(objects(runs, *given)) == 2
        (row,) = objects(runs, *given, "--limit", "1")
        assert row["run_id"] == str(filled.second)

    def test_text(self, filled: Filled) -> None:
        """Columns are aligned, moments in UTC."""
        head, _, second, _ = printed(runs, "--store", filled.url)
        assert head.split() == [
            "run", "start", "name", "outcome", "duration", "calls", "input", "output",
        ]  # fmt: skip
        assert second.startswith(str(filled.second))
        assert second.split()[-3:] == ["2", "14", "6"]
        assert "Z  invoke_agent helper   ok  " in second

    def test_nothing(self) -> None:
        """An empty store is said to be empty; as JSON it is no line."""
        assert printed(runs, "--store", "memory:") == ["No runs."]
        assert objects(runs, "--store", "memory:") == []

    def test_running_run_and_pages(self) -> None:
        """Without an end a run is running; more runs than a page are listed once each."""
        store = MemoryStore()
        with new_journal(store) as journal:
            handler = journal.handler()
            for _ in range(2):
                for number in range(300):
                    key = UUID(int=number + 1)
                    handler.on_chain_start({}, {}, run_id=key, name="slow")
            assert journal.flush()
            rows = list(newest_runs(store, 1_000))
            assert [row.outcome for row in rows] == [None] * 300
            assert len({row.run_id for row in rows}) == 300


class TestShow:
    """`otel-journal show RUN`."""

    def test_json_is_the_view(self, filled: Filled) -> None:
        """All that the fold knows, in one line."""
        (shown,) = objects(show, str(filled.first), "--store", filled.url)
        view = filled.view(filled.first)
        assert shown["input_tokens"] == view.input_tokens == 14
        assert {call["call_id"] for call in shown["tool_calls"]} == {"A", "C"}  # in parallel
        assert shown["messages"][-1]["text"] == "one\ntwo"
        assert shown["operations"][0]["children"]

    def test_text(self, filled: Filled) -> None:
        """Tree, tool calls and messages; the lines of a message are indented."""
        lines = printed(show, str(filled.first), "--store", filled.url)
        text = "\n".join(lines)
        assert lines[0] == f"Run {filled.first}  ok"
        assert "  thread t" in lines
        assert "tokens 14 → 6  model calls 2" in text
        assert any(line.startswith("invoke_agent helper") for line in lines)
        assert any(line.startswith(("├─ ", "└─ ")) for line in lines)
        assert any(line.startswith("  A  get  ok  ") for line in lines)
        assert '    {"q": "a"}' in lines
        assert "    → for a" in lines
        assert lines[-2].endswith("ai  one")
        assert lines[-1] == "      two"

    def test_ascii(self, filled: Filled) -> None:
        """A terminal that shows no Unicode gets another tree, and escapes for the rest."""
        result = run(show, str(filled.second), "--store", filled.url, encoding="ascii")
        assert result.exception is None
        assert result.stdout.isascii()
        assert "|- " in result.stdout
        assert "\\U0001f468" in result.stdout

    def test_content_cannot_take_the_terminal_over(self, filled: Filled) -> None:
        """Controls and what turns text around is shown, not sent; emoji stay whole."""
        text = "\n".join(printed(show, str(filled.second), "--store", filled.url))
        assert not set(text) & set("\x1b\x9b\u202e\x07")
        expected = r"red \x1b[31m \x9b31m \u202e bell \x07 " + "\U0001f468\u200d\U0001f469"
        assert expected in text

    def test_unknown_run(self, filled: Filled) -> None:
        """One message, and exit code 2 as for every `JournalError`."""
        error = run(show, "nobody", "--store", filled.url).exception
        assert isinstance(error, StoreError)
        assert str(error) == (
            "run 'nobody' is not in the store; `otel-journal runs` lists those that are"
        )

    @pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
    def test_no_color(self, filled: Filled, env: dict[str, str], *, coloured: bool) -> None:
        """Colour is for terminals, and for those who want it."""
        runner = CliRunner(env=env)
        arguments = [str(filled.first), "--store", filled.url]
        result = runner.invoke(show, arguments, standalone_mode=False, color=True)
        assert ("\x1b[" in result.stdout) is coloured


class TestTail:
    """`otel-journal tail THREAD`."""

    def test_last_messages(self, filled: Filled) -> None:
        """The last ones, oldest first."""
        given = ("t", "--store", filled.url)
        every = objects(tail, *given, "-n", "100")
        assert [one["role"] for one in every] == ["human", "ai", "tool", "tool", "ai"] * 2
        assert objects(tail, *given, "-n", "2") == every[-2:]
        assert objects(tail, *given, "-n", "0") == []
        assert len(objects(tail, *given)) == 10
        assert objects(tail, "nobody", "--store", filled.url) == []

    def test_text(self, filled: Filled) -> None:
        """An answer without text says which tools it asks for."""
        lines = printed(tail, "t", "--store", filled.url)
        assert lines[1].endswith("ai  calls get, get")
        assert r"\x1b[31m" in lines[-1]

    @pytest.mark.parametrize("count", [0, 3, 2_000])
    def test_follow_loses_and_repeats_nothing(self, tmp_path: Path, count: int) -> None:
        """While another thread writes to two threads' feeds, each message is shown once."""
        store = open_store(f"sqlite:///{tmp_path / 'journal.db'}")
        wanted = 600

        def write(numbers: range) -> None:
            for number in numbers:
                store.append([message(f"{name}{number}", name) for name in ("t", "other")])

        write(range(5))
        reader = Tail(store, "t")
        shown = [event.event_id for event in reader.last(count)]
        assert len(shown) == min(count, 5)
        writer = threading.Thread(target=write, args=(range(5, wanted),))
        writer.start()
        deadline = time.monotonic() + 60

        def wait(_: float) -> None:
            if shown and shown[-1] == f"t{wanted - 1}":
                raise KeyboardInterrupt
            assert time.monotonic() < deadline
            time.sleep(0.001)

        with pytest.raises(KeyboardInterrupt):
            follow(reader, lambda event: shown.append(event.event_id), wait)
        writer.join()
        assert list(reader.new()) == []
        store.close()
        first = 5 - min(count, 5)
        assert shown == [f"t{number}" for number in range(first, wanted)]

    def test_ctrl_c_ends_following(self, filled: Filled) -> None:
        """A message that another process wrote is shown; Ctrl-C is a good end."""
        program = "from otel_journal.commands.tail import tail; tail()"
        arguments = ["t", "-f", "-n", "1", "--json", "--store", filled.url]
        with subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as following:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["text"] == EVIL
            store = open_store(filled.url)
            store.append([message("new", "t")])
            store.close()
            assert json.loads(following.stdout.readline())["text"] == "new"
            following.send_signal(signal.SIGINT)
            out, err = following.communicate(timeout=60)
        assert (following.returncode, out) == (0, ""), err


def message(event_id: str, thread_id: str, created_ns: int = 1) -> Event:
    """Make a message of a feed."""
    return Event(
        event_id, f"run-{thread_id}", "llm.ai.response", "message", created_ns, thread_id,
        {"content": event_id},
    )  # fmt: skip


class TestCheck:
    """`otel-journal check`."""

    def test_sound(self, filled: Filled) -> None:
        """Every check is a line; what is counted is what is there."""
        found = {one["name"]: one for one in objects(check, "--store", filled.url)}
        assert all(one["ok"] for one in found.values())
        assert list(found) == [
            "integrity", "events", "sequence", "event ids", "operations", "feeds",
        ]  # fmt: skip
        assert found["feeds"]["detail"] == "10 messages in 1 threads"
        lines = printed(check, "--store", filled.url)
        assert [line[:6] for line in lines] == ["ok    "] * len(found)

    def test_open_operations_are_no_problem(self) -> None:
        """They are named."""
        store = MemoryStore()
        with new_journal(store) as journal:
            journal.handler().on_chain_start({}, {}, run_id=uuid4(), name="slow")
            assert journal.flush()
            *_, operations, _ = check_store(store, time.time_ns())
            assert operations.ok
            assert operations.detail == "0 ended, 1 open"
            assert operations.notes[0].startswith("open: invoke_workflow slow of run ")

    def test_lost_end(self, filled: Filled) -> None:
        """An operation without an end, in a run that is long over, is a hole."""
        store = open_store(filled.url)
        events = store.read(limit=1_000)
        store.close()
        lost = next(
            event for event in events
            if event.event_type == "tool_call.completed"
        )  # fmt: skip
        self.change(filled, "DELETE FROM events WHERE seq = ?", lost.seq)
        store = open_store(filled.url)
        try:
            soon, later = (
                next(one for one in check_store(store, now) if one.name == "operations")
                for now in (lost.created_ns, lost.created_ns + DAY_NS)
            )
        finally:
            store.close()
        assert soon.ok
        assert not later.ok
        assert later.problems[0].startswith("has no end, but what it belongs to has: execute_tool")

    def test_damaged_events(self, filled: Filled) -> None:
        """Each is named once, the others are read, and the exit code is 1."""
        store = open_store(filled.url)
        damaged = [event.seq for event in store.read(limit=1_000)][3::7]
        store.close()
        for seq in damaged:
            self.change(filled, "DELETE FROM events WHERE seq = ?", seq - 1)  # a gap before it
            self.change(filled, "UPDATE events SET body = x'7b' WHERE seq = ?", seq)
        result = run(check, "--store", filled.url, "--json")
        assert result.return_value == 1
        found = {one["name"]: one for one in map(json.loads, result.stdout.splitlines())}
        events = found["events"]
        assert not events["ok"]
        assert [told.split()[1] for told in events["problems"]] == [str(seq) for seq in damaged]
        assert events["detail"] == f"{filled.count - 2 * len(damaged)} can be read"
        assert "FAILED  events" in run(check, "--store", filled.url).stdout

    def test_wrong_stores(self) -> None:
        """A store that repeats itself, goes backwards or miscounts is found out."""

        class Broken(MemoryStore):
            def read(self, after: int = 0, limit: int = 500) -> list[Event]:
                page = super().read(after, limit)
                return [page[1], *page] if page else page

            def count_messages(self, thread_id: str) -> int:
                return super().count_messages(thread_id) - 1

        store = Broken()
        store.append([message("a", "t"), message("b", "t")])
        found = {one.name: one for one in check_store(store, 0)}
        assert found["sequence"].problems == (
            "event 1 comes after event 2", "event 2 comes after event 2",
        )  # fmt: skip
        assert found["event ids"].problems == ("event 2 has the known id b",)
        assert found["feeds"].problems == ("thread 't': feed has 1 of 3 messages",)

    @staticmethod
    def change(filled: Filled, statement: str, seq: int) -> None:
        """Change the file behind the store's back."""
        with apsw.Connection(str(filled.path)) as connection:
            connection.execute(statement, (seq,))


class TestPrune:
    """`otel-journal prune`."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        """Provide a store with a message per day, the newest of now."""
        url = f"sqlite:///{tmp_path / 'journal.db'}"
        now = time.time_ns()
        store = open_store(url)
        store.append([message(f"m{age}", "t", now - age * DAY_NS) for age in range(9, -1, -1)])
        store.close()
        return url

    @pytest.mark.parametrize(("option", "value", "count"), [
        ("--up-to", "4", 4),
        ("--up-to", "400", 10),
        ("--older-than", "60h", 7),
        ("--older-than", "30d", 0),
        ("--older-than", "0s", 10),
    ])  # fmt: skip
    def test_deletes_what_it_counts(self, url: str, option: str, value: str, count: int) -> None:
        """A dry run says how many would go, and leaves them."""
        given = ("--store", url, option, value)
        for _ in range(2):
            (dry,) = objects(prune, *given, "--dry-run")
            assert (dry["events"], dry["dry_run"]) == (count, True)
        (done,) = objects(prune, *given)
        assert (done["events"], done["dry_run"]) == (count, False)
        assert done["up_to"] == dry["up_to"]
        assert len(objects(tail, "t", "--store", url, "-n", "99")) == 10 - count

    def test_text(self, url: str) -> None:
        """One line."""
        given = ("--store", url, "--up-to", "4")
        assert printed(prune, *given, "--dry-run") == ["4 events up to 4 would be deleted."]
        assert printed(prune, *given) == ["4 events up to 4 deleted."]

    @pytest.mark.parametrize("given", [(), ("--up-to", "4", "--older-than", "1d")])
    def test_one_bound(self, url: str, given: tuple[str, ...]) -> None:
        """None or both is not allowed."""
        error = run(prune, "--store", url, *given).exception
        assert isinstance(error, click.UsageError)
        assert error.message == "give one of --up-to SEQ and --older-than DURATION"

    @pytest.mark.parametrize("value", ["", "d", "5", "5y", "-5d", "1.5h", "٣d"])
    def test_duration(self, url: str, value: str) -> None:
        """A duration names its unit."""
        error = run(prune, "--store", url, "--older-than", value).exception
        assert isinstance(error, click.BadParameter)
        assert f"duration {value!r} is not allowed; allowed: a whole number" in error.message


class TestTerminal:
    """Moments and durations."""

    @pytest.mark.parametrize(("seconds", "shown"), [
        (0.0004, "0.4 ms"),
        (0.1234, "123.4 ms"),
        (1.234, "1.23 s"),
        (123, "2m 03s"),
        (3_725, "1h 02m"),
    ])  # fmt: skip
    def test_duration(self, seconds: float, shown: str) -> None:
        """Two units at the most."""
        assert terminal.duration(int(seconds * 10**9)) == shown

    def test_moment(self) -> None:
        """UTC, to the second."""
        assert terminal.moment(1_700_000_000_999_999_999) == "2023-11-14 22:13:20Z"

    def test_safe_lines(self) -> None:
        """Line breaks of any system end a line; a lone return is shown."""
        assert terminal.safe_lines("a\r\nb\nc\rd\ud800") == ["a", "b", r"c\rd\ud800"]


def test_commands_need_no_langchain(filled: Filled) -> None:
    """They start fast: neither an agent framework nor an exporter is imported."""
    program = textwrap.dedent(
        f"""
        import sys, types
        package = types.ModuleType("otel_journal")  # without what its own imports bring
        package.__path__ = [{str(Path(terminal.__file__).parents[1])!r}]
        sys.modules["otel_journal"] = package
        from otel_journal.commands import check, prune, runs, show, tail
        runs.runs(["--store", {filled.url!r}], standalone_mode=False)
        show.show([{str(filled.first)!r}, "--store", {filled.url!r}], standalone_mode=False)
        heavy = {{"langchain_core", "langgraph", "opentelemetry", "prometheus_client"}}
        sys.exit(", ".join(heavy & sys.modules.keys()) or None)
        """
    )
    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
