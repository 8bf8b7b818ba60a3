"""Real web servers and a sidecar: one /metrics for all workers, nothing lost at any signal."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx
import pytest
from servers.otlp_sink import OtlpSink
from servers.process import wait_until
from servers.programs import APPS, SPANS_OF_A_RUN, WebServer

from .sidecar_process import SidecarProcess

REQUESTS: Final = 20
UVICORN: Final = ("--port", "{port}", "--log-level", "warning")
GUNICORN: Final = ("-b", "127.0.0.1:{port}", "--log-level", "warning")

SERVERS: Final = {
    "uvicorn": ("uvicorn", "web:bare", *UVICORN),
    "uvicorn, 2 workers": ("uvicorn", "web:bare", "--workers", "2", *UVICORN),
    "gunicorn, uvicorn worker": (
        *("gunicorn", "web:bare", "-k", "uvicorn_worker.UvicornWorker", *GUNICORN),
    ),
}
"""Servers that run no exit functions at SIGTERM, and applications without our lifespan."""

RUNS: Final = 'sum(otel_journal_runs_total{outcome="ok"})'


def application(journal: Path) -> dict[str, str]:
    """Return the variables of an application whose journal a sidecar exports."""
    return {
        "PYTHONPATH": str(APPS),
        "OTEL_JOURNAL_STORE": f"sqlite:///{journal}",
        "OTEL_JOURNAL_EXPORT": "sidecar",
    }


def ask(url: str, requests: int) -> None:
    """Send requests, four at a time; all are answered."""
    with ThreadPoolExecutor(4) as pool, httpx.Client(timeout=30.0) as client:
        answers = pool.map(lambda _: client.get(f"{url}/").status_code, range(requests))
        assert Counter(answers) == {200: requests}


@pytest.mark.parametrize("server", SERVERS)
def test_sigterm_loses_nothing(server: str, otlp_sink: OtlpSink, tmp_path: Path) -> None:
    """20 of 20 requests, where the SDK's own processor delivers 0 of 20: fault 2."""
    module, *options = SERVERS[server]
    journal = tmp_path / "journal.db"
    with WebServer(module, *options, variables=application(journal), folder=tmp_path) as running:
        ask(running.url, REQUESTS)
        time.sleep(0.3)  # fifteen times the longest wait of a commit
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": otlp_sink.http_endpoint}
    sidecar = SidecarProcess("--once", "--store", f"sqlite:///{journal}", **endpoint)
    assert sidecar.ended()[0] == 0

    arrived = otlp_sink.spans
    assert Counter(span.name for span in arrived) == dict.fromkeys(SPANS_OF_A_RUN, REQUESTS)
    assert len({span.span_id for span in arrived}) == len(arrived)


def test_four_workers_have_one_scrape_endpoint(
    prometheus_server, otlp_sink: OtlpSink, tmp_path: Path
) -> None:
    """One is killed in between: Prometheus sees counters that only grow, to the exact total."""
    journal = tmp_path / "journal.db"
    arguments = ("web:wsgi", "-w", "4", *GUNICORN)
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": otlp_sink.http_endpoint}
    with (
        WebServer("gunicorn", *arguments, variables=application(journal), folder=tmp_path) as web,
        SidecarProcess("--store", f"sqlite:///{journal}", **endpoint) as sidecar,
    ):
        ask(web.url, 30)
        assert sidecar.answers("/metrics")
        prometheus = prometheus_server(targets=[f"127.0.0.1:{sidecar.port}"])
        assert prometheus.wait_for_value(RUNS, 30) == 30
        worker = _children(web.pid)[0]
        os.kill(worker, signal.SIGKILL)
        assert wait_until(lambda: len(_children(web.pid)) == 4, 30)
        ask(web.url, 50)
        assert prometheus.wait_for_value(RUNS, 80) == 80
        assert prometheus.value(f"sum(resets({RUNS[4:-1]}[5m]))") == 0
        assert len(otlp_sink.wait_for_spans(80 * len(SPANS_OF_A_RUN), timeout=30)) == 240


def _children(process: int) -> list[int]:
    """Return the processes that a process has started, oldest first."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    return [int(number) for number in text.split()]
