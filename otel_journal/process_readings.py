"""Counters of one or more journals in a process, summed and read as series."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from . import metric_catalogue as catalogue
from .metric_series import Point, Reading
from .stats import CLOSE_REASONS, OBSERVATION_KINDS, SinkCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .metric_catalogue import Series
    from .stats import ProcessStats

ROLE: Final = "app"
"""``role`` of `otel_journal_info` for a process that runs agents."""
METRICS_SINK: Final = "metrics"
"""Name of the sink that folds events; a journal without it has metrics off."""


@dataclass(slots=True)
class ProcessTotals:
    """The sum over journals, open ones and those that have shut down."""

    observations: Counter[str] = field(default_factory=Counter)
    replays: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    sinks: dict[str, SinkCounts] = field(default_factory=dict)
    oldest_unsent_s: dict[str, float] = field(default_factory=dict)
    journals: set[tuple[str, str, str]] = field(default_factory=set)
    """(name of the store, metrics on or off, semconv) of the open journals."""
    usage_conflicts: int = 0
    operations_open: int = 0
    operations_limit: int = 0
    queue_events: int = 0
    queue_capacity: int = 0
    callback_seconds: float = 0.0
    handler_errors: int = 0
    truncated: int = 0

    def copy(self) -> ProcessTotals:
        """Return totals that can be added to without changing these."""
        return copy.deepcopy(self)

    def retire(self, stats: ProcessStats) -> None:
        """Add the counters of a journal that is gone; it has no gauges any more."""
        self.observations.update(stats.ledger.observations)
        self.replays.update(stats.ledger.replays_dropped)
        self.closed.update(stats.ledger.closed)
        self.usage_conflicts += stats.ledger.usage_conflicts
        self.callback_seconds += stats.callback_seconds
        self.handler_errors += stats.handler_errors
        self.truncated += stats.truncated
        for name, counts in stats.sinks.items():
            total = self.sinks.setdefault(name, SinkCounts())
            # `seen` is read last: events only move from pending to exported or dropped, so the
            # sum of the parts holds and no counter falls, whatever the worker does meanwhile.
            total.exported += counts.exported
            for reason, count in dict(counts.dropped).items():
                total.dropped[reason] = total.dropped.get(reason, 0) + count
            total.seen += counts.seen

    def add(self, stats: ProcessStats) -> None:
        """Add counters and gauges of an open journal."""
        self.retire(stats)
        self.operations_open += stats.ledger.operations_open
        self.operations_limit += stats.ledger.operations_limit
        self.queue_events += stats.queue_events
        self.queue_capacity += stats.queue_capacity
        for sink, age in stats.oldest_unsent_s.items():
            self.oldest_unsent_s[sink] = max(age, self.oldest_unsent_s.get(sink, 0.0))
        metrics = "on" if METRICS_SINK in stats.sinks else "off"
        self.journals.add((stats.store_name, metrics, stats.semconv))

    def read(self, version: str) -> list[Reading]:
        """Return all process series; bounded label sets are there from the start, at 0."""
        return [
            _single(catalogue.OPERATIONS_OPEN, self.operations_open),
            _single(catalogue.OPERATIONS_LIMIT, self.operations_limit),
            _by(catalogue.OPERATIONS_CLOSED, CLOSE_REASONS, self.closed),
            _by(catalogue.OBSERVATIONS, OBSERVATION_KINDS, self.observations),
            _by(catalogue.REPLAYS_DROPPED, OBSERVATION_KINDS, self.replays),
            _single(catalogue.USAGE_CONFLICTS, self.usage_conflicts),
            *self._sink_readings(),
            _single(catalogue.QUEUE_EVENTS, self.queue_events),
            _single(catalogue.QUEUE_CAPACITY, self.queue_capacity),
            _single(catalogue.CALLBACK_SECONDS, self.callback_seconds),
            _single(catalogue.HANDLER_ERRORS, self.handler_errors),
            _single(catalogue.CONTENT_TRUNCATED, self.truncated),
            self._info(version),
        ]

    def _sink_readings(self) -> list[Reading]:
        sinks = self.sinks
        return [
            _by(catalogue.EVENTS_SEEN, sinks, {n: c.seen for n, c in sinks.items()}),
            _by(catalogue.EVENTS_EXPORTED, sinks, {n: c.exported for n, c in sinks.items()}),
            _by(catalogue.EVENTS_PENDING, sinks, {n: c.pending for n, c in sinks.items()}),
            _by(catalogue.OLDEST_UNSENT, sinks, self.oldest_unsent_s),
            Reading(
                catalogue.EVENTS_DROPPED,
                [
                    Point((name, reason), count)
                    for name, counts in sinks.items()
                    for reason, count in counts.dropped.items()
                ],
            ),
        ]

    def _info(self, version: str) -> Reading:
        points = [
            Point((version, ROLE, journal, metrics, semconv), 1)
            for journal, metrics, semconv in sorted(self.journals)
        ]
        return Reading(catalogue.INFO, points)


def _single(series: Series, value: float) -> Reading:
    return Reading(series, [Point((), value)])


def _by(series: Series, always: Iterable[str], values: Mapping[str, float]) -> Reading:
    """Return one sample per key that is always exposed or has a value."""
    keys = dict.fromkeys((*always, *values))
    return Reading(series, [Point((key,), values.get(key, 0)) for key in keys])
