"""Finished spans as a text tree that a reviewer can read in a diff.

One block per trace, one line per span, children indented below their parent. Ids and times are
left out: what is compared is the shape, the outcomes and the tokens.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

INDENT = "  "
NO_SPANS = "(no spans)\n"
INFERENCE = frozenset({"chat", "text_completion"})
"""Operations that may bear usage (`gen_ai.operation.name`)."""
OVERLAP_NS = 1_000_000
"""Siblings that overlap by less ran one after the other: wall and monotonic clock drift apart."""


@dataclass
class _Node:
    span: ReadableSpan
    children: list["_Node"] = field(default_factory=list)
    orphan: bool = False
    """Its parent was not exported."""

    @property
    def start(self) -> int:
        return self.span.start_time or 0

    @property
    def end(self) -> int:
        return self.span.end_time or 0

    def get(self, name: str, default: object = "") -> object:
        return (self.span.attributes or {}).get(name, default)


def render(spans: Sequence[ReadableSpan]) -> str:
    """Return the text of all traces, in the order in which they began."""
    if not spans:
        return NO_SPANS
    nodes = {span.context.span_id: _Node(span) for span in spans}
    if len(nodes) != len(spans):
        msg = "a span was exported twice"
        raise AssertionError(msg)
    roots = []
    for node in nodes.values():
        parent = node.span.parent and nodes.get(node.span.parent.span_id)
        (parent.children if parent else roots).append(node)
        node.orphan = node.span.parent is not None and parent is None
    names = {span_id: node.span.name for span_id, node in nodes.items()}
    blocks = ["\n".join(_lines(group, names)) + "\n" for group in _ordered(roots, names)]
    return "\n".join(blocks)


def _lines(
    node: _Node, names: Mapping[int, str], depth: int = 0, agent: object = ""
) -> Iterator[str]:
    labels = " ".join(_labels(node, names, agent))
    yield f"{INDENT * depth}{node.span.name:<{40 - len(INDENT) * depth}} {labels}".rstrip()
    for child in _ordered(node.children, names):
        yield from _lines(child, names, depth + 1, node.get("gen_ai.agent.name", agent))


def _labels(node: _Node, names: Mapping[int, str], agent: object) -> Iterator[str]:
    span, outcome = node.span, node.get("otel_journal.outcome", "missing")
    if span.kind is not SpanKind.INTERNAL:
        yield span.kind.name
    if outcome != "ok":
        yield f"outcome={outcome}"
    if (span.status.status_code is StatusCode.ERROR) != (outcome == "error"):
        yield f"STATUS={span.status.status_code.name}"
    for label, attribute in (
        ("error", "error.type"),
        ("closed_by", "otel_journal.closed_by"),
        ("thread", "gen_ai.conversation.id"),
        ("step", "langgraph.step"),
        ("call", "gen_ai.tool.call.id"),
        ("in", "gen_ai.usage.input_tokens"),
        ("out", "gen_ai.usage.output_tokens"),
        ("run_in", "otel_journal.usage.input_tokens"),
        ("run_out", "otel_journal.usage.output_tokens"),
    ):
        # Inside a node every span may carry the node's step; the node says it once.
        if (value := node.get(attribute, None)) is not None and not (
            label == "step" and not _is_node(node)
        ):
            yield f"{label}={value}"
    yield from _rare_labels(node, agent)
    for link in span.links:
        relation = (link.attributes or {}).get("otel_journal.link.relation", "missing")
        yield f"link={relation}->{names.get(link.context.span_id, '?')}"


def _rare_labels(node: _Node, agent: object) -> Iterator[str]:
    if node.get("otel_journal.attempt", 1) != 1:
        yield f"attempt={node.get('otel_journal.attempt')}"
    if node.get("otel_journal.caller", "lead_agent") != "lead_agent":
        yield f"caller={node.get('otel_journal.caller')}"
    own = node.get("gen_ai.agent.name", agent)
    if own != agent and str(own) not in node.span.name:
        yield f"agent={own}"
    for label, attribute in (
        ("streamed", "gen_ai.request.stream"),
        ("cache_hit", "otel_journal.cache_hit"),
        ("parent_unseen", "otel_journal.parent_unseen"),
        ("interrupted", "langgraph.interrupted"),
    ):
        if node.get(attribute, False):
            yield label
    if node.orphan:
        yield "PARENT_MISSING"


def _is_node(node: _Node) -> bool:
    return not node.get("gen_ai.operation.name")


def _ordered(siblings: Iterable[_Node], names: Mapping[int, str]) -> list[_Node]:
    """Sort by start, but siblings that ran in parallel by what does not depend on scheduling."""
    ordered: list[_Node] = []
    group: list[_Node] = []
    for node in sorted(siblings, key=lambda node: node.start):
        if group and not any(_parallel(other, node) for other in group):
            ordered += sorted(group, key=lambda member: _rank(member, names))
            group = []
        group.append(node)
    return ordered + sorted(group, key=lambda member: _rank(member, names))


def _parallel(earlier: _Node, later: _Node) -> bool:
    """Tell whether two siblings overlap, or could have done so had the scheduler wanted it."""
    if later.start < earlier.end - OVERLAP_NS:
        return True
    same_step = earlier.get("langgraph.step", None) == later.get("langgraph.step", None)
    both_nodes = _is_node(earlier) and _is_node(later) and bool(later.get("langgraph.node"))
    both_tools = bool(earlier.get("gen_ai.tool.name")) and bool(later.get("gen_ai.tool.name"))
    return same_step and later.span.parent is not None and (both_nodes or both_tools)


def _rank(node: _Node, names: Mapping[int, str]) -> tuple[str, str, str]:
    text = "\n".join(_lines(node, names))
    call_id = str(node.get("gen_ai.tool.call.id"))
    return node.span.name, call_id, f"{node.get('otel_journal.attempt', 1)} {text}"


def problems(spans: Sequence[ReadableSpan]) -> list[str]:
    """Return what is wrong with the spans whatever the scenario; empty when all is well."""
    by_id = {span.context.span_id: span for span in spans}
    found = [] if len(by_id) == len(spans) else ["a span id was exported twice"]
    for span in spans:
        attributes = span.attributes or {}
        failed = attributes.get("otel_journal.outcome") == "error"
        parent = span.parent and by_id.get(span.parent.span_id)
        inference = attributes.get("gen_ai.operation.name") in INFERENCE
        checks = {
            "is marked failed without outcome error, or the reverse": failed
            == (span.status.status_code is StatusCode.ERROR)
            == bool(attributes.get("error.type")),
            "is marked OK: instrumentations leave that to the application": (
                span.status.status_code is not StatusCode.OK
            ),
            "is in another trace than its parent": (
                not parent or parent.context.trace_id == span.context.trace_id
            ),
            "begins before its parent": not parent or parent.start_time <= span.start_time,
            "was closed with its parent, at another time": (
                attributes.get("otel_journal.closed_by") != "parent_end"
                or (parent is not None and parent.end_time == span.end_time)
            ),
            "ends before it begins": span.start_time <= span.end_time,
            "bears usage but is no model call": inference
            or not any(name.startswith("gen_ai.usage.") for name in attributes),
            "has an event: exceptions are log records": not span.events,
        }
        found += [f"{span.name} {text}" for text, holds in checks.items() if not holds]
    return found
