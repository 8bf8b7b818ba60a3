"""Health and metrics over a real server."""

from __future__ import annotations

import json
import threading

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain


def test_series_come_in_the_format_that_is_asked_for(site):
    """OpenMetrics when the scraper takes it, else Prometheus' text."""
    text = site.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=")
    assert [one.samples[0].value for one in plain(text.text) if one.name == "seen"] == [3]
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = site.get("/metrics", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.headers["vary"] == "Accept"
    assert [one.samples[0].value for one in openmetrics(answer.text) if one.name == "seen"] == [3]


def test_series_wait_for_the_totals(site):
    """Half of the totals would look like counters that were reset."""
    site.health.complete = False
    answer = site.get("/metrics")
    assert answer.status_code == 503
    assert "caught up" in answer.json()["detail"]
    site.health.complete = True
    assert site.get("/metrics").status_code == 200


def test_readiness_has_a_line_for_each_reason(site):
    """The reasons are JSON lines; the process lives all the same."""
    assert (site.get("/readyz").status_code, site.get("/readyz").content) == (200, b"")
    site.health.found = ["the store is away", "the collector refuses"]
    answer = site.get("/readyz")
    assert answer.status_code == 503
    assert [json.loads(line)["problem"] for line in answer.text.splitlines()] == site.health.found
    alive = site.get("/healthz")
    assert (alive.status_code, alive.text) == (200, "ok\n")


@pytest.mark.parametrize("readers", [20])
def test_a_store_that_hangs_stops_neither_probes_nor_scrapes(site, store, readers):
    """Every reader is told after a while; those threads are bounded, and others answer."""
    release = threading.Event()

    class Hanging:
        epoch = "e"

        def watermark(self) -> int:
            release.wait(60)
            return 0

    reads = site.app.state.reads
    reads.patience_s = 0.5
    site.store = Hanging()
    statuses: list[int] = []
    asking = [
        threading.Thread(target=lambda: statuses.append(site.get("/v1/runs").status_code))
        for _ in range(readers)
    ]
    for one in asking:
        one.start()
    assert site.get("/healthz").status_code == 200
    assert site.get("/metrics").status_code == 200
    for one in asking:
        one.join(60)
    held = [one for one in threading.enumerate() if one.name.startswith("otel-journal-web")]
    release.set()
    assert statuses == [503] * readers
    assert 0 < len(held) <= 8
    site.store = store
    assert site.get("/v1/runs").status_code == 200
