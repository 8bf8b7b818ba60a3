"""The state machine: observations in, events out.

Pure: no I/O, no logging, no locks; clock and sampler are injected, the caller serialises access.
Every started operation ends exactly once, a second delivery of anything changes only a counter
(what it may add is usage that was missing), and every table has a cap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .ending import Ending
from .ledger_state import LedgerState, Limits, Switches
from .manual import Manual
from .observations import Annotated, Ended, ExternalUsage, Interrupted, Resumed, Started
from .opening import Opening, Sampled, Sampler
from .responses import Responses

if TYPE_CHECKING:
    from collections.abc import Callable

    from .events import Event
    from .lineage import RecentlyUsed
    from .observations import Observation
    from .operations import Operation
    from .stats import LedgerStats
    from .streaming import StreamClock
    from .summary import RunSummary

__all__ = ["Ledger", "Limits", "Sampled", "Sampler", "Switches"]


class Ledger:
    """Pairs starts with ends, in any order and any number of deliveries."""

    def __init__(
        self,
        *,
        wall: Callable[[int], int],
        limits: Limits | None = None,
        switches: Switches | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        """`wall` turns a monotonic reading into Unix nanoseconds."""
        self._state = LedgerState(limits or Limits(), switches or Switches())
        responses = Responses(self._state)
        self._opening = Opening(self._state, responses, wall=wall, sampler=sampler)
        self._ending = Ending(self._state, responses)
        self._manual = Manual(self._state, wall=wall)
        self._open = self._state.table.open
        self._others: dict[type[Observation], Callable[[Any], None]] = {
            Interrupted: self._interrupted,
            Resumed: self._resumed,
            Annotated: self._manual.annotated,
            ExternalUsage: self._manual.external_usage,
        }

    def observe(self, o: Observation) -> None:
        """Take one observation; `take` hands out the events it caused."""
        kind = type(o)
        if kind is Started:
            self._opening.started(cast("Started", o))
            if len(self._open) > self._state.limits.max_open:
                self._keep_cap(o.at)
        elif kind is Ended:
            self._ended(cast("Ended", o))
        else:
            self._others[kind](o)

    def _ended(self, o: Ended) -> None:
        stats = self._state.stats
        if self._opening.was_replay(o.key):
            # Both halves of a repeated root: it began again without any new child.
            stats.replays_dropped["run"] += 2
            stats.observations["run"] += 1
            return
        kind = o.kind
        if kind == "node":
            op = self._state.table.find(o.key)
            if op is not None and op.parent is None:
                kind = "run"
        stats.observations[kind] += 1
        if not self._ending.ended(o):
            stats.replays_dropped[kind] += 1

    def take(self) -> list[Event]:
        """Hand out the events since the last call, in order."""
        return self._state.take()

    def belong_to(self, process: str) -> None:
        """Put the id of this process onto what follows, runs that are open included."""
        self._state.process = process
        for op in self._state.table.open.values():
            op.run.process = process

    @property
    def streams(self) -> RecentlyUsed[StreamClock]:
        """Clocks of the calls that stream, by key; callbacks write them without a lock."""
        return self._state.streams

    def sweep(self, at: int) -> None:
        """Close what waited long enough: usage, children of ended parents, old operations."""
        graces = self._ending.graces
        while graces and graces[0].deadline <= at:
            self._ending.grace_over(graces.popleft())
        oldest = at - self._state.limits.max_age_ns
        operations = self._state.table.open
        while operations:
            op = next(iter(operations.values()))
            if op.start_at > oldest:
                break
            self._ending.close(op, at, "abandoned", "age")

    def flush(self) -> None:
        """Write every response that waits for usage; usage that comes later is booked apart."""
        for grace in list(self._ending.graces):
            op = grace.operation
            if op.pending is not None:
                self._ending.finish(op, op.pending)
        for run in list(self._state.staging.values()):
            self._state.commit(run)

    def close(self, at: int) -> None:
        """End everything that is open, as at the end of the process."""
        graces = self._ending.graces
        while graces:
            self._ending.grace_over(graces.popleft())
        operations = self._state.table.open
        while operations:
            self._ending.close(next(iter(operations.values())), at, "abandoned", "shutdown")
        self.flush()

    def summary(self, run_id: str) -> RunSummary | None:
        """Totals of a run, exact at once; None when it is unknown or forgotten."""
        return self._state.accounts.summary(run_id)

    def find(self, key: int | None) -> Operation | None:
        """The open or remembered operation with this key."""
        return self._state.table.find(key)

    def root_of(self, run_id: str) -> Operation | None:
        """The newest open root operation of a run."""
        return self._state.roots.get(run_id)

    def wants_human(self, parent_key: int) -> bool:
        """False when the run of this parent has its human turn already. Needs no lock."""
        parent = self._state.table.open.get(parent_key)
        return parent is None or not parent.run.totals.human_seen

    def is_open(self, key: int) -> bool:
        """True for an open operation. Needs no lock, and may lag behind the inbox."""
        return key in self._state.table.open

    @property
    def stats(self) -> LedgerStats:
        """Counters of the ledger itself."""
        self._state.stats.operations_open = len(self._open)
        return self._state.stats

    @property
    def next_deadline(self) -> int | None:
        """Monotonic time at which `sweep` has something to do, apart from old age."""
        graces = self._ending.graces
        return graces[0].deadline if graces else None

    def _keep_cap(self, at: int) -> None:
        state = self._state
        while len(state.table.open) > state.limits.max_open:
            self._ending.close(next(iter(state.table.open.values())), at, "abandoned", "cap")

    def _interrupted(self, o: Interrupted) -> None:
        self._state.stats.observations["run"] += 1
        op = self._state.table.open.get(o.key)
        if op is None or op.interrupted:
            self._state.stats.replays_dropped["run"] += 1
            return
        op.interrupted = True
        op.interrupt_payload = o.content
        self._state.lineage.paused(op, o.checkpoint_id)

    def _resumed(self, o: Resumed) -> None:
        self._state.stats.observations["run"] += 1
        op = self._state.table.open.get(o.key)
        if op is None or op.resumed:
            self._state.stats.replays_dropped["run"] += 1
            return
        op.resumed = True
        if op.root:
            op.run.totals.resumed = True
            self._state.lineage.resumed(op, o.checkpoint_id)
            self._manual.resumed(op, o)
