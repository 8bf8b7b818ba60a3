"""Builds the immutable span block and the events of an operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from . import semconv as sc
from .events import CATALOGUE, NS_PER_S, Event, Failure, Kind, SpanBlock, Usage

if TYPE_CHECKING:
    from .observations import Ended
    from .operations import Operation

START_TYPES: Final[dict[Kind, str]] = {
    "agent": "node.start",
    "workflow": "node.start",
    "chain": "node.start",
    "node": "node.start",
    "chat": "llm.start",
    "completion": "llm.start",
    "tool": "tool_call.started",
}
"""Start event of a kind below the root; retrievals have none."""

END_TYPES: Final[dict[Kind, str]] = {
    "agent": "node.end",
    "workflow": "node.end",
    "chain": "node.end",
    "node": "node.end",
    "chat": "llm.end",
    "completion": "llm.end",
    "tool": "tool_call.completed",
    "retrieval": "retrieval.end",
}
"""End event of a kind below the root."""

CHAIN_KINDS: Final[frozenset[Kind]] = frozenset({"agent", "workflow", "chain", "node"})
MODEL_KINDS: Final[frozenset[Kind]] = frozenset({"chat", "completion"})

_NO_METADATA: Final[dict[str, Any]] = {}
_USAGE_DETAILS: Final = {
    "cache_read": sc.USAGE_CACHE_READ,
    "cache_write": sc.USAGE_CACHE_WRITE,
    "reasoning": sc.USAGE_REASONING,
    "text_input": "gen_ai.usage.text.input_tokens",
    "image_input": "gen_ai.usage.image.input_tokens",
    "audio_input": "gen_ai.usage.audio.input_tokens",
    "text_output": "gen_ai.usage.text.output_tokens",
    "image_output": "gen_ai.usage.image.output_tokens",
    "audio_output": "gen_ai.usage.audio.output_tokens",
    "text_cache_read": "gen_ai.usage.text.cache_read.input_tokens",
    "image_cache_read": "gen_ai.usage.image.cache_read.input_tokens",
    "audio_cache_read": "gen_ai.usage.audio.cache_read.input_tokens",
}
"""Detail of `Usage` -> its span attribute; others have no standard name and stay off spans."""


def start_block(op: Operation) -> SpanBlock:
    """Describe an operation that has just begun."""
    run = op.run
    up = op.kept_ancestor()
    return SpanBlock(
        op.op_id,
        op.kind,
        op.name,
        run.trace_id,
        op.span_id,
        run.wall0 + op.start_at - run.mono0,
        op.attributes,
        up.span_id if up is not None else run.ambient_parent,
        op.parent is None,
        up is None and run.remote_parent,
        run.sampled,
        run.recording,
        agent=op.agent,
        caller=op.caller,
        attempt=op.attempt,
    )


def end_block(op: Operation, at: int, failure: Failure | None, error_type: str) -> SpanBlock:
    """Describe an ended operation completely; `op.attributes` hold its final attributes.

    By position, because 28 keywords cost more than all the rest.
    """
    run = op.run
    up = op.kept_ancestor()
    offset = run.wall0 - run.mono0
    stream = op.stream
    return SpanBlock(
        op.op_id,
        op.kind,
        op.name,
        run.trace_id,
        op.span_id,
        offset + op.start_at,
        op.attributes,
        up.span_id if up is not None else run.ambient_parent,
        op.parent is None,
        up is None and run.remote_parent,
        run.sampled,
        run.recording,
        run.trace_state,
        offset + at,
        op.outcome,
        error_type,
        op.links,
        op.agent,
        op.caller,
        op.attempt,
        op.usage,
        op.cached,
        stream.timing(op.start_at) if stream is not None else None,
        op.inference_calls,
        op.tool_calls,
        op.closed_by,
        failure,
        op.usage_tracked,
    )


def usage_attributes(usage: Usage) -> dict[str, Any]:
    """Span attributes of a usage; details only when above zero (genai v0.1.0)."""
    found: dict[str, Any] = {
        sc.USAGE_INPUT_TOKENS: usage.input_tokens,
        sc.USAGE_OUTPUT_TOKENS: usage.output_tokens,
    }
    for name, count in usage.details.items():
        attribute = _USAGE_DETAILS.get(name)
        if attribute is not None and count:
            found[attribute] = count
    return found


def _model_attributes(final: dict[str, Any], op: Operation, *, failed: bool) -> None:
    if op.usage is not None:
        final.update(usage_attributes(op.usage))
    if op.cached:
        final[sc.CACHE_HIT] = True
    if failed:
        final.setdefault(sc.RESPONSE_FINISH_REASONS, ("error",))
    if op.stream is not None:
        final[sc.REQUEST_STREAM] = True
        final[sc.RESPONSE_TIME_TO_FIRST_CHUNK] = op.stream.first_after(op.start_at) / NS_PER_S


def end_attributes(op: Operation, o: Ended, error_type: str) -> dict[str, Any]:
    """Final attributes of an operation: what its start knew, what its end said, how it ended."""
    final = {**op.attributes, **o.attributes, sc.OUTCOME: op.outcome}
    if op.attempt > 1:
        final[sc.ATTEMPT] = op.attempt
    if error_type:
        final[sc.ERROR_TYPE] = error_type
    if op.kind in MODEL_KINDS:
        _model_attributes(final, op, failed=bool(error_type))
    if op.parent is None:
        run = op.run
        final[sc.RUN_ID] = run.run_id
        if op.kind in CHAIN_KINDS and (run.input_tokens or run.output_tokens):
            final[sc.RUN_INPUT_TOKENS] = run.input_tokens
            final[sc.RUN_OUTPUT_TOKENS] = run.output_tokens
    if op.outcome == "interrupted":
        final[sc.INTERRUPTED] = True
    if op.closed_by is not None:
        final[sc.CLOSED_BY] = op.closed_by
    return final


def event(  # noqa: PLR0913, PLR0917 - one per column of an event
    op: Operation,
    phase: str,
    event_type: str,
    at: int,
    span: SpanBlock | None = None,
    content: object = None,
    metadata: dict[str, Any] = _NO_METADATA,
) -> Event:
    """An event of one operation; its id is stable over deliveries and processes."""
    run = op.run
    return Event(
        f"{op.op_id}/{op.occurrence}/{phase}",
        run.run_id,
        event_type,
        CATALOGUE[event_type],
        run.wall0 + at - run.mono0,
        run.thread_id,
        content,
        metadata,
        span,
        0,
        run.process,
    )
