"""Totals, the trail, and what becomes of operations whose process has died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from servers.process import wait_until

from otel_journal.errors import SidecarError
from otel_journal.events import Event, Usage
from otel_journal.exposition import JournalCollector
from otel_journal.metrics import MetricsFold
from otel_journal.sidecar.books import Books
from otel_journal.sidecar.state import Change, State
from otel_journal.store.sqlite import SqliteStore

DEAD_AFTER = 30.0
STEP = 10.0
"""Seconds between two looks of the tests' clock, below half of `DEAD_AFTER`."""

AGENT = """
import sys, time
from langchain.agents import create_agent
from langchain_core.tools import tool
from otel_journal import Journal, Settings, open_store
from otel_journal.testing import ScriptedModel, ai, tool_call

@tool
def work(x: int) -> int:
    "Work until somebody writes a line."
    sys.stdin.readline()
    return x

journal = Journal(Settings(export="sidecar"), store=open_store(sys.argv[1]))
script = [ai("", tool_call("work", {"x": 1}, "c1")), ai("done")]
agent = create_agent(ScriptedModel(script=script), [work], name="worker")
agent.invoke({"messages": [("user", "secret")]}, {"callbacks": [journal.handler()]})
journal.shutdown()
"""


class Clock:
    """A clock that the test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        """Return the time in seconds."""
        return self.now


class Sidecar:
    """Books with a state and a clock of their own."""

    dead = False

    def __init__(self, folder: Path, store: SqliteStore) -> None:
        """Count what `store` has."""
        self.clock = Clock()
        self.state = State(folder / "state.db")
        self.collector = JournalCollector(MetricsFold())
        self.books = Books(
            store, self.state, self.collector, dead_after=DEAD_AFTER, clock=self.clock
        )

    def step(self) -> None:
        """Read to the end."""
        while self.books.step():
            pass

    def wait(self, seconds: float) -> None:
        """Look every `STEP` seconds, as a sidecar does."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now = min(end, self.clock.now + STEP)
            self.step()

    def value(self, name: str, **labels: str) -> float:
        """Sum the samples of a series."""
        return sum(
            sample.value
            for family in self.collector.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def die(self) -> None:
        """End without the commit of an orderly end."""
        self.dead = True
        self.state.close()

    def close(self) -> None:
        """Commit and close, unless it died."""
        if not self.dead:
            self.books.close()
        self.state.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Provide an empty journal file."""
    store = SqliteStore(tmp_path / "journal.db")
    yield store
    store.close()


@pytest.fixture
def sidecar(tmp_path: Path, store: SqliteStore) -> Iterator[Sidecar]:
    """Provide books over `store`."""
    sidecar = Sidecar(tmp_path, store)
    yield sidecar
    sidecar.close()


def in_the_tool(tmp_path: Path, store: SqliteStore) -> subprocess.Popen[bytes]:
    """Start an agent and wait until its tool works."""
    child = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", AGENT, f"sqlite:///{tmp_path}/journal.db"],
        stdin=subprocess.PIPE,
    )
    assert wait_until(
        lambda: any(e.event_type == "tool_call.started" for e in store.read(0, 1_000)), 100
    )
    return child


def kill(child: subprocess.Popen[bytes]) -> None:
    """End it at once."""
    os.kill(child.pid, signal.SIGKILL)
    child.communicate(timeout=100)


def finish(child: subprocess.Popen[bytes]) -> None:
    """Let its tool return."""
    child.communicate(b"\n", timeout=100)
    assert child.returncode == 0


def folded(events: list[Event]) -> dict[str, Any]:
    """Return the totals that the events come to."""
    fold = MetricsFold()
    for event in events:
        fold.apply(event)
    return fold.state()


def as_json(state: object) -> Any:
    """Return what the state file would give back."""
    return json.loads(json.dumps(state))


def test_what_a_killed_process_left_open_is_closed(
    tmp_path: Path, store: SqliteStore, sidecar: Sidecar
) -> None:
    """After `dead_after` of silence, once: tool, node and run, children first."""
    child = in_the_tool(tmp_path, store)
    kill(child)
    sidecar.step()
    last_ns = max(event.created_ns for event in store.read(0, 1_000))
    assert sidecar.value("otel_journal_runs_in_flight") == 1
    sidecar.wait(DEAD_AFTER - 1)
    assert sidecar.state.made(100) == []
    sidecar.wait(1)
    made = sidecar.state.made(100)
    assert [end.event_type for end in made] == ["tool_call.completed", "node.end", "run.end"]
    assert {end.span.outcome for end in made} == {"unknown"}
    assert {end.span.closed_by for end in made} == {"process_died"}
    assert {end.span.end_ns for end in made} == {last_ns}
    assert "secret" not in repr([replace(e, seq=0) for e in made]) + json.dumps(
        [e.content for e in made]
    )
    assert sidecar.value("otel_journal_runs_in_flight") == 0
    assert sidecar.value("otel_journal_runs_total", outcome="unknown") == 1
    assert sidecar.books.open_operations == 0
    sidecar.wait(3 * DEAD_AFTER)
    assert sidecar.state.made(100) == made
    assert sidecar.value("otel_journal_runs_total") == 1
    assert sidecar.books.counters["counters_made_ends"] == 3


def test_a_restart_after_the_end_was_made_changes_nothing(
    tmp_path: Path, store: SqliteStore
) -> None:
    """Totals and made ends are written down together."""
    kill(in_the_tool(tmp_path, store))
    first = Sidecar(tmp_path, store)
    first.step()
    first.wait(DEAD_AFTER)
    totals = as_json(first.collector.fold.state())
    first.die()
    second = Sidecar(tmp_path, store)
    assert second.collector.fold.state()["open_runs"] == []
    assert as_json(second.collector.fold.state()) == totals
    second.step()
    second.wait(2 * DEAD_AFTER)
    assert as_json(second.collector.fold.state()) == totals
    assert len(second.state.made(100)) == 3
    second.close()


def test_a_restart_gives_every_process_the_full_time(tmp_path: Path, store: SqliteStore) -> None:
    """Its trail is the one of the life before."""
    kill(in_the_tool(tmp_path, store))
    first = Sidecar(tmp_path, store)
    first.step()
    first.wait(DEAD_AFTER - 1)
    first.close()
    second = Sidecar(tmp_path, store)
    second.step()
    assert second.books.open_operations == 3
    second.wait(DEAD_AFTER - 1)
    assert second.state.made(100) == []
    second.wait(1)
    assert len(second.state.made(100)) == 3
    second.close()


def test_a_process_that_was_only_frozen_counts_once(
    tmp_path: Path, store: SqliteStore, sidecar: Sidecar
) -> None:
    """Its late ends add nothing but what comes after them; their spans are the real ones."""
    child = in_the_tool(tmp_path, store)
    sidecar.step()
    sidecar.wait(DEAD_AFTER)
    assert len(sidecar.state.made(100)) == 3
    finish(child)
    sidecar.step()
    sidecar.wait(2.0)
    assert sidecar.books.counters["counters_late_ends"] == 3
    assert sidecar.state.made(100) == []  # the real ones are in the store
    assert sidecar.value("otel_journal_runs_started_total") == 1
    assert sidecar.value("otel_journal_runs_total") == 1
    assert sidecar.value("otel_journal_tool_calls_total") == 1
    tokens = "gen_ai_client_inference_usage_input_tokens_total"
    alone = JournalCollector(MetricsFold())
    alone.apply(store.read(0, 1_000))
    wanted = sum(s.value for f in alone.collect() for s in f.samples if s.name == tokens)
    assert sidecar.value(tokens) == wanted > 0


def test_the_tokens_of_a_late_end_count(
    tmp_path: Path, store: SqliteStore, sidecar: Sidecar
) -> None:
    """The sidecar had ended a model call without usage; the real end brings it."""
    finish(in_the_tool(tmp_path, store))
    events = store.read(0, 1_000)
    end = next(event for event in events if event.event_type == "llm.end")
    began = next(e for e in events if e.event_id == end.event_id.replace("/end", "/start"))
    real = SqliteStore(tmp_path / "real.db")
    (tmp_path / "other").mkdir()
    other = Sidecar(tmp_path / "other", real)
    real.append([event for event in events if event.event_type == "process.beat"] + [began])
    other.step()
    other.wait(DEAD_AFTER)
    assert len(other.state.made(10)) == 1
    usage = Usage(11, 7)
    real.append([replace(end, span=replace(end.span, usage=usage))])
    other.step()
    assert other.value("otel_journal_tokens_total", type="input") == 11
    assert other.value("otel_journal_llm_calls_total") == 1
    assert other.value("otel_journal_usage_amended_total") == 0
    other.close()
    real.close()
    sidecar.step()


def test_caught_up_only_after_the_backlog(
    tmp_path: Path, store: SqliteStore, sidecar: Sidecar
) -> None:
    """Before that a counter could be lower than the one that was scraped last."""
    finish(in_the_tool(tmp_path, store))
    assert not sidecar.books.caught_up
    sidecar.books.step(3)
    assert not sidecar.books.caught_up
    sidecar.step()
    assert sidecar.books.caught_up
    assert as_json(sidecar.collector.fold.state()) == as_json(folded(store.read(0, 1_000)))


def test_nobody_dies_while_a_backlog_is_read(
    tmp_path: Path, store: SqliteStore, sidecar: Sidecar
) -> None:
    """The sign of life may be in what is not read yet."""
    kill(in_the_tool(tmp_path, store))
    for _ in range(4):
        sidecar.books.step(1)
        sidecar.clock.now += DEAD_AFTER
    assert not sidecar.books.caught_up
    sidecar.step()
    assert sidecar.state.made(10) == []
    sidecar.wait(DEAD_AFTER)
    assert len(sidecar.state.made(10)) == 3


def test_commits_are_a_second_apart(tmp_path: Path, store: SqliteStore, sidecar: Sidecar) -> None:
    """And what was not committed is counted again, from the same cursor."""
    finish(in_the_tool(tmp_path, store))
    sidecar.books.step(2)
    assert sidecar.state.cursor("counters").seq == 2
    sidecar.books.step(2)
    assert sidecar.state.cursor("counters").seq == 2
    sidecar.clock.now += 1.0
    sidecar.books.step(1)
    assert sidecar.state.cursor("counters").seq == 5
    sidecar.books.step(1)
    sidecar.books.commit()
    assert sidecar.state.cursor("counters").seq == 6
    sidecar.step()
    sidecar.die()
    again = Sidecar(tmp_path, store)
    again.step()
    assert as_json(again.collector.fold.state()) == as_json(folded(store.read(0, 1_000)))
    again.close()


def test_operations_of_nobody_go_with_their_root(
    tmp_path: Path, store: SqliteStore, sidecar: Sidecar
) -> None:
    """Those of older releases; without a root that names a process they are left alone."""
    source_folder = tmp_path / "source"
    source_folder.mkdir()
    source = SqliteStore(source_folder / "journal.db")
    kill(in_the_tool(source_folder, source))
    events = source.read(0, 1_000)
    source.close()
    store.append(
        [
            replace(event, process="") if event.event_type == "tool_call.started" else event
            for event in events
        ]
    )
    (tool,) = [event for event in events if event.event_type == "tool_call.started"]
    store.append([replace(tool, event_id="stray/0/start", run_id="stray", process="")])
    sidecar.step()
    sidecar.wait(DEAD_AFTER)
    assert [end.event_type for end in sidecar.state.made(10)] == [
        "tool_call.completed",
        "node.end",
        "run.end",
    ]
    assert {end.process for end in sidecar.state.made(10)} == {events[0].process}


def test_totals_of_a_newer_release_are_refused(tmp_path: Path, store: SqliteStore) -> None:
    """Counting from zero beside them would be a silent loss."""
    state = State(tmp_path / "state.db")
    state.commit(Change("counters", None, totals={"version": 99}))
    with pytest.raises(SidecarError, match="version 99"):
        Books(store, state, JournalCollector(MetricsFold()))
    state.close()
