"""Metric families of the sidecar about itself; those of agents are `metric_catalogue.FOLDED`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_journal import metric_catalogue as catalogue
from otel_journal.metric_catalogue import Series

from .otlp.counts import SECONDS_BOUNDS

if TYPE_CHECKING:
    from otel_journal.semconv import Generation


def _counter(name: str, text: str, *labels: str) -> Series:
    return Series(f"otel_journal_{name}_total", "counter", text, labels)


def _gauge(name: str, text: str, *labels: str) -> Series:
    return Series(f"otel_journal_{name}", "gauge", text, labels)


EXPORT_REQUESTS: Final = _counter(
    "export_requests", "OTLP requests, by what they led to.", "sink", "result"
)
EXPORT_SECONDS: Final = Series(
    "otel_journal_export_request_duration_seconds",
    "histogram",
    "Duration of OTLP requests.",
    ("sink",),
    SECONDS_BOUNDS,
)
EXPORT_HELD: Final = _gauge(
    "export_held", "1 while nothing is sent until a person mends it, by reason.", "reason"
)
EXPORT_LAST_SUCCESS: Final = _gauge(
    "export_last_success_timestamp_seconds", "Unix time of the last accepted request; 0: none yet."
)
DEAD_LETTERS: Final = _gauge("dead_letters", "Spans set aside, waiting for a person.")
DEAD_LETTERS_ADDED: Final = _counter("dead_letters_added", "Spans set aside, by reason.", "reason")
STORE_UP: Final = _gauge("store_up", "1 when the last reading of the journal worked.")
STORE_EVENTS_LOST: Final = _counter(
    "store_events_lost",
    "Events that were gone from the journal before they were read, or findings that tell of some.",
    "reason",
)
STORE_SIZE: Final = _gauge("store_size_bytes", "Size of the journal with its log; only for SQLite.")
PROCESSES: Final = _gauge("processes", "Processes with open operations.")
LATE_ENDS: Final = _counter(
    "late_ends", "Real ends of operations that had been closed because their process seemed dead."
)

OWN: Final = (
    EXPORT_REQUESTS, EXPORT_SECONDS, EXPORT_HELD, EXPORT_LAST_SUCCESS,
    DEAD_LETTERS, DEAD_LETTERS_ADDED,
    STORE_UP, STORE_EVENTS_LOST, STORE_SIZE, PROCESSES, LATE_ENDS,
)  # fmt: skip
"""Families that only a sidecar has."""

COMMON: Final = (
    catalogue.OPERATIONS_CLOSED,
    catalogue.EVENTS_SEEN,
    catalogue.EVENTS_EXPORTED,
    catalogue.EVENTS_DROPPED,
    catalogue.EVENTS_PENDING,
    catalogue.OLDEST_UNSENT,
    catalogue.INFO,
)
"""Families of the application that a sidecar has, too: with the sinks ``otlp`` and ``metrics``."""


def sidecar_series(generation: Generation) -> tuple[Series, ...]:
    """Return every family of a sidecar under one generation of names, in order of exposition."""
    folded = tuple(s for s in catalogue.FOLDED if generation in s.generations)
    return (*folded, *COMMON, *OWN)
