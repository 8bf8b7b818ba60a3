"""Limits on what enters a store, and on how it is asked; the same for every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_journal.errors import EventError
from otel_journal.events import MAX_CATEGORY, MAX_EVENT_TYPE, MAX_ID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from otel_journal.events import Event

_DELETE: Final = "\x7f"


def checked(events: Sequence[Event]) -> Sequence[Event]:
    """Return `events` when each may enter a store.

    Raises:
        EventError: an id, type or category is empty, too long, not text, or has control
            characters (contract 17). Only `thread_id` may be empty.
    """
    for event in events:
        _text("event_id", event.event_id, MAX_ID)
        _text("run_id", event.run_id, MAX_ID)
        _text("event_type", event.event_type, MAX_EVENT_TYPE)
        _text("category", event.category, MAX_CATEGORY)
        if event.thread_id:
            _text("thread_id", event.thread_id, MAX_ID)
    return events


def checked_limit(limit: int) -> int:
    """Return `limit` when it is 0 or more.

    Raises:
        ValueError: it is negative.
    """
    if limit < 0:
        msg = f"limit {limit} is not allowed; allowed: 0 or more"
        raise ValueError(msg)
    return limit


def storable(text: str) -> bool:
    """Return whether an id may hold these characters; nothing is stored under one that may not."""
    return text.isprintable() or not any(map(_forbidden, text))


def _forbidden(character: str) -> bool:
    """True for control characters, and for lone surrogates, which no database takes."""
    return character < " " or character == _DELETE or "\ud800" <= character <= "\udfff"


def _text(name: str, value: str, most: int) -> None:
    if 0 < len(value) <= most and storable(value):
        return
    shown = repr(value[: 2 * most])
    msg = f"{name} {shown} is not allowed; allowed: 1 to {most} characters, without controls"
    raise EventError(msg)
