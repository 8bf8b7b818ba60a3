"""Facts that are not operations: annotations, resumes, and usage from outside the callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from . import blocks
from . import semconv as sc
from .events import LEAD_AGENT, Event, SpanBlock, category_of
from .lineage import RecentlyUsed
from .summary import Spender, Spent

if TYPE_CHECKING:
    from collections.abc import Callable

    from .ledger_state import LedgerState
    from .observations import Annotated, ExternalUsage, Resumed
    from .operations import Operation


class Manual:
    """Writes events that belong to a run without being the start or end of an operation."""

    def __init__(self, state: LedgerState, *, wall: Callable[[int], int]) -> None:
        self._state = state
        self._wall = wall
        self._seen: RecentlyUsed[bool] = RecentlyUsed(state.limits.max_remembered)

    def resumed(self, root: Operation, o: Resumed) -> None:
        """Record that a run went on from a checkpoint."""
        links = [{"trace_id": x.trace_id, "span_id": x.span_id} for x in root.links]
        event = blocks.event(root, "resumed", "run.resumed", o.at, metadata={"resumes": links})
        self._state.emit(event, root.run)

    def annotated(self, o: Annotated) -> None:
        """Keep an annotation, once per identity."""
        op = self._state.table.find(o.key)
        if op is None:
            op = self._state.roots.get(o.run_id)
        run_id = op.run.run_id if op is not None else o.run_id
        if not self._first(run_id, o.identity, "node"):
            return
        event = Event(
            event_id=o.identity,
            run_id=run_id,
            event_type=o.event_type,
            category=category_of(o.event_type),
            created_ns=op.run.wall(o.at) if op is not None else self._wall(o.at),
            thread_id=op.run.thread_id if op is not None else "",
            content=o.content,
            metadata=o.metadata,
            process=self._state.process,
        )
        if op is not None:
            self._state.emit(event, op.run)
        else:
            self._state.out.append(event)

    def _first(self, run_id: str, identity: str, kind: str) -> bool:
        self._state.stats.observations[kind] += 1
        key = (run_id, identity)
        if key in self._seen:
            self._state.stats.replays_dropped[kind] += 1
            return False
        self._seen.remember(key, value=True)
        return True

    def external_usage(self, o: ExternalUsage) -> None:
        """Book tokens spent outside the callbacks, once per source in the callbacks' id space."""
        if self._known_call(o.source_id):
            self._state.stats.observations["external_usage"] += 1
            self._state.stats.replays_dropped["external_usage"] += 1
            return
        if not self._first("", o.source_id, "external_usage"):
            return
        if not self._state.switches.track_usage:
            return
        self._state.external.remember(o.source_id, value=True)
        root = self._state.roots.get(o.run_id)
        block = self._block(o, root)
        spender = Spender(block.agent, block.caller, block.attributes[sc.PROVIDER_NAME], o.model)
        totals = self._state.accounts.of(o.run_id)
        totals.tokens.setdefault(spender, Spent()).book(o.usage)
        self._state.out.append(
            Event(
                event_id=f"{o.source_id}/external",
                run_id=o.run_id,
                event_type="usage.amended",
                category="trace",
                created_ns=block.end_ns,
                thread_id=totals.thread_id,
                metadata={"external": True, "usage": msgspec.structs.asdict(o.usage)},
                span=block,
                process=self._state.process,
            )
        )

    def _known_call(self, source_id: str) -> bool:
        """True when the callbacks have counted this very call already."""
        try:
            op = self._state.table.find(UUID(source_id).int)
        except ValueError:
            return False
        return op is not None and op.usage is not None and op.usage.positive

    def _block(self, o: ExternalUsage, root: Operation | None) -> SpanBlock:
        now = root.run.wall(o.at) if root is not None else self._wall(o.at)
        return SpanBlock(
            op_id=o.source_id,
            kind="chat",
            name="external usage",
            trace_id=root.run.trace_id if root is not None else "",
            span_id=root.span_id if root is not None else "",
            start_ns=now,
            end_ns=now,
            attributes={
                sc.OPERATION_NAME: "chat",
                sc.PROVIDER_NAME: o.provider or "unknown",
                sc.REQUEST_MODEL: o.model,
            },
            sampled=root.run.sampled if root is not None else False,
            recording=False,
            agent=root.agent if root is not None else "",
            caller=o.caller or LEAD_AGENT,
            usage=o.usage,
        )
