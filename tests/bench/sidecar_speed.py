"""How many spans a second a sidecar moves from a SQLite journal to a collector, on one core.

    python tests/bench/sidecar_speed.py [--spans 200000]

Rows of about 1 KB, written beforehand. The collector is another process that answers 200 and
throws everything away. Beside it, in the same run: the SDK's own way, events -> ReadableSpan ->
encode_spans -> its OTLP exporter, to the same collector. CPU seconds of this process only.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from otel_journal import open_store
from otel_journal.events import Event, SpanBlock, Usage
from otel_journal.exceptions_log import Shape
from otel_journal.metrics import MetricsFold
from otel_journal.sidecar.books import Books
from otel_journal.sidecar.exposition import SidecarCollector, SidecarStats
from otel_journal.sidecar.otlp.counts import ExportCounts
from otel_journal.sidecar.otlp.delivery import Delivery
from otel_journal.sidecar.otlp.encoding import SpanEncoder
from otel_journal.sidecar.otlp.endpoint import endpoint_from_env
from otel_journal.sidecar.otlp.transport import connect
from otel_journal.sidecar.relay import Relay
from otel_journal.sidecar.state import State
from otel_journal.sidecar.workers import look_for_cycles_less
from otel_journal.spans import Spans

BATCH = 512
"""Spans of a request of the SDK's BatchSpanProcessor."""
TEXT = "x" * 300


def event(number: int) -> Event:
    """Return the end of a model call, about 1 KB in the store."""
    block = SpanBlock(
        op_id=f"{number:032x}",
        kind="chat",
        name="chat gpt-4o",
        trace_id=f"{number // 8 + 1:032x}",
        span_id=f"{number + 1:016x}",
        parent_span_id=f"{number:016x}",
        start_ns=1_764_500_000_000_000_000 + number,
        end_ns=1_764_500_001_000_000_000 + number,
        outcome="ok",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.response.model": "gpt-4o-2024-08-06",
            "gen_ai.response.finish_reasons": ["stop"],
            "gen_ai.usage.input_tokens": number % 4_000,
            "gen_ai.usage.output_tokens": number % 900,
            "langchain.run_id": f"{number:032x}",
            "otel_journal.outcome": "ok",
            "text": TEXT,
        },
        agent="agent",
        usage=Usage(number % 4_000, number % 900),
    )
    run = f"run-{number // 8}"
    return Event(f"{number:032x}/0/end", run, "llm.end", "trace", block.end_ns, "t", span=block)


def collect(pipe: Connection) -> None:
    """Answer every request with 200, and forget it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pipe.send(server.server_port)
    server.serve_forever()


class Clock:
    """CPU and wall seconds of this process since it was made."""

    def __init__(self) -> None:
        """Start."""
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def rates(self, spans: int) -> str:
        """Return spans per second of CPU and of wall time."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        return f"{spans / cpu:9,.0f} spans/s of CPU   {spans / wall:9,.0f} spans/s of wall time"


def by_sidecar(folder: Path, url: str, port: int, spans: int, *, counting: bool) -> str:
    """Move everything as `otel-journal sidecar --once` does."""
    store = open_store(url, read_only=True)
    state = State(folder / f"state-{counting}.db")
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"}
    encoder = SpanEncoder(Shape("0.1", capture_content=False))
    transport = connect(endpoint_from_env(environ))
    delivery = Delivery(transport, encoder, counts=ExportCounts(), stop=threading.Event())
    relay = Relay(store, state, delivery, encoder)
    books = Books(store, state, SidecarCollector(MetricsFold(), SidecarStats))
    look_for_cycles_less()
    clock = Clock()
    while relay.step():
        pass
    if counting:
        while books.step():
            pass
        books.close()
    told = clock.rates(spans)
    state.close()
    store.close()
    return told


class Batches(SpanExporter):
    """Hands spans on in batches, as the BatchSpanProcessor does, without its thread."""

    def __init__(self, exporter: SpanExporter) -> None:
        """Export to `exporter`."""
        self._exporter = exporter
        self._spans: list[ReadableSpan] = []

    def export(self, spans: object) -> SpanExportResult:
        """Take a span."""
        self._spans += spans  # type: ignore[arg-type, operator]
        if len(self._spans) >= BATCH:
            self._exporter.export(self._spans)
            self._spans = []
        return SpanExportResult.SUCCESS


def by_sdk(url: str, port: int, spans: int) -> str:
    """Move everything through the SDK's spans and its exporter."""
    store = open_store(url, read_only=True)
    gc.set_threshold(700)  # Python's own
    provider = TracerProvider(resource=Resource({"service.name": "x"}), shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{port}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(Batches(exporter)))
    sink = Spans(provider)
    clock = Clock()
    after = 0
    while events := store.read(after, 2_000):
        sink.write(events)
        after = events[-1].seq
    told = clock.rates(spans)
    store.close()
    return told


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=200_000)
    spans = parser.parse_args().spans
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    collector = context.Process(target=collect, args=(theirs,), daemon=True)
    collector.start()
    port = ours.recv()
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:///{name}/journal.db"
        store = open_store(url)
        for first in range(0, spans, 1_000):
            store.append([event(number) for number in range(first, first + 1_000)])
        store.close()
        size = Path(name, "journal.db").stat().st_size / spans
        sys.stdout.write(f"{spans:,} rows of {size:,.0f} bytes, {sys.version.split()[0]}\n")
        told = by_sidecar(Path(name), url, port, spans, counting=False)
        sys.stdout.write(f"sidecar, spans              {told}\n")
        told = by_sidecar(Path(name), url, port, spans, counting=True)
        sys.stdout.write(f"sidecar, spans and counters {told}\n")
        sys.stdout.write(f"SDK spans and exporter      {by_sdk(url, port, spans)}\n")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        sys.stdout.write(f"peak memory {peak} MiB\n")
    collector.terminate()


if __name__ == "__main__":
    main()
