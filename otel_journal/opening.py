"""Starts of operations: pairing with parents, classification, names, and the sampling decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from . import blocks, ids
from . import semconv as sc
from .classify import classify_by_child, classify_chain, middleware_caller, user_name
from .events import LEAD_AGENT
from .lineage import RecentlyUsed
from .operations import Operation, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .events import Kind
    from .ledger_state import LedgerState
    from .observations import Ambient, Started
    from .responses import Responses

OBSERVED_AS: Final[dict[Kind, str]] = {
    "chain": "node",
    "chat": "llm",
    "completion": "llm",
    "tool": "tool",
    "retrieval": "retrieval",
}
"""Kind of a started operation -> label in `stats.OBSERVATION_KINDS`; root chains are ``run``."""


_MAX_TOLD: Final = 10_000
"""Sets of labels known to have been announced; beyond it every start is told again."""


class Sampled(NamedTuple):
    """The sampling decision for one trace."""

    sampled: bool = True
    recording: bool = True
    attributes: Mapping[str, Any] = {}
    trace_state: str = ""


class Sampler(Protocol):
    """Decides once per trace, when its root begins."""

    def __call__(self, root: Operation, ambient: Ambient | None) -> Sampled:
        """Return the decision; must not raise."""
        ...


class Opening:
    """Turns `Started` observations into open operations and their start events."""

    def __init__(
        self,
        state: LedgerState,
        responses: Responses,
        *,
        wall: Callable[[int], int],
        sampler: Sampler | None,
    ) -> None:
        self._state = state
        self._responses = responses
        self._wall = wall
        self._sampler = sampler
        self._reopening: RecentlyUsed[Started] = RecentlyUsed(state.limits.max_remembered)
        self._told: set[tuple[object, ...]] = set()

    def started(self, o: Started) -> None:
        """Open an operation, unless this start was seen before."""
        table, stats = self._state.table, self._state.stats
        kind = "run" if o.kind == "chain" and o.parent_key is None else OBSERVED_AS[o.kind]
        stats.observations[kind] += 1
        past = table.open.get(o.key)
        if past is None:
            past = table.closed.get(o.key)
            if past is None:
                self._open(o, self._parent(o), 0)
                return
            if past.root and o.kind == "chain" and o.key not in self._reopening:
                # A reused run id or a replay: the first child with a new id tells (fact 23b).
                self._reopening.remember(o.key, o)
                return
        stats.replays_dropped[kind] += 1

    def was_replay(self, key: int) -> bool:
        """True when a root that seemed to begin again ends without any new child below it."""
        return self._reopening.pop(key, None) is not None

    def _parent(self, o: Started) -> Operation | None:
        key, table = o.parent_key, self._state.table
        if key is not None:
            parent = table.open.get(key)
            if parent is not None:
                return parent
            if key in self._reopening:
                again = self._reopening.pop(key)
                past = table.closed.get(key)
                return self._open(again, None, past.occurrence + 1 if past is not None else 0)
            parent = table.closed.get(key)
            if parent is not None:
                return parent
        if o.ambient is not None and o.ambient.op_key is not None:
            parent = table.open.get(o.ambient.op_key)
            if parent is not None and parent.kind not in blocks.MODEL_KINDS:
                return parent  # models call no runnables: theirs is a stale one
        return None

    def _open(self, o: Started, parent: Operation | None, occurrence: int) -> Operation:
        if parent is None:
            op = _operation(o, occurrence, None, self._new_run(o, occurrence))
            if o.parent_key is not None:
                op.attributes[sc.PARENT_UNSEEN] = True
            if o.kind == "chain":
                self._classify(op, o, None)
            op.caller = o.caller or op.caller
            self._sample(op, o)
        else:
            if not parent.decided:
                self._decide(parent, is_agent=classify_by_child(o) == "agent")
            op = _operation(o, occurrence, parent, parent.run)
            if parent.ended:
                pass  # a late child ends by itself: what has ended must not refer to it
            elif parent.children is None:
                parent.children = {op.key: op}
            else:
                parent.children[op.key] = op
            op.owner = parent if parent.owns else parent.owner
            op.agent = parent.agent
            if o.kind == "chain":
                self._classify(op, o, parent)
            if op.kept or o.retry > 1:
                self._state.lineage.place(op, parent, o.retry)
            op.caller = o.caller or _structural_caller(op, parent)
        self._state.table.open[op.key] = op
        self._announce(op, o)
        return op

    def _new_run(self, o: Started, occurrence: int) -> Run:
        thread_id = o.bound_thread_id or o.thread_id
        totals = self._state.accounts.root_opened(o.run_id or o.op_id, thread_id)
        ambient = o.ambient
        if ambient is not None and not ambient.trace_id:
            ambient = None
        trace_id = ambient.trace_id if ambient is not None else ids.trace_id(o.key, occurrence)
        totals.trace_id = trace_id
        run = Run(totals.run_id, totals.thread_id, trace_id, totals, self._wall(o.at), o.at)
        run.process = self._state.process
        if ambient is not None:
            run.ambient_parent, run.remote_parent = ambient.span_id, ambient.remote
            run.trace_state = ambient.trace_state
        return run

    def _sample(self, op: Operation, o: Started) -> None:
        run = op.run
        self._state.roots[run.run_id] = op
        if self._sampler is not None:
            decision = self._sampler(op, o.ambient)
            run.sampled, run.recording = decision.sampled, decision.recording
            run.trace_state = decision.trace_state or run.trace_state
            op.attributes.update(decision.attributes)

    def _classify(self, op: Operation, o: Started, parent: Operation | None) -> None:
        verdict = classify_chain(o, parent)
        if verdict == "node":
            op.kind = "node"
            return
        if verdict == "agent" or verdict == "workflow":  # noqa: PLR1714 - narrows the type
            name = o.given_name
            if (
                not name
                and verdict == "agent"
                and not (parent is not None and op.agent == o.agent_name)
            ):
                name = o.agent_name
            if not name:
                name = user_name(o.name)
            if not name and parent is not None and parent.kind == "node":
                name = parent.node
            _name(op, verdict, name)
            return
        op.kept = self._state.switches.all_spans
        op.decided = verdict != "undecided"

    def _decide(self, op: Operation, *, is_agent: bool) -> None:
        op.decided = True
        if not is_agent:
            return
        op.kept = True
        _name(op, "agent", user_name(op.name))
        if op.parent is not None:
            self._state.lineage.place(op, op.parent, 1)
            op.caller = _structural_caller(op, op.parent)
        self._announce(op, None)

    def _announce(self, op: Operation, o: Started | None) -> None:
        run, attributes = op.run, op.attributes
        if op.kept:
            kind = op.kind
            if run.thread_id and kind != "retrieval":
                attributes[sc.CONVERSATION_ID] = run.thread_id
            if kind == "tool" and op.agent:
                attributes[sc.AGENT_NAME] = op.agent
            elif kind in blocks.MODEL_KINDS:
                run.totals.llm_index += 1
                op.llm_index = run.totals.llm_index
                attributes[sc.CALLER] = op.caller
            if op.parent is None or self._worth_telling(op):
                self._emit_start(op, o)
        if o is not None and o.human is not None and op.caller == LEAD_AGENT:
            self._responses.human(op, o.human, o.at)

    def _worth_telling(self, op: Operation) -> bool:
        """Below the root, a start event is for a store, or for counters that start at zero."""
        if op.kind == "retrieval":
            return False
        if self._state.switches.feed:
            return True
        if op.kind == "node":
            return False
        labels = (op.name, op.agent, op.caller, op.attributes.get(sc.PROVIDER_NAME))
        if labels in self._told:
            return False
        if len(self._told) < _MAX_TOLD:
            self._told.add(labels)
        return True

    def _emit_start(self, op: Operation, o: Started | None) -> None:
        is_run = op.parent is None and op.kind in blocks.CHAIN_KINDS
        event_type = "run.start" if is_run else blocks.START_TYPES.get(op.kind)
        if event_type is None:
            return
        start = blocks.event(
            op,
            "start",
            event_type,
            op.start_at,
            span=blocks.start_block(op),
            content=o.content if o is not None else None,
        )
        self._state.emit(start, op.run)


def _operation(o: Started, occurrence: int, parent: Operation | None, run: Run) -> Operation:
    return Operation(
        o.key,
        o.op_id,
        occurrence,
        o.kind,
        o.name,
        parent,
        run,
        o.at,
        ids.span_id(o.key, occurrence),
        o.attributes,
        o.checkpoint_ns,
        o.node,
        o.agent_name,
        o.call_id,
    )


def _name(op: Operation, kind: Kind, name: str) -> None:
    op.kind = kind
    op.owns = True
    operation = f"invoke_{kind}"
    op.name = f"{operation} {name}" if name else operation
    op.attributes[sc.OPERATION_NAME] = operation
    if name:
        op.attributes[sc.AGENT_NAME] = op.agent = name


def _structural_caller(op: Operation, parent: Operation) -> str:
    """Who asks, when no tag says so: a nested agent, or a hook of a middleware, for its own."""
    kind = op.kind
    if kind == "node":
        return ("." in op.node and middleware_caller(op.node)) or parent.caller
    return f"subagent:{op.agent}" if kind == "agent" else parent.caller
