"""The message history of a LangGraph checkpoint as events of the message feed.

For threads that began before the journal did. A checkpoint knows the messages and nothing about
calls, tokens or runs, so every turn becomes one synthetic run that has messages only. All ids
follow from the thread and the place of a message: importing twice gives the same events.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from .content_blocks import MAX_BLOCKS
from .events import LEAD_AGENT, Event, category_of
from .foreign import elements, field, mapping, text
from .messages import dump, is_human, is_tool_message
from .payload import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CONTENT: Final = 32_768
"""Longest content of one message, in characters of JSON."""

_MARK: Final = {"imported": "checkpoint"}
_EVENT_TYPES: Final = {
    "human": "llm.human.input",
    "ai": "llm.ai.response",
    "tool": "llm.tool.result",
}
_AI_NAMES: Final = frozenset({"ai", "AIMessageChunk", "assistant"})
_SUMMARY: Final = "summary"
_SOURCE: Final = "lc_source"
"""LangChain's mark on human messages that a middleware wrote, such as its summaries."""

_CLASSES: Final = {"HumanMessage": "human", "AIMessage": "ai", "ToolMessage": "tool"}
_HASH_DIGITS: Final = 32
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)


def import_events(thread_id: str, messages: Iterable[object], created_ns: int) -> list[Event]:
    """Return the events that bring a thread's history into an empty feed.

    Human, AI and tool messages, in order; others are left out, as are human messages that no
    person wrote and what cannot be read as a message. A person's message begins a new turn; what
    comes before the first is turn 0.

    Args:
        thread_id: the thread, also the seed of all ids.
        messages: message objects, or mappings in any form LangChain or OpenAI writes.
        created_ns: Unix time in nanoseconds, of all events.
    """
    events: list[Event] = []
    turn = place = 0
    for message in map(_unwrapped, messages):
        kind = _kind(message)
        if not kind:
            continue
        if kind == "human":
            turn, place = turn + 1, 0
        run_id = import_run_id(thread_id, turn)
        content, _ = plain({**dump(message), "type": kind}, limit=MAX_CONTENT)
        event = Event(
            # By place alone: imports of a history and of a longer one agree on what they share.
            event_id=f"{run_id}/{place}/import",
            run_id=run_id,
            event_type=_EVENT_TYPES[kind],
            category=category_of(_EVENT_TYPES[kind]),
            created_ns=created_ns,
            thread_id=thread_id,
            content=content,
            metadata=_MARK if kind == "tool" else {**_MARK, "caller": LEAD_AGENT},
        )
        events.append(event)
        place += 1
    return events


def import_run_id(thread_id: str, turn: int) -> str:
    """Return the id of the synthetic run that holds a turn; well below 64 characters."""
    digest = hashlib.sha256(thread_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"import-{digest[:_HASH_DIGITS]}-{turn}"


def unix_ns(moment: str) -> int:
    """Return a checkpoint's ISO-8601 timestamp as Unix nanoseconds; UTC when it has no zone.

    Raises:
        ValueError: it is no timestamp.
    """
    at = datetime.fromisoformat(moment.replace("Z", "+00:00"))
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    return (at - _EPOCH) // _MICROSECOND * 1_000


def _kind(message: object) -> str:
    """``human``, ``ai`` or ``tool``; empty for what is no part of the feed."""
    content = field(message, "content")
    if not text(content) and content != "" and not isinstance(content, (list, tuple)):
        # OpenAI's form of an answer that only calls tools has no content.
        if elements(field(message, "tool_calls"), MAX_BLOCKS) and _is_ai(message):
            return "ai"
        return ""
    if is_tool_message(message):
        return "tool" if text(field(message, "tool_call_id")) else ""
    if is_human(message):
        return "human" if _by_person(message) else ""
    return "ai" if _is_ai(message) else ""


def _is_ai(message: object) -> bool:
    return not _AI_NAMES.isdisjoint({text(field(message, "type")), text(field(message, "role"))})


def _by_person(message: object) -> bool:
    marks = mapping(field(message, "additional_kwargs")) or {}
    return text(field(message, "name")) != _SUMMARY and _SOURCE not in marks


def _unwrapped(message: object) -> object:
    """A message that LangChain has dumped with a wrapper around it, without the wrapper."""
    outer: dict[Any, Any] = mapping(message) or {}
    if (inner := mapping(outer.get("data"))) is not None:  # message_to_dict
        return {**inner, "type": outer.get("type")}
    if (inner := mapping(outer.get("kwargs"))) is not None:  # dumpd
        path = elements(outer.get("id"), MAX_BLOCKS)
        named = _CLASSES.get(text(path[-1])) if path else None
        return {"type": named, **inner}
    return message
