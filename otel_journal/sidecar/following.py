"""Reads a store behind the cursor of one projection, and notices when rows are not there any more.

The store is only read, whole batches at a time: no transaction stays open between two calls.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_journal.errors import StoreError

from .state import Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_journal.events import Event
    from otel_journal.store import Store

    from .shard import Shard
    from .state import State

_logger: Final = logging.getLogger("otel_journal")

BATCH: Final = 2_000
"""Events of one batch: some megabytes with their messages, and one request to a collector."""

EPOCH_CHANGES: Final = "epoch_changes"
"""The store is another journal than before; it is read from its first event."""
CURSOR_AHEAD: Final = "cursor_ahead"
"""The store ends before what was read: a backup was restored, or its end was lost."""
GAPS: Final = "gaps"
"""Rows that were gone before they were read. Not known for PostgreSQL, whose `seq` has gaps."""
DAMAGED: Final = "damaged"
"""Rows that cannot be decoded, and were passed."""

_SPARSE: Final = "postgresql"
"""Name of the store whose numbers are not dense."""
_DAMAGE: Final = re.compile(r"event (\d+) of the store is damaged")
"""How a store says that one row cannot be decoded."""
_WORDS: Final = {
    EPOCH_CHANGES: "is another journal now, of epoch {0}; what {projection} had not read is lost",
    CURSOR_AHEAD: (
        "ends at {0}, but {projection} had read up to {1}: its end was lost or a backup restored"
    ),
    GAPS: "lacks {0} events up to {1}: they were gone before {projection} read them",
    DAMAGED: "has a damaged event {0}; {projection} passes it",
}


class Batch(NamedTuple):
    """What one call read."""

    events: list[Event]
    """Those of the shard, in order."""
    cursor: Cursor
    """Where the next batch begins; commit it together with what was made of the events."""
    lost: Mapping[str, int]
    """How often, or how many rows, by kind of loss (`EPOCH_CHANGES` ...)."""
    complete: bool
    """True when the store held nothing behind this batch."""
    moved: bool
    """True when there is something to commit, be it only the cursor."""
    passed: int = 0
    """Events between the old cursor and the new one, those gone or of other shards included."""

    @property
    def lost_rows(self) -> dict[str, int]:
        """Those of `lost` that are numbers of rows."""
        return {kind: self.lost[kind] for kind in (GAPS, DAMAGED) if kind in self.lost}

    @property
    def gaps(self) -> int:
        """Rows that were gone before they were read."""
        return self.lost.get(GAPS, 0)

    def counted(self, projection: str) -> dict[str, int]:
        """Return `lost` under the names of the durable counters, e.g. ``spans_gaps``."""
        return {f"{projection}_{kind}": count for kind, count in self.lost.items()}


class Follower:
    """Reads for one projection; not thread-safe."""

    def __init__(
        self, store: Store, state: State, projection: str, shard: Shard | None = None
    ) -> None:
        """Begin at the cursor that `state` has for `projection`, else at the first event."""
        self._store = store
        self._projection = projection
        self._shard = shard
        self._cursor = state.cursor(projection)
        self._logged: set[str] = set()

    @property
    def cursor(self) -> Cursor | None:
        """Where the next batch begins; None before the first one of a new state."""
        return self._cursor

    def lag(self) -> int:
        """How far the cursor is behind the store, in numbers of `seq` (events, when dense).

        Raises:
            StoreError: the store is away or closed.
        """
        return max(0, self._store.watermark() - self.position())

    def position(self) -> int:
        """Number behind which the next batch begins, in the store as it is now."""
        cursor = self._cursor
        return cursor.seq if cursor is not None and cursor.epoch == self._store.epoch else 0

    def took(self, batch: Batch) -> None:
        """Go on behind `batch`. Until then `next` reads the same again."""
        self._cursor = batch.cursor

    def next(self, limit: int = BATCH) -> Batch:
        """Read up to `limit` rows behind the cursor.

        Raises:
            StoreError: the store is away, closed or damaged as a whole.
        """
        while True:
            # The watermark first: what it covers is there when the rows are read.
            watermark, epoch = self._store.watermark(), self._store.epoch
            batch = self._read(epoch, watermark, limit)
            if self._store.epoch == epoch:
                return batch

    def _read(self, epoch: str, watermark: int, limit: int) -> Batch:
        lost: Counter[str] = Counter()
        start = after = self._start(epoch, watermark, lost)
        asked = limit
        while True:
            try:
                rows = self._store.read(after, asked)
                break
            except StoreError as error:
                found = _DAMAGE.match(str(error))
                if found is None:
                    raise
                if asked > 1:
                    asked //= 2  # what lies before the damaged one comes first, and alone
                    continue
                after = int(found[1])
                self._found(lost, DAMAGED, 1, after)
        complete = len(rows) < asked
        last = rows[-1].seq if rows else after
        passed = len(rows) + lost[DAMAGED]
        if self._store.name == _SPARSE:
            end = last  # what is being committed now may get a lower number than the watermark
        else:
            end = max(last, watermark) if complete else last
            missing = end - start - passed
            passed += missing
            if missing:
                self._found(lost, GAPS, missing, missing, end)
        events = [row for row in rows if self._shard is None or self._shard.owns(row)]
        cursor = Cursor(epoch, end)
        lost = +lost  # without the zeros of those that were only looked at
        return Batch(events, cursor, dict(lost), complete, cursor != self._cursor, passed)

    def _start(self, epoch: str, watermark: int, lost: Counter[str]) -> int:
        """Return the number behind which to read."""
        cursor = self._cursor
        if cursor is None:
            return 0
        if cursor.epoch != epoch:
            self._found(lost, EPOCH_CHANGES, 1, epoch)
            return 0
        if watermark < cursor.seq:
            self._found(lost, CURSOR_AHEAD, 1, watermark, cursor.seq)
            return watermark
        return cursor.seq

    def _found(self, lost: Counter[str], kind: str, count: int, *numbers: int | str) -> None:
        """Count a loss, and say so when it is the first of its kind."""
        lost[kind] += count
        if kind not in self._logged:
            self._logged.add(kind)
            said = _WORDS[kind].format(*numbers, projection=self._projection)
            _logger.warning("the journal %s", said)
