"""Exact attributes of one span per kind, and names that must occur nowhere.

``GOLDEN_UPDATE=1`` writes the files anew; read the diff before committing it.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from .recording import record
from .scenarios import SCENARIOS

ATTRIBUTES = Path(__file__).parent / "attributes"
UPDATE = os.environ.get("GOLDEN_UPDATE") == "1"

EXAMPLES = {
    "agent": ("25", "invoke_agent boss"),
    "workflow": ("23", "invoke_workflow run0"),
    "node": ("25", "model"),
    "chat": ("25", "chat scripted-1"),
    "chat_streamed": ("21", "chat scripted-1"),
    "completion": ("31", "text_completion"),
    "tool": ("25", "execute_tool add"),
    "tool_error": ("16", "execute_tool bad"),
    "retrieval": ("31", "retrieval"),
}
"""Kind -> scenario and the beginning of the span's name; the first such span is the example."""

UNSTABLE = frozenset(
    {
        "gen_ai.response.time_to_first_chunk",
        "langchain.run_id",
        "langgraph.checkpoint_ns",
        "otel_journal.call_id",
        "otel_journal.run_id",
    }
)
"""Attributes whose value differs from run to run; only their type is compared."""

OPERATIONS = frozenset(
    {"chat", "text_completion", "execute_tool", "invoke_agent", "invoke_workflow", "retrieval"}
)
"""Operations of the conventions that a callback handler can observe."""

NEVER = re.compile(
    r"""
      gen_ai\.system$
    | gen_ai\.prompt$ | gen_ai\.prompt\.\d | gen_ai\.completion
    | gen_ai\.usage\.(prompt|completion)_tokens$ | llm\.
    | gen_ai\.openai\.
    | gen_ai\.(system|user|assistant|tool)\.message$ | gen_ai\.choice$
    | gen_ai\.usage\.cache_creation\.input_tokens$
    | gen_ai\.workflow\.name$ | gen_ai\.client\.token\.usage$
    | gen_ai\.client\.operation\.time_ | gen_ai\.workflow\.duration$
    | gen_ai\.(agent\.(id|version)|invocation\.is_nested|node\.)
    """,
    re.VERBOSE,
)
"""Names that older conventions, later ones or proposals use, and ours does not."""

CONTENT = frozenset(
    {
        "exception.message",
        "exception.stacktrace",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.retrieval.documents",
        "gen_ai.retrieval.query.text",
        "gen_ai.system_instructions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.tool.definitions",
    }
)
"""What was said; on spans only when content capture is on."""

OWN_NAMESPACES = ("gen_ai.", "openai.", "langgraph.", "langchain.", "otel_journal.")
GENERAL_NAMES = frozenset({"error.type", "server.address", "server.port"})


def _all_spans() -> list[ReadableSpan]:
    return [
        span
        for scenario in SCENARIOS.values()
        for way in scenario.programs
        for span in record(scenario.number, way)
    ]


def _names() -> set[str]:
    return {name for span in _all_spans() for name in span.attributes or {}}


def _type_name(value: Any) -> str:
    if isinstance(value, tuple | list):
        return " | ".join(sorted({type(item).__name__ for item in value})) + "[]"
    return type(value).__name__


def _describe(span: ReadableSpan) -> dict[str, Any]:
    return {
        "name": span.name,
        "kind": span.kind.name,
        "scope": span.instrumentation_scope.name if span.instrumentation_scope else "",
        "attributes": {
            name: {"type": _type_name(value)}
            if name in UNSTABLE
            else {"type": _type_name(value), "value": value}
            for name, value in sorted((span.attributes or {}).items())
        },
    }


def _call_id(span: ReadableSpan) -> str:
    return str((span.attributes or {}).get("gen_ai.tool.call.id", ""))


@pytest.mark.parametrize("kind", EXAMPLES)
def test_span_has_exactly_these_attributes(kind: str) -> None:
    """One span of each kind bears the attributes in its file: names, types, stable values."""
    number, name = EXAMPLES[kind]
    # Parallel tools start in any order.
    spans = sorted(record(number, "sync"), key=lambda s: (_call_id(s), s.start_time))
    example = next(span for span in spans if span.name.startswith(name))
    path = ATTRIBUTES / f"{kind}.json"
    text = json.dumps(_describe(example), indent=2) + "\n"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_no_forbidden_name_occurs() -> None:
    """No span of any scenario bears a name that our conventions replaced or never had."""
    assert [name for name in _names() if NEVER.match(name)] == []


def test_no_content_occurs() -> None:
    """Without content capture no span of any scenario bears what was said."""
    assert _names() & CONTENT == set()


def test_names_stay_in_their_namespaces() -> None:
    """Everything outside the conventions is under a prefix of ours or the frameworks'."""
    strangers = {name for name in _names() if not name.startswith(OWN_NAMESPACES)}
    assert strangers <= GENERAL_NAMES


def test_operations_are_known() -> None:
    """`gen_ai.operation.name` is one of the conventions' values, on nodes absent."""
    found = {(span.attributes or {}).get("gen_ai.operation.name") for span in _all_spans()}
    assert found - {None} == OPERATIONS


def test_span_name_begins_with_its_operation() -> None:
    """Spans of the conventions are named ``{operation} {target}``, or the operation alone."""
    wrong = [
        span.name
        for span in _all_spans()
        if (operation := (span.attributes or {}).get("gen_ai.operation.name"))
        and span.name.split(" ")[0] != operation
    ]
    assert wrong == []
