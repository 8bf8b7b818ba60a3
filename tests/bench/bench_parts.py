"""Benchmarks of the parts: capture, ledger, metrics, spans, and a whole run of callbacks.

Not collected by a plain ``pytest``; to run them (group ``bench``, pytest-benchmark):

    python -m pytest tests/bench -o python_files="bench_*.py" -o python_functions="bench_*"

Add ``--benchmark-autosave`` and later ``--benchmark-compare`` to see what a change costs.

The unit is one agent run of `workloads.script`: 10 operations, 20 callbacks, unless a name says
otherwise. `overhead.py` compares with others, `soak.py` looks at memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from prometheus_client import CollectorRegistry, generate_latest

sys.path.insert(0, str(Path(__file__).parent))

import workloads
from contenders import Forgetful

from otel_journal import Journal, RunJournal, Settings, open_store
from otel_journal.events import Event
from otel_journal.exposition import metrics_for
from otel_journal.ledger import Ledger
from otel_journal.payload import encode
from otel_journal.spans import Spans

RUNS = 20
"""Runs per measured call where one alone would drown in the timer."""
STEPS = workloads.script()
START = next(step for step in STEPS if step.hook == "on_chat_model_start")
END = next(step for step in STEPS if step.hook == "on_llm_end")


def provider() -> TracerProvider:
    """Return a provider whose spans are touched and forgotten."""
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(Forgetful()))
    return made


Opened = Callable[..., Journal]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Provide a function that opens a journal whose worker sleeps, so that callbacks are alone."""
    journals: list[Journal] = []

    def open_journal(*, store: bool = False, **settings: Any) -> Journal:
        settings = {"linger": 10.0, "grace": 0.0, "queue_size": 10_000_000, **settings}
        journals.append(
            Journal(
                Settings(**settings),
                tracer_provider=provider(),
                registry=CollectorRegistry(),
                store=open_store("memory:") if store else None,
            )
        )
        return journals[-1]

    yield open_journal
    for journal in journals:
        journal.shutdown()


def play(handler: RunJournal, runs: int = 1) -> None:
    """Play whole runs to a handler."""
    player = workloads.Player(STEPS)
    player.prepare(runs)
    player.play([handler])


def observations(journal: Journal) -> list[Any]:
    """Return what the callbacks of `RUNS` runs have to say, as the ledger gets it."""
    journal.flush()
    journal.pipeline._worker = object()  # type: ignore[assignment] - nobody empties the inbox
    play(journal.handler(), RUNS)
    notes = list(journal.recorder._inbox)
    journal.recorder._inbox.clear()
    journal.pipeline._worker = None
    return [make(*given) for make, given, _took in notes]


def events(journal: Journal) -> list[Event]:
    """Return the events of `RUNS` runs."""
    ledger = Ledger(wall=lambda at: at)
    for observation in observations(journal):
        ledger.observe(observation)
    return ledger.take()


CAPTURE = [
    pytest.param({}, False, id="off"),
    pytest.param({"capture_content": True}, False, id="content"),
    pytest.param({}, True, id="feed"),
]


@pytest.mark.parametrize(("settings", "store"), CAPTURE)
def bench_chat_start(benchmark, opened, settings, store):
    """One start of a chat model with six messages, on the agent's thread."""
    handler = opened(store=store, **settings).handler()

    def start() -> None:
        handler.on_chat_model_start(*START.given, **START.more, run_id=uuid4(), parent_run_id=None)

    # A context of its own, as LangGraph gives each task: what never ends must not nest.
    benchmark(lambda: copy_context().run(start))


@pytest.mark.parametrize(("settings", "store"), CAPTURE)
def bench_chat_end(benchmark, opened, settings, store):
    """One answer of a chat model with four tool calls, on the agent's thread."""
    handler = opened(store=store, **settings).handler()

    def end() -> None:
        handler.on_llm_end(*END.given, run_id=uuid4())

    benchmark(end)


def bench_chunk(benchmark, opened):
    """One streamed chunk."""
    handler, run = opened().handler(), uuid4()
    handler.on_chat_model_start(*START.given, **START.more, run_id=run)
    handler.on_llm_new_token("tok", run_id=run)

    benchmark(lambda: handler.on_llm_new_token("tok", run_id=run))


@pytest.mark.parametrize("size", [1_000, 1_000_000])
def bench_encode(benchmark, size):
    """JSON of a text: what is cut costs no more than what fits."""
    text = '{"key": "value"}' * (size // 16)

    benchmark(lambda: encode({"text": text}, limit=32_768))


def bench_ledger(benchmark, opened):
    """`RUNS` runs of observations into events."""
    seen = observations(opened(propagate=False))

    def observe(ledger: Ledger) -> list[Event]:
        for observation in seen:
            ledger.observe(observation)
        return ledger.take()

    made = benchmark.pedantic(observe, setup=lambda: ((Ledger(wall=lambda at: at),), {}), rounds=50)
    assert len(made) > 10 * RUNS


def bench_metrics(benchmark, opened):
    """`RUNS` runs of events into counters and histograms."""
    happened = events(opened(propagate=False))
    metrics = metrics_for(CollectorRegistry(), generation="0.1", max_label_values=100)

    benchmark(lambda: metrics.write(happened))


def bench_scrape(benchmark, opened):
    """One scrape after `RUNS` runs."""
    journal = opened()
    play(journal.handler(), RUNS)
    journal.flush()

    benchmark(lambda: generate_latest(journal.registry))


@pytest.mark.parametrize("keep", [(), ("gen_ai.*", "langgraph.node")], ids=["all", "some"])
def bench_spans(benchmark, opened, keep):
    """`RUNS` runs of events into SDK spans, with and without a list of attributes."""
    happened = events(opened(propagate=False))
    spans = Spans(provider(), span_attributes=keep)

    benchmark(lambda: spans.write(happened))
    assert spans.counts.exported


@pytest.mark.parametrize("settings", [{}, {"capture_content": True}], ids=["off", "content"])
def bench_run(benchmark, opened, settings):
    """One whole run, callbacks to exported spans and counters."""
    journal = opened(linger=0.0, **settings)
    handler = journal.handler()
    player = workloads.Player(STEPS)

    def run() -> None:
        player.play([handler])
        journal.flush()

    benchmark.pedantic(run, setup=lambda: player.prepare(1), rounds=200, warmup_rounds=20)
