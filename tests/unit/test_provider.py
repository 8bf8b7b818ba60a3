"""The provider built from OTEL_* variables: what it exports, counts and promises."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_journal import provider as module
from otel_journal.bounded_call import BoundedCall
from otel_journal.errors import SettingsError
from otel_journal.events import Event, SpanBlock
from otel_journal.provider import (
    CountingExporter,
    EnvironmentProvider,
    resolve_provider,
    scope_version,
    tracer_provider_from_environment,
)
from otel_journal.spans import Spans
from otel_journal.stats import SinkCounts


def events(count: int, *, sampled: bool = True) -> list[Event]:
    """Return end events of `count` different spans."""
    return [
        Event(
            f"op{number}/0/end",
            "run",
            "llm.end",
            "trace",
            5,
            span=SpanBlock(
                op_id=f"op{number}",
                kind="chat",
                name="chat m",
                trace_id=f"{number + 1:032x}",
                span_id=f"{number + 1:016x}",
                start_ns=1,
                end_ns=2,
                attributes={},
                outcome="ok",
                sampled=sampled,
            ),
        )
        for number in range(count)
    ]


class Receiver(ThreadingHTTPServer):
    """Answers every request with `status`, after `release` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        """Listen on a free port of the loopback interface."""
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status = 200
        self.requests: list[str] = []
        self.release = threading.Event()
        self.release.set()


class _Answer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        self.rfile.read(int(self.headers["Content-Length"]))
        server.requests.append(self.path)
        server.release.wait(10)
        self.send_response(server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """Stay silent."""


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Provide an OTLP receiver that the environment points to."""
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def sink() -> Iterator[Callable[..., Spans]]:
    """Provide a factory of sinks; they are closed after the test."""
    made: list[Spans] = []

    def make(provider: TracerProvider | None = None) -> Spans:
        made.append(Spans(provider))
        return made[-1]

    yield make
    for spans in made:
        spans.close(1.0)


def write(spans: Spans, batch: list[Event]) -> None:
    """Write as the pipeline does."""
    spans.counts.seen += len(batch)
    spans.write(batch)


def exporters_of(provider: EnvironmentProvider) -> list[SpanExporter]:
    """Connect the provider and return its exporters."""
    provider.get_tracer("test")
    inner = provider.delivery._exporter
    provider.shutdown()
    return list(getattr(inner, "_exporters", [inner]))


class TestEnvironment:
    """Which variables give which exporters."""

    @pytest.mark.parametrize(
        "variables",
        [
            {},
            {"OTEL_TRACES_EXPORTER": ""},
            {"OTEL_TRACES_EXPORTER": "none"},
            {"OTEL_TRACES_EXPORTER": " none ", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            {"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"},
        ],
    )
    def test_nothing_asked_for(self, monkeypatch, variables):
        """Without exporter or endpoint there is no provider."""
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert tracer_provider_from_environment() is None

    @pytest.mark.parametrize(
        ("variables", "expected"),
        [
            ({"OTEL_TRACES_EXPORTER": "otlp"}, [GrpcExporter]),
            ({"OTEL_TRACES_EXPORTER": "console"}, [ConsoleSpanExporter]),
            ({"OTEL_TRACES_EXPORTER": "otlp_proto_http"}, [HttpExporter]),
            ({"OTEL_TRACES_EXPORTER": "console, otlp"}, [ConsoleSpanExporter, GrpcExporter]),
            ({"OTEL_TRACES_EXPORTER": "console,console"}, [ConsoleSpanExporter]),
            ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, [GrpcExporter]),
            ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1"}, [GrpcExporter]),
            (
                {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
                [HttpExporter],
            ),
            (
                {
                    "OTEL_TRACES_EXPORTER": "otlp",
                    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
                },
                [GrpcExporter],
            ),
        ],
    )
    def test_exporters(self, monkeypatch, variables, expected):
        """The standard variables choose the exporters; traces win over the general ones."""
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert [type(e) for e in exporters_of(tracer_provider_from_environment())] == expected

    def test_exporters_of_other_packages(self, monkeypatch):
        """Any exporter registered as an entry point can be named."""

        class Point:
            @staticmethod
            def load():
                return InMemorySpanExporter

        class Points(tuple):
            __slots__ = ()
            names = frozenset({"mine"})

        monkeypatch.setattr(module.metadata, "entry_points", lambda **_: Points((Point,)))
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "mine")
        (exporter,) = exporters_of(tracer_provider_from_environment())
        assert isinstance(exporter, InMemorySpanExporter)

    @pytest.mark.parametrize(
        ("variables", "words"),
        [
            (
                {"OTEL_TRACES_EXPORTER": "zipkinn"},
                ["OTEL_TRACES_EXPORTER='zipkinn'", "console", "otlp", "none"],
            ),
            (
                {"OTEL_TRACES_EXPORTER": "none,console"},
                ["OTEL_TRACES_EXPORTER='none,console'", "none (alone)"],
            ),
            (
                {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
                ["OTEL_EXPORTER_OTLP_PROTOCOL='http/json'", "grpc, http/protobuf"],
            ),
            (
                {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "h2"},
                ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL='h2'"],
            ),
            (
                {"OTEL_TRACES_EXPORTER": "console", "OTEL_SPAN_LINK_COUNT_LIMIT": "many"},
                ["OTEL_SPAN_LINK_COUNT_LIMIT", "many"],
            ),
        ],
    )
    def test_bad_values_are_named(self, monkeypatch, variables, words):
        """The error names variable, value and what is allowed."""
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SettingsError) as caught:
            tracer_provider_from_environment()
        assert all(word in str(caught.value) for word in words)

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "OTEL_BSP_MAX_QUEUE_SIZE='0'"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "10", "OTEL_BSP_"),  # below the batch size
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon", "'otlp_proto_grpc' cannot be built: .*soon"),
        ],
    )
    def test_bad_values_of_the_exporter(self, monkeypatch, name, value, words):
        """Values that only exporter and batch processor read fail when they are connected."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
        monkeypatch.setenv(name, value)
        provider = tracer_provider_from_environment()
        with pytest.raises(SettingsError, match=words):
            provider.get_tracer("test")

    def test_version_of_a_source_tree(self, monkeypatch):
        """Without an installed distribution the scope version is 0."""

        def missing(name: str) -> str:
            raise module.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(module.metadata, "version", missing)
        assert scope_version.__wrapped__() == "0"


class TestResolution:
    """Which provider is used, and when that is decided."""

    def test_the_given_one_first(self, monkeypatch, tracer_provider):
        """A given provider wins over the environment."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        assert resolve_provider(tracer_provider) is tracer_provider

    def test_then_the_global_one(self, monkeypatch, tracer_provider):
        """The application's global SDK provider wins over the environment."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracer_provider)
        assert resolve_provider() is tracer_provider

    def test_then_the_environment(self, monkeypatch):
        """Without an SDK provider the environment decides."""
        assert resolve_provider() is None
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        assert isinstance(resolve_provider(), EnvironmentProvider)

    def test_a_disabled_sdk_gives_none(self, monkeypatch, tracer_provider):
        """OTEL_SDK_DISABLED holds for a given provider too."""
        monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
        assert resolve_provider(tracer_provider) is None

    def test_late_and_for_good(self, monkeypatch, spans, tracer_provider, sink):
        """The provider may be set after the sink was made; once found it stays."""
        made = sink()
        write(made, events(1))
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: tracer_provider)
        write(made, events(1))
        monkeypatch.setattr(trace, "get_tracer_provider", TracerProvider)
        write(made, events(1))
        assert len(spans.get_finished_spans()) == 2
        assert made.counts.exported == 3

    def test_bad_settings_do_not_reach_the_agent(self, monkeypatch, sink, caplog):
        """Sampling goes on; each write and every flush says that nothing is exported."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkinn")
        made = sink()
        assert made.sample(1, "n", "agent", {}).sampled
        assert "zipkinn" in caplog.text
        monkeypatch.delenv("OTEL_TRACES_EXPORTER")
        for _ in range(2):
            with pytest.raises(SettingsError, match="zipkinn"):
                made.write(events(1))
        assert not made.flush(1.0)
        assert made.counts.exported == 0

    def test_bad_settings_of_the_exporter_are_remembered(self, monkeypatch, sink):
        """An exporter that cannot be built is tried once, and a flush does not call it success."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "0")
        made = sink()
        assert made.sample(1, "n", "agent", {}).sampled
        for _ in range(2):
            with pytest.raises(SettingsError, match="OTEL_BSP_MAX_QUEUE_SIZE"):
                made.write(events(1))
            monkeypatch.delenv("OTEL_BSP_MAX_QUEUE_SIZE", raising=False)
        assert not made.flush(1.0)

    def test_an_exporter_that_breaks_is_no_success(self, monkeypatch, sink):
        """Other exceptions of its constructor reach the pipeline, and the flush knows."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "lz4")
        made = sink()
        assert made.sample(1, "n", "agent", {}).sampled
        assert made.flush(1.0)  # nothing was written yet
        with pytest.raises(Exception, match="lz4"):
            write(made, events(1))
        assert not made.flush(1.0)

    def test_sampling_does_not_connect(self, monkeypatch, sink):
        """The decision on the agent's thread builds no exporter."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
        made = sink()
        assert not made.sample(1, "n", "agent", {}).recording
        assert made._delivery() is None
        write(made, events(1))
        assert made._delivery() is not None


class TestDelivery:
    """Counts and flushes of a provider of our own, against a real HTTP exporter."""

    def test_success(self, receiver, sink):
        """What the receiver took is exported, and the flush says so."""
        made = sink()
        write(made, [*events(3), Event("e", "run", "run.start", "trace", 1)])
        assert made.flush(5.0)
        assert receiver.requests == ["/v1/traces"]
        assert (made.counts.exported, made.counts.pending) == (4, 0)

    @pytest.mark.parametrize("status", [400, 413])
    def test_rejection(self, receiver, sink, status):
        """Refused spans are dropped, and the flush admits it; the next one starts afresh."""
        made = sink()
        receiver.status = status
        write(made, events(3))
        assert not made.flush(5.0)
        assert (made.counts.exported, made.counts.dropped["rejected"]) == (0, 3)
        assert made.counts.pending == 0
        receiver.status = 200
        write(made, events(2))
        assert made.flush(5.0)
        assert made.counts.exported == 2

    def test_a_receiver_that_recovers(self, receiver, sink):
        """While the exporter retries a 503 the spans are pending."""
        made = sink()
        receiver.status = 503
        write(made, events(3))
        assert not made.flush(0.3)
        assert made.counts.pending == 3
        receiver.status = 200
        assert made.flush(10.0)
        assert (made.counts.exported, made.counts.pending) == (3, 0)

    def test_a_dead_endpoint(self, monkeypatch, sink):
        """A flush and a close end in time, and nothing is called exported."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            made = sink()
            write(made, events(3))
            started = time.monotonic()
            assert not made.flush(0.5)
            assert time.monotonic() - started < 1.0
            started = time.monotonic()
            made.close(0.2)
            assert time.monotonic() - started < 0.7
        # Whether the exporter gave up first depends on the SDK's version.
        lost = made.counts.dropped["shutdown"] + made.counts.dropped["rejected"]
        assert (made.counts.exported, lost, made.counts.pending) == (0, 3, 0)

    def test_a_full_queue(self, receiver, sink, monkeypatch):
        """What does not fit is dropped and counted here, never inside the batch processor."""
        monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "4")
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
        made = sink()
        receiver.release.clear()
        write(made, events(10))
        assert made.counts.dropped["queue_full"] == 6
        assert made.counts.pending == 4
        receiver.release.set()
        assert not made.flush(5.0)  # six were lost
        assert (made.counts.exported, made.counts.pending) == (4, 0)
        assert made.flush(5.0)

    def test_spans_that_are_not_sampled(self, receiver, sink):
        """They need no export."""
        made = sink()
        write(made, events(2, sampled=False))
        assert made.flush(5.0)
        assert (made.counts.exported, receiver.requests) == (2, [])

    @pytest.mark.usefixtures("receiver")
    def test_close_delivers(self, sink):
        """Closing exports what waits; what comes afterwards is dropped and counted."""
        made = sink()
        write(made, events(3))
        assert made.close(5.0)
        assert made.counts.exported == 3
        write(made, events(2))
        assert (made.counts.dropped["shutdown"], made.counts.pending) == (2, 0)

    def test_a_late_answer_after_close_changes_nothing(self, receiver, sink):
        """An export that ends after the close was counted as dropped, and stays so."""
        made = sink()
        receiver.release.clear()
        write(made, events(2))
        assert not made.close(0.2)
        delivery = made._delivery()
        receiver.release.set()
        delivery._settle(2, ok=True)
        assert (made.counts.exported, made.counts.dropped["shutdown"]) == (0, 2)

    def test_a_provider_built_elsewhere(self, receiver, sink):
        """A provider from the environment counts as ours when it is given, too."""
        made = sink(tracer_provider_from_environment())
        receiver.status = 400
        write(made, events(2))
        assert not made.flush(5.0)
        assert made.counts.dropped["rejected"] == 2

    @pytest.mark.usefixtures("capsys")
    def test_several_exporters(self, receiver, sink, monkeypatch):
        """With a comma list all exporters get the spans, and all must succeed."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp,console")
        made = sink()
        write(made, events(1))
        assert made.flush(5.0)
        receiver.status = 400
        write(made, events(1))
        assert not made.flush(5.0)
        assert (made.counts.exported, made.counts.dropped["rejected"]) == (1, 1)

    def test_exceptions_of_the_exporter(self):
        """They count as rejections and go on to the SDK, which logs them."""

        class Broken(InMemorySpanExporter):
            def export(self, spans: list[ReadableSpan]) -> SpanExportResult:
                raise ConnectionError(len(spans))

        counts = SinkCounts(seen=1)
        exporter = CountingExporter(Broken(), counts)
        assert exporter.admit()
        with pytest.raises(ConnectionError):
            exporter.export([ReadableSpan("n")])
        assert counts.dropped["rejected"] == 1

    def test_a_forked_child_starts_empty(self):
        """Spans that wait in the parent do not wait in the child, even if a lock was held."""
        exporter = CountingExporter(InMemorySpanExporter(), SinkCounts())
        exporter.admit()
        with exporter._lock:
            pid = os.fork()
            if not pid:
                os._exit(0 if exporter.all_delivered() else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert not exporter.all_delivered()


class TestBoundedCall:
    """SDK calls that ignore their timeout."""

    def test_results(self):
        """Anything but False is a success."""
        call = BoundedCall()
        assert [call(lambda result=result: result, 1.0) for result in (True, None, False)] == [
            True,
            True,
            False,
        ]

    def test_a_call_that_hangs(self):
        """It is left behind, and the next one waits for it no longer than told."""
        call, release, second = BoundedCall(), threading.Event(), threading.Event()
        started = time.monotonic()
        assert not call(lambda: release.wait(10), 0.05)
        assert not call(second.set, 0.05)
        assert time.monotonic() - started < 1.0
        assert not second.is_set()
        release.set()
        assert call(second.set, 1.0)
        assert second.is_set()

    def test_an_interpreter_that_ends(self, monkeypatch):
        """When no thread can be started any more the call runs on the caller's."""

        def refuse(_thread: threading.Thread) -> None:
            message = "can't create new thread at interpreter shutdown"
            raise RuntimeError(message)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert BoundedCall()(threading.get_ident, 1.0)
