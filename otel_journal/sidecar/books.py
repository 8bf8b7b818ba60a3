"""The counters projection: totals, open operations and processes, and the ends of dead processes.

What follows from the same events is committed together, at most once a second. A restart goes on
from there: no counter jumps, and none steps back once `Books.caught_up` is true.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from otel_journal.errors import SidecarError
from otel_journal.metrics import MetricsFold
from otel_journal.spans import END_EVENTS

from .following import BATCH, Follower
from .liveness import DatedSigns, Signs, made_ends, process_of
from .state import Change
from .trail import BEAT, Trail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from otel_journal.events import Event
    from otel_journal.exposition import JournalCollector
    from otel_journal.store import Store

    from .following import Batch
    from .shard import Shard
    from .state import State

PROJECTION: Final = "counters"
"""Name of the cursor."""

LATE_ENDS: Final = "counters_late_ends"
"""Durable counter of real ends that came after the sidecar had made one."""
HANDLED: Final = "counters_handled"
"""Durable counter of events that were read and need nothing more."""
MADE_ENDS: Final = "counters_made_ends"
"""Durable counter of ends that the sidecar made."""

DEAD_AFTER_S: Final = 30.0
"""Seconds of silence after which a process is dead: six beats."""
COMMIT_EVERY_S: Final = 1.0
"""Shortest time between two commits that nobody asked for."""
TIDY_EVERY_S: Final = 60.0
"""How often processes that are over are forgotten; they are kept for a day anyway."""

PROCESSES_KEPT: Final = 4_096
"""Processes of which is remembered who counts for them; of others it is looked up again."""

_EVER: Final = 1 << 63
"""Later than every sign of life, in Unix nanoseconds."""

_logger: Final = logging.getLogger("otel_journal")


class Books:
    """Counts what the store holds; of one thread, `collector` may be scraped from any other."""

    def __init__(  # noqa: PLR0913 - what it works with, and its clocks
        self,
        store: Store,
        state: State,
        collector: JournalCollector,
        *,
        dead_after: float = DEAD_AFTER_S,
        once: bool = False,
        shard: Shard | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Go on where `state` says, with its totals in the fold of `collector`.

        `dead_after` seconds without a sign a process is dead, and what it left open is closed;
        who reads `once` judges by the dates of the signs.

        Raises:
            SidecarError: the state cannot be read, or is of a newer release.
        """
        self.follower = Follower(store, state, PROJECTION, shard)
        self._state = state
        self._collector = collector
        self._clock = clock
        self._wall_ns = wall_ns
        self._store = store
        self._restore(state.totals())
        self._totals = Counter({k: n for k, n in state.counters().items() if _ours(k)})
        """Durable counters of this projection, with what is not committed yet."""
        self._made = MADE_ENDS in self._totals
        """Whether any end is of the sidecar's making: else none needs to be looked up."""
        self._trail = Trail(state)
        now = clock()
        self._signs = self._listening(dead_after, now, once=once)
        self._caught_up = False
        self._counted: Counter[str] = Counter()
        """What the next commit adds to the durable counters."""
        self.working = 0
        """Processes that have something open."""
        self._inline: dict[str, bool] = {}
        """Process -> whether it counts for itself; bounded by `PROCESSES_KEPT`."""
        self._late: list[str] = []
        """Ids of ends the sidecar made, and need not send: the real ones are there."""
        self._dirty = False
        self._commit_at = now
        self._tidy_at = now + TIDY_EVERY_S

    @property
    def caught_up(self) -> bool:
        """True once everything has been read that the store held at some moment since the start.

        Before, counters may be lower than what an earlier life of the sidecar has shown.
        """
        return self._caught_up

    @property
    def open_operations(self) -> int:
        """Operations that have started and not ended."""
        return len(self._trail)

    @property
    def counters(self) -> dict[str, int]:
        """The durable counters of this projection, with what is not committed yet."""
        return dict(self._totals)

    def step(self, limit: int = BATCH) -> bool:
        """Count one batch; commit if the last commit is a second old; close what died.

        Returns:
            False when there was nothing new in the store.

        Raises:
            StoreError: the store is away, closed or damaged as a whole.
            SidecarError: the state cannot be written; what was counted waits for the next try.
        """
        batch = self.follower.next(limit)
        if batch.moved:
            self._take(batch)
        if batch.complete:
            self._caught_up = True
            self._signs.caught_up(self._clock())
        if self._dirty and self._clock() >= self._commit_at:
            self.commit()
        if batch.complete:
            self.close_dead()
            self._tidy()
            self.working = len(self._trail.silent(_EVER))
        return batch.moved

    def commit(self) -> None:
        """Write down what was counted, together with the cursor.

        Raises:
            SidecarError: this cannot be done; what was counted waits for the next try.
        """
        if self._dirty:
            self._write(self._collector.fold.state())

    def close(self) -> None:
        """Commit for the last time.

        Raises:
            SidecarError: this cannot be done; the next start counts again from the last commit.
        """
        self.commit()

    def close_dead(self) -> int:
        """End what dead processes left open; return how many operations that were.

        Only what has been read can be judged: call it when the store has nothing more. The ends
        are committed before any scrape can see them, for a restart would not make them again
        at once.

        Raises:
            SidecarError: the state cannot be written; nothing is closed.
        """
        now = self._clock()
        working = [process.id for process in self._trail.silent(_EVER)]
        ends = [end for process in self._signs.dead(working, now) for end in self._ends_of(process)]
        if not ends:
            return 0
        fold = self._collector.fold
        copy = MetricsFold(fold.generation, fold.max_label_values)
        copy.restore(fold.state())
        for end in ends:
            copy.apply(end)
        self._write(copy.state(), ends)
        self._totals[MADE_ENDS] += len(ends)
        self._made = True
        self._collector.apply(ends)
        for end in ends:
            self._trail.note(end, 0)
        processes = len({end.process for end in ends})
        _logger.warning("closed %d operations of %d dead processes", len(ends), processes)
        return len(ends)

    def _listening(self, dead_after: float, now: float, *, once: bool) -> Signs:
        signs = DatedSigns(dead_after, now, self._wall_ns()) if once else Signs(dead_after, now)
        signs.remember(self._trail.processes(), now)
        return signs

    def _restore(self, totals: dict[str, Any] | None) -> None:
        if totals is None:
            return
        try:
            self._collector.fold.restore(totals)
        except (ValueError, KeyError, TypeError) as error:
            msg = f"the totals of the state file cannot be read: {error}"
            raise SidecarError(msg) from error

    def _take(self, batch: Batch) -> None:
        """Fold a batch, once: from here on it counts, and the next one is behind it."""
        for event in batch.events:
            if event.event_type == BEAT:
                self._trail.note(event)
                self._keep_inline(event.process, event.metadata.get("export"))
        closed = self._closed(batch.events)
        folded: list[Event] = []
        for event in batch.events:
            self._trail.note(event)
            if event.event_id in closed:
                folded += self._late_end(event)
            elif event.span is not None and not self._counts_itself(event.process):
                folded.append(event)
        self._hear(batch.events)
        self._collector.apply(folded)
        counted = Counter(batch.counted(PROJECTION))
        counted[HANDLED] = batch.passed - sum(batch.lost_rows.values())
        counted[LATE_ENDS] = len(closed)
        self._counted.update(counted)
        self._totals.update(counted)
        self.follower.took(batch)
        self._dirty = True

    def _hear(self, events: Sequence[Event]) -> None:
        """Every event is a sign of life of its process."""
        now = self._clock()
        newest: dict[str, int] = {}
        for event in events:
            newest[event.process] = max(event.created_ns, newest.get(event.process, 0))
        newest.pop("", None)
        for process, made_ns in newest.items():
            self._signs.heard(process, made_ns, now)

    def _closed(self, events: Sequence[Event]) -> set[str]:
        """Ids of real ends that come after the sidecar has made one."""
        if not self._made:
            return set()
        return self._state.closed(e.event_id for e in events if e.event_type in END_EVENTS)

    def _late_end(self, event: Event) -> Iterator[Event]:
        """The process was only frozen: its tokens count, the operation has been counted."""
        self._late.append(event.event_id)
        span = event.span
        if span is not None and span.usage is not None and not self._counts_itself(event.process):
            yield replace(event, event_type="usage.amended", metadata={"external": True})

    def _counts_itself(self, process: str) -> bool:
        """Tell whether a process has counters of its own, which would be added to these."""
        known = self._inline.get(process)
        if known is None:
            beats = self._store.events(process, (BEAT,), limit=1) if process else []
            export = beats[0].metadata.get("export") if beats else ""
            known = self._keep_inline(process, export)
        return known

    def _keep_inline(self, process: str, export: object) -> bool:
        while len(self._inline) >= PROCESSES_KEPT:
            del self._inline[next(iter(self._inline))]
        self._inline[process] = export == "inline"
        return self._inline[process]

    def _ends_of(self, process: str) -> list[Event]:
        """Make the ends of everything that a process has left open."""
        roots = [start for start in self._trail.operations() if start.span and start.span.root]
        nameless = [
            start for start in self._trail.operations_of("") if process_of(start, roots) == process
        ]
        starts = [*self._trail.operations_of(process), *nameless]
        return made_ends(starts, process, self._signs.made_ns(process), self._wall_ns())

    def _write(self, totals: dict[str, Any], made: Sequence[Event] = ()) -> None:
        pending = self._trail.pending()
        keys = [(end.span.op_id, end.span.span_id) for end in made if end.span is not None]
        self._state.commit(
            Change(
                PROJECTION,
                self.follower.cursor,
                totals=totals,
                opened=pending.opened,
                ended=[*pending.ended, *keys],
                processes=pending.processes,
                gone=pending.gone,
                made=made,
                made_sent=self._late,
                counted=self._counted + Counter(pending.counted) + Counter({MADE_ENDS: len(made)}),
            )
        )
        self._trail.settle()
        self._counted.clear()
        self._late.clear()
        self._dirty = False
        self._commit_at = self._clock() + COMMIT_EVERY_S

    def _tidy(self) -> None:
        """Forget what is long over."""
        now = self._clock()
        if now < self._tidy_at:
            return
        self._tidy_at = now + TIDY_EVERY_S
        self._trail.forget(self._wall_ns())
        self._signs.forget_silent((process.id for process in self._trail.silent(_EVER)), now)
        self._dirty = True


def _ours(counter: str) -> bool:
    return counter.startswith(PROJECTION)
