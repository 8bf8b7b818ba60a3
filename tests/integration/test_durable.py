"""A journal with a SQLite store: once across journals and processes, and there after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, StoreError, open_store
from otel_journal.events import Event
from otel_journal.store import MemoryStore
from otel_journal.testing import ScriptedModel, ai, tool_call

TOKENS = "gen_ai_client_inference_usage_input_tokens_total"


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def agent() -> Any:
    """Return an agent that calls one tool twice at once."""
    calls = (tool_call("add", {"x": 1, "y": 2}, "c1"), tool_call("add", {"x": 3, "y": 4}, "c2"))
    return create_agent(ScriptedModel(script=[ai("", *calls), ai("3 and 7")]), [add])


class Recorder:
    """A journal of its own, with its own store connection, spans and series."""

    def __init__(self, path: Path) -> None:
        """Open the journal at `path`."""
        self.spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.registry = CollectorRegistry()
        self.store = open_store(f"sqlite:///{path}")
        self.journal = Journal(
            Settings(), tracer_provider=provider, registry=self.registry, store=self.store
        )

    def tokens(self) -> float:
        """Return the input tokens that were counted."""
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == TOKENS
        )

    def close(self) -> None:
        """Shut down."""
        assert self.journal.shutdown()
        self.store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a journal file."""
    return tmp_path / "journal.db"


def test_two_journals_on_one_file_make_one_span_and_one_count(path: Path) -> None:
    """Each callback goes to two journals; the store lets each event through once."""
    alone = Recorder(path.with_name("alone.db"))
    agent().invoke({"messages": [("user", "add")]}, {"callbacks": [alone.journal.handler()]})
    alone.close()
    both = Recorder(path), Recorder(path)
    agent().invoke(
        {"messages": [("user", "add")]}, {"callbacks": [one.journal.handler() for one in both]}
    )
    for one in both:
        one.close()
    spans = [span.context.span_id for one in both for span in one.spans.get_finished_spans()]

    assert len(spans) == len(set(spans)) == len(alone.spans.get_finished_spans()) > 0
    assert sum(one.tokens() for one in both) == alone.tokens() > 0
    for one in both:
        counts = one.journal.pipeline.counts
        assert {name: count.pending for name, count in counts.items()} == dict.fromkeys(counts, 0)
        assert not any(sum(count.dropped.values()) for count in counts.values())


APPLICATION = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from {module} import agent
from otel_journal import RunJournal
handler = RunJournal(thread_id="t1")
agent().invoke({{"messages": [("user", "add")]}}, {{"callbacks": [handler]}})
assert handler.journal.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_flushed_survives_a_kill(path: Path) -> None:
    """The environment names the store; the file holds the feed after SIGKILL."""
    program = APPLICATION.format(folder=str(Path(__file__).parent), module=Path(__file__).stem)
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program],
        env={"OTEL_JOURNAL_STORE": f"sqlite:///{path}", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = open_store(f"sqlite:///{path}")
    feed = store.messages("t1")
    (start,) = store.runs()
    events = store.events(start.run_id)
    store.close()

    assert [row.event_type for row in feed] == [
        "llm.human.input",
        "llm.ai.response",
        "llm.tool.result",
        "llm.tool.result",
        "llm.ai.response",
    ]
    assert sorted(
        row.content["content"] for row in feed if row.event_type == "llm.tool.result"
    ) == [
        "3",
        "7",
    ]
    assert events[-1].event_type == "run.end"
    assert json.loads(json.dumps(feed[-1].content))["content"] == "3 and 7"


def test_a_store_that_fails_costs_no_span(path: Path) -> None:
    """Spans and counters come while the store is away; their events wait for it."""
    one = Recorder(path)
    one.store.close()
    agent().invoke({"messages": [("user", "add")]}, {"callbacks": [one.journal.handler()]})

    assert not one.journal.flush(0.5)
    assert len(one.spans.get_finished_spans()) > 0
    assert one.journal.pipeline.counts["store"].pending > 0
    assert not one.journal.shutdown(0.5)
    assert one.journal.pipeline.counts["store"].dropped["shutdown"] > 0


class AwayStore(MemoryStore):
    """A store that can be away."""

    away = True

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Append, unless away."""
        if self.away:
            msg = "away"
            raise StoreError(msg)
        return super().append(events)


def test_a_store_that_is_back_gets_its_events_without_being_asked() -> None:
    """Nobody flushes and nothing new happens: the backlog drains all the same."""
    store = AwayStore()
    with Journal(Settings(metrics=False, spans="none"), store=store) as journal:
        journal.annotate("run", "note")
        journal.recorder.flush()
        assert journal.pipeline.drain(10.0)
        assert not store.watermark()
        assert journal.pipeline.counts["store"].pending == 1
        store.away = False
        deadline = time.monotonic() + 30.0
        while not store.watermark() and time.monotonic() < deadline:
            time.sleep(0.05)

        assert [event.event_type for event in store.read()] == ["middleware:note"]
