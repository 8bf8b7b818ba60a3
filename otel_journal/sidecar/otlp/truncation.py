"""How a block is cut when no receiver takes a span of its size."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import msgspec

from otel_journal import semconv

from .wire import any_value, utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_journal.events import SpanBlock

TRUNCATED: Final = "otel_journal.truncated"
"""Span attribute: values were cut because the receiver takes no span of that size."""

ESSENTIAL: Final = (
    semconv.OUTCOME,
    semconv.ERROR_TYPE,
    semconv.OPERATION_NAME,
    semconv.RUN_ID,
    semconv.LANGCHAIN_RUN_ID,
)
"""What stays of a span with too many attributes: how it ended, and what it belongs to."""

SMALLEST_LIMIT: Final = 2_048
"""Bytes in which ids, name, trace state and the essential attributes always have room."""

SHORTEST_CUT: Final = 64
"""Bytes. Where values had to be shorter, an id or a model's name would say nothing."""

LONGEST_NAME: Final = 256
"""Bytes of the name of a span that is cut."""

LONGEST_STATE: Final = 512
"""Characters of a trace state, which W3C lets everybody drop when it is longer."""

ITEM_ROOM: Final = 12
"""Bytes around a text in a list: two tags and lengths."""


def shortened(block: SpanBlock, limit: int, size: Callable[[SpanBlock], int]) -> SpanBlock:
    """Return a block of less than `limit` bytes by the measure of `size`.

    The longest attribute values are cut first: texts, and lists after the last item that fits.
    Where even short values are too many, only `ESSENTIAL` attributes and no links stay. A block
    that was cut carries `TRUNCATED`; one that fits comes back as it is.

    Raises:
        ValueError: `limit` is below `SMALLEST_LIMIT`.
    """
    if limit < SMALLEST_LIMIT:
        msg = f"limit={limit} is not allowed; allowed: {SMALLEST_LIMIT} bytes or more"
        raise ValueError(msg)
    if size(block) < limit:
        return block
    if size(_cut(block, SHORTEST_CUT)) >= limit:
        few = {name: block.attributes[name] for name in ESSENTIAL if name in block.attributes}
        block = msgspec.structs.replace(block, attributes=few, links=())
    too_long = bisect_left(range(limit), x=True, key=lambda most: size(_cut(block, most)) >= limit)
    return _cut(block, too_long - 1)


def _cut(block: SpanBlock, most: int) -> SpanBlock:
    """Cut what takes more than `most` bytes, and mark the block."""
    cut = {name: _cut_value(value, most) for name, value in block.attributes.items()}
    shown = {name: value for name, value in cut.items() if value is not None}
    failure = block.failure
    if failure is not None:
        failure = msgspec.structs.replace(failure, message=_cut_text(failure.message, most))
    return msgspec.structs.replace(
        block,
        name=_cut_text(block.name, LONGEST_NAME),
        trace_state=block.trace_state if len(block.trace_state) <= LONGEST_STATE else "",
        attributes={**shown, TRUNCATED: True},
        failure=failure,
    )


def _cut_value(value: object, most: int) -> object:
    """Return a value of at most `most` bytes, None for one that cannot be cut to that."""
    if isinstance(value, str):
        return _cut_text(value, most)
    if isinstance(value, list | tuple):
        return _cut_list(value, most)
    body = any_value(value)
    return value if body is not None and len(body) <= most else None


def _cut_list(values: Sequence[object], most: int) -> list[object] | None:
    kept: list[object] = []
    for value in values:
        body = any_value(value)
        if body is None:
            return None
        room = most - ITEM_ROOM
        most = room - len(body)
        if most < 0:
            if isinstance(value, str) and room > 0:
                kept.append(_cut_text(value, room))
            break
        kept.append(value)
    return kept


def _cut_text(text: str, most: int) -> str:
    """Return the beginning of a text that takes at most `most` bytes in UTF-8."""
    return utf8(text[:most])[:most].decode(errors="ignore")
