"""How operations point at each other: attempts, resumes, and who asked for a tool call."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from .events import Link, Outcome

if TYPE_CHECKING:
    from collections.abc import Hashable

    from .operations import Operation

V = TypeVar("V")

UNFINISHED: frozenset[Outcome | None] = frozenset({"error", "cancelled", "abandoned", "unknown"})
"""Outcomes of a run that a later `invoke(None)` goes on from."""


class RecentlyUsed(OrderedDict[object, V], Generic[V]):
    """A mapping that forgets its least recently written entry beyond `limit`."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def remember(self, key: Hashable, value: V) -> None:
        """Write an entry as the newest one."""
        if key in self:
            self.move_to_end(key)
        self[key] = value
        if len(self) > self._limit:
            self.popitem(last=False)


class _LastRun(NamedTuple):
    trace_id: str
    span_id: str
    outcome: Outcome | None


class Lineage:
    """Remembers just enough of the past to link to it; bounded by `limit` entries per table."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._executions: OrderedDict[object, tuple[int, str, str]] = OrderedDict()
        """Logical step -> number, trace and span of its newest attempt."""
        self._asked: RecentlyUsed[tuple[str, str]] = RecentlyUsed(limit)
        self._paused: RecentlyUsed[tuple[str, str]] = RecentlyUsed(limit)
        self._last_runs: RecentlyUsed[_LastRun] = RecentlyUsed(limit)

    def place(self, op: Operation, parent: Operation, retry: int) -> None:
        """Number the attempt `op` makes at its logical step, and link it to what led to it.

        The step is (thread, checkpoint namespace, kind, tool call id): LangGraph's task ids are
        the same after a resume, a retry and a crash (callbacks.md, fact 12). Siblings without
        such a key are told apart by their order; a sibling that follows a failed one repeats it.
        """
        run, executions = op.run, self._executions
        if op.kind == "node":
            key: object = (run.thread_id, op.checkpoint_ns or parent.span_id, op.name)
        else:
            key = self._step(op, parent)
        before = executions.get(key)
        attempt = retry
        if before is not None:
            attempt = max(before[0] + 1, retry)
            op.links += (Link(before[1], before[2], "previous_attempt"),)
        if not parent.kept and parent.attempt > attempt:
            attempt = parent.attempt
        op.attempt = attempt
        executions[key] = (attempt, run.trace_id, op.span_id)
        if len(executions) > self._limit:
            executions.popitem(last=False)
        if op.call_id:
            asked = self._asked.get((op.run.thread_id or op.run.trace_id, op.call_id))
            if asked:
                op.links += (Link(*asked, "requested_by"),)

    @staticmethod
    def _step(op: Operation, parent: Operation) -> tuple[object, ...]:
        steps, number = parent.steps, 0
        sibling = (op.kind, op.call_id)
        if parent.ended:
            steps = {}  # what has ended must not refer to what is open
        elif steps is None:
            steps = parent.steps = {}
        elif (latest := steps.get(sibling)) is not None:
            number, previous = latest
            if not previous.ended or previous.outcome == "ok":
                number += 1
        steps[sibling] = number, op
        return op.run.thread_id, op.checkpoint_ns or parent.span_id, *sibling, number

    def asked(self, op: Operation, call_ids: tuple[str, ...]) -> None:
        """Note that the model call `op` asked for these tool calls."""
        for call_id in call_ids:
            scope = op.run.thread_id or op.run.trace_id
            self._asked.remember((scope, call_id), op.link_target)

    def paused(self, root: Operation, checkpoint_id: str) -> None:
        """Note at which checkpoint a run waits."""
        if root.run.thread_id:
            self._paused.remember((root.run.thread_id, checkpoint_id), root.link_target)

    def root_ended(self, root: Operation) -> None:
        """Note the newest run of a thread, for an `invoke(None)` after a failure."""
        if root.run.thread_id:
            last = _LastRun(*root.link_target, root.outcome)
            self._last_runs.remember(root.run.thread_id, last)

    def resumed(self, root: Operation, checkpoint_id: str) -> bool:
        """Link a resumed root to the run it continues; False when that is not known."""
        thread = root.run.thread_id
        target = self._paused.get((thread, checkpoint_id))
        if target is None:
            last = self._last_runs.get(thread)
            if last is None or last.outcome not in UNFINISHED:
                return False
            target = last.trace_id, last.span_id
        link = Link(*target, "resumes")
        if link not in root.links:
            root.links += (link,)
        return True
