"""Processes that fork, end, or are ended: what arrives, and that nothing hangs or comes twice."""

from __future__ import annotations

import multiprocessing.process
import multiprocessing.util
import os
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from uuid import uuid4

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from servers.blackhole import Blackhole
from servers.otlp_sink import OtlpSink
from servers.process import free_port
from servers.programs import SPANS_OF_A_RUN, run_program, telemetry

from otel_journal import Journal, Settings, process_life
from otel_journal.provider import EnvironmentProvider
from otel_journal.stats import SinkCounts

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

CHILD_TIMEOUT_S: Final = 1.5
TEARDOWN_S: Final = 1.0
"""What an interpreter full of LangChain may take to end on a loaded machine, after we are done."""
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


def runs_of(sink: OtlpSink, runs: int) -> None:
    """Assert that exactly these runs arrived, each complete and once."""
    sink.wait_for_spans(runs * len(SPANS_OF_A_RUN), timeout=1.0)
    time.sleep(0.1)  # for what should not come
    arrived = sink.spans
    assert Counter(s.name for s in arrived) == Counter(SPANS_OF_A_RUN * runs)
    assert len({s.span_id for s in arrived}) == len(arrived)
    assert len({s.trace_id for s in arrived}) == runs


def in_child(work: Callable[[], object]) -> int | None:
    """Run something in a forked child; return its exit code, None when it was stuck."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: there are other threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    deadline = time.monotonic() + CHILD_TIMEOUT_S
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


@contextmanager
def held_elsewhere(lock: Any, seconds: float = 0.3) -> Iterator[None]:
    """Let another thread hold a lock for a while that has begun."""
    taken = threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            time.sleep(seconds)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    yield
    thread.join()


def run(handler: Any, name: str = "run") -> None:
    """Record a run without children."""
    root = uuid4()
    handler.on_chain_start(None, {}, run_id=root, name=name)
    handler.on_chain_end({}, run_id=root)


DELIVERED: Final = {
    "returns": 1,
    "sigterm_handled": 1,
    "never_closed": 1,
    "os_exit_flushed": 1,
    "fork_after_use": 3,
    "mp_fork": 2,
    "mp_spawn": 2,
    "process_pool": 4,
}
"""How a program ends -> runs that arrive without any flush of its own."""

LOST: Final = ("os_exit", "sigkill")
"""Ends that run no code: without a store, what is in memory goes with the process."""


class TestEnds:
    """Programs that never flush: what a receiver gets."""

    @pytest.mark.parametrize(("way", "runs"), DELIVERED.items())
    def test_every_run_arrives_once(self, way: str, runs: int, otlp_sink: OtlpSink) -> None:
        """Whatever ends a program by way of Python delivers all runs, those of children too."""
        ended = run_program("agent.py", way, variables=telemetry(otlp_sink))
        assert ended.returncode == 0, ended
        runs_of(otlp_sink, runs)

    def test_children_can_use_grpc(self, otlp_sink: OtlpSink) -> None:
        """A child does not depend on the connection that its parent had."""
        ended = run_program("agent.py", "fork_after_use", variables=telemetry(otlp_sink, "grpc"))
        assert ended.returncode == 0, ended
        runs_of(otlp_sink, DELIVERED["fork_after_use"])

    @pytest.mark.parametrize("way", LOST)
    def test_ends_without_any_code_lose_what_is_in_memory(
        self, way: str, otlp_sink: OtlpSink
    ) -> None:
        """The limit without a store: nothing arrives of a run that just ended."""
        run_program("agent.py", way, variables=telemetry(otlp_sink))
        runs_of(otlp_sink, 0)

    @pytest.mark.parametrize("way", ["thread", "open_run"])
    def test_a_journal_first_used_at_the_very_end(self, way: str, otlp_sink: OtlpSink) -> None:
        """A thread that outlives the main one, or an exit within the first run, is delivered."""
        slow_worker = telemetry(otlp_sink, OTEL_JOURNAL_LINGER="5")
        run_program("agent.py", way, variables=slow_worker)
        assert otlp_sink.spans

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_a_dead_collector_does_not_hold_up_the_exit(self, protocol: str) -> None:
        """The program ends within the shutdown timeout and a second; flush says False."""
        with Blackhole() as hole:
            variables = telemetry(hole.endpoint, protocol, OTEL_JOURNAL_SHUTDOWN_TIMEOUT="1")
            ended = run_program("agent.py", "unreachable", variables=variables)
            now = time.monotonic()
        assert ended.returncode == 0, ended
        flushed, last_line_at = ended.stdout.split()
        assert flushed == "False"
        assert now - float(last_line_at) < 1 + 1 + TEARDOWN_S


@needs_fork
class TestFork:
    """Forks in the middle of work."""

    def test_a_hundred_forks_while_others_record(self) -> None:
        """No child is stuck, and no span is lost or written by two processes."""
        ended = run_program("forks.py", "100", variables={})
        *lines, last = ended.stdout.splitlines()
        _, recorded, bad, delivered = last.split()
        spans = [line.split(maxsplit=2) for line in lines]
        by_name = Counter(name for _, _, name in spans)

        assert (bad, delivered) == ("0", "True"), ended.stderr
        assert by_name["invoke_workflow child"] == 100
        assert by_name["invoke_workflow parent"] == int(recorded)
        assert by_name["chat"] == 100 + int(recorded)
        assert len({span_id for _, span_id, _ in spans}) == len(spans)

    def test_a_child_goes_on_in_the_run_of_its_parent(self, otlp_sink: OtlpSink) -> None:
        """What a child does inside a node hangs below it, and the node ends once."""
        run_program("agent.py", "fork_in_a_run", variables=telemetry(otlp_sink))
        spans = {span.name: span for span in otlp_sink.wait_for_spans(4)}
        assert len(otlp_sink.spans) == len(spans) == 4
        assert {span.trace_id for span in spans.values()} == {spans["work"].trace_id}
        assert spans["answer"].parent_span_id == spans["work"].span_id

    def test_child_starts_from_nothing(self, journal: Journal, spans: InMemorySpanExporter) -> None:
        """Queue, inbox and counts are empty in a child; a flush there is honest and quick."""
        handler = journal.handler()
        for _ in range(3):
            run(handler)
        assert journal.flush()
        run(handler, "waits")  # in the inbox, or in the queue
        before = len(spans.get_finished_spans())

        def child() -> None:
            assert len(journal.recorder) == len(journal.pipeline) == 0
            for counts in journal.pipeline.counts.values():
                assert (counts.seen, counts.exported, counts.pending) == (0, 0, 0)
            spans.clear()
            run(handler, "child")
            assert journal.flush()
            assert [s.name for s in spans.get_finished_spans()] == ["invoke_workflow child"]

        assert in_child(child) == 0
        assert journal.flush()
        assert len(spans.get_finished_spans()) in {before, before + 1}

    def test_open_operations_end_in_the_parent_only(
        self, journal: Journal, spans: InMemorySpanExporter
    ) -> None:
        """A child that shuts down does not end what its parent is still doing."""
        root = uuid4()
        handler = journal.handler()
        handler.on_chain_start(None, {}, run_id=root, name="parent")

        def child() -> None:
            spans.clear()
            handler.on_chain_end({}, run_id=root)
            assert journal.shutdown()
            assert spans.get_finished_spans() == ()

        assert in_child(child) == 0
        handler.on_chain_end({}, run_id=root)
        assert journal.flush()
        assert [s.name for s in spans.get_finished_spans()] == ["invoke_workflow parent"]

    def test_fork_waits_for_whoever_holds_the_ledger(self, journal: Journal) -> None:
        """A child never sees a half-made step, nor a lock that nobody will release."""
        with held_elsewhere(journal.recorder._lock):
            began = time.monotonic()
            assert in_child(lambda: journal.summary("none")) == 0
            assert time.monotonic() - began >= 0.2

    def test_fork_does_not_wait_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A lock that stays held delays a fork by a bounded time."""
        monkeypatch.setattr(process_life, "FORK_WAIT_S", 0.05)
        lock = threading.Lock()
        process_life.hold_at_fork(lock)
        with held_elsewhere(lock, 0.5):
            began = time.monotonic()
            assert in_child(lambda: None) == 0
            assert time.monotonic() - began < 0.4
        assert lock.acquire(timeout=0), "the parent's lock is as it was"

    def test_locks_are_free_after_a_fork(self) -> None:
        """Parent and child find a held lock released."""
        lock = threading.RLock()
        process_life.hold_at_fork(lock)
        assert in_child(lambda: [lock.acquire(timeout=0), lock.release()]) == 0
        taken: list[bool] = []
        thread = threading.Thread(target=lambda: taken.append(lock.acquire(timeout=0)))
        thread.start()
        thread.join()
        assert taken == [True]

    def test_scrape_in_a_child_that_was_forked_in_a_scrape(
        self, journal: Journal, registry: CollectorRegistry
    ) -> None:
        """The collector's lock is free in the child."""
        assert journal._metrics is not None
        with held_elsewhere(journal._metrics.collector._lock):
            assert in_child(lambda: list(registry.collect())) == 0

    def test_fork_while_the_exporter_is_being_imported(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The worker may import gRPC for half a second; a child of that moment can export."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        provider = EnvironmentProvider(["otlp_proto_http"], SinkCounts())
        with held_elsewhere(provider._connecting):
            assert in_child(lambda: provider.get_tracer("x")) == 0
        provider.shutdown()

    def test_child_has_a_connection_of_its_own(
        self, monkeypatch: pytest.MonkeyPatch, registry: CollectorRegistry
    ) -> None:
        """Two processes never write into one connection: their requests would be mixed up."""
        clients: list[tuple[str, int]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                clients.append(self.client_address)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        try:
            with Journal(Settings(), registry=registry) as journal:
                handler = journal.handler()
                run(handler)
                assert journal.flush()

                def child() -> None:
                    run(handler)
                    assert journal.flush()

                assert in_child(child) == 0
            assert len(clients) == len(set(clients)) == 2
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class _Ending:
    def __init__(self) -> None:
        self.exits = 0

    def forked(self) -> None:
        """Do nothing."""

    def exit(self) -> None:
        """Count."""
        self.exits += 1
        process_life.forget(self)


@pytest.fixture
def as_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process look like a child of `multiprocessing`."""
    monkeypatch.setattr(multiprocessing.process, "parent_process", object)
    monkeypatch.setattr(process_life, "_finalized", set())
    monkeypatch.setattr(process_life, "_living", type(process_life._living)())


class TestRegistry:
    """Who is told about the end."""

    def test_exit_tells_every_open_journal_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A journal that has shut down is not told again."""
        monkeypatch.setattr(process_life, "_living", type(process_life._living)())
        one, other = _Ending(), _Ending()
        process_life.register(one)
        process_life.register(other)
        process_life.forget(other)
        process_life._exit()
        process_life._exit()
        assert (one.exits, other.exits) == (1, 0)

    def test_finalizer_of_a_child_is_registered_once(self, as_child: None) -> None:  # noqa: ARG002
        """`multiprocessing` ends the journals of its children, whenever they were made."""
        one, other = _Ending(), _Ending()
        finalizers = multiprocessing.util._finalizer_registry
        before = set(finalizers)
        process_life.register(one)
        process_life.register(other)
        (ours,) = set(finalizers) - before
        finalizers[ours]()
        assert (one.exits, other.exits) == (1, 1)


class TestShutdown:
    """Ends that the program asks for."""

    def test_context_manager_delivers(
        self, tracer_provider: TracerProvider, spans: InMemorySpanExporter
    ) -> None:
        """Leaving ``with Journal()`` ends open operations and exports everything."""
        with Journal(
            Settings(), tracer_provider=tracer_provider, registry=CollectorRegistry()
        ) as journal:
            journal.handler().on_chain_start(None, {}, run_id=uuid4(), name="open")
        (span,) = spans.get_finished_spans()
        assert span.attributes is not None
        assert span.attributes["otel_journal.outcome"] == "abandoned"
        assert journal not in process_life.living()

    def test_late_callbacks_are_counted_and_pile_up_nowhere(self, journal: Journal) -> None:
        """What comes after the end is dropped by ``shutdown``, not kept."""
        handler = journal.handler()
        run(handler)
        assert journal.shutdown()
        for _ in range(100):
            run(handler)
        assert len(journal.recorder) == len(journal.pipeline) == 0
        for counts in journal.pipeline.counts.values():
            assert counts.dropped["shutdown"] == 200
            assert counts.pending == 0
            assert counts.seen == counts.exported + 200

    @pytest.mark.parametrize("collector", ["hangs", "refuses"])
    @pytest.mark.parametrize("call", [Journal.flush, Journal.shutdown])
    def test_flush_and_shutdown_tell_the_truth(
        self,
        collector: str,
        call: Callable[..., bool],
        monkeypatch: pytest.MonkeyPatch,
        registry: CollectorRegistry,
    ) -> None:
        """Neither claims success when nothing arrived, and both keep to their time."""
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        with Blackhole() if collector == "hangs" else nullcontext() as hole:
            endpoint = hole.endpoint if hole else f"http://127.0.0.1:{free_port()}"
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
            journal = Journal(Settings(), registry=registry)
            run(journal.handler())
            began = time.monotonic()
            assert call(journal, timeout=0.3) is False
            assert time.monotonic() - began < 0.8
            journal.shutdown(timeout=0.1)
            counts = journal.pipeline.counts["spans"]
            assert counts.seen == counts.exported + sum(counts.dropped.values())
