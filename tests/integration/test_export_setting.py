"""`Settings.export`: with a sidecar the application appends to its store, and nothing else."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, SettingsError, open_store
from otel_journal.events import Event
from otel_journal.testing import ScriptedModel, ai, tool_call

SIDECAR = Settings(export="sidecar")


def agent(look: Any) -> Any:
    """Return an agent that calls `look` once."""

    @tool
    def add(x: int, y: int) -> int:
        """Add two numbers."""
        look()
        return x + y

    script = [ai("", tool_call("add", {"x": 1, "y": 2}, "c1")), ai("3")]
    return create_agent(ScriptedModel(script=script), [add])


def record(path: Path, look: Any = lambda: None, **given: Any) -> list[Event]:
    """Run the agent with a journal that a sidecar exports; return what is in the store."""
    store = open_store(f"sqlite:///{path}")
    registry = given.setdefault("registry", CollectorRegistry())
    with Journal(SIDECAR, store=store, **given) as journal:
        agent(look).invoke({"messages": [("user", "add")]}, {"callbacks": [journal.handler()]})
        assert journal.flush()
        assert journal.shutdown()
    assert registry.get_sample_value("otel_journal_handler_errors_total") == 0
    events = store.read(limit=1_000)
    store.close()
    return events


def ended(events: list[Event]) -> list[Event]:
    """Return the events that carry a finished span."""
    return [event for event in events if event.span is not None and event.span.end_ns]


def test_nothing_is_exported_here(tmp_path: Path) -> None:
    """No span reaches the application's provider and no run is counted: both would be twice."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    registry = CollectorRegistry()
    events = record(tmp_path / "j.db", tracer_provider=provider, registry=registry)

    assert len(ended(events)) == 7
    assert exporter.get_finished_spans() == ()
    assert not [
        sample
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "otel_journal_runs_total"
    ]
    stored = {"sink": "store"}
    seen = registry.get_sample_value("otel_journal_events_seen_total", stored)
    assert seen == len(events)


def test_the_sidecar_can_tell_whose_spans_they_are(tmp_path: Path) -> None:
    """The application's resource is in the journal."""
    provider = TracerProvider(
        resource=Resource({"service.name": "shop", "k8s.pod.name": "p-1"}), shutdown_on_exit=False
    )
    events = record(tmp_path / "j.db", tracer_provider=provider)
    (beat,) = (event for event in events if event.event_type == "process.beat")

    assert beat.metadata["resource"]["k8s.pod.name"] == "p-1"
    assert beat.metadata["export"] == "sidecar"
    assert {event.process for event in events} == {beat.process}


def test_the_sampler_still_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is sampled is known in the application only: its sampler is asked, as ever."""
    by_code = record(
        tmp_path / "a.db", tracer_provider=TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
    )
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    by_environment = record(tmp_path / "b.db")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    sampled = record(tmp_path / "c.db")

    for events, expected in ((by_code, False), (by_environment, False), (sampled, True)):
        assert [event.span.sampled for event in ended(events)] == [expected] * 7


def test_spans_made_inside_are_children(tmp_path: Path) -> None:
    """HTTP and DB spans of the application find their parent, which the sidecar will send."""
    found: list[str] = []

    def look() -> None:
        found.append(f"{trace.get_current_span().get_span_context().span_id:016x}")

    events = record(tmp_path / "j.db", look)
    (call,) = (event.span for event in events if event.event_type == "tool_call.completed")

    assert found == [call.span_id]


def test_a_forked_child_is_another_process(tmp_path: Path) -> None:
    """What runs in a child is the child's to end."""
    store = open_store(f"sqlite:///{tmp_path}/j.db")
    journal = Journal(SIDECAR, store=store, registry=CollectorRegistry())
    question = {"messages": [("user", "add")]}
    agent(lambda: None).invoke(question, {"callbacks": [journal.handler(thread_id="parent")]})
    child = os.fork()
    if not child:
        agent(lambda: None).invoke(question, {"callbacks": [journal.handler(thread_id="child")]})
        sys.stdout.flush()
        os._exit(0 if journal.flush() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert journal.shutdown()
    events = store.read(limit=1_000)
    store.close()
    made = {
        thread: {event.process for event in events if event.thread_id == thread}
        for thread in ("parent", "child")
    }

    assert len(made["parent"]) == len(made["child"]) == 1
    assert made["parent"] != made["child"]
    beats = {event.process for event in events if event.event_type == "process.beat"}
    assert beats == made["parent"] | made["child"]


def test_a_store_is_needed() -> None:
    """Without one there would be nothing to read, and everything would be lost."""
    with pytest.raises(SettingsError, match=r"export='sidecar' needs a store.*OTEL_JOURNAL_STORE"):
        Journal(SIDECAR, registry=CollectorRegistry())


def test_the_environment_may_hold_settings_of_the_sidecar() -> None:
    """Application and sidecar often share one environment."""
    assert Settings.from_env({"OTEL_JOURNAL_SIDECAR_LISTEN": "127.0.0.1:0"}) == Settings()
