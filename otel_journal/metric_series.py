"""Storage of series: counters, histograms, families of them, and the cap on label values."""

from __future__ import annotations

from bisect import bisect_left
from operator import add
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from .metric_catalogue import OTHER, Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Labels: TypeAlias = tuple[str, ...]
"""Label values, in the order of `Series.labels`."""

State: TypeAlias = Any
"""JSON-able data that `restore` understands."""

Origin: TypeAlias = tuple[str, str, int]
"""Where a measurement comes from: trace id, span id, Unix time in nanoseconds."""

MAX_LABEL_CHARS: Final = 200
"""Longest label value. Names come from models too; a scrape must not carry an essay."""


class Exemplar(NamedTuple):
    """The latest sampled measurement behind a counter or a bucket."""

    value: float
    origin: Origin


class Point(NamedTuple):
    """One reading of a counter or gauge."""

    labels: Labels
    value: float
    exemplar: Exemplar | None = None


class Distribution(NamedTuple):
    """One reading of a histogram; counts are per bucket, not cumulated."""

    labels: Labels
    counts: tuple[int, ...]
    total: float
    exemplars: tuple[Exemplar | None, ...]


class Reading(NamedTuple):
    """All samples of one family at one moment: points, or distributions of a histogram."""

    series: Series
    points: Sequence[Point] = ()
    distributions: Sequence[Distribution] = ()


class Counter:
    """A number that only grows."""

    __slots__ = ("latest", "value")

    def __init__(self) -> None:
        """Start at 0, without an exemplar."""
        self.value: int = 0
        self.latest: tuple[int, Origin] | None = None

    def add(self, amount: int, origin: Origin | None) -> None:
        """Add a non-negative amount; `origin` only for sampled spans."""
        self.value += amount
        if origin is not None:
            self.latest = (amount, origin)

    def read(self, labels: Labels) -> Point:
        """Return the present value."""
        return Point(labels, self.value, Exemplar(*self.latest) if self.latest else None)

    def state(self) -> State:
        """Return the value as JSON-able data; the exemplar is not kept."""
        return self.value

    def restore(self, state: State) -> None:
        """Take over what `state` gave."""
        self.value = int(state)


def add_to_all(counters: tuple[Counter, ...], amount: int, origin: Origin | None) -> None:
    """Add the same amount to several counters: one call instead of one per counter."""
    if origin is None:
        for counter in counters:
            counter.value += amount
    else:
        latest = (amount, origin)
        for counter in counters:
            counter.value += amount
            counter.latest = latest


class Histogram:
    """Counts per bucket, their sum, and the latest exemplar of each bucket."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Start empty; `bounds` are inclusive upper bounds without ``+Inf``."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total: float = 0.0
        self.exemplars: list[tuple[float, Origin] | None] = [None] * (len(bounds) + 1)

    def observe(self, value: float, origin: Origin | None) -> None:
        """Add one measurement; `origin` only for sampled spans."""
        index = bisect_left(self.bounds, value)
        self.counts[index] += 1
        self.total += value
        if origin is not None:
            self.exemplars[index] = (value, origin)

    def merge(self, counts: Sequence[int], total: float) -> None:
        """Add measurements that were sorted into the same buckets elsewhere.

        Raises:
            ValueError: they were sorted into other buckets.
        """
        if len(counts) != len(self.counts):
            msg = f"got {len(counts)} buckets, the metric has {len(self.counts)}"
            raise ValueError(msg)
        self.counts = list(map(add, self.counts, counts))
        self.total += total

    def read(self, labels: Labels) -> Distribution:
        """Return the present counts."""
        exemplars = tuple(Exemplar(*found) if found else None for found in self.exemplars)
        return Distribution(labels, tuple(self.counts), self.total, exemplars)

    def state(self) -> State:
        """Return counts and sum as JSON-able data; exemplars are not kept."""
        return [list(self.counts), self.total]

    def restore(self, state: State) -> None:
        """Take over what `state` gave.

        Raises:
            ValueError: it was taken with other buckets.
        """
        counts, total = state
        if len(counts) != len(self.counts):
            msg = f"state has {len(counts)} buckets, the metric {len(self.counts)}"
            raise ValueError(msg)
        self.counts = [int(n) for n in counts]
        self.total = float(total)


Child = TypeVar("Child", Counter, Histogram)


class Family(Generic[Child]):
    """The children of one metric, by label values."""

    __slots__ = ("_create", "children", "series")

    def __init__(self, series: Series, create: Callable[[], Child]) -> None:
        """Describe a family without children."""
        self.series = series
        self.children: dict[Labels, Child] = {}
        self._create: Callable[[], Child] = create

    def child(self, *labels: str) -> Child:
        """Return the child of these label values; a new one is exposed from now on, at 0."""
        found = self.children.get(labels)
        if found is None:
            found = self.children[labels] = self._create()
        return found

    def state(self) -> list[State]:
        """Return all children as JSON-able data."""
        return [[list(labels), child.state()] for labels, child in self.children.items()]

    def restore(self, state: Iterable[State]) -> None:
        """Take over what `state` gave.

        Raises:
            ValueError: it was taken with other labels or buckets.
        """
        for labels, child in state:
            if len(labels) != len(self.series.labels):
                msg = f"{self.series.name}: state has labels {labels}, want {self.series.labels}"
                raise ValueError(msg)
            self.child(*labels).restore(child)


def counter_family(series: Series) -> Family[Counter]:
    """Return an empty family of counters."""
    return Family(series, Counter)


def histogram_family(series: Series) -> Family[Histogram]:
    """Return an empty family of histograms with the buckets of the series."""
    bounds = tuple(float(bound) for bound in series.buckets)
    return Family(series, lambda: Histogram(bounds))


class LabelCap:
    """The admitted values of one label: first come, first served, up to a limit."""

    __slots__ = ("limit", "overflow", "values")

    def __init__(self, limit: int) -> None:
        """Admit at most `limit` distinct values."""
        self.limit = limit
        self.values: dict[str, None] = {}
        self.overflow = 0

    def admit(self, raw: object) -> str:
        """Return the label for a value: itself, cleaned, or `OTHER` when the cap is reached."""
        value = _clean(raw)
        if not value or value in self.values or value == OTHER:
            return value
        if len(self.values) >= self.limit:
            self.overflow += 1
            return OTHER
        self.values[value] = None
        return value


def _clean(raw: object) -> str:
    """Return text that can be encoded; a lone surrogate would break the whole scrape."""
    if raw is None:
        return ""
    return str(raw)[:MAX_LABEL_CHARS].encode("utf-8", "replace").decode("utf-8")
