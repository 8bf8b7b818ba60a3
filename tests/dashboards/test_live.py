"""Every expression of the boards, evaluated by a real Prometheus over the demo's own series."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry, start_http_server
from servers.process import wait_until
from servers.prometheus import Prometheus

from otel_journal.demo import Stage

INCIDENTS: Final = 2
RULES_PATIENCE_S: Final = 40.0

EMPTY: Final = {
    "Agents overview / Share of failed model calls / A": "no model call of the demo fails",
    "Tokens and cost / Tokens per minute against before / B": "there is no yesterday",
    "Tokens and cost / Tokens per minute against before / C": "there is no last week",
    "Runs and tools / Model calls per run / B": "there is nothing three hours ago",
    "Runs and tools / Failed runs by error type / A": "no run of the demo fails",
    "Runs and tools / Retrieval duration / A": "the demo retrieves nothing",
    "Runs and tools / Retrieval duration / B": "the demo retrieves nothing",
}
"""Expressions that have no series on a new server that has only seen the demo, and why."""
_VALUES: Final = {  # long windows: the tests must not depend on how long ago the demo was played
    "$__rate_interval": "10m",
    "$__range": "1h",
    '"$job"': '".+"',
    '"$agent"': '".*"',
    '"$model"': '".*"',
    '"$tool"': '".*"',
    '"$caller"': '".*"',
}


def with_values(expression: str) -> str:
    """Return an expression as Grafana sends it with "All" everywhere."""
    for variable, value in _VALUES.items():
        expression = expression.replace(variable, value)
    assert not re.search(r"\$(?!1)", expression), expression
    return expression


@pytest.fixture(scope="module")
def demo_metrics() -> Iterator[tuple[str, Stage]]:
    """Provide the address of the demo's /metrics and its stage, on which nothing was played."""
    registry = CollectorRegistry()
    with Stage(registry) as stage:
        server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
        yield f"127.0.0.1:{server.server_port}", stage
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def watching(
    demo_metrics: tuple[str, Stage],
    prometheus_server: Callable[..., Prometheus],
    rule_files: tuple[Path, ...],
) -> Prometheus:
    """Provide a Prometheus with our rules that has seen the demo's counters rise."""
    address, stage = demo_metrics
    server = prometheus_server(targets=[address], rules=rule_files)
    assert server.wait_for_scrape()
    for _ in range(3):  # the first play gives birth to series; a rate needs two points after it
        stage.play(INCIDENTS)
        assert server.wait_for_scrape()
    last = "job_agent:otel_journal_token_budget:burnrate1d > 0"
    assert wait_until(lambda: bool(server.query(last)), RULES_PATIENCE_S)
    return server


def test_every_expression_gives_series_without_nan(watching: Prometheus, expressions):
    """No error, no NaN, and something to draw: all but the listed few."""
    empty = set()
    for expression in expressions:
        series = watching.query(with_values(expression.text))
        assert not [found for found in series if math.isnan(found.value)], expression.where
        if not series and "annotation" not in expression.where:  # nothing fires, nothing is new
            empty.add(expression.where)
    assert empty == set(EMPTY)


def test_every_rule_evaluates(watching: Prometheus, rules):
    """Prometheus finds no fault with a rule on live series."""
    loaded = watching._get("rules", {})["groups"]
    evaluated = [rule for group in loaded for rule in group["rules"]]
    assert len(evaluated) == len(rules)
    assert not [rule["name"] for rule in evaluated if rule["health"] == "err"]


def test_replays_of_the_demo_are_seen(watching: Prometheus):
    """The alert for callbacks that come twice is on its way: the demo delivers all twice."""
    pending = 'ALERTS{alertname="OtelJournalReplayStorm"}'
    assert wait_until(lambda: bool(watching.query(pending)), RULES_PATIENCE_S)
