"""Every metric the application exposes: name, type, help, labels, buckets.

``gen_ai_*`` families carry exactly the labels of the GenAI semantic conventions, translated the
way OpenTelemetry's Prometheus exporter does (dots to underscores, unit and ``_total`` suffixes),
so foreign dashboards fit. Attribution (agent, caller) lives in ``otel_journal_*`` only. Run,
thread, trace and call ids are never labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from . import semconv
from .events import OUTCOMES

if TYPE_CHECKING:
    from .semconv import Generation

SeriesType: TypeAlias = Literal["counter", "gauge", "histogram"]
"""Prometheus type of a family."""


def label_name(attribute: str) -> str:
    """Return the Prometheus label of a semantic-convention attribute."""
    return attribute.replace(".", "_")


AGENT: Final = label_name(semconv.AGENT_NAME)
TOOL: Final = label_name(semconv.TOOL_NAME)
TOOL_TYPE: Final = label_name(semconv.TOOL_TYPE)
OPERATION: Final = label_name(semconv.OPERATION_NAME)
PROVIDER: Final = label_name(semconv.PROVIDER_NAME)
MODEL: Final = label_name(semconv.REQUEST_MODEL)
RESPONSE_MODEL: Final = label_name(semconv.RESPONSE_MODEL)
SERVER_ADDRESS: Final = label_name(semconv.SERVER_ADDRESS)
SERVER_PORT: Final = label_name(semconv.SERVER_PORT)
ERROR_TYPE: Final = label_name(semconv.ERROR_TYPE)
WORKFLOW: Final = label_name(semconv.WORKFLOW_NAME_1_41)
MODALITY: Final = "gen_ai_token_modality"
TOKEN_TYPE: Final = "gen_ai_token_type"  # noqa: S105 - a label name
CALLER: Final = "caller"
OUTCOME: Final = "outcome"
DETAIL: Final = "detail"

CAPPED_LABELS: Final = (
    AGENT,
    CALLER,
    OPERATION,
    PROVIDER,
    MODEL,
    RESPONSE_MODEL,
    SERVER_ADDRESS,
    SERVER_PORT,
    TOOL,
    TOOL_TYPE,
    ERROR_TYPE,
    DETAIL,
)
"""Labels whose values come from outside; workflow names count as agent names."""

OTHER: Final = "__other__"
"""Label value that stands for all values beyond the cap."""

LLM_LABELS: Final = (OPERATION, PROVIDER, MODEL, RESPONSE_MODEL, SERVER_ADDRESS, SERVER_PORT)
"""The attribute set "G" of every client inference metric."""
ATTRIBUTION_LABELS: Final = (AGENT, CALLER, PROVIDER, MODEL)
"""Who asked which model."""

MODALITIES: Final = ("text", "image", "audio")
"""Well-known token modalities; the rest of a total is ``unknown``, never total and parts."""
UNKNOWN_MODALITY: Final = "unknown"
TOKEN_TYPES: Final = ("input", "output")
"""The two disjoint types; only they may be summed."""
DETAILS: Final = ("cache_read", "cache_write", "reasoning", "audio_input", "audio_output")
"""Sub-counts exposed at 0 when a model starts; others appear with their first value."""
TOOL_OUTCOMES: Final = ("ok", "error", "cancelled", "interrupted")
"""Outcomes of tool calls in metrics; `metrics.TOOL_OUTCOME` maps the others."""
LLM_OUTCOMES_FROM_START: Final = ("ok", "error")
"""Outcomes of model calls exposed at 0 when a model starts."""
RUN_OUTCOMES: Final = OUTCOMES
ATTEMPT_KINDS: Final = ("run", "node", "llm", "tool", "retrieval")
"""Kinds of operations that can be executed again."""


@dataclass(frozen=True, slots=True)
class Series:
    """One metric family."""

    name: str
    """As written in PromQL; counters end in ``_total``, histograms have no suffix."""
    type: SeriesType
    help: str
    labels: tuple[str, ...] = ()
    """Every sample has all of them; an absent value is the empty string."""
    buckets: tuple[float, ...] = ()
    """Upper bounds (inclusive) without ``+Inf``; histograms only."""
    generations: frozenset[Generation] = frozenset({"0.1", "1.41", "both"})
    """Under which `Settings.semconv` the family exists."""


_ERA_0_1: Final[frozenset[Generation]] = frozenset({"0.1", "both"})
_ERA_1_41: Final[frozenset[Generation]] = frozenset({"1.41", "both"})


def _counter(
    name: str, text: str, *labels: str, era: frozenset[Generation] | None = None
) -> Series:
    return Series(name, "counter", text, labels, generations=era or _ERA_0_1 | _ERA_1_41)


def _gauge(name: str, text: str, *labels: str) -> Series:
    return Series(name, "gauge", text, labels)


def _histogram(
    name: str,
    text: str,
    *labels: str,
    buckets: tuple[float, ...],
    era: frozenset[Generation] | None = None,
) -> Series:
    return Series(name, "histogram", text, labels, buckets, era or _ERA_0_1 | _ERA_1_41)


def _latencies(stem: str, era: frozenset[Generation]) -> tuple[Series, Series, Series]:
    """Return duration, time to first chunk and time per output chunk of one generation."""
    seconds = semconv.DURATION_BUCKETS
    return (
        _histogram(
            f"{stem}_duration_seconds", "Duration of model calls.",
            *LLM_LABELS, ERROR_TYPE, buckets=seconds, era=era,
        ),
        _histogram(
            f"{stem}_time_to_first_chunk_seconds",
            "Time from the start of a streamed model call to its first chunk.",
            *LLM_LABELS, buckets=seconds, era=era,
        ),
        _histogram(
            f"{stem}_time_per_output_chunk_seconds",
            "Time between consecutive chunks of a streamed model call.",
            *LLM_LABELS, buckets=seconds, era=era,
        ),
    )  # fmt: skip


def _usage(which: str, text: str) -> Series:
    name = f"gen_ai_client_inference_usage_{which}_tokens_total"
    return _counter(name, text, *LLM_LABELS, MODALITY, era=_ERA_0_1)


def _operation_tokens(direction: str) -> Series:
    return _histogram(
        f"gen_ai_client_inference_operation_{direction}_tokens",
        f"{direction.capitalize()} tokens per model call that did not fail.",
        *LLM_LABELS,
        buckets=semconv.TOKEN_BUCKETS,
        era=_ERA_0_1,
    )


def _own(name: str, text: str, *labels: str) -> Series:
    return _counter(f"otel_journal_{name}_total", text, *labels)


# Semantic conventions ------------------------------------------------------------------------
INFERENCE_DURATION, FIRST_CHUNK, OUTPUT_CHUNK = _latencies("gen_ai_client_inference", _ERA_0_1)
OPERATION_DURATION, OPERATION_FIRST_CHUNK, OPERATION_OUTPUT_CHUNK = _latencies(
    "gen_ai_client_operation", _ERA_1_41
)
USAGE_INPUT: Final = _usage("input", "Input tokens used.")
USAGE_OUTPUT: Final = _usage("output", "Output tokens used.")
USAGE_DETAILS: Final[dict[str, Series]] = {
    "cache_read": _usage("cache_read_input", "Input tokens read from a cache; part of input."),
    "cache_write": _usage("cache_write_input", "Input tokens written to a cache; part of input."),
    "reasoning": _usage("reasoning_output", "Output tokens spent on reasoning; part of output."),
}
"""Key of `events.Usage.details` -> official counter of that subset."""
OPERATION_INPUT: Final = _operation_tokens("input")
OPERATION_OUTPUT: Final = _operation_tokens("output")
TOKEN_USAGE: Final = _histogram(
    "gen_ai_client_token_usage", "Tokens per model call that did not fail.",
    *LLM_LABELS, TOKEN_TYPE, buckets=semconv.TOKEN_BUCKETS, era=_ERA_1_41,
)  # fmt: skip
AGENT_DURATION: Final = _histogram(
    "gen_ai_invoke_agent_duration_seconds", "Duration of agent (0.1: and workflow) invocations.",
    OPERATION, AGENT, MODEL, ERROR_TYPE, buckets=semconv.AGENT_BUCKETS,
)  # fmt: skip
AGENT_INFERENCE_CALLS: Final = _histogram(
    "gen_ai_invoke_agent_inference_calls", "Own model calls per agent invocation.",
    AGENT, buckets=semconv.CALL_BUCKETS,
)  # fmt: skip
AGENT_TOOL_CALLS: Final = _histogram(
    "gen_ai_invoke_agent_tool_calls", "Own tool calls per agent invocation, failed ones included.",
    AGENT, buckets=semconv.CALL_BUCKETS,
)  # fmt: skip
WORKFLOW_DURATION: Final = _histogram(
    "gen_ai_invoke_workflow_duration_seconds", "Duration of workflow invocations.",
    WORKFLOW, ERROR_TYPE, buckets=semconv.WORKFLOW_BUCKETS, era=_ERA_1_41,
)  # fmt: skip
TOOL_DURATION: Final = _histogram(
    "gen_ai_execute_tool_duration_seconds", "Duration of tool executions.",
    TOOL, TOOL_TYPE, AGENT, ERROR_TYPE, buckets=semconv.DURATION_BUCKETS,
)  # fmt: skip
RETRIEVAL_DURATION: Final = _histogram(
    "gen_ai_retrieval_duration_seconds", "Duration of retrievals.",
    OPERATION, PROVIDER, ERROR_TYPE, buckets=semconv.DURATION_BUCKETS,
)  # fmt: skip

# Own, folded from events ---------------------------------------------------------------------
RUNS_STARTED: Final = _own("runs_started", "Root operations begun.", AGENT)
RUNS: Final = _own("runs", "Root operations ended, by outcome.", AGENT, OUTCOME)
RUNS_IN_FLIGHT: Final = _gauge(
    "otel_journal_runs_in_flight", "Open runs; one that waits for a human is not open.", AGENT
)
RUN_OLDEST_AGE: Final = _gauge(
    "otel_journal_run_oldest_age_seconds", "Age of the oldest open run; 0 when none.", AGENT
)
LLM_CALLS: Final = _own("llm_calls", "Model calls ended, by outcome.", *ATTRIBUTION_LABELS, OUTCOME)
TOKENS: Final = _own("tokens", "Tokens used; types are disjoint.", *ATTRIBUTION_LABELS, "type")
TOKEN_DETAILS: Final = _own(
    "token_details", "Subsets of tokens; never add to tokens.", *ATTRIBUTION_LABELS, DETAIL
)
USAGE_MISSING: Final = _own(
    "usage_missing", "Successful model calls without usage.", *ATTRIBUTION_LABELS
)
USAGE_AMENDED: Final = _own("usage_amended", "Usage booked after its call had ended.")
TOOL_CALLS: Final = _own("tool_calls", "Tool calls ended, by outcome.", TOOL, AGENT, OUTCOME)
ATTEMPTS: Final = _own("attempts", "Executions that repeat an earlier attempt.", "kind")
LABEL_OVERFLOW: Final = _own(
    "label_overflow", "Times a label value was folded into __other__.", "label"
)
LABEL_VALUES: Final = _gauge("otel_journal_label_values", "Distinct values of a label.", "label")
LABEL_LIMIT: Final = _gauge(
    "otel_journal_label_values_limit", "Cap on the distinct values of a label.", "label"
)

# Own, about the process ----------------------------------------------------------------------
OPERATIONS_OPEN: Final = _gauge("otel_journal_operations_open", "Operations in the open table.")
OPERATIONS_LIMIT: Final = _gauge("otel_journal_operations_limit", "Cap on open operations.")
OPERATIONS_CLOSED: Final = _own(
    "operations_closed", "Operations the journal ended itself, by reason.", "reason"
)
OBSERVATIONS: Final = _own("observations", "Callbacks received.", "kind")
REPLAYS_DROPPED: Final = _own("replays_dropped", "Callbacks that repeat a booked one.", "kind")
USAGE_CONFLICTS: Final = _own(
    "usage_conflicts", "Later usage that differed from the booked one and was ignored."
)
EVENTS_SEEN: Final = _own("events_seen", "Events offered to a sink.", "sink")
EVENTS_EXPORTED: Final = _own("events_exported", "Events accepted by a sink.", "sink")
EVENTS_DROPPED: Final = _own(
    "events_dropped", "Events that did not reach a sink, by reason.", "sink", "reason"
)
EVENTS_PENDING: Final = _gauge(
    "otel_journal_events_pending", "Events neither accepted nor dropped yet.", "sink"
)
QUEUE_EVENTS: Final = _gauge("otel_journal_queue_events", "Events in the pipeline queue.")
QUEUE_CAPACITY: Final = _gauge("otel_journal_queue_capacity_events", "Room in the pipeline queue.")
OLDEST_UNSENT: Final = _gauge(
    "otel_journal_export_oldest_unsent_age_seconds",
    "Age of the oldest event a sink has not accepted; 0 when nothing waits.",
    "sink",
)
CALLBACK_SECONDS: Final = _own("callback_seconds", "Wall time spent inside callbacks.")
HANDLER_ERRORS: Final = _own("handler_errors", "Exceptions caught at the callback boundary.")
CONTENT_TRUNCATED: Final = _own("content_truncated", "Content values cut to the size limit.")
INFO: Final = _gauge(
    "otel_journal_info", "Always 1; what this process is.",
    "version", "role", "journal", "metrics", "semconv",
)  # fmt: skip

FOLDED: Final = (
    INFERENCE_DURATION, FIRST_CHUNK, OUTPUT_CHUNK,
    OPERATION_DURATION, OPERATION_FIRST_CHUNK, OPERATION_OUTPUT_CHUNK,
    USAGE_INPUT, USAGE_OUTPUT, *USAGE_DETAILS.values(),
    OPERATION_INPUT, OPERATION_OUTPUT, TOKEN_USAGE,
    AGENT_DURATION, AGENT_INFERENCE_CALLS, AGENT_TOOL_CALLS, WORKFLOW_DURATION,
    TOOL_DURATION, RETRIEVAL_DURATION,
    RUNS_STARTED, RUNS, RUNS_IN_FLIGHT, RUN_OLDEST_AGE,
    LLM_CALLS, TOKENS, TOKEN_DETAILS, USAGE_MISSING, USAGE_AMENDED, TOOL_CALLS, ATTEMPTS,
    LABEL_OVERFLOW, LABEL_VALUES, LABEL_LIMIT,
)  # fmt: skip
"""Families computed from events by `metrics.MetricsFold`."""

PROCESS: Final = (
    OPERATIONS_OPEN, OPERATIONS_LIMIT, OPERATIONS_CLOSED,
    OBSERVATIONS, REPLAYS_DROPPED, USAGE_CONFLICTS,
    EVENTS_SEEN, EVENTS_EXPORTED, EVENTS_DROPPED, EVENTS_PENDING,
    QUEUE_EVENTS, QUEUE_CAPACITY, OLDEST_UNSENT,
    CALLBACK_SECONDS, HANDLER_ERRORS, CONTENT_TRUNCATED, INFO,
)  # fmt: skip
"""Families read from `stats.ProcessStats` at scrape time."""


def series_of(generation: Generation) -> tuple[Series, ...]:
    """Return every family that exists under one generation of names, in order of exposition."""
    return tuple(s for s in (*FOLDED, *PROCESS) if generation in s.generations)
