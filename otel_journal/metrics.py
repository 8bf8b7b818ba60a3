"""Events -> series: a pure fold, the same in the application and in a sidecar.

No locks, no clock, no I/O. Rules that no name tells:

- Only outcome ``error`` carries ``error_type``; interrupted and cancelled work is not an error.
- Own counters of an agent, model or tool exist at 0 from its first start event, so their first
  value is not lost to ``increase()``. Official counters and all histograms are born with their
  first value: ``gen_ai_response_model`` is known only at the end, and a guess at the start would
  leave a series that stays at 0 for ever.
- Token histograms hold one record per operation that did not fail, whenever its usage came.
- The subsets of a total, by modality or by detail, never change the total.
- Workflows are agent invocations in generation 0.1 (and ``both``) and have a family of their own
  in 1.41 (and ``both``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import metric_catalogue as catalogue
from . import semconv
from .events import NS_PER_S
from .metric_children import (
    AgentCalls,
    Attribution,
    ModelCalls,
    Runs,
    TokenBook,
    ToolCalls,
    ToolUses,
)
from .metric_series import Point, Reading
from .metric_table import Memo, MetricTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from .events import Event, Kind, Outcome, SpanBlock
    from .metric_series import Histogram, Labels, Origin, State
    from .semconv import Generation

_START_TYPES: Final = frozenset({"run.start", "node.start", "llm.start", "tool_call.started"})
_END_TYPES: Final = frozenset(
    {
        "run.end",
        "run.error",
        "run.interrupted",
        "node.end",
        "llm.end",
        "llm.error",
        "tool_call.completed",
        "retrieval.end",
    }
)

STATE_VERSION: Final = 1
"""Version of what `MetricsFold.state` returns."""

MAX_OPEN_RUNS: Final = 100_000
"""Runs in flight that are remembered. The ledger's cap is lower, but a sidecar sums many."""

TOOL_OUTCOME: Final[dict[str, str]] = {
    "ok": "ok",
    "error": "error",
    "interrupted": "interrupted",
    "cancelled": "cancelled",
    "handoff": "ok",
    "abandoned": "cancelled",
    "unknown": "cancelled",
}
"""Outcome of a tool operation -> one of `metric_catalogue.TOOL_OUTCOMES`.

A handoff is a tool that did its work. One that nobody waited for, or whose end nobody saw, was
cut short.
"""

_ATTEMPT_KIND: Final[dict[Kind, str]] = {
    "agent": "node",
    "workflow": "node",
    "chain": "node",
    "node": "node",
    "chat": "llm",
    "completion": "llm",
    "tool": "tool",
    "retrieval": "retrieval",
}
"""Kind of an operation -> ``kind`` label of attempts; a root that counts as node is a run."""

# Global names of this module: a look-up in another module costs a tenth of an event.
_OPERATION_NAME: Final = semconv.OPERATION_NAME
_PROVIDER_NAME: Final = semconv.PROVIDER_NAME
_REQUEST_MODEL: Final = semconv.REQUEST_MODEL
_RESPONSE_MODEL: Final = semconv.RESPONSE_MODEL
_SERVER_ADDRESS: Final = semconv.SERVER_ADDRESS
_SERVER_PORT: Final = semconv.SERVER_PORT

_DEFAULT_OPERATION: Final[dict[Kind, str]] = {
    "agent": "invoke_agent",
    "workflow": "invoke_workflow",
    "chat": "chat",
    "completion": "text_completion",
    "retrieval": "retrieval",
}
"""`gen_ai.operation.name` of a kind, for blocks that lack it."""
_UNNAMED_ERROR: Final = "_OTHER"
"""`error.type` of the semantic conventions when nothing better is known."""

_MODEL_CALL_LABELS: Final = (
    *catalogue.LLM_LABELS,
    catalogue.AGENT,
    catalogue.CALLER,
    catalogue.OUTCOME,
    catalogue.ERROR_TYPE,
)
_TOKEN_LABELS: Final = (*catalogue.LLM_LABELS, catalogue.AGENT, catalogue.CALLER)


class MetricsFold:
    """Totals over all events applied so far."""

    def __init__(
        self,
        generation: Generation = "0.1",
        max_label_values: int = 100,
        *,
        max_open_runs: int = MAX_OPEN_RUNS,
    ) -> None:
        """Start at zero.

        `generation` chooses the names of official families, `max_label_values` caps the distinct
        values of each label (further ones become ``__other__``). Beyond `max_open_runs` the
        oldest run is forgotten: it leaves the gauges, its end still counts.
        """
        self.generation: Generation = generation
        self.max_label_values = max_label_values
        self._max_open_runs = max_open_runs
        self._ends: dict[Kind, Callable[[SpanBlock, Origin | None], None]] = {
            "agent": self._end_agent,
            "workflow": self._end_agent,
            "chat": self._end_model_call,
            "completion": self._end_model_call,
            "tool": self._end_tool,
            "retrieval": self._end_retrieval,
        }
        self._clear()

    def apply(self, event: Event) -> None:
        """Add one event. Events without a span block, and types unknown here, change nothing."""
        span = event.span
        if span is None:
            return
        event_type = event.event_type
        if event_type in _END_TYPES:
            self._end(event, span)
        elif event_type in _START_TYPES:
            self._start(event, span)
        elif event_type == "usage.amended":
            self._amend(event, span)

    def read(self, now_ns: int) -> list[Reading]:
        """Return all series; ages of open runs are measured against `now_ns` (Unix time)."""
        return self._table.read() + self._run_gauges(now_ns)

    def state(self) -> dict[str, State]:
        """Return totals, admitted label values and open runs as JSON-able data."""
        return {
            "version": STATE_VERSION,
            **self._table.state(),
            "open_runs": [
                [op_id, span_id, runs.agent, start_ns]
                for (op_id, span_id), (runs, start_ns) in self._open_runs.items()
            ],
        }

    def restore(self, state: dict[str, State]) -> None:
        """Replace everything by what `state` gave, also under another generation of names.

        Exemplars are not kept. Label values admitted before stay admitted even if the cap is
        lower now.

        Raises:
            ValueError: another version of this package wrote it in a way not understood here.
        """
        if state.get("version") != STATE_VERSION:
            msg = f"metrics state has version {state.get('version')!r}, want {STATE_VERSION}"
            raise ValueError(msg)
        self._clear()
        self._table.restore(state)
        for labels in self._table.labels_of(catalogue.RUNS_STARTED):
            self._runs[labels]  # the gauges of an agent exist as long as its counters
        for op_id, span_id, agent, start_ns in state["open_runs"]:
            self._open_runs[op_id, span_id] = (self._runs[agent,], start_ns)

    def _clear(self) -> None:
        table = self._table = MetricTable(self.generation, self.max_label_values)
        self._open_runs: dict[tuple[str, str], tuple[Runs, int]] = {}
        self._agents_seen: dict[str, None] = {}
        self._amended = table.counter(catalogue.USAGE_AMENDED)
        self._attempts = {
            kind: table.counter(catalogue.ATTEMPTS, kind) for kind in catalogue.ATTEMPT_KINDS
        }
        self._runs: Memo[Runs] = Memo(table, (catalogue.AGENT,), self._build_runs)
        self._attributions = Memo(
            table, catalogue.ATTRIBUTION_LABELS, lambda labels: Attribution(table, labels)
        )
        self._model_calls = Memo(table, _MODEL_CALL_LABELS, self._build_model_calls)
        self._tokens = Memo(table, _TOKEN_LABELS, self._build_tokens)
        self._tools = Memo(
            table, (catalogue.TOOL, catalogue.AGENT), lambda labels: ToolUses(table, labels)
        )
        self._tool_calls = Memo(
            table, (*catalogue.TOOL_DURATION.labels, catalogue.OUTCOME), self._build_tool_calls
        )
        self._retrievals: Memo[tuple[Histogram, ...]] = Memo(
            table,
            catalogue.RETRIEVAL_DURATION.labels,
            lambda labels: table.histograms(catalogue.RETRIEVAL_DURATION, *labels),
        )
        shared = self.generation != "1.41"
        self._agents = Memo(
            table,
            ("kind", *catalogue.AGENT_DURATION.labels),
            lambda labels: AgentCalls(table, labels, shared=shared),
        )

    def _build_runs(self, labels: Labels) -> Runs:
        self._agents_seen[labels[0]] = None
        return Runs(self._table, labels)

    def _build_model_calls(self, labels: Labels) -> ModelCalls:
        *official, agent, caller, outcome, error = labels
        own = self._attributions[agent, caller, official[1], official[2]]
        return ModelCalls(self._table, tuple(official), own, outcome, error)

    def _build_tokens(self, labels: Labels) -> TokenBook:
        *official, agent, caller = labels
        own = self._attributions[agent, caller, official[1], official[2]]
        return TokenBook(self._table, tuple(official), own)

    def _build_tool_calls(self, labels: Labels) -> ToolCalls:
        tool, _, agent, _, outcome = labels
        durations = self._table.histograms(catalogue.TOOL_DURATION, *labels[:-1])
        return ToolCalls(durations, self._tools[tool, agent].ended[outcome])

    def _start(self, event: Event, span: SpanBlock) -> None:
        kind = span.kind
        if kind in {"chat", "completion"}:
            get = span.attributes.get
            self._attributions[span.agent, span.caller, get(_PROVIDER_NAME), get(_REQUEST_MODEL)]
        elif kind == "tool":
            self._tools[_tool_name(span), span.agent]
        if span.root:
            self._open_run(span, _origin(event, span))

    def _end(self, event: Event, span: SpanBlock) -> None:
        origin = _origin(event, span)
        end = self._ends.get(span.kind)
        if end is not None:
            end(span, origin)
        if span.attempt > 1:
            kind = _ATTEMPT_KIND[span.kind]
            if span.root and kind == "node":
                kind = "run"
            self._attempts[kind].add(1, origin)
        if span.root:
            self._end_run(span, origin)

    def _open_run(self, span: SpanBlock, origin: Origin | None) -> Runs:
        runs = self._runs[_agent_name(span),]
        runs.started.add(1, origin)
        if len(self._open_runs) >= self._max_open_runs:
            del self._open_runs[next(iter(self._open_runs))]
        self._open_runs[span.op_id, span.span_id] = (runs, span.start_ns)
        return runs

    def _end_run(self, span: SpanBlock, origin: Origin | None) -> None:
        """Close a run; one whose start was never seen (retrievals have none) starts here."""
        key = (span.op_id, span.span_id)
        if key not in self._open_runs:
            self._open_run(span, origin)
        del self._open_runs[key]
        self._runs[_agent_name(span),].ended[span.outcome or "unknown"].add(1, origin)

    def _end_agent(self, span: SpanBlock, origin: Origin | None) -> None:
        get = span.attributes.get
        calls = self._agents[
            span.kind,
            get(_OPERATION_NAME) or _DEFAULT_OPERATION[span.kind],
            _agent_name(span),
            get(_REQUEST_MODEL),
            _error(span),
        ]
        calls.record(span, origin)

    def _end_model_call(self, span: SpanBlock, origin: Origin | None) -> None:
        outcome: Outcome = span.outcome or "unknown"
        get = span.attributes.get
        key = (  # one literal, although `_token_key` has most of it: this is the hot path
            get(_OPERATION_NAME) or _DEFAULT_OPERATION.get(span.kind),
            get(_PROVIDER_NAME),
            get(_REQUEST_MODEL),
            get(_RESPONSE_MODEL),
            get(_SERVER_ADDRESS),
            get(_SERVER_PORT),
            span.agent,
            span.caller,
            outcome,
            (span.error_type or _UNNAMED_ERROR) if outcome == "error" else "",
        )
        calls = self._model_calls[key]
        calls.record(span, origin)
        usage = span.usage
        if usage is not None:
            if calls.tokens is None:
                calls.tokens = self._tokens[key[: len(_TOKEN_LABELS)]]
            calls.tokens.book(usage, origin, failed=outcome == "error")
        elif outcome == "ok" and not span.cached and span.usage_tracked:
            calls.own.missing.add(1, origin)

    def _end_tool(self, span: SpanBlock, origin: Origin | None) -> None:
        calls = self._tool_calls[
            _tool_name(span),
            span.attributes.get(semconv.TOOL_TYPE),
            span.agent,
            _error(span),
            TOOL_OUTCOME[span.outcome or "unknown"],
        ]
        calls.record(span, origin)

    def _end_retrieval(self, span: SpanBlock, origin: Origin | None) -> None:
        get = span.attributes.get
        operation = get(_OPERATION_NAME) or _DEFAULT_OPERATION[span.kind]
        for histogram in self._retrievals[operation, get(_PROVIDER_NAME), _error(span)]:
            histogram.observe(span.duration_s, origin)

    def _amend(self, event: Event, span: SpanBlock) -> None:
        """Book usage of an operation whose end has been folded without any, or from outside."""
        origin = _origin(event, span)
        if not event.metadata.get("external"):
            self._amended.add(1, origin)
        if span.usage is not None:
            failed = span.outcome == "error"
            self._tokens[_token_key(span)].book(span.usage, origin, failed=failed)

    def _run_gauges(self, now_ns: int) -> list[Reading]:
        """Count open runs per agent and find the oldest, from the open runs themselves."""
        in_flight = dict.fromkeys(self._agents_seen, 0)
        oldest = dict.fromkeys(self._agents_seen, now_ns)
        for runs, start_ns in self._open_runs.values():
            in_flight[runs.agent] += 1
            oldest[runs.agent] = min(oldest[runs.agent], start_ns)
        ages = [Point((agent,), (now_ns - t) / NS_PER_S) for agent, t in oldest.items()]
        return [
            Reading(catalogue.RUNS_IN_FLIGHT, [Point((a,), n) for a, n in in_flight.items()]),
            Reading(catalogue.RUN_OLDEST_AGE, ages),
        ]


def _origin(event: Event, span: SpanBlock) -> Origin | None:
    return (span.trace_id, span.span_id, event.created_ns) if span.sampled else None


def _error(span: SpanBlock) -> str:
    return (span.error_type or _UNNAMED_ERROR) if span.outcome == "error" else ""


def _agent_name(span: SpanBlock) -> str:
    name: str = span.attributes.get(semconv.AGENT_NAME) or span.agent
    return name


def _tool_name(span: SpanBlock) -> str:
    name: str = span.attributes.get(semconv.TOOL_NAME) or span.name
    return name


def _token_key(span: SpanBlock) -> tuple[object, ...]:
    get = span.attributes.get
    return (
        get(_OPERATION_NAME) or _DEFAULT_OPERATION.get(span.kind),
        get(_PROVIDER_NAME),
        get(_REQUEST_MODEL),
        get(_RESPONSE_MODEL),
        get(_SERVER_ADDRESS),
        get(_SERVER_PORT),
        span.agent,
        span.caller,
    )
