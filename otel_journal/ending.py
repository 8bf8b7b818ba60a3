"""Ends of operations: real ones, repeated ones, and those the journal has to make itself."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from . import blocks
from . import semconv as sc
from .events import Failure
from .observations import Ended

if TYPE_CHECKING:
    from .events import ClosedBy, Outcome
    from .ledger_state import LedgerState
    from .operations import Operation
    from .responses import Responses

_INHERITED: Final[frozenset[Outcome | None]] = frozenset({"cancelled", "abandoned"})
"""Outcomes of a parent that tell what became of a child it left open; others leave it unknown."""
_NS_PER_MS: Final = 1_000_000


class Grace(NamedTuple):
    """Something that is settled at `deadline` unless a callback settles it before."""

    deadline: int
    operation: Operation
    ended_at: int
    orphans: tuple[Operation, ...]
    """Children that were open when `operation` ended; empty for a call that waits for usage."""


class Ending:
    """Turns `Ended` observations into end events, exactly one per operation."""

    def __init__(self, state: LedgerState, responses: Responses) -> None:
        self._state = state
        self._responses = responses
        self.graces: deque[Grace] = deque()

    def ended(self, o: Ended) -> bool:
        """End an operation, or find out what a repeated end adds; False when it adds nothing."""
        state = self._state
        op = state.table.open.get(o.key)
        if op is None:
            return self._repeated(state.table.closed.get(o.key), o)
        if op.pending is not None:
            first = op.pending
            if o.responded and not first.responded:
                # What came first was no answer; it may not keep the real one away.
                op.pending = None
                return self.ended(o)
            if not self._responses.late_usage(op, o):
                return False
            self.finish(op, first)
        elif op.kind in blocks.MODEL_KINDS and not self._responses.settle(op, o):
            op.stream = state.streams.pop(o.key, None)
            op.pending = o
            grace_ns = state.limits.grace_ns
            self.graces.append(Grace(o.at + grace_ns, op, o.at, ()))
        else:
            self.finish(op, o)
        return True

    def _repeated(self, op: Operation | None, o: Ended) -> bool:
        changed = False
        if op is not None and op.kind in blocks.MODEL_KINDS:
            if o.responded and o.outcome == "ok" and not op.gave_response:
                self._responses.late_response(op, o)
                changed = True
            if self._responses.late_usage(op, o):
                self._responses.amend(op, o.at)
                changed = True
        return changed

    def finish(self, op: Operation, o: Ended) -> None:
        """Write the end event of `op` and remember it as ended."""
        state = self._state
        is_model = op.kind in blocks.MODEL_KINDS
        if is_model and op.pending is None:
            op.stream = state.streams.pop(op.key, None)
        op.pending = None
        op.ended = True
        outcome = o.outcome
        if op.interrupted or o.timeout:
            outcome = self._outcome(op, o)
        op.outcome = outcome
        if op.children:
            self._leave_children(op, o)
        parent = op.parent
        if parent is None:
            self._root_ended(op)
        elif parent.children:
            parent.children.pop(op.key, None)
        op.decided = True
        failure = self._failure(op, o) if outcome == "error" else None
        if op.kept:
            self._write(op, o, failure, is_model=is_model)
        state.table.close(op)
        op.forget_payload()

    def _outcome(self, op: Operation, o: Ended) -> Outcome:
        if o.outcome == "ok" and op.interrupted:
            return "interrupted"
        if o.timeout and op.kind in blocks.CHAIN_KINDS:
            # A graph's step_timeout cancels; a call that timed out below has failed.
            came_up = op.child_errors is not None and o.error_identity in op.child_errors
            return "error" if came_up else "cancelled"
        return o.outcome

    def _failure(self, op: Operation, o: Ended) -> Failure | None:
        """The exception, unless a kept operation below has recorded it already."""
        identity = o.error_identity
        recorded = op.child_errors is not None and identity in op.child_errors
        if (op.kept or recorded) and op.parent is not None and identity:
            if op.parent.child_errors is None:
                op.parent.child_errors = set()
            op.parent.child_errors.add(identity)
        if recorded:
            return None
        return Failure(o.error_type, o.error_message, o.stacktrace)

    def _write(self, op: Operation, o: Ended, failure: Failure | None, *, is_model: bool) -> None:
        state = self._state
        error_type = o.error_type if op.outcome == "error" else ""
        op.attributes = blocks.end_attributes(op, o, error_type)
        block = blocks.end_block(op, o.at, failure, error_type)
        if is_model:
            self._responses.book(op)
            event_type = "llm.error" if error_type else "llm.end"
            # No order to keep: rows that wait for usage go on waiting.
            state.out.append(blocks.event(op, "end", event_type, o.at, block))
            return
        if op.kind == "tool":
            self._tool_ended(op, o)
        event_type = _end_type(op) if op.parent is None else blocks.END_TYPES[op.kind]
        if not state.switches.feed:
            state.out.append(blocks.event(op, "end", event_type, o.at, block))
            return
        state.emit(blocks.event(op, "end", event_type, o.at, block, self._content(op, o)), op.run)
        for index, row in enumerate(o.rows):
            result = blocks.event(op, f"tool.{index}", "llm.tool.result", o.at, None, row)
            state.emit(result, op.run)

    def _tool_ended(self, op: Operation, o: Ended) -> None:
        totals = op.run.totals
        totals.tool_calls += 1
        totals.messages += o.messages
        if op.owner is not None and not op.owner.ended:
            op.owner.tool_calls += 1

    def _content(self, op: Operation, o: Ended) -> object:
        if op.kind == "tool":
            said = o.content if isinstance(o.content, dict) else {}
            return {
                "call_id": op.attributes.get(sc.CALL_ID),
                "name": op.attributes.get(sc.TOOL_NAME),
                **said,
                "outcome": op.outcome,
                "latency_ms": (o.at - op.start_at) // _NS_PER_MS,
            }
        return op.interrupt_payload if op.outcome == "interrupted" else o.content

    def _root_ended(self, op: Operation) -> None:
        state = self._state
        state.accounts.root_ended(op)
        state.lineage.root_ended(op)
        if state.roots.get(op.run.run_id) is op:
            del state.roots[op.run.run_id]

    # Ends that never came ----------------------------------------------------------------------

    def _leave_children(self, op: Operation, o: Ended) -> None:
        """Settle what waits for usage, and give the rest a grace: some children end late."""
        orphans = []
        for child in list((op.children or {}).values()):
            if child.pending is not None:
                self.finish(child, child.pending)
            else:
                orphans.append(child)
        if orphans:
            deadline = o.at + self._state.limits.grace_ns
            self.graces.append(Grace(deadline, op, o.at, tuple(orphans)))

    def grace_over(self, grace: Grace) -> None:
        """Settle what no callback settled in time."""
        op = grace.operation
        if op.pending is not None:
            self.finish(op, op.pending)
        for child in grace.orphans:
            if not child.ended:
                outcome = op.outcome if op.outcome in _INHERITED else "unknown"
                self.close(child, grace.ended_at, outcome or "unknown", "parent_end")

    def close(self, op: Operation, at: int, outcome: Outcome, reason: ClosedBy) -> None:
        """End an operation and all below it ourselves, children first.

        Not by recursion: operations that nobody ends can nest without limit.
        """
        below = outcome if outcome in _INHERITED else "unknown"
        subtree = [op]
        for above in subtree:
            if above.children and above.pending is None:
                subtree.extend(above.children.values())
        for found in reversed(subtree):
            if found.ended:
                continue
            if found.pending is not None:
                self.finish(found, found.pending)
                continue
            found.closed_by = reason
            self._state.stats.closed[reason] += 1
            became = outcome if found is op else below
            self.finish(found, Ended(found.key, max(at, found.start_at), "", became))


def _end_type(op: Operation) -> str:
    """End event of a root."""
    if op.kind in blocks.CHAIN_KINDS:
        if op.outcome == "error":
            return "run.error"
        return "run.interrupted" if op.outcome == "interrupted" else "run.end"
    return blocks.END_TYPES[op.kind]
