"""What is in the journal reaches Jaeger, although a collector and Jaeger fail on the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from servers.jaeger import Jaeger
from servers.otelcol import Otelcol
from servers.process import wait_until
from sidecar.sidecar_process import SidecarProcess

from otel_journal import open_store
from otel_journal.spans import END_EVENTS

SERVICE: Final = "losing-service"
WORKER: Final = Path(__file__).parents[1] / "sidecar" / "agent_worker.py"
STAGE_S: Final = 1.0
"""How long agents work on in each state of the servers."""
ARRIVAL_S: Final = 60.0
PAGE: Final = 1_000

Ids = tuple[str, str]
"""Trace and span id."""


@contextmanager
def working(store: str) -> Iterator[None]:
    """Run agents in a process of their own, which is killed in the end."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    worker = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, WORKER, store, "1"],
        env=environment | {"OTEL_SERVICE_NAME": SERVICE},
        stdout=subprocess.PIPE,
    )
    assert worker.stdout is not None
    try:
        assert worker.stdout.readline() == b"ready\n"
        yield
    finally:
        worker.kill()
        worker.communicate()


def journaled(store_url: str) -> set[Ids]:
    """Return the spans that the journal says there are."""
    store = open_store(store_url)
    found: set[Ids] = set()
    after = 0
    while events := store.read(after=after, limit=PAGE):
        after = events[-1].seq
        found |= {
            (event.span.trace_id, event.span.span_id)
            for event in events
            if event.span is not None and event.event_type in END_EVENTS
        }
    store.close()
    return found


def stored(jaeger: Jaeger, trace_ids: set[str]) -> set[Ids]:
    """Return the spans that Jaeger has of some traces."""
    return {
        (span.trace_id, span.span_id) for trace_id in trace_ids for span in jaeger.trace(trace_id)
    }


@pytest.mark.timeout(240)
def test_a_killed_collector_and_an_absent_jaeger_lose_nothing_of_the_journal(
    otelcol: Callable[..., Otelcol], jaeger: Callable[..., Jaeger], tmp_path: Path
) -> None:
    """Jaeger goes, the collector is killed and comes back, then Jaeger: every span is there."""
    store = f"sqlite:///{tmp_path / 'journal.db'}"
    first = jaeger()
    collector = otelcol("otelcol.yaml", export_to=first.place.grpc_endpoint)
    sending = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.place.http_endpoint}
    with working(store), SidecarProcess("--store", store, **sending) as sidecar:
        assert first.wait_for_traces(SERVICE, 1)
        first.stop()
        before = len(journaled(store))
        time.sleep(STAGE_S)  # to the collector's disk only
        collector.kill()
        time.sleep(STAGE_S)  # to the journal only
        otelcol("otelcol.yaml", export_to=first.place.grpc_endpoint, place=collector.place)
        time.sleep(STAGE_S)
        second = jaeger(first.place)
        assert len(journaled(store)) > before
        assert sidecar.process.poll() is None

    wanted = journaled(store)
    trace_ids = {trace_id for trace_id, _ in wanted}
    with SidecarProcess("--store", store, **sending):  # the last one was killed
        wait_until(lambda: trace_ids <= second.trace_ids(SERVICE), ARRIVAL_S)
        wait_until(lambda: wanted <= stored(second, trace_ids), ARRIVAL_S)
        missing = wanted - stored(second, trace_ids)
    assert not missing, f"{len(missing)} of {len(wanted)} spans are not in Jaeger"
