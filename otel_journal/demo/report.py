"""What a demo came to, as plain values: text and JSON are made from these alone.

Everything is read where an operator would read it: spans as the exporter received them, numbers
from the Prometheus registry, totals from `RunSummary`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from prometheus_client import CollectorRegistry

_NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Link:
    """A span's pointer to another span."""

    relation: str
    trace_id: str


@dataclass(frozen=True, slots=True)
class Step:
    """One span and the spans below it."""

    name: str
    outcome: str
    start_s: float
    """Seconds since the start of its trace."""
    duration_s: float
    input_tokens: int | None
    """None when the span bears no usage."""
    output_tokens: int | None
    error_type: str
    attempt: int
    caller: str
    """Model calls only: who asked."""
    first_chunk_s: float | None
    """Streamed model calls only: seconds until the first chunk."""
    links: tuple[Link, ...]
    children: tuple[Step, ...]

    def walk(self) -> Iterator[Step]:
        """Yield this step and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the agent: one trace."""

    run_id: str
    thread_id: str
    trace_id: str
    outcome: str
    tree: Step


@dataclass(frozen=True, slots=True)
class TokenRow:
    """Tokens of one model on behalf of one caller, from the Prometheus registry."""

    model: str
    agent: str
    caller: str
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read: int
    """Part of the input, never added to it."""


@dataclass(frozen=True, slots=True)
class Received:
    """Callbacks of one kind."""

    callbacks: int
    repeats_dropped: int


@dataclass(frozen=True, slots=True)
class Dedupe:
    """What repeated and late deliveries came to."""

    by_kind: Mapping[str, Received]
    usage_merged: int
    """Late usage that reached its span before the span ended."""
    usage_amended: int
    """Late usage booked after its span had ended."""
    usage_conflicts: int


@dataclass(frozen=True, slots=True)
class Sink:
    """What became of the events offered to one sink."""

    seen: int
    exported: int
    pending: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold, and whether it does."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Load:
    """Speed of the agent with its journal, deliveries doubled."""

    runs: int
    seconds: float
    runs_per_second: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the demo shows."""

    question: str
    approval: str
    answer: str
    runs: Sequence[Run]
    """The two runs of the first incident."""
    tokens: Sequence[TokenRow]
    dedupe: Dedupe
    sinks: Mapping[str, Sink]
    checks: Sequence[Check]
    exported_to: str
    """Where spans went besides this report; empty when nowhere."""
    load: Load | None = field(default=None)
    """None for a single incident."""

    @property
    def ok(self) -> bool:
        """True when every check holds."""
        return all(check.ok for check in self.checks)


# Spans ---------------------------------------------------------------------------------------


def runs_of(spans: Sequence[ReadableSpan]) -> list[Run]:
    """Return one run per trace, in the order in which they began."""
    children: dict[int | None, list[ReadableSpan]] = {}
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        children.setdefault(span.parent.span_id if span.parent else None, []).append(span)
    return [_run(root, children) for root in children.get(None, [])]


def _run(root: ReadableSpan, children: Mapping[int | None, Sequence[ReadableSpan]]) -> Run:
    tree = _step(root, children, origin_ns=root.start_time or 0)
    attributes = root.attributes or {}
    return Run(
        run_id=str(attributes.get("otel_journal.run_id", "")),
        thread_id=str(attributes.get("gen_ai.conversation.id", "")),
        trace_id=_trace_id(root.context),
        outcome=tree.outcome,
        tree=tree,
    )


def _step(
    span: ReadableSpan, children: Mapping[int | None, Sequence[ReadableSpan]], *, origin_ns: int
) -> Step:
    found: Mapping[str, Any] = span.attributes or {}
    start_ns, end_ns = span.start_time or 0, span.end_time or 0
    below = children.get(span.context.span_id, ()) if span.context else ()
    return Step(
        name=span.name,
        outcome=found.get("otel_journal.outcome", ""),
        start_s=(start_ns - origin_ns) / _NS_PER_S,
        duration_s=(end_ns - start_ns) / _NS_PER_S,
        input_tokens=found.get("gen_ai.usage.input_tokens"),
        output_tokens=found.get("gen_ai.usage.output_tokens"),
        error_type=found.get("error.type", ""),
        attempt=found.get("otel_journal.attempt", 1),
        caller=found.get("otel_journal.caller", ""),
        first_chunk_s=found.get("gen_ai.response.time_to_first_chunk"),
        links=tuple(
            Link(str((link.attributes or {}).get("otel_journal.link.relation", "")), trace_id)
            for link in span.links
            for trace_id in [_trace_id(link.context)]
        ),
        children=tuple(_step(child, children, origin_ns=origin_ns) for child in below),
    )


def _trace_id(context: Any) -> str:  # noqa: ANN401 - None or a SpanContext, by SDK version
    return f"{context.trace_id:032x}" if context else ""


# Metrics -------------------------------------------------------------------------------------


class Readings:
    """One scrape of a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Read every sample now."""
        self._samples = [sample for family in registry.collect() for sample in family.samples]

    def total(self, name: str, **labels: str) -> int:
        """Return the sum of the samples of a metric that have these labels."""
        return sum(value for _, value in self.each(name, **labels))

    def each(self, name: str, **labels: str) -> Iterator[tuple[dict[str, str], int]]:
        """Yield labels and value of the samples of a metric that have these labels."""
        for sample in self._samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                yield sample.labels, int(sample.value)


def token_rows(scrape: Readings) -> list[TokenRow]:
    """Return the tokens by model, agent and caller, biggest first."""
    rows = []
    for labels, calls in scrape.each("otel_journal_llm_calls_total", outcome="ok"):
        spender = {name: value for name, value in labels.items() if name != "outcome"}
        tokens = "otel_journal_tokens_total"
        rows.append(
            TokenRow(
                model=labels["gen_ai_request_model"],
                agent=labels["gen_ai_agent_name"],
                caller=labels["caller"],
                calls=calls,
                input_tokens=scrape.total(tokens, **spender, type="input"),
                output_tokens=scrape.total(tokens, **spender, type="output"),
                cache_read=scrape.total(
                    "otel_journal_token_details_total", **spender, detail="cache_read"
                ),
            )
        )
    return sorted(rows, key=lambda row: -row.input_tokens - row.output_tokens)


def dedupe_of(scrape: Readings, *, late: int) -> Dedupe:
    """Return what was deduplicated; `late` is the number of late deliveries of usage."""
    amended = scrape.total("otel_journal_usage_amended_total")
    return Dedupe(
        by_kind={
            labels["kind"]: Received(
                callbacks, scrape.total("otel_journal_replays_dropped_total", kind=labels["kind"])
            )
            for labels, callbacks in scrape.each("otel_journal_observations_total")
            if callbacks
        },
        usage_merged=late - amended,
        usage_amended=amended,
        usage_conflicts=scrape.total("otel_journal_usage_conflicts_total"),
    )


def sinks_of(scrape: Readings) -> dict[str, Sink]:
    """Return what became of the events, per sink."""
    return {
        sink: Sink(
            seen=seen,
            exported=scrape.total("otel_journal_events_exported_total", sink=sink),
            pending=scrape.total("otel_journal_events_pending", sink=sink),
            dropped=scrape.total("otel_journal_events_dropped_total", sink=sink),
        )
        for labels, seen in scrape.each("otel_journal_events_seen_total")
        for sink in [labels["sink"]]
    }
