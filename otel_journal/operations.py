"""The ledger's own records: open operations, the run each belongs to, and the tables of both."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import msgspec

from . import semconv as sc
from .events import LEAD_AGENT, ClosedBy, Event, Kind, Link, Outcome, Usage
from .observations import Ended
from .streaming import StreamClock
from .summary import Totals

_CONTENT: Final = frozenset({sc.INPUT_MESSAGES, sc.OUTPUT_MESSAGES, sc.TOOL_DEFINITIONS})


class Run(msgspec.Struct, eq=False, gc=False):
    """One root operation with all below it: the trace, its clock and its feed rows in waiting."""

    run_id: str
    thread_id: str
    trace_id: str
    totals: Totals
    wall0: int
    mono0: int
    sampled: bool = True
    recording: bool = True
    trace_state: str = ""
    ambient_parent: str = ""
    remote_parent: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    staged: list[StagedRows] = []
    process: str = ""

    def wall(self, at: int) -> int:
        """Unix nanoseconds of a monotonic reading: immune to steps of the wall clock."""
        return self.wall0 + at - self.mono0


class StagedRows:
    """Feed rows of a response that came without usage, waiting for it in their place."""

    __slots__ = ("operation", "ready", "rows")

    def __init__(self, operation: Operation, rows: list[Event]) -> None:
        """Let `rows` of `operation` wait."""
        self.operation = operation
        self.rows = rows
        self.ready = False


class Operation(msgspec.Struct, eq=False, gc=False):
    """One callback run between its start and its end, and as long as it is remembered after.

    A msgspec struct because it is made for every callback, at a fifth of the price of a class.
    The garbage collector need not know it: `forget_payload` leaves no cycle behind.
    """

    key: int
    op_id: str
    occurrence: int
    kind: Kind
    name: str
    parent: Operation | None
    run: Run
    start_at: int
    span_id: str
    attributes: dict[str, Any]
    checkpoint_ns: str
    node: str
    lc_agent_name: str
    call_id: str
    kept: bool = True
    decided: bool = True
    owns: bool = False
    """An agent or workflow that is kept: calls below it are its own."""
    owner: Operation | None = None
    """Nearest agent or workflow that is kept: whose calls these are."""
    agent: str = ""
    caller: str = LEAD_AGENT
    attempt: int = 1
    links: tuple[Link, ...] = ()
    steps: dict[tuple[str, str], tuple[int, Operation]] | None = None
    children: dict[int, Operation] | None = None
    """Open operations directly below."""
    child_errors: set[int] | None = None
    """Identities of exceptions recorded below, on their way up."""
    stream: StreamClock | None = None
    pending: Ended | None = None
    """The end of a model call that came without positive usage, while its grace lasts."""
    usage: Usage | None = None
    cached: bool = False
    usage_tracked: bool = True
    gave_response: bool = False
    booked: bool = False
    """The call is in the run's account (its usage may follow)."""
    llm_index: int = 0
    interrupted: bool = False
    interrupt_payload: Any = None
    resumed: bool = False
    inference_calls: int = 0
    tool_calls: int = 0
    ended: bool = False
    outcome: Outcome | None = None
    closed_by: ClosedBy | None = None

    @property
    def root(self) -> bool:
        """True for the first operation of its run."""
        return self.parent is None

    @property
    def link_target(self) -> tuple[str, str]:
        """Trace and span id, for links that point here."""
        return self.run.trace_id, self.span_id

    def kept_ancestor(self) -> Operation | None:
        """Nearest ancestor that becomes a span."""
        up = self.parent
        while up is not None and not up.kept:
            up = up.parent
        return up

    def forget_payload(self) -> None:
        """Drop what only an open operation needs; ended ones are remembered by the thousand."""
        self.children = self.steps = self.child_errors = None
        self.stream = self.pending = self.owner = None
        if self.kind not in {"chat", "completion"}:
            self.attributes = {}
        elif not _CONTENT.isdisjoint(self.attributes):
            # Late usage needs the labels; nobody needs the messages any more.
            kept = self.attributes.items()
            self.attributes = {name: value for name, value in kept if name not in _CONTENT}


class OperationTable:
    """Open operations in order of their starts, and a bounded memory of ended ones."""

    def __init__(self, max_remembered: int) -> None:
        self.open: OrderedDict[int, Operation] = OrderedDict()
        self.closed: OrderedDict[int, Operation] = OrderedDict()
        self._max_remembered = max_remembered

    def find(self, key: int | None) -> Operation | None:
        """The open or remembered operation with this key."""
        if key is None:
            return None
        return self.open.get(key) or self.closed.get(key)

    def close(self, operation: Operation) -> None:
        """Move an operation from the open ones to the remembered ones."""
        self.open.pop(operation.key, None)
        closed = self.closed
        if operation.occurrence:
            closed.pop(operation.key, None)  # a reused id is remembered as its newest occurrence
        closed[operation.key] = operation
        if len(closed) > self._max_remembered:
            closed.popitem(last=False)
