"""The children one kind of operation touches, resolved once per label set.

An end event updates a dozen series; looking each up by its labels would cost more than all the
arithmetic. Each class here holds direct references to what one label set needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import metric_catalogue as catalogue
from .events import NS_PER_S
from .metric_series import add_to_all

if TYPE_CHECKING:
    from .events import SpanBlock, StreamTiming, Usage
    from .metric_series import Counter, Histogram, Labels, Origin
    from .metric_table import MetricTable

_PARTS: Final = frozenset(
    f"{modality}_{direction}"
    for modality in catalogue.MODALITIES
    for direction in catalogue.TOKEN_TYPES
)
"""Keys of `Usage.details` that are parts of a total by modality."""


class Runs:
    """Root operations of one agent."""

    __slots__ = ("agent", "ended", "started")

    def __init__(self, table: MetricTable, labels: Labels) -> None:
        """Expose all series of the agent at 0."""
        (self.agent,) = labels
        self.started = table.counter(catalogue.RUNS_STARTED, self.agent)
        self.ended: dict[str, Counter] = {
            outcome: table.counter(catalogue.RUNS, self.agent, outcome)
            for outcome in catalogue.RUN_OUTCOMES
        }


class AgentCalls:
    """Invocations of one agent or workflow that ended alike."""

    __slots__ = ("durations", "inference_calls", "tool_calls", "workflow_durations")

    def __init__(self, table: MetricTable, labels: Labels, *, shared: bool) -> None:
        """Resolve the histograms.

        `labels` are kind, operation, agent, model and error type. `shared` says whether workflows
        are recorded as agent invocations, as in generation 0.1.
        """
        kind, operation, agent, model, error = labels
        self.durations: tuple[Histogram, ...] = ()
        self.inference_calls: tuple[Histogram, ...] = ()
        self.tool_calls: tuple[Histogram, ...] = ()
        self.workflow_durations: tuple[Histogram, ...] = ()
        if shared or kind == "agent":
            self.durations = table.histograms(
                catalogue.AGENT_DURATION, operation, agent, model, error
            )
            self.inference_calls = table.histograms(catalogue.AGENT_INFERENCE_CALLS, agent)
            self.tool_calls = table.histograms(catalogue.AGENT_TOOL_CALLS, agent)
        if kind == "workflow":
            self.workflow_durations = table.histograms(catalogue.WORKFLOW_DURATION, agent, error)

    def record(self, span: SpanBlock, origin: Origin | None) -> None:
        """Book one ended invocation."""
        duration = span.duration_s
        for histogram in self.durations:
            histogram.observe(duration, origin)
        for histogram in self.workflow_durations:
            histogram.observe(duration, origin)
        for histogram in self.inference_calls:
            histogram.observe(span.inference_calls, origin)
        for histogram in self.tool_calls:
            histogram.observe(span.tool_calls, origin)


class ToolUses:
    """Calls of one tool by one agent, by outcome."""

    __slots__ = ("ended",)

    def __init__(self, table: MetricTable, labels: Labels) -> None:
        """Expose all outcomes at 0; `labels` are tool and agent."""
        self.ended: dict[str, Counter] = {
            outcome: table.counter(catalogue.TOOL_CALLS, *labels, outcome)
            for outcome in catalogue.TOOL_OUTCOMES
        }


class ToolCalls:
    """Calls of one tool by one agent that ended alike."""

    __slots__ = ("durations", "ended")

    def __init__(self, durations: tuple[Histogram, ...], ended: Counter) -> None:
        """Count in `ended`, time in `durations`."""
        self.durations = durations
        self.ended = ended

    def record(self, span: SpanBlock, origin: Origin | None) -> None:
        """Book one ended call."""
        self.ended.add(1, origin)
        duration = span.duration_s
        for histogram in self.durations:
            histogram.observe(duration, origin)


class Attribution:
    """Own series of one (agent, caller, provider, model)."""

    __slots__ = ("input", "labels", "missing", "output")

    def __init__(self, table: MetricTable, labels: Labels) -> None:
        """Expose all series at 0."""
        self.labels = labels
        self.input = table.counter(catalogue.TOKENS, *labels, "input")
        self.output = table.counter(catalogue.TOKENS, *labels, "output")
        self.missing = table.counter(catalogue.USAGE_MISSING, *labels)
        for outcome in catalogue.LLM_OUTCOMES_FROM_START:
            table.counter(catalogue.LLM_CALLS, *labels, outcome)
        for detail in catalogue.DETAILS:
            table.counter(catalogue.TOKEN_DETAILS, *labels, detail)


class TokenBook:
    """Where the tokens of one kind of model call go, own and official."""

    __slots__ = (
        "_details",
        "_histograms",
        "_inputs",
        "_labels",
        "_outputs",
        "_own",
        "_splits",
        "_table",
    )

    def __init__(self, table: MetricTable, labels: Labels, own: Attribution) -> None:
        """Expose the official counters at 0; `labels` are `metric_catalogue.LLM_LABELS`."""
        self._table = table
        self._labels = labels
        self._own = own
        self._splits = False  # until a provider reports tokens by modality
        self._details: dict[str, tuple[Counter, ...]] = {}
        self._histograms: tuple[tuple[Histogram, ...], tuple[Histogram, ...]] | None = None
        unknown = (*labels, catalogue.UNKNOWN_MODALITY)
        self._inputs = (own.input, *table.counters(catalogue.USAGE_INPUT, *unknown))
        self._outputs = (own.output, *table.counters(catalogue.USAGE_OUTPUT, *unknown))
        for series in catalogue.USAGE_DETAILS.values():
            table.counters(series, *unknown)

    def book(self, usage: Usage, origin: Origin | None, *, failed: bool) -> None:
        """Add the tokens of one operation to every counter, and to the histograms unless failed."""
        tokens_in, tokens_out, details = usage.input_tokens, usage.output_tokens, usage.details
        if details:
            for key, amount in details.items():
                if amount > 0:
                    add_to_all(self._details.get(key) or self._resolve_detail(key), amount, origin)
            if self._splits:
                tokens_in = self._book_parts(details, "input", tokens_in, origin)
                tokens_out = self._book_parts(details, "output", tokens_out, origin)
        if tokens_in > 0:
            add_to_all(self._inputs, tokens_in, origin)
        if tokens_out > 0:
            add_to_all(self._outputs, tokens_out, origin)
        if not failed:
            inputs, outputs = self._histograms or self._resolve_histograms()
            for histogram in inputs:
                histogram.observe(usage.input_tokens, origin)
            for histogram in outputs:
                histogram.observe(usage.output_tokens, origin)

    def _book_parts(
        self, details: dict[str, int], direction: str, total: int, origin: Origin | None
    ) -> int:
        """Book the known modalities of one total and return the rest; parts never exceed it."""
        if direction == "input":
            own, series = self._own.input, catalogue.USAGE_INPUT
        else:
            own, series = self._own.output, catalogue.USAGE_OUTPUT
        rest = total
        for modality in catalogue.MODALITIES:
            part = min(details.get(f"{modality}_{direction}", 0), rest)
            if part > 0:
                counters = self._table.counters(series, *self._labels, modality)
                add_to_all((own, *counters), part, origin)
                rest -= part
        return rest

    def _resolve_detail(self, key: str) -> tuple[Counter, ...]:
        (label,), plain = self._table.admit((catalogue.DETAIL,), (key,))
        own = self._table.counter(catalogue.TOKEN_DETAILS, *self._own.labels, label)
        counters: tuple[Counter, ...] = (own,)
        if key in catalogue.USAGE_DETAILS:
            unknown = (*self._labels, catalogue.UNKNOWN_MODALITY)
            counters += self._table.counters(catalogue.USAGE_DETAILS[key], *unknown)
        self._splits = self._splits or key in _PARTS
        if plain:
            self._details[key] = counters
        return counters

    def _resolve_histograms(self) -> tuple[tuple[Histogram, ...], tuple[Histogram, ...]]:
        table, labels = self._table, self._labels
        self._histograms = (
            table.histograms(catalogue.OPERATION_INPUT, *labels)
            + table.histograms(catalogue.TOKEN_USAGE, *labels, "input"),
            table.histograms(catalogue.OPERATION_OUTPUT, *labels)
            + table.histograms(catalogue.TOKEN_USAGE, *labels, "output"),
        )
        return self._histograms


class ModelCalls:
    """Model calls of one label set that ended alike."""

    __slots__ = ("_streams", "_table", "durations", "ended", "labels", "own", "tokens")

    def __init__(
        self, table: MetricTable, labels: Labels, own: Attribution, outcome: str, error: str
    ) -> None:
        """Resolve durations and the call counter; `labels` are `metric_catalogue.LLM_LABELS`."""
        self._table = table
        self._streams: tuple[tuple[Histogram, ...], tuple[Histogram, ...]] | None = None
        self.labels = labels
        self.own = own
        self.tokens: TokenBook | None = None
        self.ended = table.counter(catalogue.LLM_CALLS, *own.labels, outcome)
        self.durations = table.histograms(
            catalogue.INFERENCE_DURATION, *labels, error
        ) + table.histograms(catalogue.OPERATION_DURATION, *labels, error)

    def record(self, span: SpanBlock, origin: Origin | None) -> None:
        """Book one ended call, without its tokens."""
        self.ended.add(1, origin)
        duration = (span.end_ns - span.start_ns) / NS_PER_S
        for histogram in self.durations:
            histogram.observe(duration, origin)
        if span.stream is not None:
            self._record_stream(span.stream, origin)

    def _record_stream(self, stream: StreamTiming, origin: Origin | None) -> None:
        table, labels = self._table, self.labels
        if self._streams is None:
            self._streams = (
                table.histograms(catalogue.FIRST_CHUNK, *labels)
                + table.histograms(catalogue.OPERATION_FIRST_CHUNK, *labels),
                table.histograms(catalogue.OUTPUT_CHUNK, *labels)
                + table.histograms(catalogue.OPERATION_OUTPUT_CHUNK, *labels),
            )
        first_chunks, gaps = self._streams
        for histogram in first_chunks:
            histogram.observe(stream.first_chunk_ns / NS_PER_S, origin)
        for histogram in gaps:
            histogram.merge(stream.gap_counts, stream.gap_sum_ns / NS_PER_S)
