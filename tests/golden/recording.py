"""Runs a scenario against a journal of its own and returns the spans it exported."""

from functools import cache
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, Store, open_store
from otel_journal.events import Event

from .scenarios import SCENARIOS, Way

SHUTDOWN_TIMEOUT_S = 10.0


@cache  # several tests look at the same spans, which are immutable
def record(number: str, way: Way) -> tuple[ReadableSpan, ...]:
    """Run a scenario once per session; its journal is shut down, so everything has ended."""
    return _run(number, way, None)


def record_stored(number: str, path: Path) -> tuple[tuple[ReadableSpan, ...], list[Event]]:
    """Run a scenario with a journal file; return its spans and what is in the file."""
    store = open_store(f"sqlite:///{path}")
    spans = _run(number, next(iter(SCENARIOS[number].programs)), store)
    events = store.read(limit=100_000)
    store.close()
    return spans, events


def _run(number: str, way: Way, store: Store | None) -> tuple[ReadableSpan, ...]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    scenario = SCENARIOS[number]
    journal = Journal(
        Settings(grace=scenario.grace),
        tracer_provider=provider,
        registry=CollectorRegistry(),
        store=store,
    )
    try:
        caller = scenario.run(way, journal.handler)
    finally:
        finished = journal.shutdown(SHUTDOWN_TIMEOUT_S)
    assert finished, "the journal did not reach its sinks in time"
    spans = exporter.get_finished_spans()
    for generator in caller.kept:
        generator.close()
    provider.shutdown()
    return spans
