"""The body of an event as bytes: what stores keep beside the columns they search by."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

from otel_journal.errors import EventError, StoreError
from otel_journal.events import Category, Event, SpanBlock

SCHEMA: Final = 1
"""Number of the newest migration that this release knows."""


Row: TypeAlias = tuple[str, str, str, str, Category, int, bytes]
"""Event id, run, thread, type, category, Unix nanoseconds and body."""


class _Body(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What no store searches by. Unknown fields of a newer release are ignored."""

    content: Any = None
    metadata: dict[str, Any] = {}
    span: SpanBlock | None = None
    process: str = ""


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(_Body)


def encode(event: Event) -> bytes:
    """Return content, metadata, span block and process as JSON in UTF-8.

    Raises:
        EventError: the content is no JSON value (`payload` sees to it before), or has lone
            surrogates.
    """
    try:
        return _encoder.encode(_Body(event.content, event.metadata, event.span, event.process))
    except (TypeError, ValueError, UnicodeEncodeError, RecursionError) as error:
        msg = f"event {event.event_id!r} cannot be stored: {type(error).__name__}"
        raise EventError(msg) from error


def row_of(event: Event) -> Row:
    """Return an event as every store keeps it: what `decode` takes behind the `seq`.

    Raises:
        StoreError: as `encode`.
    """
    return (
        event.event_id,
        event.run_id,
        event.thread_id,
        event.event_type,
        event.category,
        event.created_ns,
        encode(event),
    )


def decode(  # noqa: PLR0913, PLR0917 - a row, in the order of its columns
    seq: int,
    event_id: str,
    run_id: str,
    thread_id: str,
    event_type: str,
    category: Category,
    created_ns: int,
    body: bytes,
) -> Event:
    """Return the event behind a row.

    Raises:
        StoreError: the body is damaged.
    """
    try:
        read = _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        msg = f"event {seq} of the store is damaged: {error}"
        raise StoreError(msg) from error
    return Event(  # by position: a third of the price of names, for every row that is read
        event_id,
        run_id,
        event_type,
        category,
        created_ns,
        thread_id,
        read.content,
        read.metadata,
        read.span,
        seq,
        read.process,
    )
