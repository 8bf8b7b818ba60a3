"""The scrape side of the sidecar: what events come to, and how the sidecar itself is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from otel_journal import metric_catalogue as catalogue
from otel_journal.exposition import JournalCollector, family, installed_version
from otel_journal.metric_series import Distribution, Point, Reading
from otel_journal.stats import CLOSE_REASONS, DROP_REASONS

from . import series
from .otlp.counts import DEAD_REASONS, ExportSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from otel_journal.metric_catalogue import Series
    from otel_journal.metrics import MetricsFold

ROLE: Final = "sidecar"
"""``role`` of `otel_journal_info`."""
OTLP: Final = "otlp"
"""The sink that sends spans."""
METRICS: Final = "metrics"
"""The sink that counts."""
SINKS: Final = (OTLP, METRICS)
HELD_REASONS: Final = ("auth", "not_found", "not_otlp", "redirect", "tls")
"""Why nothing is sent until a person mends it."""
LOSSES: Final = ("gaps", "epoch_changes", "cursor_ahead", "damaged")
"""How events can be gone from the journal before they were read (`following`)."""


@dataclass(frozen=True)
class SidecarStats:
    """One reading of everything a scrape shows of the sidecar besides the folded events."""

    export: ExportSnapshot = field(default_factory=ExportSnapshot)
    """Requests since the start."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Durable counters of the state file, with those not committed yet."""
    pending: Mapping[str, int] = field(default_factory=dict)
    """Sink -> events of the journal behind its cursor."""
    oldest_s: Mapping[str, float] = field(default_factory=dict)
    """Sink -> age in seconds of the first of them."""
    dead_letters: int = 0
    processes: int = 0
    store_up: bool = True
    store_name: str = ""
    store_bytes: int | None = None
    """Size of a SQLite journal with its log; None: not known."""


class SidecarCollector(JournalCollector):
    """Exposes one fold and the readings of one sidecar. Thread-safe."""

    def __init__(self, fold: MetricsFold, stats: Callable[[], SidecarStats]) -> None:
        """Expose `fold`, and what `stats` gives at each scrape; registers nothing."""
        super().__init__(fold)
        self._stats = stats
        self._version_label = installed_version()

    def series(self) -> Sequence[Series]:
        """Return every family that is exposed, in order."""
        return series.sidecar_series(self.fold.generation)

    def collect(self) -> Iterator[Metric]:
        """Return every family with its samples; families without any are exposed empty."""
        stats = self._stats()
        info = (self._version_label, ROLE, stats.store_name, "on", self.fold.generation)
        readings = {
            reading.series.name: reading
            for reading in (
                *self.folded(),
                *_events(stats),
                *_export(stats.export),
                *_journal(stats),
                Reading(catalogue.INFO, [Point(info, 1)]),
            )
        }
        for each in self.series():
            yield family(readings[each.name])


def _events(stats: SidecarStats) -> list[Reading]:
    """What became of the spans, and of everything that is counted."""
    get = stats.counters.get
    exported = {OTLP: get("spans_handled", 0), METRICS: get("counters_handled", 0)}
    dropped = {
        "rejected": get("spans_rejected", 0),
        "dead_letter": sum(get(f"spans_dead_{reason}", 0) for reason in DEAD_REASONS),
        "store_error": get("spans_gaps", 0) + get("spans_damaged", 0),
    }
    pending = {sink: stats.pending.get(sink, 0) for sink in SINKS}
    lost = get("counters_gaps", 0) + get("counters_damaged", 0)
    seen = {
        OTLP: exported[OTLP] + sum(dropped.values()) + pending[OTLP],
        METRICS: exported[METRICS] + lost + pending[METRICS],
    }
    closed = dict.fromkeys(CLOSE_REASONS, 0) | {"process_died": get("counters_made_ends", 0)}
    return [
        _by(catalogue.OPERATIONS_CLOSED, closed),
        _by(catalogue.EVENTS_SEEN, seen),
        _by(catalogue.EVENTS_EXPORTED, exported),
        Reading(
            catalogue.EVENTS_DROPPED,
            [Point((OTLP, reason), dropped.get(reason, 0)) for reason in DROP_REASONS]
            + [Point((METRICS, "store_error"), lost)],
        ),
        _by(catalogue.EVENTS_PENDING, pending),
        _by(catalogue.OLDEST_UNSENT, {sink: stats.oldest_s.get(sink, 0.0) for sink in SINKS}),
    ]


def _export(export: ExportSnapshot) -> list[Reading]:
    """The requests, since the start of this process."""
    held = dict.fromkeys(HELD_REASONS, 0)
    if export.held:
        held[export.held] = 1
    counts = export.seconds_counts
    seconds = Distribution((OTLP,), counts, export.seconds_sum, (None,) * len(counts))
    return [
        Reading(
            series.EXPORT_REQUESTS,
            [Point((OTLP, result), count) for result, count in export.requests.items()],
        ),
        Reading(series.EXPORT_SECONDS, distributions=[seconds]),
        _by(series.EXPORT_HELD, held),
        Reading(series.EXPORT_LAST_SUCCESS, [Point((), export.last_success)]),
    ]


def _journal(stats: SidecarStats) -> list[Reading]:
    """The journal as the sidecar finds it, and what it had to set aside."""
    get = stats.counters.get
    lost = {kind: get(f"spans_{kind}", 0) for kind in LOSSES}
    added: dict[str, float] = {reason: get(f"spans_dead_{reason}", 0) for reason in DEAD_REASONS}
    size: list[Any] = [] if stats.store_bytes is None else [Point((), stats.store_bytes)]
    return [
        Reading(series.DEAD_LETTERS, [Point((), stats.dead_letters)]),
        _by(series.DEAD_LETTERS_ADDED, added),
        Reading(series.STORE_UP, [Point((), int(stats.store_up))]),
        _by(series.STORE_EVENTS_LOST, lost),
        Reading(series.STORE_SIZE, size),
        Reading(series.PROCESSES, [Point((), stats.processes)]),
        Reading(series.LATE_ENDS, [Point((), get("counters_late_ends", 0))]),
    ]


def _by(each: Series, values: Mapping[str, float]) -> Reading:
    return Reading(each, [Point((key,), value) for key, value in values.items()])
