"""Ends of model calls: one usage per call, whenever it comes, and the rows of the message feed.

Two clocks run when a response comes without positive usage. Its feed row waits in its place
until the next event of the run, a flush or a close. Its end event, which has no order to keep,
waits until usage comes, its parent ends or the grace is over (design 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from . import blocks
from .events import LEAD_AGENT, Event, Usage
from .operations import StagedRows

if TYPE_CHECKING:
    from .ledger_state import LedgerState
    from .observations import Ended, Human
    from .operations import Operation

_NS_PER_MS: Final = 1_000_000
_FIRST_ROW: Final = "/ai.0"


class Responses:
    """Books usage and writes message rows for the ledger."""

    def __init__(self, state: LedgerState) -> None:
        self._state = state

    def human(self, op: Operation, human: Human, at: int) -> None:
        """Record the human turn of a run, once."""
        if self._state.accounts.human(op, human) and self._state.switches.feed:
            row = blocks.event(
                op,
                "human",
                "llm.human.input",
                at,
                content=human.content,
                metadata={"caller": op.caller},
            )
            self._state.emit(row, op.run)

    def settle(self, op: Operation, o: Ended) -> bool:
        """Take the first response of a call; True when its end need not wait for usage."""
        usage = o.usage if self._state.switches.track_usage else None
        if usage is not None and op.op_id in self._state.external:
            usage = Usage()  # booked already, under the same id
        op.cached = o.cached
        op.usage_tracked = self._state.switches.track_usage
        op.usage = usage
        if o.asked:
            self._state.lineage.asked(op, o.asked)
        if not op.booked:
            op.booked = True
            self._book_call(op)
        settled = o.outcome != "ok" or o.cached or (o.usage is not None and o.usage.positive)
        if o.responded and o.outcome == "ok":
            self._respond(op, o, settled=settled)
        return settled or not self._state.switches.track_usage

    def _respond(self, op: Operation, o: Ended, *, settled: bool) -> None:
        op.gave_response = True
        totals = op.run.totals
        totals.messages += o.generations
        if o.text.strip() and op.caller == LEAD_AGENT:
            totals.last_ai_message = o.text
        self._rows(op, o, settled=settled)

    def _rows(self, op: Operation, o: Ended, *, settled: bool) -> None:
        if not self._state.switches.feed:
            return
        latency = (o.at - op.start_at) // _NS_PER_MS
        rows = [
            blocks.event(
                op,
                f"ai.{index}",
                "llm.ai.response",
                o.at,
                content=dump,
                metadata={
                    "caller": op.caller,
                    # One usage per call: whoever sums up rows must find it once.
                    "usage": _as_dict(o.usage) if index == 0 else {},
                    "latency_ms": latency,
                    "llm_call_index": op.llm_index,
                },
            )
            for index, dump in enumerate(o.rows)
        ]
        if settled:
            for row in rows:
                self._state.emit(row, op.run)
        else:
            self._state.stage(StagedRows(op, rows))

    def late_usage(self, op: Operation, o: Ended) -> bool:
        """Look for usage in a repeated response; True when it is the first positive one.

        A later, different usage changes nothing and is counted as a conflict.
        """
        usage = o.usage
        self._enrich(op, o)
        if usage is None or not usage.positive or op.cached:
            return False
        if not self._state.switches.track_usage or op.op_id in self._state.external:
            return False
        if op.usage is not None and op.usage.positive:
            if op.usage != usage:
                self._state.stats.usage_conflicts += 1
            return False
        op.usage = usage
        return True

    def _enrich(self, op: Operation, o: Ended) -> None:
        """Merge usage into the rows that still wait; the rest of a repeat is ignored."""
        if o.usage is None or not o.usage.positive:
            return
        staged = op.run.staged
        for waiting in staged:
            if waiting.operation is op and not waiting.ready:
                waiting.rows = [
                    _with_usage(row, o.usage, o.rows[index] if index < len(o.rows) else None)
                    for index, row in enumerate(waiting.rows)
                ]
                waiting.ready = True
        while staged and staged[0].ready:
            self._state.out.extend(staged.pop(0).rows)
        if not staged:
            self._state.staging.pop(id(op.run), None)

    def amend(self, op: Operation, at: int) -> None:
        """Book usage that came after the call's end event was written."""
        usage = op.usage
        if usage is None:
            return
        self._state.accounts.book_usage(op, usage)
        block = blocks.end_block(op, at, None, "")
        amended = blocks.event(
            op,
            "amended",
            "usage.amended",
            at,
            span=msgspec.structs.replace(block, stream=None, failure=None),
            metadata={"usage": _as_dict(usage)},
        )
        self._state.out.append(amended)

    def late_response(self, op: Operation, o: Ended) -> None:
        """Take the answer of a call that had been ended without one (error first, then end)."""
        self._respond(op, o, settled=True)

    def _book_call(self, op: Operation) -> None:
        self._state.accounts.book_call(op)
        if op.owner is not None and not op.owner.ended:
            op.owner.inference_calls += 1

    def book(self, op: Operation) -> None:
        """Put what an ended call cost into the run's account."""
        if not op.booked:
            op.booked = True
            self._book_call(op)
        if op.usage is not None:
            self._state.accounts.book_usage(op, op.usage)
        elif op.outcome == "ok" and not op.cached and self._state.switches.track_usage:
            op.run.totals.usage_missing += 1


def _as_dict(usage: Usage | None) -> dict[str, object]:
    return {} if usage is None else msgspec.structs.asdict(usage)


def _with_usage(row: Event, usage: Usage, repeated: object) -> Event:
    """A waiting row with the usage that a repeat of its response brought, nothing else."""
    content, metadata = row.content, row.metadata
    if isinstance(content, dict) and isinstance(repeated, dict):
        content = {**content, "usage_metadata": repeated.get("usage_metadata")}
    if row.event_id.endswith(_FIRST_ROW):
        metadata = {**metadata, "usage": _as_dict(usage)}
    return msgspec.structs.replace(row, content=content, metadata=metadata)
