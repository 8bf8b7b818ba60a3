"""Where messages and documents sit in what graphs, tools, models and retrievers hand around.

Bounded, whatever is handed around: nothing here looks at more than fits on a span.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from . import messages
from . import semconv as sc
from .foreign import attribute, elements, field, guarded, mapping, text

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_DOCUMENTS: Final = 100
"""References recorded of one retrieval; more say nothing that the first hundred do not."""

MAX_ELEMENTS: Final = 512
"""Tool calls, tool messages and tools read of one payload; providers allow 128."""

_MAX_GENERATIONS: Final = 256
"""Answers read of one call; providers allow 128."""

_MAX_IDENTIFIER: Final = 512
"""Characters kept of names and ids that providers return; real ones stay below 100."""

_EMPTY_CHARS: Final = 72
"""What a message without any part counts for: it says nothing, and may be slow to read."""

_CUT_CHARS: Final = 256
"""Characters that a long text is left at the least when its list is cut (`payload`)."""

_BATCH: Final = 8
"""Messages converted before they are weighed; most prompts have no more."""

_LISTS: Final = ("content", "tool_calls", "invalid_tool_calls")
"""Fields of a message that become parts."""

_SCORES: Final = ("score", "relevance_score")

_MESSAGE_CHARS: Final = len('{"role":"","parts":[]},')
_PART_CHARS: Final = len('{"type":"","content":""}')
"""What a message and each of its parts cost at the least, as JSON."""


def state_messages(state: object) -> Sequence[object] | None:
    """The ``messages`` of a graph's input or output, a bare message list, or None."""
    found = state.get("messages") if isinstance(state, dict) else state
    if isinstance(found, (list, tuple)) and found and _is_message(found[0]):
        return found
    return [found] if _is_message(found) else None


def input_messages(prompt: Sequence[object], *, limit: int) -> tuple[list[Any], int]:
    """Convert as many messages as can fit into `limit` characters; bare text is the user's.

    Returns:
        The messages in the form of the GenAI conventions, and how many were left out.
    """
    found: list[Any] = []
    left, total = limit, len(prompt)
    rest = guarded(iter, prompt) or iter(())
    while left >= 0 and (batch := list(islice(rest, _BATCH))):
        converted = messages.input_messages([_bounded(_told(one), limit) for one in batch])
        found += converted
        if len(found) < total:
            left -= sum(map(_least_chars, converted))
    return found, total - len(found)


def _told(message: object) -> object:
    return {"role": "user", "content": message} if isinstance(message, str) else message


def _least_chars(message: dict[str, Any]) -> int:
    """Less than a converted message costs as JSON, when its texts may be cut."""
    least = _MESSAGE_CHARS + len(message["role"])
    if not message["parts"]:
        return least + _EMPTY_CHARS
    for part in message["parts"]:
        content = part.get("content")
        least += _PART_CHARS + (min(len(content), _CUT_CHARS) if type(content) is str else 0)
    return least


def output_messages(
    generations: Sequence[object], reasons: Sequence[str], *, limit: int
) -> list[dict[str, Any]]:
    """Convert answers, and of each no more parts than can fit into `limit` characters."""
    found = [
        SimpleNamespace(
            message=_bounded(attribute(generation, "message"), limit),
            text=attribute(generation, "text"),
        )
        for generation in generations
    ]
    return messages.output_messages(found, finish_reasons=reasons)


def _bounded(message: object, limit: int) -> object:
    """A message without the blocks and tool calls that cannot fit; nearly always itself.

    Looks at stored fields only: asking a message for one that it lacks is slow.
    """
    most = limit // _PART_CHARS + 1
    stored = message if type(message) is dict else attribute(message, "__dict__")
    if type(stored) is not dict:
        return message
    long = [
        name
        for name in _LISTS
        if isinstance(found := stored.get(name), (list, tuple)) and len(found) > most
    ]
    if not long:
        return message
    cut = {name: elements(stored[name], most) for name in long}
    return {**messages.dump(message), "role": field(message, "role"), **cut}


def _is_message(value: object) -> bool:
    return isinstance(attribute(value, "type"), str) and attribute(value, "content") is not None


def tool_messages(output: object) -> list[Any]:
    """The messages of a tool's output: a ToolMessage, every legal Command, or a list of them."""
    found = messages_of_result(output)
    if not found:
        for part in elements(output, MAX_ELEMENTS):
            found += messages_of_result(part)
    return found[:MAX_ELEMENTS]


def messages_of_result(output: object) -> list[Any]:
    """The messages of one ToolMessage or Command; nothing for other values."""
    if isinstance(output, (str, list, tuple)):
        return []
    if messages.is_tool_message(output):
        return [output]
    update = attribute(output, "update")
    if isinstance(update, dict):
        update = update.get("messages")
    elif isinstance(update, (list, tuple)):
        # The other legal form of an update: pairs of channel and value.
        head = elements(update, MAX_ELEMENTS)
        values = [pair[1] for pair in head if _is_pair(pair) and pair[0] == "messages"]
        update = values or [m for m in head if _is_message(m)]
    if update is None:
        return []
    found = elements(update, MAX_ELEMENTS) if isinstance(update, (list, tuple)) else [update]
    flat = (m for part in found for m in (elements(part, MAX_ELEMENTS) or (part,)))
    return [message for message in islice(flat, MAX_ELEMENTS) if _is_message(message)]


def _is_pair(value: object) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2  # noqa: PLR2004 - a pair


def generations_of(response: object) -> list[Any]:
    """The generations of a response, of all its prompts. Do not change the list."""
    groups = attribute(response, "generations")
    if type(groups) is list and len(groups) == 1 and type(groups[0]) is list:
        only = groups[0]  # nearly always
        return only if len(only) <= _MAX_GENERATIONS else only[:_MAX_GENERATIONS]
    some = elements(groups, _MAX_GENERATIONS)
    found = (generation for group in some for generation in elements(group, _MAX_GENERATIONS))
    return list(islice(found, _MAX_GENERATIONS))


def asked_calls(message: object) -> list[str]:
    """Ids of the tool calls that a model's message asks for."""
    calls = attribute(message, "tool_calls")
    if type(calls) is list and not calls:
        return calls  # most answers
    found = []
    for call in elements(calls, MAX_ELEMENTS):
        asked = call.get("id") if type(call) is dict else field(call, "id")
        if asked := asked if type(asked) is str else identifier(asked):
            found.append(asked[:_MAX_IDENTIFIER])
    return found


def identifier(value: object) -> str:
    """A name or id that a provider returned, as text of bounded length; empty for none."""
    if type(value) is str:
        return value if len(value) <= _MAX_IDENTIFIER else value[:_MAX_IDENTIFIER]
    if value is None:
        return ""
    found = text(value) or (guarded(str, value) if isinstance(value, (int, UUID)) else None)
    return found[:_MAX_IDENTIFIER] if found else ""


def describe_response(
    attributes: dict[str, Any], llm_output: Mapping[str, Any], metadata: Mapping[str, Any]
) -> None:
    """Add what a response says about itself: model, id, service tier, fingerprint."""
    headers = metadata.get("headers")
    served = headers.get("x-ms-served-model") if isinstance(headers, dict) else None
    model = (
        served
        or llm_output.get("model_name")
        or llm_output.get("model")
        or metadata.get("model_name")
        or metadata.get("model")
    )
    if name := identifier(model):
        attributes[sc.RESPONSE_MODEL] = name
    # AIMessage.id "lc_run--..." is LangChain's run id, not the provider's response id.
    if response_id := identifier(llm_output.get("id") or metadata.get("id")):
        attributes[sc.RESPONSE_ID] = response_id
    if tier := identifier(metadata.get("service_tier")):
        attributes[sc.OPENAI_RESPONSE_SERVICE_TIER] = tier
    if fingerprint := identifier(metadata.get("system_fingerprint")):
        attributes[sc.OPENAI_SYSTEM_FINGERPRINT] = fingerprint


def dump_generation(generation: object) -> Mapping[str, Any]:
    """Message dump of a generation; a completion's text becomes an ``ai`` message."""
    message = attribute(generation, "message")
    if message is not None:
        return messages.dump(message)
    return {"type": "ai", "content": text(attribute(generation, "text"))}


def row_text(row: object) -> str:
    """Text of a feed row, which is bounded; of what a redaction hook put in its place."""
    fields = mapping(row)
    return messages.text_of(row if fields is None else fields.get("content"))


def document_references(documents: object) -> list[dict[str, object]]:
    """Ids and finite scores of retrieved documents, never their text (semconv 1.3)."""
    references: list[dict[str, object]] = []
    for document in _head(documents):
        reference: dict[str, object] = {}
        identity = attribute(document, "id")
        if identity:
            reference["id"] = identifier(identity) or identity
        metadata = attribute(document, "metadata")
        if isinstance(metadata, dict):
            for name in _SCORES:
                score = metadata.get(name)
                if isinstance(score, (int, float)) and abs(score) < float("inf"):
                    reference["score"] = score
                    break
        references.append(reference)
    return references


def _head(documents: object) -> list[Any]:
    """The first documents of a sequence. An iterator is not touched: reading would empty it."""
    if isinstance(documents, Sequence) and not isinstance(documents, str):
        return guarded(_take, documents) or []
    return []


def _take(documents: Sequence[object]) -> list[object]:
    return list(islice(documents, _MAX_DOCUMENTS))
