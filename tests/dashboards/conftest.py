"""The committed boards and rules, read as their users' programs read them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

FOLDER: Final = Path(__file__).parents[2] / "dashboards"
RULE_FILES: Final = (
    FOLDER / "rules" / "settings.rules.yml",
    FOLDER / "rules" / "otel-journal.rules.yml",
)
TEST_FILES: Final = tuple(sorted((FOLDER / "rules" / "tests").glob("*.test.yml")))

_NOISE: Final = (
    r"#[^\n]*",  # comments
    r'"[^"]*"',  # strings, so that braces inside them do no harm
    r"\{[^{}]*\}",  # label matchers
    r"\[[^\]]*\]",  # windows
    r"\b(?:by|on|group_left|ignoring|without)\s*\([^)]*\)",  # label lists
    r"\boffset\s+\w+",
)
_WORDS: Final = frozenset({"and", "or", "unless", "bool"})
_NAME: Final = re.compile(r"(?<![\w.:$])[A-Za-z_][\w:]*(?!\w|\s*\()")


@dataclass(frozen=True)
class Expression:
    """One PromQL expression of a board and where it stands."""

    where: str
    text: str
    instant: bool = False


def metrics_in(expression: str) -> set[str]:
    """Return the names of the metrics that an expression reads."""
    for noise in _NOISE:
        expression = re.sub(noise, " ", expression)
    return {name for name in _NAME.findall(expression) if name not in _WORDS}


def boards_in(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the boards of a folder: file name -> model."""
    return {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def panels_of(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the panels of a board, those in collapsed rows too, without the rows."""
    inner = [child for panel in board["panels"] for child in panel.get("panels", ())]
    return [panel for panel in [*board["panels"], *inner] if panel["type"] != "row"]


def expressions_of(board: dict[str, Any]) -> list[Expression]:
    """Return what a board asks of Prometheus, variables and annotations included."""
    panels = [
        Expression(f"{board['title']} / {panel['title']} / {target['refId']}", target["expr"])
        for panel in panels_of(board)
        for target in panel["targets"]
    ]
    annotations = [
        Expression(f"{board['title']} / annotation {note['name']}", note["expr"])
        for note in board["annotations"]["list"]
    ]
    variables = [
        Expression(f"{board['title']} / variable {variable['name']}", _of_variable(variable))
        for variable in board["templating"]["list"]
        if variable["type"] == "query"
    ]
    return [*panels, *annotations, *variables]


def _of_variable(variable: dict[str, Any]) -> str:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
    assert found, variable["definition"]
    return f"count by ({found[2]}) ({found[1]})"


@pytest.fixture(scope="session")
def dashboards() -> Path:
    """Provide the folder of everything under test here."""
    return FOLDER


@pytest.fixture(scope="session")
def boards() -> dict[str, dict[str, Any]]:
    """Provide the committed boards."""
    return boards_in(FOLDER / "grafana")


@pytest.fixture(scope="session")
def expressions(boards: dict[str, dict[str, Any]]) -> list[Expression]:
    """Provide every expression of every board."""
    return [expression for board in boards.values() for expression in expressions_of(board)]


@pytest.fixture(scope="session")
def rules() -> list[dict[str, Any]]:
    """Provide every rule, of the settings too."""
    return [
        rule
        for path in RULE_FILES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]


@pytest.fixture(scope="session")
def rule_files() -> tuple[Path, ...]:
    """Provide the rule files a user loads."""
    return RULE_FILES


@pytest.fixture(scope="session")
def alerts(rules: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Provide the alerts among the rules."""
    return [rule for rule in rules if "alert" in rule]


@pytest.fixture(params=TEST_FILES, ids=lambda path: path.name)
def rule_test(request: pytest.FixtureRequest) -> Path:
    """Provide each file of rule tests in turn."""
    return request.param


@pytest.fixture(scope="session")
def rule_tests() -> list[dict[str, Any]]:
    """Provide the tests of all files."""
    return [test for path in TEST_FILES for test in yaml.safe_load(path.read_text())["tests"]]


@pytest.fixture(scope="session")
def read_metrics():
    """Provide `metrics_in`: expression -> names."""
    return metrics_in
