"""Runs a scenario against a journal of its own and returns the spans it exported."""

from functools import cache

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings

from .scenarios import SCENARIOS, Way

SHUTDOWN_TIMEOUT_S = 10.0


@cache  # several tests look at the same spans, which are immutable
def record(number: str, way: Way) -> tuple[ReadableSpan, ...]:
    """Run a scenario once per session; its journal is shut down, so everything has ended."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    scenario = SCENARIOS[number]
    journal = Journal(
        Settings(grace=scenario.grace), tracer_provider=provider, registry=CollectorRegistry()
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
