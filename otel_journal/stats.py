"""Counters about the journal itself, kept where they happen and read at scrape time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

DROP_REASONS: Final = (
    "queue_full",
    "store_error",
    "serialise",
    "oversized",
    "quota",
    "handler_error",
    "rejected",
    "dead_letter",
    "shutdown",
)
"""Why an event did not reach a sink; a closed list."""

OBSERVATION_KINDS: Final = ("run", "node", "llm", "tool", "retrieval", "external_usage")
"""Classes of observations, as labels."""

CLOSE_REASONS: Final = ("parent_end", "age", "cap", "shutdown", "process_died")
"""Why the journal ended an operation itself."""


def _zeros(keys: tuple[str, ...]) -> dict[str, int]:
    return dict.fromkeys(keys, 0)


@dataclass(slots=True)
class SinkCounts:
    """What became of the events offered to one sink: seen = exported + pending + dropped."""

    seen: int = 0
    """Offered by the pipeline."""
    exported: int = 0
    """Accepted by the destination."""
    dropped: dict[str, int] = field(default_factory=lambda: _zeros(DROP_REASONS))
    """Given up, by reason."""

    @property
    def pending(self) -> int:
        """Neither exported nor dropped yet."""
        return max(0, self.seen - self.exported - sum(self.dropped.values()))


@dataclass(slots=True)
class LedgerStats:
    """What the ledger saw and how full its table is."""

    observations: dict[str, int] = field(default_factory=lambda: _zeros(OBSERVATION_KINDS))
    replays_dropped: dict[str, int] = field(default_factory=lambda: _zeros(OBSERVATION_KINDS))
    closed: dict[str, int] = field(default_factory=lambda: _zeros(CLOSE_REASONS))
    usage_conflicts: int = 0
    operations_open: int = 0
    operations_limit: int = 0


@dataclass(frozen=True, slots=True)
class ProcessStats:
    """One reading of everything a scrape shows besides the folded events."""

    ledger: LedgerStats
    sinks: Mapping[str, SinkCounts]
    queue_events: int
    queue_capacity: int
    oldest_unsent_s: Mapping[str, float]
    callback_seconds: float
    handler_errors: int
    truncated: int
    store_name: str
    semconv: str


class StatsSource(Protocol):
    """Something a collector can ask for `ProcessStats`; one per journal."""

    def snapshot(self) -> ProcessStats:
        """Return the counters as they are now."""
        ...
