"""Turns a board into the classic JSON model of Grafana 11, ready for file provisioning."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model import Board, Panel, Query, Row

SCHEMA_VERSION: Final = 39
"""Of Grafana 11.0; later versions migrate it when they load it."""
TAG: Final = "otel-journal"
COLUMNS: Final = 24
HEIGHT: Final = 8
STAT_HEIGHT: Final = 4
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""The variable, never a uid: it works with any Prometheus of the user's."""

VARIABLES: Final = (
    ("job", "Job", "label_values(otel_journal_info, job)", ".+"),
    ("agent", "Agent",
     'label_values(otel_journal_runs_started_total{job=~"$job"}, gen_ai_agent_name)', ".*"),
    ("model", "Model",
     'label_values(otel_journal_llm_calls_total{job=~"$job"}, gen_ai_request_model)', ".*"),
    ("tool", "Tool",
     'label_values(otel_journal_tool_calls_total{job=~"$job"}, gen_ai_tool_name)', ".*"),
    ("caller", "Caller", 'label_values(otel_journal_tokens_total{job=~"$job"}, caller)', ".*"),
)  # fmt: skip
"""Name, label, query, value of "All"; ``.*`` also matches an agent without a name."""

NEW_VERSION: Final = (
    "count by (role, version) (otel_journal_info)"
    " unless count by (role, version) (otel_journal_info offset 10m)"
)
FIRING: Final = 'ALERTS{alertname=~"OtelJournal.+", alertstate="firing"}'

OUTCOME_COLOURS: Final = {
    "ok": "green",
    "error": "red",
    "unknown": "dark-red",
    "interrupted": "blue",
    "handoff": "purple",
    "cancelled": "text",
    "abandoned": "text",
}
"""The same outcome has the same colour wherever it is a legend."""


def rendered(board: Board) -> dict[str, Any]:
    """Return the JSON model of a board."""
    return {
        "uid": board.uid,
        "title": board.title,
        "description": board.question,
        "tags": [TAG],
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": board.since, "to": "now"},
        "timezone": "browser",
        "links": [_link()],
        "annotations": {"list": [
            _annotation("Firing alerts", FIRING, "red", "{{alertname}} {{gen_ai_agent_name}}"),
            _annotation("New version", NEW_VERSION, "blue", "{{role}} {{version}}"),
        ]},
        "templating": {"list": [_datasource(), *(_variable(*row) for row in VARIABLES)]},
        "panels": list(_panels(board)),
    }  # fmt: skip


def _link() -> dict[str, Any]:
    return {
        "type": "dashboards",
        "title": TAG,
        "tags": [TAG],
        "asDropdown": True,
        "keepTime": True,
        "includeVars": True,
    }


def _annotation(name: str, expr: str, colour: str, title: str) -> dict[str, Any]:
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "expr": expr,
        "iconColor": colour,
        "step": "60s",
        "titleFormat": title,
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
    }


def _variable(name: str, label: str, query: str, every: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "multi": True,
        "includeAll": True,
        "allValue": every,
        "current": {"text": ["All"], "value": ["$__all"]},
        "refresh": 2,  # on every change of the time range: agents may be silent now
        "sort": 1,
    }


def _panels(board: Board) -> Iterator[dict[str, Any]]:
    top, number = 0, 1
    for row in board.rows:
        heading = _heading(row, number, top)
        number += 1
        placed = []
        left, top, tallest = 0, top + 1, 0
        for panel in row.panels:
            height = STAT_HEIGHT if panel.kind == "stat" else HEIGHT
            if left + panel.width > COLUMNS:
                left, top, tallest = 0, top + tallest, 0
            position = {"x": left, "y": top, "w": panel.width, "h": height}
            placed.append({"id": number, "gridPos": position, **_panel(panel)})
            left, tallest, number = left + panel.width, max(tallest, height), number + 1
        top += tallest
        if row.collapsed:
            yield {**heading, "panels": placed}
        else:
            yield heading
            yield from placed


def _heading(row: Row, number: int, top: int) -> dict[str, Any]:
    return {
        "id": number,
        "type": "row",
        "title": row.title,
        "collapsed": row.collapsed,
        "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1},
        "panels": [],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    kind = "timeseries" if panel.kind in {"bars", "stacked"} else panel.kind
    model: dict[str, Any] = {
        "type": kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "targets": [
            _target(panel, query, letter)
            for query, letter in zip(panel.queries, ascii_uppercase, strict=False)
        ],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": _overrides(panel)},
        "options": _options(panel),
    }
    if panel.kind == "table":
        model["transformations"] = _transformations(panel)
    return model


def _target(panel: Panel, query: Query, letter: str) -> dict[str, Any]:
    instant = panel.kind in {"table", "bargauge"}
    return {
        "refId": letter,
        "datasource": DATASOURCE,
        "expr": query.expr,
        "legendFormat": query.legend or "__auto",
        "instant": instant,
        "range": not instant,
        "exemplar": panel.exemplars,
        "format": panel.kind if panel.kind in {"table", "heatmap"} else "time_series",
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps = [{"value": value, "color": colour} for value, colour in panel.steps]
    defaults: dict[str, Any] = {
        "unit": panel.unit,
        "thresholds": {"mode": "absolute", "steps": steps},
        "color": {"mode": "palette-classic"},
        "custom": {},
    }
    if panel.unit == "percentunit" and panel.kind != "stat":
        defaults["min"] = 0  # a stat may be negative: a budget overspent
    if panel.kind in {"stat", "bargauge"}:
        defaults["color"] = {"mode": "thresholds"}
    elif panel.kind in {"timeseries", "bars", "stacked"}:
        defaults["custom"] = _drawing(panel)
    return defaults


def _drawing(panel: Panel) -> dict[str, Any]:
    limited = len(panel.steps) > 1
    return {
        "drawStyle": "bars" if panel.kind == "bars" else "line",
        "fillOpacity": {"bars": 80, "stacked": 30}.get(panel.kind, 0),
        "stacking": {"mode": "normal" if panel.kind == "stacked" else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if limited and panel.kind != "bars" else "off"},
        "showPoints": "never",
        "spanNulls": False,
    }


def _overrides(panel: Panel) -> list[dict[str, Any]]:
    if panel.kind == "table":
        return [
            _override(query.legend, "unit", query.unit) for query in panel.queries if query.unit
        ]
    if any(query.legend == "{{outcome}}" for query in panel.queries):
        return [
            _override(outcome, "color", {"mode": "fixed", "fixedColor": colour})
            for outcome, colour in OUTCOME_COLOURS.items()
        ]
    return []


def _override(field: str, option: str, value: object) -> dict[str, Any]:
    return {
        "matcher": {"id": "byName", "options": field},
        "properties": [{"id": option, "value": value}],
    }


def _options(panel: Panel) -> dict[str, Any]:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match panel.kind:
        case "stat":
            return {"reduceOptions": last, "colorMode": "value", "graphMode": "area"}
        case "bargauge":
            return {"reduceOptions": last, "orientation": "horizontal", "displayMode": "basic"}
        case "heatmap":
            return {
                "calculate": False,
                "yAxis": {"unit": panel.unit},
                "exemplars": {"color": "orange"},
                "tooltip": {"mode": "single"},
            }
        case "table":
            return {"showHeader": True}
        case _:
            return {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }


def _transformations(panel: Panel) -> list[dict[str, Any]]:
    """Join the queries of a table by their labels and name the value columns."""
    several = len(panel.queries) > 1
    names = {
        f"Value #{letter}" if several else "Value": query.legend
        for query, letter in zip(panel.queries, ascii_uppercase, strict=False)
    }
    organize = {"excludeByName": {"Time": True, "__name__": True}, "renameByName": names}
    return [{"id": "merge", "options": {}}, {"id": "organize", "options": organize}]
