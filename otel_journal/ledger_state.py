"""What the parts of the ledger share: its tables, its limits, and the events on their way out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .accounts import Accounts
from .lineage import Lineage, RecentlyUsed
from .operations import OperationTable
from .stats import LedgerStats

if TYPE_CHECKING:
    from .events import Event
    from .operations import Operation, Run, StagedRows
    from .streaming import StreamClock


class Limits(NamedTuple):
    """Caps and times of the ledger; `Settings` says what they mean."""

    max_open: int = 10_000
    max_remembered: int = 10_000
    max_summaries: int = 1_000
    max_age_ns: int = 86_400_000_000_000
    grace_ns: int = 2_000_000_000


class Switches(NamedTuple):
    """What the ledger is asked to do besides pairing."""

    track_usage: bool = True
    all_spans: bool = False
    feed: bool = False
    """Fill message rows and contents, because something durable reads them."""


class LedgerState:
    """The one mutable owner of the ledger's tables."""

    def __init__(self, limits: Limits, switches: Switches) -> None:
        self.limits = limits
        self.switches = switches
        self.stats = LedgerStats(operations_limit=limits.max_open)
        self.accounts = Accounts(limits.max_summaries, track_usage=switches.track_usage)
        self.table = OperationTable(limits.max_remembered)
        self.lineage = Lineage(limits.max_remembered)
        self.roots: dict[str, Operation] = {}
        """Newest open root of each run id: where facts reported by hand belong."""
        self.staging: dict[int, Run] = {}
        """Runs with rows that wait for usage, by id()."""
        self.streams: RecentlyUsed[StreamClock] = RecentlyUsed(limits.max_open)
        """Chunk clocks of model calls that stream, by key; written without the lock."""
        self.external: RecentlyUsed[bool] = RecentlyUsed(limits.max_remembered)
        """Sources whose usage came from outside the callbacks."""
        self.out: list[Event] = []
        self.process = ""
        """Id of this process on its events; empty when nothing durable reads them."""

    def emit(self, event: Event, run: Run) -> None:
        """Append an event, after the rows of its run that were waiting for usage."""
        if run.staged:
            self.commit(run)
        self.out.append(event)

    def commit(self, run: Run) -> None:
        """Write every row of `run` that waits, in order of arrival."""
        for staged in run.staged:
            self.out.extend(staged.rows)
        run.staged.clear()
        self.staging.pop(id(run), None)

    def stage(self, rows: StagedRows) -> None:
        """Let rows wait in their place for usage."""
        run = rows.operation.run
        run.staged.append(rows)
        self.staging[id(run)] = run

    def take(self) -> list[Event]:
        """Hand out the events since the last call."""
        out = self.out
        taken = out[:]
        out.clear()
        return taken
