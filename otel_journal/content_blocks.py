"""Content blocks of any provider -> message parts of the GenAI semantic conventions.

Part shapes (model/gen-ai/gen-ai-*.json): ``text``, ``reasoning``, ``tool_call``,
``tool_call_response``, ``blob`` (base64), ``uri`` and ``file``. Blocks of LangChain (standard v1
and older), OpenAI (Chat Completions and Responses), Anthropic, Gemini and Bedrock Converse are
known; what is not known is dropped, as the conventions recommend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .foreign import Foreign, elements, mapping, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Part: TypeAlias = "dict[str, Any]"
"""One JSON object with a ``type``."""

MAX_BLOCKS: Final = 10_000
"""Blocks read of one message; shared and cyclic content must not take for ever."""

MAX_JOINED: Final = 1_000_000
"""Characters joined from the blocks of one message; payload limits cut far below."""

_MAX_NESTING: Final = 8
"""Blocks inside blocks: tool results hold blocks, wrappers of unknown ones hold one."""

_MAX_DATA_URL_HEAD: Final = 200
"""Where the comma of a data: URL is looked for; after it there may be megabytes."""


def parts_of(content: object) -> list[Part]:
    """Convert message content (text, a block, or a list of both) to parts."""
    if plain := text(content):
        return [{"type": "text", "content": plain}]
    blocks = elements(content, MAX_BLOCKS) or [content]
    return [part for block in blocks for part in _parts(block, _MAX_NESTING)]


def tool_call(name: object, arguments: object, call_id: object) -> Part | None:
    """Return a ``tool_call`` part; None without a name, which the conventions require."""
    if not (called := text(name)):
        return None
    part: Part = {"type": "tool_call", "name": called, "arguments": arguments}
    if identifier := text(call_id):
        part["id"] = identifier
    return part


def tool_response(response: object, call_id: object) -> Part:
    """Return a ``tool_call_response`` part."""
    part: Part = {"type": "tool_call_response", "response": response}
    if identifier := text(call_id):
        part["id"] = identifier
    return part


def joined_text(content: object) -> str:
    """Join the text of a list of blocks without separator.

    A block is text, or a mapping with ``text`` or nested ``content``; the rest is ignored.
    """
    pieces: list[str] = []
    room = MAX_JOINED
    stack: list[tuple[object, int]] = [(content, 0)]
    for _ in range(MAX_BLOCKS):
        if not stack or room <= 0:
            break
        block, depth = stack.pop()
        if piece := text(block):
            pieces.append(piece[:room])
            room -= len(piece)
        elif (fields := mapping(block)) is not None:
            if piece := text(fields.get("text")):
                pieces.append(piece[:room])
                room -= len(piece)
            elif depth <= _MAX_NESTING:
                stack.append((fields.get("content"), depth + 1))
        elif depth <= _MAX_NESTING:
            inner = elements(block, MAX_BLOCKS)
            stack.extend((element, depth + 1) for element in reversed(inner))
    return "".join(pieces)


def _parts(block: object, nesting: int) -> Iterator[Part]:
    if plain := text(block):
        yield {"type": "text", "content": plain}
        return
    fields = mapping(block)
    if not fields:
        return
    kind = text(fields.get("type"))
    if kind == "non_standard":
        # LangChain wraps blocks it does not know; we may.
        if nesting:
            yield from _parts(fields.get("value"), nesting - 1)
        return
    # Bedrock Converse blocks have no type when nobody converted them.
    convert = _CONVERTERS.get(kind or "text")
    part = convert(fields) if convert else None
    if part is not None:
        yield part


def _text(fields: dict[Any, Any]) -> Part | None:
    for name in ("text", "refusal"):
        if found := text(fields.get(name)):
            return {"type": "text", "content": found}
    return _media(fields)


def _reasoning(fields: dict[Any, Any]) -> Part | None:
    nested = mapping(fields.get("reasoning_content")) or {}
    found = (
        text(fields.get("reasoning"))
        or text(fields.get("thinking"))
        or text(nested.get("text"))
        or joined_text(fields.get("summary"))
        or joined_text(fields.get("content"))
    )
    return {"type": "reasoning", "content": found} if found else None


def _tool_call(fields: dict[Any, Any]) -> Part | None:
    arguments = next((fields[n] for n in ("args", "input", "arguments") if n in fields), None)
    # OpenAI Responses: `id` is the output item, `call_id` is what the result refers to.
    return tool_call(fields.get("name"), arguments, fields.get("call_id") or fields.get("id"))


def _tool_result(fields: dict[Any, Any]) -> Part | None:
    response = fields.get("output", fields.get("content"))
    call_id = fields.get("tool_use_id") or fields.get("call_id") or fields.get("tool_call_id")
    return tool_response(response, call_id)


def _image_url(fields: dict[Any, Any]) -> Part | None:
    nested = mapping(fields.get("image_url"))
    url = nested.get("url") if nested else fields.get("image_url")
    return _by_url(text(url), "image", "") or _by_id(fields.get("file_id"), "image", "")


def _input_audio(fields: dict[Any, Any]) -> Part | None:
    audio = mapping(fields.get("input_audio")) or {}
    sound = text(audio.get("format"))
    return _blob(audio.get("data"), "audio", f"audio/{sound}" if sound else "")


def _media(fields: dict[Any, Any]) -> Part | None:
    """Read a block with data, a URL or a file id: LangChain, OpenAI file, Anthropic, Gemini."""
    kind = text(fields.get("type"))
    given = text(fields.get("source_type"))
    for name in ("source", "file"):
        if nested := mapping(fields.get(name)):
            given = text(nested.get("type"))
            fields = nested
            break
    mime = text(fields.get("mime_type")) or text(fields.get("media_type"))
    modality = kind if kind in _MODALITIES else _modality(mime)
    if given == "id":
        return _by_id(fields.get("id"), modality, mime)
    data = text(fields.get("base64")) or text(fields.get("data"))
    if data and given != "text":
        return _blob(data, modality, mime)
    if plain := data or text(fields.get("text")):
        return {"type": "text", "content": plain}
    if found := text(fields.get("file_data")):
        return _by_url(found, modality, mime)
    for name in ("url", "file_url", "file_uri"):
        if found := text(fields.get(name)):
            return _by_url(found, modality, mime)
    return _by_id(fields.get("file_id"), modality, mime)


def _by_url(url: str, modality: str, mime: str) -> Part | None:
    if url[:5].lower() != "data:":
        return _described({"type": "uri", "modality": modality, "uri": url}, mime) if url else None
    comma = url.find(",", 0, _MAX_DATA_URL_HEAD)
    head = url[5:comma].lower() if comma > 0 else ""
    if not head.endswith(";base64"):
        return None  # a blob is base64
    mime = head.split(";", 1)[0] or mime
    fitting = _modality(mime)
    return _blob(url[comma + 1 :], modality if fitting == "document" else fitting, mime)


def _by_id(file_id: object, modality: str, mime: str) -> Part | None:
    if not (identifier := text(file_id)):
        return None
    return _described({"type": "file", "modality": modality, "file_id": identifier}, mime)


def _blob(data: object, modality: str, mime: str) -> Part | None:
    if not (content := text(data)):
        return None
    return _described({"type": "blob", "modality": modality, "content": content}, mime)


def _described(part: Part, mime: str) -> Part:
    if mime:
        part["mime_type"] = mime
    return part


def _modality(mime: str) -> str:
    major = mime.split("/", 1)[0]
    return major if major in _MODALITIES else "document"


_MODALITIES: Final = frozenset({"image", "video", "audio"})
"""Besides ``document``, which everything else is."""

_CONVERTERS: Final[dict[str, Callable[[dict[Any, Any]], Part | None]]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "text-plain", "refusal"), _text),
    **dict.fromkeys(("reasoning", "thinking", "reasoning_content"), _reasoning),
    **dict.fromkeys(("tool_call", "tool_use", "function_call"), _tool_call),
    **dict.fromkeys(("tool_result", "function_call_output"), _tool_result),
    **dict.fromkeys(("image_url", "input_image"), _image_url),
    **dict.fromkeys(("image", "audio", "video", "file", "input_file", "document", "media"), _media),
    "input_audio": _input_audio,
}
"""Block type -> conversion; redacted thinking, citations and server tools are not parts."""


def is_tool_call_block(block: Foreign) -> bool:
    """Say whether a block repeats what stands in the message's own ``tool_calls``."""
    fields = mapping(block)
    return fields is not None and _CONVERTERS.get(text(fields.get("type"))) is _tool_call
