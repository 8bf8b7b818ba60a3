"""Chunk timing of one streamed model call.

A chunk costs the agent a quarter of a microsecond: one clock reading appended to a list. Gaps
and buckets are worked out when the call ends, or when the list is long.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import sub
from typing import Final, Literal, TypeAlias

from .events import NS_PER_S, StreamTiming
from .semconv import DURATION_BUCKETS

ChunkSource: TypeAlias = Literal["token", "event"]
"""Which callback reports chunks; bridged models send both and only the first one counts."""

_BOUNDS_NS: Final = tuple(int(bound * NS_PER_S) for bound in DURATION_BUCKETS)

MAX_READINGS: Final = 4_096
"""Readings kept before they are folded: 150 KB at the most, for a stream of any length."""


class StreamClock:
    """When the chunks of one call came."""

    __slots__ = ("_first", "_gaps", "latest", "readings", "source")

    def __init__(self, source: ChunkSource, at: int, chunk: object) -> None:
        """Start with the first chunk, `at` nanoseconds of the monotonic clock."""
        self.source = source
        self.latest = chunk
        """The newest chunk object: a second handler of the journal brings the same one."""
        self.readings = [at]
        self._first = at
        self._gaps = [0] * (len(_BOUNDS_NS) + 1)

    def fold(self) -> None:
        """Turn the readings into counts of gaps per bucket; the last reading stays."""
        readings = self.readings
        gaps = sorted(map(sub, readings[1:], readings))
        below = 0
        for bucket, bound in enumerate(_BOUNDS_NS):
            until = bisect_right(gaps, bound, below)
            self._gaps[bucket] += until - below
            below = until
        self._gaps[-1] += len(gaps) - below
        del readings[:-1]

    def first_after(self, start_at: int) -> int:
        """Nanoseconds from the start of the call to its first chunk."""
        return self._first - start_at

    def timing(self, start_at: int) -> StreamTiming:
        """Freeze for the end event of a call that began at `start_at`."""
        self.fold()
        return StreamTiming(
            first_chunk_ns=self.first_after(start_at),
            gap_counts=tuple(self._gaps),
            gap_sum_ns=self.readings[-1] - self._first,
        )
