"""What became of requests and spans, for the sidecar's own metrics."""

from __future__ import annotations

import bisect
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Result: TypeAlias = Literal["ok", "retry", "held", "split", "partial", "dead_letter"]
"""What one request led to; `split`: its spans go again in parts, or cut if there is only one."""

DeadReason: TypeAlias = Literal["refused", "too_large"]
"""Why a span became a dead letter."""

RESULTS: Final[tuple[Result, ...]] = get_args(Result)
DEAD_REASONS: Final[tuple[DeadReason, ...]] = get_args(DeadReason)

SECONDS_BOUNDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
"""Upper bounds, inclusive, of the histogram of request seconds; up to the default timeout."""


@dataclass(frozen=True)
class ExportSnapshot:
    """The values at one moment."""

    requests: dict[Result, int] = field(default_factory=lambda: dict.fromkeys(RESULTS, 0))
    """Requests by result; every result is there from the start."""
    seconds_counts: tuple[int, ...] = (0,) * (len(SECONDS_BOUNDS) + 1)
    """Requests per bucket of `SECONDS_BOUNDS`, not cumulated; the last one is above all bounds."""
    seconds_sum: float = 0.0
    """Seconds of all requests together."""
    sent: int = 0
    """Spans that the collector accepted; a batch that is delivered again counts again."""
    rejected: int = 0
    """Spans that the collector took note of and threw away (partial success)."""
    dead_letters: dict[DeadReason, int] = field(
        default_factory=lambda: dict.fromkeys(DEAD_REASONS, 0)
    )
    """Spans set aside by reason; every reason is there from the start."""
    held: str = ""
    """Why nothing is sent until a person mends it: auth, tls, not_found, redirect; empty: it is."""
    retrying_since: float = 0.0
    """Unix time of the first of the failures in a row that last till now; 0.0: none."""
    last_error: str = ""
    """What went wrong last, without content; kept after the recovery."""
    last_success: float = 0.0
    """Unix time of the last accepted request; 0.0: none yet."""


class ExportCounts:
    """Counts requests and spans. Thread-safe: delivery writes, a scrape reads."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        """Start with zeros; `clock` gives Unix time in seconds."""
        self._lock = threading.Lock()
        self._clock = clock
        self._values = ExportSnapshot()

    def snapshot(self) -> ExportSnapshot:
        """Return all values of one moment; they do not change any more."""
        with self._lock:
            return self._values

    def answered(self, result: Result, seconds: float, error: str = "") -> None:
        """Book one request.

        Args:
            result: What it led to.
            seconds: How long the answer took.
            error: What went wrong, without content.
        """
        with self._lock:
            old = self._values
            counts = list(old.seconds_counts)
            counts[bisect.bisect_left(SECONDS_BOUNDS, seconds)] += 1
            accepted = result in {"ok", "partial"}
            self._values = replace(
                old,
                requests={**old.requests, result: old.requests[result] + 1},
                seconds_counts=tuple(counts),
                seconds_sum=old.seconds_sum + seconds,
                last_error=error or old.last_error,
                last_success=self._clock() if accepted else old.last_success,
            )

    def settled(self, sent: int, rejected: int, dead: Iterable[DeadReason]) -> None:
        """Book the spans of one delivery that is over."""
        with self._lock:
            old = self._values
            dead_letters = dict(old.dead_letters)
            for reason in dead:
                dead_letters[reason] += 1
            self._values = replace(
                old,
                sent=old.sent + sent,
                rejected=old.rejected + rejected,
                dead_letters=dead_letters,
            )

    def fails(self, held: str) -> float:
        """Note that the export does not get on; `held` is empty if a later try may heal it.

        Returns:
            The Unix time since when.
        """
        with self._lock:
            since = self._values.retrying_since or self._clock()
            self._values = replace(self._values, held=held, retrying_since=since)
            return since

    def works(self) -> float:
        """Note that the collector answers; return the seconds for which it did not (or 0.0)."""
        with self._lock:
            since = self._values.retrying_since
            if not since:
                return 0.0
            self._values = replace(self._values, held="", retrying_since=0.0)
            return max(0.0, self._clock() - since)
