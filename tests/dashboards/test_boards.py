"""The boards are current, complete, and read only series that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from otel_journal.metric_catalogue import Series, series_of

NOT_SHOWN: Final = dict.fromkeys(
    (
        "gen_ai_client_operation_duration_seconds",
        "gen_ai_client_operation_time_to_first_chunk_seconds",
        "gen_ai_client_operation_time_per_output_chunk_seconds",
        "gen_ai_client_token_usage",
        "gen_ai_invoke_workflow_duration_seconds",
    ),
    "exists with semconv=1.41 only; the boards are made for the default names",
)
"""Family -> why no board reads it."""
FOREIGN: Final = {"up", "ALERTS"}
"""Series that Prometheus writes itself."""


def samples_of(series: Series) -> set[str]:
    """Return the sample names of a family."""
    if series.type == "histogram":
        return {f"{series.name}_{suffix}" for suffix in ("bucket", "count", "sum")}
    return {series.name}


def panels_of(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the panels of a board without its rows."""
    inner = [child for panel in board["panels"] for child in panel.get("panels", ())]
    return [panel for panel in [*board["panels"], *inner] if panel["type"] != "row"]


def test_committed_boards_are_what_the_generator_writes(dashboards: Path, tmp_path: Path):
    """Whoever changes a board must run the generator."""
    command = [sys.executable, dashboards / "generate.py", tmp_path]
    subprocess.run(command, check=True, capture_output=True, timeout=60)  # noqa: S603 - our own
    written = {path.name: path.read_text() for path in tmp_path.glob("*.json")}
    committed = {path.name: path.read_text() for path in (dashboards / "grafana").glob("*.json")}
    assert written == committed
    assert len(written) == 4


def test_boards_and_rules_read_only_what_exists(expressions, rules, read_metrics):
    """A metric is of the catalogue, recorded by our rules, or Prometheus' own."""
    exposed = {name for series in series_of("0.1") for name in samples_of(series)}
    known = exposed | {rule["record"] for rule in rules if "record" in rule} | FOREIGN
    read = {expression.where: read_metrics(expression.text) for expression in expressions}
    read |= {rule.get("alert") or rule["record"]: read_metrics(rule["expr"]) for rule in rules}
    unknown = {where: names - known for where, names in read.items() if names - known}
    assert not unknown
    assert all(names for where, names in read.items() if " / " in where), "an empty expression"


def test_every_family_is_on_a_board_or_has_an_excuse(expressions, rules, read_metrics):
    """Directly or by a recording rule that a board reads."""
    shown = {name for expression in expressions for name in read_metrics(expression.text)}
    recorded = {rule["record"]: rule["expr"] for rule in rules if "record" in rule}
    shown |= {name for record in shown & recorded.keys() for name in read_metrics(recorded[record])}
    hidden = {series.name for series in series_of("both") if not samples_of(series) & shown}
    assert hidden == set(NOT_SHOWN)


def test_every_recorded_series_is_read_somewhere(expressions, rules, read_metrics):
    """No rule computes what nobody looks at; an address is read by the alerts' annotations."""
    texts = [expression.text for expression in expressions] + [rule["expr"] for rule in rules]
    read = {name for text in texts for name in read_metrics(text)}
    addresses = {"otel_journal:runbooks:info", "otel_journal:grafana:info"}
    assert {rule["record"] for rule in rules if "record" in rule} - read == addresses


def test_idle_quantiles_and_shares_are_no_nan(expressions):
    """The demo is never idle: the guards against 0/0 are looked for in the text."""
    for expression in expressions:
        text = expression.text
        if "histogram_quantile(" in text:
            assert text.endswith(" >= 0"), expression.where
        rates = re.findall(r" / (?:on \([^)]*\) (?:group_left \(\) )?)?\(sum", text)
        assert len(rates) <= text.count(" > 0)"), expression.where


def test_no_board_names_a_data_source(boards):
    """Every panel, target, annotation and variable uses the variable."""
    for board in boards.values():
        sources = [panel["datasource"] for panel in panels_of(board)]
        sources += [target["datasource"] for p in panels_of(board) for target in p["targets"]]
        sources += [note["datasource"] for note in board["annotations"]["list"]]
        variables = board["templating"]["list"]
        sources += [variable["datasource"] for variable in variables[1:]]
        assert {source["uid"] for source in sources} == {"${datasource}"}
        assert variables[0]["type"] == "datasource"
        assert "__inputs" not in board
        names = [variable["name"] for variable in variables]
        assert names == ["datasource", "job", "agent", "model", "tool", "caller"]


def test_every_panel_is_explained(boards):
    """Title, description, unit, thresholds; every title once per board; no panel over another."""
    for board in boards.values():
        panels = panels_of(board)
        for panel in panels:
            defaults = panel["fieldConfig"]["defaults"]
            assert panel["title"]
            assert panel["description"].endswith("."), panel["title"]
            assert defaults["unit"]
            assert defaults["thresholds"]["steps"][0]["value"] is None
        assert len({panel["title"] for panel in panels}) == len(panels)
        identities = [panel["id"] for panel in panels]
        assert len(set(identities)) == len(identities)
        cells = [
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(set(cells)) == len(cells)
        assert all(x < 24 for x, _ in cells)


def test_every_board_shows_firing_alerts(boards):
    """As regions on every graph."""
    for board in boards.values():
        expressions = [note["expr"] for note in board["annotations"]["list"]]
        assert any("ALERTS{" in expr and "firing" in expr for expr in expressions)


@pytest.mark.parametrize("kind", ["datasources", "dashboards"])
def test_provisioning_is_yaml_without_a_uid(dashboards: Path, kind: str):
    """Grafana reads it at its start; addresses come from the environment."""
    (path,) = (dashboards / "grafana" / "provisioning" / kind).glob("*.yml")
    provisioned = yaml.safe_load(path.read_text())
    assert provisioned["apiVersion"] == 1
    (entry,) = provisioned["datasources" if kind == "datasources" else "providers"]
    assert "uid" not in entry
