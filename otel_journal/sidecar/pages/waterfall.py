"""Where the bars of a run stand on their common time axis; pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_journal.run_view import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_journal.run_view import OperationView

MAX_BARS: Final = 1_000
"""Most bars of a page: more than anybody reads, and a browser draws them at once."""
MIN_WIDTH: Final = 0.4
"""Narrowest bar in percent: still to be seen on a narrow screen."""
_WHOLE: Final = 100.0
_MAX_TICKS: Final = 5
_STEPS: Final = (1, 2, 5)
"""Ticks stand at these numbers times a power of ten."""


class Bar(NamedTuple):
    """One operation on the axis."""

    operation: OperationView
    depth: int
    """0 for a root."""
    left: float
    """Percent of the axis."""
    width: float
    """Percent of the axis."""


class Tick(NamedTuple):
    """A mark on the axis."""

    left: float
    """Percent of the axis."""
    after_ns: int
    """Nanoseconds after the beginning of the axis."""


class Waterfall(NamedTuple):
    """All bars, parents first, and the axis."""

    bars: tuple[Bar, ...]
    ticks: tuple[Tick, ...]
    length_ns: int
    """Nanoseconds from the first start to the last end."""
    left_out: int
    """Operations that have no bar because there are too many."""


def lay_out(
    operations: Sequence[OperationView], now_ns: int, max_bars: int = MAX_BARS
) -> Waterfall:
    """Place the operations of a run; open ones reach to `now_ns` (Unix time in nanoseconds)."""
    every = [(one, len(path) - 1) for one, path in walk(operations)]
    if not every:
        return Waterfall((), (), 0, 0)
    start = min(one.start_ns for one, _ in every)
    end = max(max(one.start_ns, one.end_ns or now_ns) for one, _ in every)
    length = max(1, end - start)
    bars = tuple(_bar(one, depth, start, length, now_ns) for one, depth in islice(every, max_bars))
    return Waterfall(bars, ticks(length), length, len(every) - len(bars))


def _bar(one: OperationView, depth: int, start: int, length: int, now_ns: int) -> Bar:
    took = max(0, (one.end_ns or now_ns) - one.start_ns)
    width = max(MIN_WIDTH, took / length * _WHOLE)
    left = min((one.start_ns - start) / length * _WHOLE, _WHOLE - MIN_WIDTH)
    return Bar(one, depth, left, min(width, _WHOLE - left))


def ticks(length_ns: int) -> tuple[Tick, ...]:
    """Return at most five marks at round distances, the beginning included, the end not."""
    step = next(
        number * power
        for power in (10**digits for digits in range(len(str(length_ns)) + 1))
        for number in _STEPS
        if number * power * _MAX_TICKS >= length_ns
    )
    return tuple(Tick(at / length_ns * _WHOLE, at) for at in range(0, length_ns, step))
