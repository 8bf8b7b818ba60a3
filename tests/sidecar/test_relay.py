"""Spans of the store at a real collector: all of them, repeats with equal ids, whatever dies."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from msgspec.structs import replace
from servers.otlp_answers import Answer
from servers.otlp_sink import OtlpSink

from otel_journal import Journal, Settings
from otel_journal.events import Event
from otel_journal.exceptions_log import Shape
from otel_journal.metrics import MetricsFold
from otel_journal.sidecar.following import BATCH
from otel_journal.sidecar.otlp.counts import ExportCounts
from otel_journal.sidecar.otlp.delivery import Delivery
from otel_journal.sidecar.otlp.encoding import SpanEncoder
from otel_journal.sidecar.otlp.endpoint import endpoint_from_env
from otel_journal.sidecar.otlp.transport import connect
from otel_journal.sidecar.relay import Relay
from otel_journal.sidecar.state import Change, State
from otel_journal.spans import END_EVENTS
from otel_journal.store.sqlite import SqliteStore
from otel_journal.testing import ScriptedModel, ai, tool_call

WORKER = Path(__file__).with_name("batch_worker.py")
KILLS = 20
RUNS = 40


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def run_agents(store: SqliteStore, runs: int, export: str = "sidecar") -> None:
    """Fill a store as an application does."""
    with Journal(Settings(export=export), store=store) as journal:
        for _ in range(runs):
            script = [ai("", tool_call("add", {"x": 1, "y": 2}, "c1")), ai("3")]
            agent = create_agent(ScriptedModel(script=script), [add], name="adder")
            agent.invoke({"messages": [("user", "add")]}, {"callbacks": [journal.handler()]})
        assert journal.flush()


def spans_of(store: SqliteStore) -> list[str]:
    """Return the ids of all spans that the store holds."""
    return [
        event.span.span_id
        for event in store.read(0, 100_000)
        if event.span is not None and event.event_type in END_EVENTS
    ]


class Sidecar:
    """A relay with a state and a delivery of its own, in this process."""

    def __init__(self, folder: Path, store: SqliteStore, sink: OtlpSink) -> None:
        """Send what `store` has to `sink`."""
        self.state = State(folder / "state.db")
        self.stop = threading.Event()
        self.transport = connect(
            endpoint_from_env({"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http_endpoint})
        )
        encoder = SpanEncoder(Shape("0.1", capture_content=False))
        delivery = Delivery(self.transport, encoder, counts=ExportCounts(), stop=self.stop)
        self.relay = Relay(store, self.state, delivery, encoder)

    def run(self, limit: int = BATCH) -> int:
        """Step until there is nothing to do; return how many steps did something."""
        steps = 0
        while self.relay.step(limit):
            steps += 1
        return steps

    def close(self) -> None:
        """Close everything but the store."""
        self.transport.close()
        self.state.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Provide an empty journal file."""
    store = SqliteStore(tmp_path / "journal.db")
    yield store
    store.close()


@pytest.fixture
def sidecar(tmp_path: Path, store: SqliteStore, otlp_sink: OtlpSink) -> Iterator[Sidecar]:
    """Provide a relay from `store` to `otlp_sink`."""
    sidecar = Sidecar(tmp_path, store, otlp_sink)
    yield sidecar
    sidecar.close()


@pytest.mark.parametrize("limit", [1, 5, BATCH])
def test_every_span_arrives_once(
    store: SqliteStore, sidecar: Sidecar, otlp_sink: OtlpSink, limit: int
) -> None:
    """With the resource of its process, and in the order of the store."""
    run_agents(store, 2)
    assert sidecar.run(limit) > 0
    assert [span.span_id for span in otlp_sink.spans] == spans_of(store)
    assert len(otlp_sink.spans) > 5
    assert {span.resource["telemetry.sdk.language"] for span in otlp_sink.spans} == {"python"}
    assert sidecar.relay.follower.lag() == 0
    assert sidecar.state.counters()["spans_delivered"] == len(otlp_sink.spans)


def test_a_restart_goes_on_behind_what_was_sent(
    tmp_path: Path, store: SqliteStore, otlp_sink: OtlpSink
) -> None:
    """Also with the resource of a process whose description was read by the first life."""
    run_agents(store, 1)
    first = Sidecar(tmp_path, store, otlp_sink)
    first.relay.step(4)
    first.close()
    second = Sidecar(tmp_path, store, otlp_sink)
    second.run()
    second.close()
    assert [span.span_id for span in otlp_sink.spans] == spans_of(store)
    assert len({json.dumps(span.resource, sort_keys=True) for span in otlp_sink.spans}) == 1
    assert "telemetry.sdk.language" in otlp_sink.spans[-1].resource


def test_spans_of_nobody_have_a_default_resource(
    store: SqliteStore, sidecar: Sidecar, otlp_sink: OtlpSink, tmp_path: Path
) -> None:
    """Events of older releases name no process, and some processes were never described."""
    source = SqliteStore(tmp_path / "source.db")
    run_agents(source, 1)
    ends = [event for event in source.read(0, 100) if event.event_type in END_EVENTS]
    source.close()
    store.append([replace(ends[0], process=""), replace(ends[1], process="nobody")])
    sidecar.run()
    assert [span.resource for span in otlp_sink.spans] == [{"service.name": "unknown_service"}] * 2


def test_what_the_sampler_dropped_is_not_sent(
    store: SqliteStore, sidecar: Sidecar, otlp_sink: OtlpSink, tmp_path: Path
) -> None:
    """Neither what is not sampled nor what is not recorded."""
    source = SqliteStore(tmp_path / "source.db")
    run_agents(source, 1)
    events = source.read(0, 100)
    source.close()
    ends = [event for event in events if event.event_type in END_EVENTS][:3]
    ends[0] = replace(ends[0], span=replace(ends[0].span, sampled=False))
    ends[1] = replace(ends[1], span=replace(ends[1].span, recording=False))
    store.append(ends)
    sidecar.run()
    assert [span.span_id for span in otlp_sink.spans] == [ends[2].span.span_id]


def test_processes_that_export_themselves_are_left_alone(
    store: SqliteStore, sidecar: Sidecar, otlp_sink: OtlpSink
) -> None:
    """Their spans are counted, not sent twice."""
    run_agents(store, 1, export="inline")
    sidecar.run()
    assert otlp_sink.spans == []
    assert sidecar.state.counters()["spans_exported_inline"] == len(spans_of(store)) > 0


def test_a_dead_letter_does_not_stop_the_rest(
    store: SqliteStore, sidecar: Sidecar, otlp_sink: OtlpSink
) -> None:
    """The collector refuses a request: halves go again, the one to blame is set aside."""
    run_agents(store, 1)
    spans = spans_of(store)
    halvings = len(bin(len(spans))) - 2
    otlp_sink.script(*[Answer(400)] * halvings)
    sidecar.run()
    letters = sidecar.state.dead_letters()
    arrived = [span.span_id for span in otlp_sink.spans]
    assert letters
    assert len(letters) + len(arrived) == len(spans)
    assert {letter.event.span.span_id for letter in letters} | set(arrived) == set(spans)
    assert sidecar.state.counters()["spans_dead_refused"] == len(letters)
    sidecar.state.retry_dead_letters([letter.id for letter in letters])
    sidecar.run()
    assert sorted(span.span_id for span in otlp_sink.spans) == sorted(spans)
    assert sidecar.state.dead_letters() == []


def test_stopped_in_the_middle_nothing_counts_as_sent(
    tmp_path: Path, store: SqliteStore, otlp_sink: OtlpSink
) -> None:
    """The next life begins with the same batch."""
    run_agents(store, 1)
    otlp_sink.script(then=Answer(503))
    first = Sidecar(tmp_path, store, otlp_sink)
    stepping = threading.Thread(target=first.relay.step)
    stepping.start()
    assert otlp_sink.wait_for(lambda sink: len(sink.requests) > 0)
    first.stop.set()
    stepping.join()
    assert first.state.cursor("spans") is None
    assert first.relay.step() is False
    first.close()
    otlp_sink.script()
    second = Sidecar(tmp_path, store, otlp_sink)
    second.run()
    second.close()
    assert [span.span_id for span in otlp_sink.spans] == spans_of(store)


def test_made_ends_are_sent_unless_the_real_one_is_there(
    store: SqliteStore, sidecar: Sidecar, otlp_sink: OtlpSink, tmp_path: Path
) -> None:
    """Also for a process that exports itself, for it is dead."""
    source = SqliteStore(tmp_path / "source.db")
    run_agents(source, 1, export="inline")
    beat, *events = source.read(0, 100)
    source.close()
    ends = [event for event in events if event.event_type in END_EVENTS]
    made = [replace(end, span=replace(end.span, outcome="unknown")) for end in ends[:2]]
    store.append([beat, replace(ends[0], process="")])
    sidecar.state.commit(Change("counters", None, made=made))
    sidecar.run()
    assert {span.span_id: span.resource.get("telemetry.sdk.language") for span in otlp_sink.spans}
    sent = [span.span_id for span in otlp_sink.spans]
    assert sorted(sent) == sorted(end.span.span_id for end in ends[:2])
    assert sidecar.state.made(10) == []
    assert sidecar.run() == 0


def outcome_of(child: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """Return what a worker printed; None when it was killed."""
    out, _ = child.communicate(timeout=100)
    if child.returncode == 0:
        return json.loads(out)
    assert child.returncode == -9, child.returncode
    return None


def start(folder: Path, sink: OtlpSink, death: str) -> subprocess.Popen[bytes]:
    """Start both projections in a process that dies."""
    paths = (folder / "journal.db", folder / "state.db")
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, WORKER, *paths, sink.http_endpoint, death], stdout=subprocess.PIPE
    )


def folded(events: list[Event]) -> dict[str, Any]:
    """Return the totals that the events come to."""
    fold = MetricsFold()
    for event in events:
        fold.apply(event)
    return json.loads(json.dumps(fold.state()))


@pytest.mark.timeout(400)
def test_killed_anywhere_nothing_is_lost_and_nothing_counts_twice(
    tmp_path: Path, store: SqliteStore, otlp_sink: OtlpSink
) -> None:
    """At random, and between delivery and commit: spans arrive, totals are those of one life."""
    run_agents(store, RUNS)
    dice = random.Random(20)  # noqa: S311 - a test's dice
    kills = 0
    found = None
    while kills < KILLS:
        # A start takes about half a second here, and any time elsewhere.
        death = f"commit:{dice.randint(1, 2)}" if kills % 2 else f"{dice.uniform(0, 0.4):.3f}"
        found = outcome_of(start(tmp_path, otlp_sink, death))
        if found is None:
            kills += 1
        run_agents(store, 3)
    found = outcome_of(start(tmp_path, otlp_sink, ""))
    assert found is not None
    spans = spans_of(store)
    arrived = [span.span_id for span in otlp_sink.spans]
    assert set(arrived) == set(spans)
    assert len(arrived) > len(spans)  # what was sent, and not committed
    assert len({(span.span_id, span.trace_id, span.end_ns) for span in otlp_sink.spans}) == len(
        spans
    )
    assert found["totals"] == folded(store.read(0, 1_000_000))
