"""The inbox between callbacks and the ledger, and the one short lock around the ledger.

A callback only appends a note: a function of `notes` or `identity`, and its arguments. Whoever
takes the lock next turns all notes into events, in order: the worker after its linger, or a
thread that needs an exact answer at once. Appending takes no lock, so a callback that the garbage
collector fires inside our own code (an abandoned stream being closed) cannot deadlock.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from . import process_life

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .events import Event
    from .ledger import Ledger
    from .observations import Observation
    from .pipeline import Pipeline
    from .summary import RunSummary

_NS_PER_S: Final = 1_000_000_000
_NEVER_S: Final = 3_600.0
_SHARE: Final = 512
"""Notes per hold of the lock: a few milliseconds, the longest that a summary waits."""
_HELP: Final = 4
"""Notes that a callback takes off a full inbox: more than it adds, and no more, so that helping
costs every callback a little instead of one callback in many a lot."""
_PATIENCE: Final = 2
"""Capacities of notes up to which a callback lets others empty the inbox rather than wait."""

COMMIT_WAIT_S: Final = 5.0
"""Longest that a callback waits for its commit: a store that hangs must not hang the agent."""

Note: TypeAlias = "tuple[Callable[..., Observation], tuple[Any, ...], int]"
"""What makes the observation, its arguments, and the nanoseconds the callback took."""


class OwnedLock:
    """A lock that one thread may take again, and that knows whether it is that thread's."""

    def __init__(self) -> None:
        """Begin free."""
        self._lock = threading.RLock()
        self._owner = 0
        self._depth = 0

    def mine(self) -> bool:
        """True when the calling thread holds it."""
        return self._owner == threading.get_ident()

    def acquire(self, *, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; False when that was not possible in time, or at once if not `blocking`."""
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._owner = threading.get_ident()
            self._depth += 1
        return taken

    def release(self) -> None:
        """Give it back, as often as it was taken."""
        self._depth -= 1
        if not self._depth:
            self._owner = 0
        self._lock.release()

    def __enter__(self) -> None:
        """Take it."""
        self.acquire()

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self.release()


class Recorder:
    """Serialises access to a ledger and queues its events."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        capacity: int,
        failed: Callable[[str, BaseException], None],
        sync: bool = False,
    ) -> None:
        """Beyond `capacity` notes the callbacks themselves empty the inbox: they never wait.

        But with `sync` a callback waits until what it noted is committed in the store.
        """
        self.ledger = ledger
        self.callback_ns = 0
        """Wall time spent in callbacks, as far as it was noted: the price of the product."""
        self._capacity = capacity
        self._failed = failed
        self._sync = sync
        self._own = threading.local()
        """``busy``: this thread is inside our own code, and must not wait for others."""
        self._pipeline: Pipeline | None = None
        self._born = 0
        """Monotonic time of the fork that made this process; 0 when nothing was open then."""
        self._begin()
        process_life.hold_at_fork(self, outer=True)

    def attach(self, pipeline: Pipeline) -> None:
        """Name the pipeline that takes the events."""
        self._pipeline = pipeline

    def _begin(self) -> None:
        self._lock = OwnedLock()
        self._draining = False
        self._inbox: deque[Note] = deque()

    def acquire(self, *, timeout: float) -> bool:
        """Let nobody else touch the ledger while the process forks, and bring it up to date.

        The child must not see half a step, and must know the operations it goes on in.
        """
        if not self._lock.acquire(timeout=timeout):
            return False
        self._empty()
        return True

    def release(self) -> None:
        """Undo `acquire`, in parent and child."""
        self._lock.release()

    def forked(self) -> None:
        """Start over in a forked child with an empty inbox and a lock that nobody holds.

        What was open stays known, as the parent of what begins here, but ends in the parent.
        """
        self.ledger.take()
        self._born = perf_counter_ns() if self.ledger.stats.operations_open else 0
        self._begin()

    def __len__(self) -> int:
        """Notes that wait."""
        return len(self._inbox)

    def note(self, make: Callable[..., Observation], arguments: tuple[Any, ...], at: int) -> None:
        """Append what a callback that began `at` (monotonic nanoseconds) has to say."""
        inbox = self._inbox
        inbox.append((make, arguments, perf_counter_ns() - at))
        waiting = len(inbox)
        if waiting > self._capacity:
            if self._lock.acquire(blocking=waiting > _PATIENCE * self._capacity):
                try:
                    self._empty(_HELP)
                finally:
                    self._lock.release()
        elif self._pipeline is not None and not self._pipeline.awake:
            self._pipeline.wake()
        if self._sync:
            self._commit()

    def _commit(self) -> None:
        """Wait until all that was noted is in the store, unless that cannot be waited for.

        A finalizer that the garbage collector runs inside our own code would wait for itself, the
        worker for its own work, and a store that is away for who knows what: then its events
        wait for it.
        """
        pipeline = self._pipeline
        if pipeline is None or pipeline.behind or pipeline.is_worker() or self._lock.mine():
            return
        with self.undisturbed() as free:
            if not free:
                return
            with self._lock:
                self._empty()
            if not pipeline.drain(COMMIT_WAIT_S):
                msg = f"an event was not committed within {COMMIT_WAIT_S:g} s"
                self._failed("commit", TimeoutError(msg))

    @contextmanager
    def undisturbed(self) -> Iterator[bool]:
        """Let no callback on this thread wait meanwhile; gives False when that was so already."""
        if getattr(self._own, "busy", False):
            yield False
            return
        self._own.busy = True
        try:
            yield True
        finally:
            self._own.busy = False

    def record(self, o: Observation) -> None:
        """Append an observation that is complete."""
        self.note(_itself, (o,), o.at)

    def drain(self) -> None:
        """Turn every note into events, letting go of the lock in between."""
        while self._inbox:
            with self._lock:
                self._empty(_SHARE)

    def _empty(self, most: int | None = None) -> None:
        if self._draining:  # a callback of the garbage collector, inside our own loop
            return
        self._draining = True
        inbox, observe = self._inbox, self.ledger.observe
        left = len(inbox) if most is None else most
        try:
            while inbox and left > 0:
                left -= 1
                make, arguments, took = inbox.popleft()
                self.callback_ns += took
                try:
                    observe(make(*arguments))
                except Exception as error:  # noqa: BLE001 - one bad note must not stop the rest
                    self._failed(make.__name__, error)
        finally:
            self._draining = False
        self._put()

    def _put(self) -> None:
        events = self.ledger.take()
        if self._born:
            events = [event for event in events if not self._inherited(event)]
        if events and self._pipeline is not None:
            self._pipeline.put(events)

    def _inherited(self, event: Event) -> bool:
        """True for what happens to an operation of the process that forked this one."""
        try:
            op = self.ledger.find(UUID(event.event_id.partition("/")[0]).int)
        except ValueError:  # not the fact of an operation
            return False
        return op is not None and op.start_at < self._born

    def sweep(self) -> float:
        """Drain, and close what is due; seconds until the next deadline known."""
        self.drain()
        with self._lock:
            now = perf_counter_ns()
            self.ledger.sweep(now)
            self._put()
            deadline = self.ledger.next_deadline
        return _NEVER_S if deadline is None else max(0.001, (deadline - now) / _NS_PER_S)

    def flush(self) -> None:
        """Drain, and queue every response that waits for usage."""
        with self._lock:
            self._empty()
            self.ledger.flush()
            self._put()

    def close(self) -> None:
        """Drain, and end every open operation; what comes later no longer waits in the inbox."""
        with self._lock:
            self._empty()
            self.ledger.close(perf_counter_ns())
            self._put()
            self._capacity = 0

    def put(self, event: Event) -> None:
        """Queue an event that is not the ledger's, in its place among those that are."""
        with self._lock:
            if self._pipeline is not None:
                self._pipeline.put([event])

    def summary(self, run_id: str) -> RunSummary | None:
        """Totals of a run, exact at once."""
        with self._lock:
            self._empty()
            return self.ledger.summary(run_id)

    def root_key(self, run_id: str) -> int | None:
        """Key of the newest open root operation of a run."""
        with self._lock:
            self._empty()
            root = self.ledger.root_of(run_id)
            return root.key if root is not None else None

    def identity(self, key: int) -> tuple[str, str, bool, str] | None:
        """Trace id, span id, sampling and tracestate of an open operation."""
        with self._lock:
            self._empty()
            op = self.ledger.find(key)
            if op is None or op.ended:
                return None
            run = op.run
            return run.trace_id, op.span_id, run.sampled and run.recording, run.trace_state

    def knows(self, operation: UUID) -> bool:
        """True for an operation that is open or remembered."""
        with self._lock:
            self._empty()
            return self.ledger.find(operation.int) is not None


def _itself(o: Observation) -> Observation:
    return o
