"""The immutable facts of the journal, and the catalogue of their names.

Names, categories and limits are frozen: adding a type or an optional field is
compatible; renaming, removing or re-categorising one is not. Readers ignore
unknown fields and unknown event types.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final, Literal, TypeAlias

import msgspec

Outcome: TypeAlias = Literal[
    "ok", "error", "interrupted", "handoff", "cancelled", "abandoned", "unknown"
]
"""How an operation ended, exactly once. Only ``error`` is a failure."""

Kind: TypeAlias = Literal[
    "agent", "workflow", "chain", "node", "chat", "completion", "tool", "retrieval"
]
"""What an operation is. In an ``agent`` a model drives the flow, in a ``workflow`` the code."""

LinkRelation: TypeAlias = Literal["resumes", "previous_attempt", "requested_by"]
"""Why a span points at another: resume -> paused root, attempt -> earlier one, tool -> chat."""

ClosedBy: TypeAlias = Literal["parent_end", "age", "cap", "shutdown", "process_died"]
"""Who ended an operation whose own end callback never came."""

Category: TypeAlias = Literal["trace", "message", "middleware", "outputs", "error"]
"""Coarse class of an event. ``message`` means: part of the feed that people may read."""

OUTCOMES: Final[tuple[Outcome, ...]] = (
    "ok",
    "error",
    "interrupted",
    "handoff",
    "cancelled",
    "abandoned",
    "unknown",
)

CATALOGUE: Final[dict[str, Category]] = {
    "run.start": "trace",
    "run.end": "outputs",
    "run.error": "error",
    "run.interrupted": "trace",
    "run.resumed": "trace",
    "node.start": "trace",
    "node.end": "trace",
    "llm.start": "trace",
    "llm.human.input": "message",
    "llm.ai.response": "message",
    "llm.end": "trace",
    "llm.error": "trace",
    "usage.amended": "trace",
    "tool_call.started": "trace",
    "tool_call.completed": "trace",
    "llm.tool.result": "message",
    "retrieval.end": "trace",
    "process.beat": "trace",
}
"""Every fixed event type and its category."""

OPEN_FAMILIES: Final[dict[str, Category]] = {"middleware:": "middleware", "annotation:": "trace"}
"""Event types with a free suffix: ``middleware:{tag}`` and ``annotation:{name}``."""

LEAD_AGENT: Final = "lead_agent"
"""Caller of the model calls that no tag gives to a subagent or a middleware."""

MAX_EVENT_TYPE: Final = 32
"""Longest event type, in characters."""

MAX_CATEGORY: Final = 16
"""Longest category, in characters."""

MAX_ID: Final = 64
"""Longest event, run or thread id, in characters."""

NS_PER_S: Final = 1_000_000_000
"""Nanoseconds in a second."""


def category_of(event_type: str) -> Category:
    """Return the category of a catalogued event type.

    Raises:
        ValueError: the type is not in the catalogue, or longer than `MAX_EVENT_TYPE`.
    """
    if event_type in CATALOGUE:
        return CATALOGUE[event_type]
    if len(event_type) <= MAX_EVENT_TYPE:
        for prefix, category in OPEN_FAMILIES.items():
            if event_type.startswith(prefix) and len(event_type) > len(prefix):
                return category
    msg = (
        f"event type {event_type!r} is not in the catalogue; allowed: {', '.join(CATALOGUE)}, "
        f"or {', '.join(f'{p}NAME' for p in OPEN_FAMILIES)} of at most {MAX_EVENT_TYPE} characters"
    )
    raise ValueError(msg)


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one model call, as billed.

    `details` are *subsets* of input or output and are never added to them. Keys:
    ``cache_read``, ``cache_write``, ``reasoning``, ``audio_input``, ``audio_output`` and
    other ``{modality}_{direction}`` pairs a provider reports.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    details: dict[str, int] = {}

    @property
    def total_tokens(self) -> int:
        """Input plus output."""
        return self.input_tokens + self.output_tokens

    @property
    def positive(self) -> bool:
        """True when any count is above zero."""
        return self.input_tokens > 0 or self.output_tokens > 0


class Link(msgspec.Struct, frozen=True, gc=False):
    """A pointer from one span to another, possibly in another trace (ids in lower-case hex)."""

    trace_id: str
    span_id: str
    relation: LinkRelation


class Failure(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The exception that ended an operation, recorded at the innermost operation only.

    `message` is content: it is empty unless content capture or a store is on.
    `stacktrace` holds file, line and function per frame, never source text or the message.
    """

    type: str
    message: str = ""
    stacktrace: str = ""


class StreamTiming(msgspec.Struct, frozen=True, gc=False):
    """Chunk timing of a streamed model call.

    `first_chunk_ns` counts from the start of the operation. `gap_counts` has one more entry
    than `semconv.DURATION_BUCKETS`: gaps between consecutive chunks per bucket, not cumulated.
    """

    first_chunk_ns: int
    gap_counts: tuple[int, ...]
    gap_sum_ns: int


class SpanBlock(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Everything a projection needs to draw one operation; complete in its end event.

    In a start event `end_ns` is 0, `outcome` is None and `attributes` hold what is known so far.
    Attribute names are those of GenAI semantic conventions v0.1.0 (`semconv`).
    """

    op_id: str
    """LangChain's run_id of the callback."""
    kind: Kind
    name: str
    """Span name, e.g. ``chat gpt-4o``."""
    trace_id: str
    """32 lower-case hex digits."""
    span_id: str
    """16 lower-case hex digits, derived from (op_id, occurrence): the same in every process."""
    start_ns: int
    """Unix time in nanoseconds; the end is start plus a monotonic duration."""
    attributes: dict[str, Any]
    """Span attributes: str, bool, int, float, or lists of one of them."""
    parent_span_id: str = ""
    """Empty for a root without an ambient parent."""
    root: bool = False
    """True for the first operation of a run."""
    remote_parent: bool = False
    """True when the parent came from the ambient OpenTelemetry context."""
    sampled: bool = True
    """The trace's sampling decision; metrics and stores do not depend on it."""
    recording: bool = True
    """False when the sampler drops the trace altogether (no span is built)."""
    trace_state: str = ""
    """W3C tracestate of the trace."""
    end_ns: int = 0
    outcome: Outcome | None = None
    error_type: str = ""
    """``error.type``; only with outcome ``error``."""
    links: tuple[Link, ...] = ()
    agent: str = ""
    """Innermost named agent or workflow the operation belongs to; empty when unnamed."""
    caller: str = LEAD_AGENT
    """``lead_agent``, ``subagent:*`` or ``middleware:*``: who asked for a model call."""
    attempt: int = 1
    """n-th execution of the same logical step."""
    usage: Usage | None = None
    """Model calls: tokens; None when the provider reported none, or on a cache hit."""
    cached: bool = False
    """The answer came from LangChain's LLM cache and is not billed."""
    stream: StreamTiming | None = None
    inference_calls: int = 0
    """Agents and workflows: own model calls, without those of nested agents."""
    tool_calls: int = 0
    """Agents and workflows: own tool calls, failed ones included."""
    closed_by: ClosedBy | None = None
    """Set when the journal ended the operation itself."""
    failure: Failure | None = None
    usage_tracked: bool = True
    """False when settings turn token counting off: `usage` then is None and not missing."""

    @property
    def duration_s(self) -> float:
        """Seconds between start and end; 0.0 while open."""
        return max(0, self.end_ns - self.start_ns) / NS_PER_S if self.end_ns else 0.0


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One fact: output of the ledger, row of the store, input of every projection."""

    event_id: str
    """``{op_id}/{occurrence}/{phase}``: a second delivery has the same id and changes nothing."""
    run_id: str
    event_type: str
    category: Category
    created_ns: int
    """Unix time in nanoseconds at which the fact became known."""
    thread_id: str = ""
    content: Any = None
    """Any JSON value; only filled when something durable reads it."""
    metadata: dict[str, Any] = {}
    span: SpanBlock | None = None
    seq: int = 0
    """Position in the store, from 1; 0 before a store has numbered it."""
    process: str = ""
    """Which process made it, as `process.beat` events describe it; empty: not said."""

    def __repr__(self) -> str:
        """Without content: events are logged by accident."""
        return (
            f"Event({self.event_id!r}, {self.event_type!r}, run_id={self.run_id!r}, seq={self.seq})"
        )

    @property
    def created_at(self) -> str:
        """`created_ns` as ISO-8601 text in UTC, microsecond precision."""
        seconds, ns = divmod(self.created_ns, NS_PER_S)
        moment = datetime.fromtimestamp(seconds, tz=timezone.utc).replace(microsecond=ns // 1000)
        return moment.isoformat()
