"""Where bars and ticks stand."""

from __future__ import annotations

import pytest

from otel_journal.run_view import OperationView
from otel_journal.sidecar.pages.waterfall import MIN_WIDTH, lay_out, ticks

SECOND = 1_000_000_000


def operation(name: str, start: int, end: int, *children: OperationView) -> OperationView:
    """Return an operation; times are in seconds, an end of 0 leaves it open."""
    outcome = "ok" if end else None
    times = (start * SECOND, end * SECOND)
    return OperationView(name, "node", name, outcome, *times, 1, "", "", "", None, children)


def test_bars_stand_on_one_axis_parents_first() -> None:
    """A child's bar stands where its time is within the run."""
    tree = operation("root", 10, 20, operation("a", 10, 15), operation("b", 15, 20))
    found = lay_out([tree], 0)
    assert [(bar.operation.name, bar.depth, bar.left, bar.width) for bar in found.bars] == [
        ("root", 0, 0.0, 100.0),
        ("a", 1, 0.0, 50.0),
        ("b", 1, 50.0, 50.0),
    ]
    assert found.length_ns == 10 * SECOND


def test_an_open_operation_reaches_to_now() -> None:
    """What runs has a bar that grows."""
    found = lay_out([operation("root", 10, 0, operation("a", 12, 14))], 18 * SECOND)
    assert [(bar.left, bar.width) for bar in found.bars] == [(0.0, 100.0), (25.0, 25.0)]


def test_a_moment_at_the_end_is_seen_within_the_axis() -> None:
    """A bar has a least width and does not leave the axis."""
    found = lay_out([operation("root", 10, 20, operation("a", 20, 20))], 0)
    assert found.bars[1].width == pytest.approx(MIN_WIDTH)
    assert found.bars[1].left + found.bars[1].width <= 100 + 1e-9


def test_what_is_too_much_is_counted() -> None:
    """The axis still spans all operations."""
    tree = operation("root", 0, 10, *(operation(str(n), n, n + 1) for n in range(9)))
    found = lay_out([tree], 0, max_bars=4)
    assert (len(found.bars), found.left_out) == (4, 6)
    assert found.length_ns == 10 * SECOND


def test_nothing_has_no_bars() -> None:
    """A run of which only annotations are known is no failure."""
    assert lay_out([], 0).bars == ()


@pytest.mark.parametrize("length", [1, 7, 999, 10**6, 865_500_000, 60 * SECOND, 10**15])
def test_ticks_are_few_and_round(length: int) -> None:
    """From one nanosecond to days."""
    found = ticks(length)
    assert found[0].after_ns == 0
    assert 1 <= len(found) <= 5
    assert all(0 <= tick.left < 100 for tick in found)
    assert all(str(tick.after_ns).rstrip("0").isdigit() for tick in found[1:])
