"""From a target that is gone to somebody's webhook: Prometheus, our rules, Alertmanager."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from langchain.agents import create_agent
from prometheus_client import CollectorRegistry, start_http_server
from servers import alertmanager as alertmanager_server
from servers import prometheus as prometheus_server
from servers.alertmanager import Alertmanager, Webhook
from servers.process import wait_until

from otel_journal import Journal, Settings
from otel_journal.testing import ScriptedModel, ai

from .users_prometheus import UsersPrometheus

PATIENCE_S: Final = 40.0
_RECEIVER: Final = "http://127.0.0.1:9095"
_WAIT: Final = re.compile(r"group_(wait|interval): \w+")


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Provide the receiver of all notifications."""
    with Webhook() as webhook:
        yield webhook


@pytest.fixture
def alertmanager(
    server_program: Callable[[str], Path], files: Path, tmp_path: Path, webhook: Webhook
) -> Iterator[Alertmanager]:
    """Provide an Alertmanager with the shipped configuration, in a hurry, in front of `webhook`."""
    text = (files / "alertmanager.yml").read_text()
    assert _RECEIVER in text
    config = tmp_path / "alertmanager.yml"
    config.write_text(_WAIT.sub(r"group_\1: 1s", text.replace(_RECEIVER, webhook.url)))
    program = server_program(alertmanager_server.PROGRAM)
    with Alertmanager(program, tmp_path, config) as server:
        yield server


def test_an_alert_reaches_the_webhook(
    server_program: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    registry: CollectorRegistry,
    alertmanager: Alertmanager,
    webhook: Webhook,
) -> None:
    """The application goes away; the team is told which one, and where to read what to do."""
    program = server_program(prometheus_server.PROGRAM)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    target = f"127.0.0.1:{server.server_port}"
    targets = {"otel-journal": [target], "alertmanager": [f"127.0.0.1:{alertmanager.port}"]}
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        Journal(Settings(), registry=registry) as journal,
        UsersPrometheus(program, folder, targets=targets) as prometheus,
    ):
        agent = create_agent(ScriptedModel(script=[ai("well")]), [])
        agent.invoke({"messages": [("user", "how?")]}, {"callbacks": [journal.handler()]})
        assert prometheus.wait_for_value("sum(otel_journal_runs_total)", 1.0) == 1.0
        server.shutdown()
        server.server_close()
        thread.join()
        told = webhook.wait_for_alert("OtelJournalTargetDown", PATIENCE_S)

    assert told is not None
    path, alert = told
    assert path == "/team"  # not critical
    assert alert["status"] == "firing"
    assert alert["labels"]["instance"] == target
    assert alert["labels"]["job"] == "otel-journal"
    assert alert["annotations"]["runbook_url"].endswith("/OtelJournalTargetDown.md")
    assert target in alert["annotations"]["summary"] + alert["annotations"]["description"]


def test_the_fast_form_of_an_alert_mutes_the_slow_one(
    alertmanager: Alertmanager, webhook: Webhook
) -> None:
    """Of two forms of one alert for one agent only the critical one is sent; others are."""
    name = "OtelJournalTokenBudgetBurn"
    forms = [("a", "critical"), ("a", "warning"), ("b", "warning")]
    body = [
        {
            "labels": {
                "alertname": name,
                "severity": severity,
                "job": "j",
                "gen_ai_agent_name": agent,
            }
        }
        for agent, severity in forms
    ]
    assert httpx.post(f"{alertmanager.url}/api/v2/alerts", json=body).is_success

    def sent() -> set[tuple[str, str, str]]:
        return {
            (path, alert["labels"]["gen_ai_agent_name"], alert["labels"]["severity"])
            for path, notification in webhook.notifications
            for alert in notification["alerts"]
        }

    expected = {("/on-call", "a", "critical"), ("/team", "b", "warning")}
    assert wait_until(lambda: sent() >= expected, PATIENCE_S)
    assert sent() == expected
