"""The scrape side: one Prometheus Collector per registry over the fold and the journals' counters.

Importing this module registers nothing. Two journals on one registry share one collector, so a
family is exposed once and holds the sum over both.
"""

from __future__ import annotations

import importlib.metadata
import logging
import math
import threading
import time
from itertools import accumulate
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import prometheus_client
from prometheus_client import samples
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from .events import NS_PER_S
from .metric_catalogue import series_of
from .metric_series import Reading
from .metrics import MetricsFold
from .process_readings import ProcessTotals
from .stats import SinkCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from .events import Event
    from .metric_catalogue import Series
    from .metric_series import Exemplar
    from .semconv import Generation
    from .stats import StatsSource

_LOGGER: Final = logging.getLogger(__name__)

DISTRIBUTION: Final = "otel-journal"
"""Name under which the package is installed."""


def installed_version() -> str:
    """Return the version of the installed package, ``unknown`` in a bare source tree."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class JournalCollector(Collector):
    """Exposes one fold and the process counters of any number of journals.

    Thread-safe: events are applied on workers while a scrape reads on its own thread.
    """

    def __init__(
        self,
        fold: MetricsFold,
        sources: Iterable[StatsSource] = (),
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Expose `fold` and `sources`; registers nothing."""
        self.fold = fold
        self._clock_ns = clock_ns
        self._lock = threading.Lock()
        self._sources: list[StatsSource] = list(sources)
        self._retired = ProcessTotals()
        self._version = installed_version()

    def attach(self, source: StatsSource) -> None:
        """Add the counters of a journal to the sums; a second call for it changes nothing."""
        with self._lock:
            if not any(known is source for known in self._sources):
                self._sources.append(source)

    def detach(self, source: StatsSource) -> None:
        """Let go of a journal that has shut down.

        Its gauges leave; its counters stay in the sums as they are now, because a counter must
        not fall. Do not attach it again: it would count twice. Unknown sources are ignored.
        """
        last = source.snapshot()
        with self._lock:
            remaining = [known for known in self._sources if known is not source]
            if len(remaining) < len(self._sources):
                self._sources = remaining
                self._retired.retire(last)

    def forked(self) -> None:
        """Start from zero in a forked child: the totals so far are the parent's to expose."""
        self._lock = threading.Lock()
        self.fold = MetricsFold(self.fold.generation, self.fold.max_label_values)
        self._retired = ProcessTotals()

    def apply(self, events: Iterable[Event]) -> None:
        """Fold events, in order."""
        with self._lock:
            for event in events:
                self.fold.apply(event)

    def series(self) -> Sequence[Series]:
        """Return every family that is exposed, in order."""
        return series_of(self.fold.generation)

    def folded(self) -> list[Reading]:
        """Return what events come to, as of now."""
        with self._lock:
            return self.fold.read(self._clock_ns())

    def describe(self) -> Iterator[Metric]:
        """Return every family without samples, so that registering it does not collect."""
        for series in self.series():
            yield family(Reading(series))

    def collect(self) -> Iterator[Metric]:
        """Return every family with its samples; families without any are exposed empty."""
        with self._lock:
            sources = tuple(self._sources)
            totals = self._retired.copy()
            folded = self.fold.read(self._clock_ns())
        for source in sources:  # outside the lock: a snapshot takes locks of its own
            totals.add(source.snapshot())
        readings = {r.series.name: r for r in (*folded, *totals.read(self._version))}
        for series in self.series():
            yield family(readings[series.name])


class Metrics:
    """The metrics sink of one journal: folds events into the collector of a registry."""

    name = "metrics"

    def __init__(self, collector: JournalCollector) -> None:
        """Feed `collector`, which other journals may feed too."""
        self.collector = collector
        self.counts = SinkCounts()

    def attach(self, source: StatsSource) -> None:
        """Show the process counters of a journal in scrapes; see `JournalCollector.attach`."""
        self.collector.attach(source)

    def detach(self, source: StatsSource) -> None:
        """Keep the counters of a closed journal, drop its gauges."""
        self.collector.detach(source)

    def write(self, events: Sequence[Event]) -> None:
        """Fold a batch; it counts as exported once all of it is in the totals."""
        self.collector.apply(events)
        self.counts.exported += len(events)

    def forked(self) -> None:
        """Start from zero in a forked child."""
        self.collector.forked()

    def flush(self, timeout: float) -> bool:  # noqa: ARG002 - the protocol of sinks
        """Return True: what was written is in the next scrape."""
        return True

    def close(self, timeout: float) -> bool:  # noqa: ARG002 - the protocol of sinks
        """Return True; the totals stay in the registry, as counters must."""
        return True


_COLLECTORS: Final[WeakKeyDictionary[CollectorRegistry, JournalCollector]] = WeakKeyDictionary()
_COLLECTORS_LOCK: Final = threading.Lock()


def metrics_for(
    registry: CollectorRegistry | None = None,
    *,
    generation: Generation = "0.1",
    max_label_values: int = 100,
) -> Metrics:
    """Return a new sink into the one collector of `registry`, registering it at first use.

    None means the process-wide `prometheus_client.REGISTRY`. Later calls for the same registry
    share the families of the first, with its `generation` and its cap: one family cannot have
    two sets of labels. A different wish is logged.

    Raises:
        ValueError: something else has registered one of our names in this registry.
    """
    if registry is None:
        registry = prometheus_client.REGISTRY
    with _COLLECTORS_LOCK:
        collector = _COLLECTORS.get(registry)
        if collector is None:
            collector = JournalCollector(MetricsFold(generation, max_label_values))
            registry.register(collector)
            _COLLECTORS[registry] = collector
    fold = collector.fold
    if (fold.generation, fold.max_label_values) != (generation, max_label_values):
        _LOGGER.warning(
            "registry already exposes metrics (semconv=%s, max_label_values=%d); keeping them",
            fold.generation,
            fold.max_label_values,
        )
    return Metrics(collector)


def family(reading: Reading) -> Metric:
    """Return one family with its samples, as the Prometheus client knows it."""
    series = reading.series
    if series.type == "histogram":
        return _histogram(reading)
    if series.type == "gauge":
        gauge = GaugeMetricFamily(series.name, series.help, labels=series.labels)
        for point in reading.points:
            gauge.add_metric(point.labels, point.value)
        return gauge
    counter = CounterMetricFamily(series.name, series.help, labels=series.labels)
    for point in reading.points:
        counter.add_metric(point.labels, point.value, exemplar=_exemplar(point.exemplar))
    return counter


def _histogram(reading: Reading) -> Metric:
    """Build cumulative buckets with bounds spelt as Go does (``1.0``, not ``1``)."""
    series = reading.series
    bounds = [_bound(bound) for bound in (*series.buckets, math.inf)]
    family = HistogramMetricFamily(series.name, series.help, labels=series.labels)
    for row in reading.distributions:
        cumulative = zip(bounds, accumulate(row.counts), row.exemplars, strict=True)
        family.add_metric(row.labels, [_bucket(*bucket) for bucket in cumulative], row.total)
    return family


def _bound(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


def _bucket(
    bound: str, count: int, found: Exemplar | None
) -> tuple[str, float] | tuple[str, float, samples.Exemplar]:
    exemplar = _exemplar(found)
    return (bound, count) if exemplar is None else (bound, count, exemplar)


def _exemplar(found: Exemplar | None) -> samples.Exemplar | None:
    """Name the span; 63 of the 128 characters that OpenMetrics allows."""
    if found is None:
        return None
    trace_id, span_id, time_ns = found.origin
    labels = {"trace_id": trace_id, "span_id": span_id}
    return samples.Exemplar(labels, found.value, samples.Timestamp(*divmod(time_ns, NS_PER_S)))
