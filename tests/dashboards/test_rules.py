"""Rules are valid, do what their tests say, and lead whoever is paged to a runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from otel_journal.rule_settings import settings_group


def run(promtool: Path, *arguments: str | Path) -> None:
    """Run promtool; its own words are the failure message."""
    done = subprocess.run(  # noqa: S603 - our own command line
        [promtool, *arguments], capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr


def checks_of(rule_tests: list[dict[str, Any]]) -> list[tuple[str, set[str]]]:
    """Return for each check of an alert its name and the severities expected to fire."""
    return [
        (check["alertname"], {alert["exp_labels"]["severity"] for alert in check["exp_alerts"]})
        for test in rule_tests
        for check in test.get("alert_rule_test", ())
    ]


def test_rules_are_valid(promtool: Path, rule_files: tuple[Path, ...]):
    """Promtool's checks, all of its linters included."""
    run(promtool, "check", "rules", "--lint=all", "--lint-fatal", *rule_files)


def test_settings_are_current(dashboards: Path):
    """What Prometheus loads is what the settings file says, as the README makes it."""
    rules = dashboards / "rules"
    made = settings_group((rules / "settings.toml").read_text(encoding="utf-8"), "settings.toml")

    assert (rules / "settings.rules.yml").read_text(encoding="utf-8") == made


def test_rules_do_what_their_tests_say(promtool: Path, rule_test: Path):
    """Promtool plays every test of a file."""
    run(promtool, "test", "rules", rule_test)


def test_every_alert_is_tested_firing_and_silent(alerts, rule_tests):
    """Each severity fires in a check, and stays silent in another."""
    checks = checks_of(rule_tests)
    for alert in alerts:
        name, severity = alert["alert"], alert["labels"]["severity"]
        fired = [severity in severities for checked, severities in checks if checked == name]
        assert {True, False} <= set(fired), f"{name} {severity}: {fired}"


def test_every_alert_leads_somewhere(alerts, dashboards: Path, boards):
    """Severity, component, a summary with the value, a runbook that exists, a board."""
    boards_by_uid = {board["uid"]: board for board in boards.values()}
    for alert in alerts:
        name, notes = alert["alert"], alert["annotations"]
        assert name.startswith("OtelJournal")
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["labels"]["component"] in {"agent", "journal"}
        assert "$value" in notes["summary"], name
        assert notes["description"], name
        assert notes["runbook"] == f"dashboards/runbooks/{name}.md"
        assert (dashboards / "runbooks" / f"{name}.md").is_file()
        assert notes["runbook_url"].endswith(f"/{name}.md")
        link = re.search(r"/d/([\w-]+)\?(.+)$", notes["dashboard_url"].strip())
        assert link, name
        variables = {v["name"] for v in boards_by_uid[link[1]]["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", link[2])) <= variables


def test_every_runbook_has_an_alert_and_all_its_parts(alerts, dashboards: Path):
    """Meaning, impact, where to look first, what to do."""
    runbooks = {path.stem: path.read_text() for path in (dashboards / "runbooks").glob("*.md")}
    assert set(runbooks) == {alert["alert"] for alert in alerts}
    for name, text in runbooks.items():
        assert text.startswith(f"# {name}\n")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["Meaning", "Impact", "First look", "What to do"], name
        assert "```promql" in text


def test_runbooks_ask_for_series_that_exist(dashboards: Path, alerts, rules, read_metrics):
    """Every query of a runbook reads what its neighbours read: exposed or recorded series."""
    from otel_journal.metric_catalogue import series_of  # noqa: PLC0415 - only here

    known = {rule["record"] for rule in rules if "record" in rule} | {"up"}
    for series in series_of("0.1"):
        known |= {series.name, *(f"{series.name}_{part}" for part in ("bucket", "count", "sum"))}
    for alert in alerts:
        text = (dashboards / "runbooks" / f"{alert['alert']}.md").read_text()
        for block in re.findall(r"```promql\n(.*?)```", text, re.DOTALL):
            assert read_metrics(block) <= known, alert["alert"]


def test_settings_hold_every_number_of_the_user(rules):
    """The rules' own file must not name an agent, a model or a price."""
    for rule in rules:
        if ":otel_journal" in rule.get("record", "") or "alert" in rule:
            assert not re.search(r"(agent_name|request_model)\s*=", rule["expr"])
