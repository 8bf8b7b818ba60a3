"""The oracle: what is in the journal arrives, once or with equal ids, and the counters say so.

Workers with real graphs, a sidecar, and a collector that misbehaves; workers and sidecar are
killed at random. Then everything is left in peace, and the books are balanced.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from servers.otlp_answers import Answer
from servers.otlp_records import ReceivedSpan
from servers.otlp_sink import OtlpSink
from servers.process import free_port, wait_until

from otel_journal import open_store
from otel_journal.events import Event
from otel_journal.spans import END_EVENTS

WORKER = Path(__file__).with_name("agent_worker.py")
DEAD_AFTER_S = 10.0
"""Shortest that the sidecar allows."""
REQUEST_TIMEOUT_S = 1
"""Of the sidecar: what a hanging collector costs."""

FAULTS: dict[str, Answer] = {
    "ok": Answer(),
    "503": Answer(503),
    "429 with Retry-After": Answer(429, retry_after=1),
    "500": Answer(500),
    "hang": Answer(delay=REQUEST_TIMEOUT_S * 1.5, keep=False),
    "reset": Answer(reset=True),
    "lost reply": Answer(503, keep=True),
    "partial success": Answer(rejected=1),
    "too large": Answer(413),
    "bad request": Answer(400),
}
"""What the collector does; every one of them heals."""
HELD = {"redirect": Answer(301, location="http://127.0.0.1:1/"), "unauthorised": Answer(401)}
"""What holds the export for half a minute; for long runs."""


@dataclass
class Found:
    """What the oracle compares."""

    stored: list[Event]
    received: list[ReceivedSpan]
    series: dict[tuple[str, frozenset[tuple[str, str]]], float]
    kills: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    rejected: int = 0

    def total(self, name: str, **labels: str) -> float:
        """Sum the samples of a series that have these labels."""
        wanted = set(labels.items())
        return sum(
            value for (found, has), value in self.series.items() if found == name and wanted <= has
        )


class Conservation:
    """One run of everything in a folder."""

    def __init__(self, folder: Path, *, seed: int, workers: int = 2, grpc: bool = False) -> None:
        """Use real processes in `folder`; `seed` decides who is killed when."""
        self._folder = folder
        self._dice = random.Random(seed)  # noqa: S311 - a test's dice
        self._store = f"sqlite:///{folder}/journal.db"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._count = workers
        self._grpc = grpc
        self._sidecar: subprocess.Popen[bytes] | None = None
        self._port = free_port()
        self._seed = seed
        self.kills: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def run(self, seconds: float, faults: dict[str, Answer]) -> Found:
        """Kill and misbehave for `seconds`, then balance."""
        with OtlpSink() as sink:
            over = threading.Event()
            misbehaviour = threading.Thread(target=self._misbehave, args=(sink, faults, over))
            try:
                self._start_sidecar(sink)
                self._workers = [self._worker() for _ in range(self._count)]
                misbehaviour.start()
                self._kill_at_random(sink, seconds)
                over.set()
                misbehaviour.join()
                for worker in self._workers:
                    self._kill(worker, "worker")
                return self._balance(sink)
            finally:
                over.set()
                for process in (*self._workers, self._sidecar):
                    if process is not None:
                        process.kill()
                        process.wait()

    def _misbehave(self, sink: OtlpSink, faults: dict[str, Answer], over: threading.Event) -> None:
        dice = random.Random(self._seed + 1)  # noqa: S311 - a test's dice
        while not over.is_set():
            name = dice.choice(list(faults))
            self.faults[name] += 1
            # One answer each of those that cost spans, else as many as come.
            once = name in {"partial success", "bad request", "too large"}
            sink.script(*([faults[name]] if once else []), then=None if once else faults[name])
            over.wait(dice.uniform(0.1, 0.6))
        sink.script(then=Answer())

    def _kill_at_random(self, sink: OtlpSink, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._dice.uniform(0.3, 1.5))
            if self.kills["sidecar"] < self.kills["worker"]:
                self._kill(self._sidecar, "sidecar")
                self._start_sidecar(sink)
            else:
                number = self._dice.randrange(self._count)
                self._kill(self._workers[number], "worker")
                self._workers[number] = self._worker()

    def _kill(self, process: subprocess.Popen[bytes] | None, who: str) -> None:
        assert process is not None
        assert process.poll() is None, f"{who} had ended by itself: {process.returncode}"
        process.kill()
        process.wait()
        self.kills[who] += 1

    def _worker(self) -> subprocess.Popen[bytes]:
        seed = str(self._dice.randrange(10**6))
        worker = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, WORKER, self._store, seed], stdout=subprocess.PIPE
        )
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ready\n"
        worker.stdout.close()
        return worker

    def _start_sidecar(self, sink: OtlpSink) -> None:
        protocol = "grpc" if self._grpc else "http/protobuf"
        environ = {
            **os.environ,
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.grpc_endpoint if self._grpc else sink.http_endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_TIMEOUT": str(REQUEST_TIMEOUT_S),
            "OTEL_JOURNAL_SIDECAR_DEAD_AFTER": str(DEAD_AFTER_S),
        }
        command = ["-m", "otel_journal", "sidecar", "--store", self._store]
        with (self._folder / "sidecar.log").open("ab") as log:
            self._sidecar = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *command, "--listen", f"127.0.0.1:{self._port}"],
                env=environ,
                stderr=log,
            )

    def _balance(self, sink: OtlpSink) -> Found:
        """Wait until the sidecar has sent everything and closed what the dead left open."""
        assert wait_until(self._settled, timeout=90.0), self._log()
        series = self._scrape()
        assert self._sidecar is not None
        self._sidecar.terminate()
        assert self._sidecar.wait(20) == 0, self._log()
        store = open_store(self._store, read_only=True)
        stored: list[Event] = []
        while page := store.read(stored[-1].seq if stored else 0, limit=5_000):
            stored += page
        store.close()
        rejected = sum(request.answer.rejected for request in sink.requests)
        return Found(stored, sink.spans, series, self.kills, self.faults, rejected)

    def _settled(self) -> bool:
        try:
            series = self._scrape()
        except OSError:
            return False
        left = [
            value
            for (name, labels), value in series.items()
            if name == "otel_journal_processes"
            or (name == "otel_journal_events_pending" and ("sink", "otlp") in labels)
        ]
        closed = sum(v for (name, _), v in series.items() if name == "otel_journal_runs_in_flight")
        return len(left) == 2 and not sum(left) and not closed

    def _scrape(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        url = f"http://127.0.0.1:{self._port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def _log(self) -> str:
        return (self._folder / "sidecar.log").read_text()[-4_000:]


def check(found: Found) -> None:
    """Balance the books."""
    ends = {e.event_id: e for e in found.stored if e.event_type in END_EVENTS and e.span}
    starts = {
        event.event_id.removesuffix("start") + "end": event
        for event in found.stored
        if event.event_id.endswith("/start") and event.span
    }
    left_open = {name: event for name, event in starts.items() if name not in ends}
    expected = {event.span.span_id for event in (*ends.values(), *left_open.values()) if event.span}
    copies: dict[str, set[str]] = {}
    for span in found.received:
        copies.setdefault(span.span_id, set()).add(repr(span))

    assert set(copies) <= expected, "a span was made up"
    lost = expected - set(copies)
    dead = found.total("otel_journal_dead_letters_added_total")
    assert len(lost) <= dead, f"{len(lost)} spans lost, {dead} dead letters"
    assert all(len(same) == 1 for same in copies.values()), "a repeat differs"
    made = {event.span.span_id for event in left_open.values() if event.span}
    for span in found.received:
        how = span.attributes["otel_journal.outcome"], span.attributes.get("otel_journal.closed_by")
        assert (how == ("unknown", "process_died")) is (span.span_id in made)

    roots = [event for event in (*ends.values(), *left_open.values()) if event.span.root]
    assert found.total("otel_journal_runs_total") == len(roots)
    assert found.total("otel_journal_runs_total", outcome="ok") == len(
        [event for event in ends.values() if event.span.root]
    )
    usages = [event.span.usage for event in ends.values() if event.span.usage]
    for kind, count in (
        ("input", sum(usage.input_tokens for usage in usages)),
        ("output", sum(usage.output_tokens for usage in usages)),
    ):
        assert found.total("otel_journal_tokens_total", type=kind) == count
    seen = found.total("otel_journal_events_seen_total", sink="otlp")
    exported = found.total("otel_journal_events_exported_total", sink="otlp")
    dropped = found.total("otel_journal_events_dropped_total", sink="otlp")
    assert seen == exported + dropped
    # The ends that the sidecar made are seen when they are sent, the last ones after the scrape.
    assert len(found.stored) <= seen <= len(found.stored) + len(left_open)
    assert found.total("otel_journal_store_events_lost_total") == 0
    closed = found.total("otel_journal_operations_closed_total", reason="process_died")
    assert closed == len(left_open)
