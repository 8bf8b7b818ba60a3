"""All families of one generation of names, with the caps on their label values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from . import metric_catalogue as catalogue
from .metric_series import LabelCap, Point, Reading, counter_family, histogram_family

if TYPE_CHECKING:
    from collections.abc import Callable

    from .metric_catalogue import Series
    from .metric_series import Counter, Family, Histogram, Labels, State
    from .semconv import Generation


class MetricTable:
    """Where every folded series lives, addressed by its entry of the catalogue."""

    def __init__(self, generation: Generation, max_label_values: int) -> None:
        """Start with no series and no label values."""
        self._caps = {name: LabelCap(max_label_values) for name in catalogue.CAPPED_LABELS}
        self._counters: dict[str, Family[Counter]] = {}
        self._histograms: dict[str, Family[Histogram]] = {}
        for series in catalogue.FOLDED:
            if generation not in series.generations:
                continue
            if series.type == "counter":
                self._counters[series.name] = counter_family(series)
            elif series.type == "histogram":
                self._histograms[series.name] = histogram_family(series)
        # Computed from the caps by `label_readings`, not stored.
        del self._counters[catalogue.LABEL_OVERFLOW.name]

    def counter(self, series: Series, *labels: str) -> Counter:
        """Return a counter of a family that exists in every generation; exposed from now on."""
        return self._counters[series.name].child(*labels)

    def counters(self, series: Series, *labels: str) -> tuple[Counter, ...]:
        """Return the counter in a tuple, or none when this generation does not have it."""
        family = self._counters.get(series.name)
        return (family.child(*labels),) if family else ()

    def histograms(self, series: Series, *labels: str) -> tuple[Histogram, ...]:
        """Return the histogram in a tuple, or none when this generation does not have it."""
        family = self._histograms.get(series.name)
        return (family.child(*labels),) if family else ()

    def labels_of(self, series: Series) -> list[Labels]:
        """Return the label sets a counter has so far."""
        return list(self._counters[series.name].children)

    def admit(self, names: Labels, raw: tuple[object, ...]) -> tuple[Labels, bool]:
        """Turn raw values into label values under the caps; labels without a cap pass.

        The flag is True when nothing was folded or cleaned, so that `raw` may key a cache: the
        cap then bounds the cache too.
        """
        labels = tuple(
            self._caps[name].admit(value) if name in self._caps else str(value)
            for name, value in zip(names, raw, strict=True)
        )
        plain = all(
            value is None or value == label or type(value) is int
            for value, label in zip(raw, labels, strict=True)
        )
        return labels, plain

    def read(self) -> list[Reading]:
        """Return every counter and histogram as it is now."""
        return [
            *(
                Reading(
                    f.series, distributions=[h.read(labels) for labels, h in f.children.items()]
                )
                for f in self._histograms.values()
            ),
            *(
                Reading(f.series, [c.read(labels) for labels, c in f.children.items()])
                for f in self._counters.values()
            ),
            *self._label_readings(),
        ]

    def _label_readings(self) -> list[Reading]:
        caps = self._caps.items()
        overflow = [Point((name,), cap.overflow) for name, cap in caps]
        values = [Point((name,), len(cap.values)) for name, cap in caps]
        limits = [Point((name,), cap.limit) for name, cap in caps]
        return [
            Reading(catalogue.LABEL_OVERFLOW, overflow),
            Reading(catalogue.LABEL_VALUES, values),
            Reading(catalogue.LABEL_LIMIT, limits),
        ]

    def state(self) -> dict[str, State]:
        """Return totals and admitted label values as JSON-able data; exemplars are not kept."""
        return {
            "counters": {name: family.state() for name, family in self._counters.items()},
            "histograms": {name: family.state() for name, family in self._histograms.items()},
            "labels": {n: [list(cap.values), cap.overflow] for n, cap in self._caps.items()},
        }

    def restore(self, state: dict[str, State]) -> None:
        """Take over what `state` gave; families of another generation are left out.

        Raises:
            ValueError: a family was stored with other labels or buckets.
        """
        for name, counters in self._counters.items():
            counters.restore(state["counters"].get(name, ()))
        for name, histograms in self._histograms.items():
            histograms.restore(state["histograms"].get(name, ()))
        for name, (values, overflow) in state["labels"].items():
            if name in self._caps:
                self._caps[name].values = dict.fromkeys(values)
                self._caps[name].overflow = overflow


Found = TypeVar("Found")


class Memo(dict["tuple[object, ...]", Found], Generic[Found]):
    """Children by raw label values: ``memo[raw]`` is one dict look-up once they are known.

    A raw tuple with a value that was folded or cleaned is resolved every time instead of
    remembered: there may be any number of those.
    """

    def __init__(self, table: MetricTable, names: Labels, build: Callable[[Labels], Found]) -> None:
        """Resolve raw values of `names` with `table`, and build what is new with `build`."""
        super().__init__()
        self._table = table
        self._names = names
        self._build = build

    def __missing__(self, raw: tuple[object, ...]) -> Found:
        """Return the children of the admitted labels, building them at most once."""
        labels, plain = self._table.admit(self._names, raw)
        found = self.get(labels)
        if found is None:
            found = self._build(labels)
            self[labels] = found
        if plain:
            self[raw] = found
        return found
