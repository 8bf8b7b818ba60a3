"""LangChain messages, read by duck typing: as semantic-convention JSON, as feed rows, as text.

A message is any object (or mapping) with ``type`` or ``role`` and ``content``. Nothing here
imports LangChain, changes a message, or raises on an odd one. The results hold the message's own
values, so callers serialise them at once and bounded (`payload`).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .content_blocks import (
    MAX_BLOCKS,
    is_tool_call_block,
    joined_text,
    parts_of,
    tool_call,
    tool_response,
)
from .foreign import attribute, elements, field, guarded, mapping, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Message: TypeAlias = "dict[str, Any]"
"""A message as the GenAI semantic conventions write it."""

_ROLES: Final[dict[str, str]] = {
    "human": "user",
    "HumanMessageChunk": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "system": "system",
    "SystemMessageChunk": "system",
    "tool": "tool",
    "ToolMessageChunk": "tool",
    "function": "tool",
    "FunctionMessageChunk": "tool",
}
"""LangChain's message types -> semantic-convention roles; others carry a ``role`` of their own."""

_TOOL_TYPES: Final = frozenset({"tool", "ToolMessageChunk"})

_DUMPED: Final = (
    "type",
    "content",
    "id",
    "name",
    "tool_calls",
    "invalid_tool_calls",
    "additional_kwargs",
    "response_metadata",
    "usage_metadata",
    "tool_call_id",
    "status",
)
"""What a feed row keeps of a message; ``artifact`` is for the application, not for readers."""

_INFO_REASONS: Final = ("finish_reason", "done_reason")
_METADATA_REASONS: Final = ("finish_reason", "stopReason", "stop_reason", "done_reason")
"""Keys under which providers say why they stopped, first hit wins."""


def input_messages(messages: Iterable[object]) -> list[Message]:
    """Convert messages sent to a model to ``gen_ai.input.messages``."""
    return [_message(message, _role(message)) for message in _read(messages)]


def output_messages(
    generations: Iterable[object], *, finish_reasons: Sequence[str] = ()
) -> list[Message]:
    """Convert generations to ``gen_ai.output.messages``, one message each.

    Args:
        generations: objects with ``message`` (chat) or only ``text`` (completion).
        finish_reasons: one per generation, in order; given, they are put on the messages, as the
            1.41 generation of the conventions wants and later ones do not.
    """
    found: list[Message] = []
    for index, generation in enumerate(_read(generations)):
        message = attribute(generation, "message")
        if message is None:
            converted = {"role": "assistant", "parts": parts_of(attribute(generation, "text"))}
        else:
            converted = _message(message, _role(message, default="assistant"))
        if index < len(finish_reasons):
            converted["finish_reason"] = finish_reasons[index]
        found.append(converted)
    return found


def tool_definitions(tools: object, *, full: bool = False) -> list[dict[str, Any]]:
    """Convert the tools offered to a model to ``gen_ai.tool.definitions``.

    Args:
        tools: a list in the format of OpenAI, Anthropic, Bedrock or Gemini, or of tool objects.
        full: include description and parameters, which the conventions advise against by default.
    """
    found: list[dict[str, Any]] = []
    for tool in _read(tools):
        declared = field(tool, "function_declarations")
        for single in _read(declared) if declared is not None else (tool,):
            definition = _tool_definition(single, full=full)
            if definition is not None:
                found.append(definition)
    return found


def dump(message: object) -> dict[str, Any]:
    """Return what a feed row keeps of a message: the fields it has, with its own values."""
    found = ((name, field(message, name)) for name in _DUMPED)
    return {name: value for name, value in found if value is not None}


def text_of(content: object) -> str:
    """Return the text of message content, of a block, or of a whole message.

    Text is itself; the blocks of a list are joined without separator; a mapping has ``text`` or
    ``content``; any other object has ``text`` if that is text. Otherwise the empty string.
    """
    if plain := text(content):
        return plain
    return joined_text(content) or text(attribute(content, "text"))


def is_human(message: object) -> bool:
    """Say whether a person wrote the message."""
    return _role(message, default="") == "user"


def is_tool_message(message: object) -> bool:
    """Say whether the message is the result of a tool call."""
    return text(field(message, "type")) in _TOOL_TYPES or text(field(message, "role")) == "tool"


def message_id(message: object) -> str | None:
    """Return the message's id; None when it has none."""
    return text(field(message, "id")) or None


_STATUS_REASONS: Final = {"completed": "stop", "incomplete": "length", "failed": "error"}


def finish_reason(generation: object) -> str | None:
    """Return why the model stopped, in the provider's word; None when it does not say."""
    metadata = field(attribute(generation, "message"), "response_metadata")
    for source, names in (
        (attribute(generation, "generation_info"), _INFO_REASONS),
        (metadata, _METADATA_REASONS),
    ):
        known = mapping(source) or {}
        for name in names:
            if reason := text(known.get(name)):
                return reason
    # OpenAI's Responses API gives a status in place of a reason.
    status = (mapping(metadata) or {}).get("status")
    return _STATUS_REASONS.get(status) if isinstance(status, str) else None


def _read(items: object) -> list[Any]:
    """Return the elements of a list (or of any iterable that does not raise), bounded."""
    if type(items) is list:
        return items
    if items is None or mapping(items) is not None or text(items):
        return []
    return guarded(_take, items) or []


def _take(items: Iterable[object]) -> list[object]:
    return list(islice(items, MAX_BLOCKS))


def _role(message: object, *, default: str = "user") -> str:
    kind = text(field(message, "type"))
    if known := _ROLES.get(kind):
        return known
    role = text(field(message, "role")) or kind
    return _ROLES.get(role, role) or default


def _message(message: object, role: str) -> Message:
    if role == "tool":
        call_id = field(message, "tool_call_id")
        parts = [tool_response(field(message, "content"), call_id)]
    else:
        parts = _parts(message)
    converted: Message = {"role": role, "parts": parts}
    if name := text(field(message, "name")):
        converted["name"] = name
    return converted


def _parts(message: object) -> list[dict[str, Any]]:
    """Convert content and tool calls; a call that stands in both is taken from the latter."""
    content = field(message, "content")
    extra = mapping(field(message, "additional_kwargs")) or {}
    calls = _tool_calls(message, extra)
    if calls and (blocks := elements(content, MAX_BLOCKS)):
        content = [block for block in blocks if not is_tool_call_block(block)]
    parts = parts_of(content)
    # DeepSeek, Qwen, xAI and Ollama leave their reasoning beside the content.
    if reasoning := text(extra.get("reasoning_content")):
        parts.insert(0, {"type": "reasoning", "content": reasoning})
    return parts + calls


def _tool_calls(message: object, extra: dict[Any, Any]) -> list[dict[str, Any]]:
    calls = [
        *_read(field(message, "tool_calls")),
        *_read(field(message, "invalid_tool_calls")),
    ]
    found = [_tool_call(call) for call in calls]
    if not calls:  # the form before tool calls had ids
        found = [_tool_call(extra.get("function_call"))]
    return [part for part in found if part is not None]


def _tool_call(call: object) -> dict[str, Any] | None:
    known = mapping(call) or {}
    # Messages given as mappings may hold OpenAI's own form.
    function = mapping(known.get("function")) or known
    arguments = function["args"] if "args" in function else function.get("arguments")
    return tool_call(function.get("name"), arguments, known.get("id"))


def _tool_definition(tool: object, *, full: bool) -> dict[str, Any] | None:
    nested = mapping(field(tool, "function")) or mapping(field(tool, "toolSpec")) or tool
    kind = text(field(tool, "type"))
    # Tools the provider runs have a type and sometimes no name; "custom" is Anthropic's function.
    name = text(field(nested, "name")) or ("" if kind == "function" else kind)
    if not name:
        return None
    definition: dict[str, Any] = {
        "type": kind if kind not in ("", "custom") else "function",
        "name": name,
    }
    if full:
        if description := text(field(nested, "description")):
            definition["description"] = description
        for key in ("parameters", "input_schema", "inputSchema"):
            if (parameters := mapping(field(nested, key))) is not None:
                definition["parameters"] = parameters.get("json", parameters)
                break
    return definition
