"""The bounded queue between the agent's threads and the sinks, and the one worker that empties it.

`put` never blocks and never raises; a full queue drops payload first and counts what it drops.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

from .reports import Reports

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .events import Event
    from .stats import SinkCounts

IDLE_WAIT_S: Final = 1.0
"""Longest sleep of the worker: how late an operation may be closed for old age."""

MAX_BATCH: Final = 2_048
"""Events handed to the sinks at once."""

T = TypeVar("T")


class Sink(Protocol):
    """A consumer of events inside the process; called by the worker thread only."""

    name: str
    counts: SinkCounts

    def write(self, events: Sequence[Event]) -> None:
        """Take events in order. What it raises is counted, not propagated."""
        ...

    def flush(self, timeout: float) -> bool:
        """Return True when everything taken has reached its destination, within `timeout` s."""
        ...

    def close(self, timeout: float) -> bool:
        """Flush and release resources, within `timeout` s."""
        ...


@runtime_checkable
class Forking(Protocol):
    """A sink with connections, locks or totals that a forked child must not share."""

    def forked(self) -> None:
        """Start over in a forked child, before anything is written there."""
        ...


@runtime_checkable
class Gate(Sink, Protocol):
    """The sink that comes first and knows what the others have had already."""

    @property
    def behind(self) -> bool:
        """True while something waits that could not be taken."""
        ...

    def admit(self, events: Sequence[Event]) -> Sequence[Event]:
        """Take events in order; return those that the other sinks should see."""
        ...

    def catch_up(self) -> bool:
        """Try again what could not be taken; True when nothing waits any more."""
        ...


class Signal:
    """A flag for one waiting thread, raised without any lock that could be held.

    A finalizer that the garbage collector runs may end an operation, in the middle of any code of
    ours on the same thread. `threading.Event` would deadlock there: it is not reentrant.
    """

    __slots__ = ("_lowered",)

    def __init__(self) -> None:
        """Begin lowered."""
        self._lowered = threading.Lock()
        self._lowered.acquire()

    def set(self) -> None:
        """Raise the flag; nothing happens when it is up."""
        if self._lowered.locked():
            with suppress(RuntimeError):  # another thread was quicker
                self._lowered.release()

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the flag, and lower it; True if it was up."""
        return self._lowered.acquire(timeout=timeout)

    def clear(self) -> None:
        """Lower the flag."""
        self._lowered.acquire(blocking=False)


class Pipeline:
    """Owns queue and worker of one journal."""

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        capacity: int,
        linger: float,
        tick: Callable[[], float],
        failed: Callable[[str, BaseException], None] | None = None,
    ) -> None:
        """`tick` does what is due in the ledger and returns seconds until it wants to be called.

        A sink that is a `Gate` sees every batch first. `failed` is told (place, error).
        """
        self.sinks = tuple(sinks)
        self._gate = next((sink for sink in sinks if isinstance(sink, Gate)), None)
        self._behind = [sink for sink in sinks if sink is not self._gate]
        self.capacity = capacity
        self._linger = linger
        self._tick = tick
        self._failed = failed or Reports().failed
        self._reset()

    def _reset(self) -> None:
        self._queue: deque[Event] = deque()
        self.awake = False
        """The worker will look at everything that is there now; callbacks read it, unlocked."""
        self._wake = Signal()
        self._urgent = Signal()
        self._done = threading.Condition(threading.RLock())  # finalizers may come here, too
        self._writing = threading.Lock()
        self._handled = 0
        self._accepted = 0
        self._offered = 0
        self._starting = threading.Lock()
        self._worker: threading.Thread | None = None
        self._stopping = False

    @property
    def counts(self) -> dict[str, SinkCounts]:
        """What became of the events, per sink. Each sink sees every event."""
        for sink in self.sinks:
            sink.counts.seen = self._offered
        return {sink.name: sink.counts for sink in self.sinks}

    def forked(self) -> None:
        """Start over in a forked child: the parent's events are the parent's to deliver."""
        self._reset()
        for sink in self.sinks:
            sink.counts.seen = sink.counts.exported = 0
            sink.counts.dropped.update(dict.fromkeys(sink.counts.dropped, 0))
            if isinstance(sink, Forking):
                sink.forked()

    @property
    def behind(self) -> bool:
        """True while the gate could not take everything: its store is away."""
        return self._gate is not None and self._gate.behind

    def is_worker(self) -> bool:
        """True on the worker's own thread."""
        return self._worker is threading.current_thread()

    def __len__(self) -> int:
        """Events that wait."""
        return len(self._queue)

    def oldest_age(self) -> float:
        """Seconds the oldest event has waited; 0.0 when none waits."""
        try:
            created_ns = self._queue[0].created_ns
        except IndexError:
            return 0.0
        return max(0.0, (time.time_ns() - created_ns) / 1e9)

    # Producers -------------------------------------------------------------------------------

    def put(self, events: Sequence[Event]) -> None:
        """Append events in order. The caller serialises calls, so that order is the ledger's."""
        queue = self._queue
        room = self.capacity - len(queue)
        self._offered += len(events)
        if self._stopping:
            self._drop(len(events), "shutdown")
            return
        if room < len(events) or room < self.capacity // 2:
            events = self._what_fits(events, room)
        queue.extend(events)
        self._accepted += len(events)
        self.wake()

    def _what_fits(self, events: Sequence[Event], room: int) -> Sequence[Event]:
        """Let feed rows go from half the queue, spans and counters only when it is full."""
        kept = [event for event in events if event.span is not None] if events else []
        kept = kept[: max(0, room)]
        self._drop(len(events) - len(kept), "queue_full")
        return kept

    def _drop(self, events: int, reason: str) -> None:
        for sink in self.sinks:
            sink.counts.dropped[reason] += events

    def wake(self) -> None:
        """See that a worker runs and looks at the queue and the clock."""
        if self._worker is None:
            self._start()
        self.awake = self._worker is not None
        self._wake.set()

    def _start(self) -> None:
        # Never wait here: who holds the lock may be this very thread, further down its stack.
        if not self._starting.acquire(blocking=False):
            return
        try:
            if self._worker is None and not self._stopping:
                worker = threading.Thread(target=self._run, name="otel-journal", daemon=True)
                self._worker = worker
                worker.start()
        except RuntimeError:  # no more threads: the limit is reached, or the interpreter ends
            self._worker = None
        finally:
            self._starting.release()

    # Worker ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            wait = IDLE_WAIT_S
            while not self._stopping:
                if self._wake.wait(wait):
                    self._urgent.wait(self._linger)
                self._wake.clear()
                self._urgent.clear()
                self.awake = False  # before the drain: what comes after it must wake us again
                wait = min(IDLE_WAIT_S, self._guard_tick())
                self._empty()
                self._catch_up()
            self._empty()
        finally:
            self.awake = False
            if not self._stopping:  # not foreseen; the next event starts another worker
                self._worker = None

    def _guard_tick(self) -> float:
        try:
            return self._tick()
        except Exception as error:  # noqa: BLE001 - the worker must live; counted and logged
            self._failed("ledger", error)
            return IDLE_WAIT_S

    def _empty(self) -> None:
        queue = self._queue
        while queue:
            with self._writing:
                batch = [queue.popleft() for _ in range(min(len(queue), MAX_BATCH))]
                admitted = self._admit(batch)
                for sink in self._behind:
                    # What the gate knows already has reached this sink, here or elsewhere.
                    sink.counts.exported += len(batch) - len(admitted)
                    self._offer(sink, sink.write, admitted)
            self._settle(len(batch))

    def _admit(self, batch: Sequence[Event]) -> Sequence[Event]:
        gate = self._gate
        admitted = self._offer(gate, gate.admit, batch) if gate is not None else None
        return batch if admitted is None else admitted

    def _catch_up(self) -> None:
        if self._gate is None:
            return
        try:
            self._gate.catch_up()
        except Exception as error:  # noqa: BLE001 - foreign code; what waits, waits on
            self._failed("store", error)

    def _settle(self, events: int) -> None:
        with self._done:
            self._handled += events
            self._done.notify_all()

    def _offer(
        self, sink: Sink, take: Callable[[Sequence[Event]], T], batch: Sequence[Event]
    ) -> T | None:
        """Hand a batch to a sink; when that raises, what it has not settled is dropped."""
        before = _settled(sink)
        try:
            return take(batch)
        except BaseException as error:  # noqa: BLE001 - foreign code, even one that exits; counted
            settled = _settled(sink) - before
            sink.counts.dropped["handler_error"] += max(0, len(batch) - settled)
            self._failed(sink.name, error)
            return None

    # Life ------------------------------------------------------------------------------------

    def drain(self, timeout: float) -> bool:
        """Wait until everything put so far was handed to the sinks; False when time ran out."""
        target = self._accepted
        if self._handled >= target:
            return True
        self.wake()
        self._urgent.set()
        if self._worker is None:  # the interpreter ends and starts no threads any more
            self._empty()
        with self._done:
            return self._done.wait_for(lambda: self._handled >= target, timeout)

    def stop(self, timeout: float) -> bool:
        """End the worker after the queue is empty; False when it did not end in time.

        What it could not hand over by then, and what comes later, is dropped by ``shutdown``.
        """
        self._stopping = True
        worker = self._worker
        self._wake.set()
        self._urgent.set()
        if worker is None or worker is threading.current_thread():
            self._empty()
            return True
        worker.join(max(0.0, timeout))
        if not worker.is_alive():
            return True
        self._abandon()
        return False

    def _abandon(self) -> None:
        queue = self._queue
        left = 0
        with suppress(IndexError):  # the worker may take the rest at the same time
            while queue:
                queue.popleft()
                left += 1
        self._drop(left, "shutdown")
        self._settle(left)


def _settled(sink: Sink) -> int:
    return sink.counts.exported + sum(sink.counts.dropped.values())


def remaining(deadline: float) -> float:
    """Seconds left until `deadline` (monotonic), never negative."""
    return max(0.0, deadline - time.monotonic())
