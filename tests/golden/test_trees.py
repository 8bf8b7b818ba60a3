"""Golden span trees: what each scenario looks like as traces.

``GOLDEN_UPDATE=1`` writes the files anew; read the diff before committing it.
"""

import os
from pathlib import Path

import pytest

from .recording import record
from .scenarios import SCENARIOS, Way
from .tree import problems, render

TREES = Path(__file__).parent / "trees"
UPDATE = os.environ.get("GOLDEN_UPDATE") == "1"

NUMBERS = [
    "01", "02", "03", "04", "05", "06", "06b", "06c", "07", "07b", "07c", "07d", "08", "08b", "08c",
    "09", "09b", "09c", "10", "11", "11b", "11c", "11d", "11e", "12", "12b", "12c", "13", "13b",
    "13c", "14", "15", "15b", "15c", "16", "16b", "17", "17b", "18", "18b", "19", "20", "21", "21b",
    "21c", "21d", "21e", "21f", "22", "22b", "23", "23b", "24", "25", "25b", "25c", "25d", "25e",
    "26", "26b", "27", "28", "29", "30", "31", "32", "33", "34", "35", "36", "37", "38", "39", "40",
    "41",
]  # fmt: skip
"""The recorded callback sequences."""

CASES = [
    pytest.param(scenario.number, way, id=f"{scenario.slug}-{way}")
    for scenario in sorted(SCENARIOS.values(), key=lambda scenario: scenario.slug)
    for way in scenario.programs
]


def _file_text(number: str, way: Way) -> str:
    return f"# {SCENARIOS[number].purpose}\n\n{render(record(number, way))}"


@pytest.mark.parametrize(("number", "way"), CASES)
def test_scenario_gives_its_tree(number: str, way: Way) -> None:
    """The sync and the async way give the one tree in the scenario's file."""
    scenario = SCENARIOS[number]
    path = TREES / f"{scenario.slug}.txt"
    if UPDATE:
        path.write_text(_file_text(number, next(iter(scenario.programs))), encoding="utf-8")
    assert _file_text(number, way) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("number", "way"), CASES)
def test_spans_are_well_formed(number: str, way: Way) -> None:
    """No span contradicts itself or its parent, whatever the scenario."""
    assert problems(record(number, way)) == []


def test_every_recorded_sequence_is_a_scenario() -> None:
    """All seventy-five numbers are registered, and no other."""
    assert sorted(SCENARIOS) == sorted(NUMBERS)


def test_no_tree_is_left_over() -> None:
    """Every file in the folder belongs to a scenario."""
    expected = {f"{scenario.slug}.txt" for scenario in SCENARIOS.values()}
    assert {path.name for path in TREES.iterdir()} == expected
