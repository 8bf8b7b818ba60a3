"""Which logical step an operation executes, told from its events alone.

As in `lineage`: a node is known by its checkpoint namespace, which LangGraph gives it again after
a resume or a crash. What has none is known by its place: what it belongs to, its kind, its tool
call id, and its number among siblings of that kind; one that follows a failed sibling repeats it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from otel_journal import semconv as sc
from otel_journal.blocks import END_TYPES, START_TYPES

if TYPE_CHECKING:
    from collections.abc import Hashable

    from otel_journal.events import SpanBlock

Step: TypeAlias = "tuple[Hashable, ...]"
"""Equal for two executions of one logical step of a thread."""

STARTS: Final = frozenset(START_TYPES.values())
ENDS: Final = frozenset({*END_TYPES.values(), "llm.error"})
"""Events below the root that tell of an operation."""


class Steps:
    """The steps of one run, whose events come in order."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known: dict[str, Step] = {}
        """Span id -> its step."""
        self._latest: dict[tuple[str, str, str], tuple[int, str]] = {}
        """Parent, kind and tool call id -> number and span id of the newest sibling."""
        self._failed: set[str] = set()

    def of(self, span: SpanBlock) -> Step | None:
        """Return the step of an operation, from its start or its end; None for a root."""
        if span.root:
            return None
        step = self._known.get(span.span_id)
        if step is None:
            step = self._known[span.span_id] = self._place(span)
        if span.end_ns and span.outcome != "ok":
            self._failed.add(span.span_id)
        return step

    def _place(self, span: SpanBlock) -> Step:
        namespace = span.attributes.get(sc.CHECKPOINT_NS)
        if span.kind == "node" and namespace:
            return "node", namespace, span.name
        call_id = str(span.attributes.get(sc.TOOL_CALL_ID) or "")
        sibling = (span.parent_span_id, span.kind, call_id)
        number, before = self._latest.get(sibling, (-1, ""))
        if before not in self._failed:
            number += 1
        self._latest[sibling] = number, span.span_id
        above = self._known.get(span.parent_span_id, ())
        return *above, span.kind, call_id, number
