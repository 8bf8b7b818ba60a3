"""What is open now and who is alive, in memory, with the differences that the next commit writes.

An operation that starts and ends between two commits is never written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from otel_journal.events import NS_PER_S
from otel_journal.spans import END_EVENTS

from .state import OperationKey, Process

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_journal.events import Event

    from .state import State

START_EVENTS: Final = frozenset({"run.start", "node.start", "llm.start", "tool_call.started"})
"""Events that begin an operation; retrievals have none."""
BEAT: Final = "process.beat"

MAX_OPEN: Final = 100_000
"""Open operations kept, some hundred megabytes at most; beyond it the oldest is forgotten."""
MAX_PROCESSES: Final = 10_000
"""Processes kept that have nothing open; beyond it the one that is silent longest is forgotten."""
FORGET_NS: Final = 24 * 3_600 * NS_PER_S
"""A process with nothing open that gave no sign for a day has most likely ended."""

OPERATIONS_FORGOTTEN: Final = "operations_forgotten"
"""Counter of operations beyond `MAX_OPEN`: they are not closed if their process dies."""


class TrailChange(NamedTuple):
    """Differences since the last commit; the fields are those of `state.Change`."""

    opened: Sequence[Event]
    ended: Sequence[OperationKey]
    processes: Sequence[Process]
    gone: Sequence[str]
    counted: Mapping[str, int]


class Trail:
    """Open operations and processes; of one thread, other threads may read the counts.

    After each commit that worked call `settle`; one that failed keeps the differences.
    """

    def __init__(
        self,
        state: State,
        *,
        max_open: int = MAX_OPEN,
        max_processes: int = MAX_PROCESSES,
    ) -> None:
        """Begin with what `state` holds.

        Raises:
            SidecarError: it cannot be read.
        """
        self._max_open = max_open
        self._max_processes = max_processes
        self._open: dict[OperationKey, Event] = {}
        self._owned: dict[str, dict[OperationKey, None]] = {}
        """Process -> its open operations; no entry when there is none."""
        self._processes = {process.id: process for process in state.processes()}
        for event in state.open_operations():
            if event.span is not None:
                self._add(OperationKey(event.span.op_id, event.span.span_id), event)
        self._opened: dict[OperationKey, Event] = {}
        self._ended: dict[OperationKey, None] = {}
        self._signed: dict[str, None] = {}
        self._gone: dict[str, None] = {}
        self._forgotten = 0

    def __len__(self) -> int:
        """How many operations are open."""
        return len(self._open)

    def operations(self) -> list[Event]:
        """Start events of all that is open, oldest first."""
        return list(self._open.values())

    def processes(self) -> list[Process]:
        """All processes that are not forgotten."""
        return list(self._processes.values())

    def process(self, process_id: str) -> Process | None:
        """Return a process; None when it is not known."""
        return self._processes.get(process_id)

    def operations_of(self, process_id: str) -> list[Event]:
        """Start events of what a process has open, oldest first; id "" for those that name none."""
        return [self._open[key] for key in self._owned.get(process_id, ())]

    def silent(self, before_ns: int) -> list[Process]:
        """Processes that have something open, and whose newest sign is older than `before_ns`.

        `before_ns` is Unix time in nanoseconds.
        """
        return [
            process
            for name in self._owned
            if (process := self._processes.get(name)) is not None
            and process.last_sign_ns < before_ns
        ]

    def note(self, event: Event, sign_ns: int | None = None) -> None:
        """Take an event: a start opens, an end closes, any is a sign of life of its process.

        One that was taken before changes nothing, in the order of the journal.

        Args:
            event: Any event of the journal, or an end that the sidecar made.
            sign_ns: When its process gave this sign, in Unix nanoseconds; None: when the event
                was made; 0: it is no sign, because the sidecar made the event.
        """
        if event.process and sign_ns != 0:
            self._sign(event, event.created_ns if sign_ns is None else sign_ns)
        if event.span is None:
            return
        key = OperationKey(event.span.op_id, event.span.span_id)
        if event.event_type in START_EVENTS and key not in self._open:
            self._begin(key, event)
        elif event.event_type in END_EVENTS and key in self._open:
            self._end(key)

    def forget(self, now_ns: int) -> None:
        """Forget processes that have nothing open and are silent for `FORGET_NS`, or too many."""
        idle = [p for name, p in self._processes.items() if name not in self._owned]
        idle.sort(key=lambda process: process.last_sign_ns)
        too_many = len(idle) - self._max_processes
        for number, process in enumerate(idle):
            if number >= too_many and process.last_sign_ns >= now_ns - FORGET_NS:
                break
            del self._processes[process.id]
            self._signed.pop(process.id, None)
            self._gone[process.id] = None

    def pending(self) -> TrailChange:
        """Return what the next commit has to write."""
        return TrailChange(
            list(self._opened.values()),
            list(self._ended),
            [self._processes[name] for name in self._signed],
            list(self._gone),
            {OPERATIONS_FORGOTTEN: self._forgotten} if self._forgotten else {},
        )

    def settle(self) -> None:
        """Drop the differences: what `pending` returned last is written."""
        self._opened.clear()
        self._ended.clear()
        self._signed.clear()
        self._gone.clear()
        self._forgotten = 0

    def _sign(self, event: Event, sign_ns: int) -> None:
        known = self._processes.get(event.process)
        resource: dict[str, Any] = known.resource if known else {}
        export = known.export if known else ""
        if event.event_type == BEAT:
            resource = event.metadata.get("resource", resource)
            export = event.metadata.get("export", export)
        newest = max(sign_ns, known.last_sign_ns if known else 0)
        process = Process(event.process, resource, newest, export)
        if process != known:
            self._processes[process.id] = process
            self._signed[process.id] = None
            self._gone.pop(process.id, None)

    def _begin(self, key: OperationKey, event: Event) -> None:
        if event.content is not None:
            event = replace(event, content=None)  # what was asked is not needed to end it
        self._add(key, event)
        self._opened[key] = event
        self._ended.pop(key, None)
        while len(self._open) > self._max_open:
            self._end(next(iter(self._open)))
            self._forgotten += 1

    def _add(self, key: OperationKey, event: Event) -> None:
        self._open[key] = event
        self._owned.setdefault(event.process, {})[key] = None

    def _end(self, key: OperationKey) -> None:
        process = self._open.pop(key).process
        owned = self._owned[process]
        del owned[key]
        if not owned:
            del self._owned[process]
        if self._opened.pop(key, None) is None:  # else it was never written
            self._ended[key] = None
