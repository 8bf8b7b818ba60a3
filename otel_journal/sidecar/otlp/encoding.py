"""What an operation is in OTLP: a block as the bytes of a span, spans as an export request.

The bytes say what the SDK's exporter would say of the span that `otel_journal.spans` builds from
the same block. They differ where that one loses data or builds what nobody can read: lone
surrogates are replaced, integers beyond 64 bits become text, moments beyond them are clamped, ids
that are no numbers are empty, and values nested too deep are left out.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import SpanLimits
from opentelemetry.trace import SpanKind, StatusCode

from otel_journal import semconv
from otel_journal.errors import SettingsError
from otel_journal.exceptions_log import Shape, trace_state
from otel_journal.provider import SCOPE, scope_version

from . import truncation
from .wire import LONGEST_KEPT, any_value, attribute_fields, delimited, utf8, varint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from opentelemetry.trace import Status

    from otel_journal.events import Link, SpanBlock

NAMES_KEPT: Final = 1_024
"""Span names remembered; they hold an operation and a model, tool or agent: few differ."""

STATES_KEPT: Final = 256
"""Trace states remembered; all spans of a trace have the same one."""

# Tags of Span: (field number << 3) | wire type
_TRACE_ID: Final = b"\x0a"
_SPAN_ID: Final = b"\x12"
_PARENT_ID: Final = b"\x22"
_TRACE_STATE: Final = b"\x1a"
_NAME: Final = b"\x2a"
_KIND: Final = b"\x30"
_START: Final = b"\x39"
_END: Final = b"\x41"
_ATTRIBUTE: Final = b"\x4a"
_DROPPED_ATTRIBUTES: Final = b"\x50"
_LINK: Final = b"\x6a"
_DROPPED_LINKS: Final = b"\x70"
_STATUS: Final = b"\x7a"
_LOCAL_PARENT: Final = b"\x85\x01\x00\x01\x00\x00"
_REMOTE_PARENT: Final = b"\x85\x01\x00\x03\x00\x00"
"""Flags: whether the parent is remote is known; it is. The SDK sends no sampled bit: what is
exported is sampled."""

_STATUS_UNSET: Final = b"\x7a\x00"
_STATUS_MESSAGE: Final = b"\x12"
_STATUS_CODE: Final = b"\x18"

_LINK_ATTRIBUTE: Final = b"\x22"
_LINK_DROPPED_ATTRIBUTES: Final = b"\x28"
_LINK_FLAGS: Final = b"\x35\x00\x01\x00\x00"

# Tags of ExportTraceServiceRequest, ResourceSpans, ScopeSpans, InstrumentationScope, Resource
_RESOURCE_SPANS: Final = b"\x0a"
_RESOURCE: Final = b"\x0a"
_SCOPE_SPANS: Final = b"\x12"
_SCOPE: Final = b"\x0a"
_SPAN: Final = b"\x12"
_SCOPE_NAME: Final = b"\x0a"
_SCOPE_VERSION: Final = b"\x12"
_RESOURCE_ATTRIBUTE: Final = b"\x0a"

_TRACE_ID_DIGITS: Final = 32
_SPAN_ID_DIGITS: Final = 16
_TRACE_ID_HEX: Final = "0a10"
_SPAN_ID_HEX: Final = "1208"
_PARENT_ID_HEX: Final = "2208"
"""Tags and lengths of whole ids: put together in hexadecimal, a span's ids are read at once."""
_PAIR_SIZE: Final = 28
"""Bytes of trace and span id with their tags and lengths."""
_PARENT_SIZE: Final = 10

_KINDS: Final = {SpanKind.INTERNAL: 1, SpanKind.SERVER: 2, SpanKind.CLIENT: 3}
"""The kinds a `Shape` gives, by their numbers in OTLP."""

_LATEST_NS: Final = (1 << 64) - 1
_times: Final = struct.Struct("<cQcQ").pack


class SpanEncoder:
    """Encodes blocks as the bodies of ``opentelemetry.proto.trace.v1.Span`` messages.

    What it remembers to be fast is bounded. Calls from several threads do no harm.
    """

    def __init__(self, shape: Shape, *, limits: SpanLimits | None = None) -> None:
        """Show blocks the way of `shape`, under `limits`, by default those of the environment.

        Raises:
            SettingsError: a limit among the ``OTEL_*`` variables is no number.
        """
        try:
            limits = limits or SpanLimits()
        except ValueError as error:  # its message names variable, value and what is allowed
            raise SettingsError(str(error)) from error
        self._attributes, self._status = shape.attributes, shape.status
        self._kinds = {kind: _kind_field(sdk) for kind, sdk in shape.kinds.items()}
        self._most, self._longest = limits.max_span_attributes, limits.max_span_attribute_length
        self._most_links = limits.max_links
        self._relation = lru_cache(maxsize=NAMES_KEPT)(_relation_encoder(limits))

    def span(self, block: SpanBlock) -> bytes:
        """Return the body of the block's span; never raises.

        An id that is not hexadecimal is sent empty, and refused by the receiver.
        """
        attributes: Mapping[str, Any] = self._attributes(block)
        dropped = b""
        most = self._most
        if self._longest is not None or (most is not None and len(attributes) > most):
            attributes, dropped = self._bounded(attributes)
        name = block.name
        name_field = _name_field if len(name) <= LONGEST_KEPT else _name_field.__wrapped__
        try:
            times = _times(_START, block.start_ns, _END, block.end_ns)
        except struct.error:
            times = _times(_START, _within(block.start_ns), _END, _within(block.end_ns))
        parent = block.parent_span_id
        return b"".join((
            _ids(block.trace_id, block.span_id),
            _state_field(block.trace_state) if block.trace_state else b"",
            _parent_field(parent) if parent else b"",
            name_field(name),
            self._kinds.get(block.kind, _INTERNAL),
            times,
            attribute_fields(_ATTRIBUTE, attributes),
            dropped,
            self._links(block.links) if block.links else b"",
            _status_field(self._status(block)),
            _REMOTE_PARENT if parent and block.remote_parent else _LOCAL_PARENT,
        ))  # fmt: skip

    def _bounded(self, attributes: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
        """Apply the limits as a live span does; return what stays and how many went."""
        sound = {name: value for name, value in attributes.items() if any_value(value) is not None}
        kept = BoundedAttributes(self._most, sound, max_value_len=self._longest)
        return kept, _count_field(_DROPPED_ATTRIBUTES, kept.dropped)

    def _links(self, links: tuple[Link, ...]) -> bytes:
        """Return the newest links that the limit allows, and how many it did not."""
        dropped = 0 if self._most_links is None else max(0, len(links) - self._most_links)
        bodies = [
            _ids(link.trace_id, link.span_id) + self._relation(link.relation)
            for link in links[dropped:]
        ]
        fields = b"".join([delimited(_LINK, body) for body in bodies])
        return fields + _count_field(_DROPPED_LINKS, dropped)


def resource(attributes: Mapping[str, Any]) -> bytes:
    """Return the body of ``opentelemetry.proto.resource.v1.Resource``; values may be lists."""
    return attribute_fields(_RESOURCE_ATTRIBUTE, attributes)


def request(groups: Iterable[tuple[bytes, Sequence[bytes]]]) -> bytes:
    """Return an ``ExportTraceServiceRequest`` of (resource body, span bodies) pairs.

    Pairs with the same resource become one group, in the order in which resources first come.
    """
    merged: dict[bytes, list[bytes]] = {}
    for owner, spans in groups:
        if spans:
            merged.setdefault(owner, []).extend(spans)
    parts: list[bytes] = []
    for owner, spans in merged.items():
        # Sizes are added up, and megabytes of spans copied only once: in the last line.
        fields = [part for span in spans for part in (_SPAN, varint(len(span)), span)]
        size = len(_scope_field()) + sum(map(len, fields))
        start = delimited(_RESOURCE, owner) + _SCOPE_SPANS + varint(size)
        parts += (_RESOURCE_SPANS, varint(len(start) + size), start, _scope_field(), *fields)
    return b"".join(parts)


@lru_cache(maxsize=1)
def _scope_field() -> bytes:
    """Say which library made the spans."""
    name, version = utf8(SCOPE), utf8(scope_version())
    return delimited(_SCOPE, delimited(_SCOPE_NAME, name) + delimited(_SCOPE_VERSION, version))


def _ids(trace_id: str, span_id: str) -> bytes:
    """Return trace and span id as fields 1 and 2, which they are in spans and in links."""
    if len(trace_id) == _TRACE_ID_DIGITS and len(span_id) == _SPAN_ID_DIGITS:
        pair = _from_hex(f"{_TRACE_ID_HEX}{trace_id}{_SPAN_ID_HEX}{span_id}")
        if len(pair) == _PAIR_SIZE:
            return pair
    return delimited(_TRACE_ID, _odd_id(trace_id, _TRACE_ID_DIGITS)) + delimited(
        _SPAN_ID, _odd_id(span_id, _SPAN_ID_DIGITS)
    )


def _parent_field(span_id: str) -> bytes:
    if len(span_id) == _SPAN_ID_DIGITS:
        field = _from_hex(_PARENT_ID_HEX + span_id)
        if len(field) == _PARENT_SIZE:
            return field
    return delimited(_PARENT_ID, _odd_id(span_id, _SPAN_ID_DIGITS))


def _from_hex(digits: str) -> bytes:
    """Return the bytes; fewer for spaces between the digits, none for other characters."""
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return b""


def _odd_id(digits: str, length: int) -> bytes:
    """Return an id of another length as the SDK reads it, empty when it is none."""
    try:
        return int(digits, 16).to_bytes(length // 2, "big")
    except (ValueError, OverflowError):
        return b""


@lru_cache(maxsize=STATES_KEPT)
def _state_field(header: str) -> bytes:
    """Return the valid members of a tracestate header."""
    state = ",".join(f"{key}={value}" for key, value in trace_state(header).items())
    return delimited(_TRACE_STATE, utf8(state)) if state else b""


@lru_cache(maxsize=NAMES_KEPT)
def _name_field(name: str) -> bytes:
    return delimited(_NAME, utf8(name))


def _kind_field(kind: SpanKind) -> bytes:
    return _KIND + varint(_KINDS[kind])


_INTERNAL: Final = _kind_field(SpanKind.INTERNAL)


def _within(moment_ns: int) -> int:
    return min(max(0, moment_ns), _LATEST_NS)


def _count_field(tag: bytes, count: int) -> bytes:
    return tag + varint(count) if count else b""


def _status_field(status: Status) -> bytes:
    if status.status_code is StatusCode.UNSET:
        return _STATUS_UNSET
    message = status.description
    body = delimited(_STATUS_MESSAGE, utf8(message)) if message else b""
    return delimited(_STATUS, body + _STATUS_CODE + varint(status.status_code.value))


def _relation_encoder(limits: SpanLimits) -> Callable[[str], bytes]:
    """Return what encodes all of a link but its ids."""

    def encode(relation: str) -> bytes:
        kept = BoundedAttributes(
            limits.max_link_attributes,
            {semconv.LINK_RELATION: relation},
            max_value_len=limits.max_attribute_length,
        )
        dropped = _count_field(_LINK_DROPPED_ATTRIBUTES, kept.dropped)
        return attribute_fields(_LINK_ATTRIBUTE, kept) + dropped + _LINK_FLAGS

    return encode


def truncated(block: SpanBlock, limit: int) -> SpanBlock:
    """Return a block whose span takes less than `limit` bytes, whatever its shape and limits.

    It is the block itself when that fits, else a cut one with `truncation.TRUNCATED` set.

    Raises:
        ValueError: `limit` is below `truncation.SMALLEST_LIMIT`.
    """
    encode = _widest().span
    return truncation.shortened(block, limit, lambda candidate: len(encode(candidate)))


@lru_cache(maxsize=1)
def _widest() -> SpanEncoder:
    """Return an encoder that says all that any other says."""
    no_limits = SpanLimits(
        max_attributes=SpanLimits.UNSET,
        max_links=SpanLimits.UNSET,
        max_span_attributes=SpanLimits.UNSET,
        max_link_attributes=SpanLimits.UNSET,
        max_attribute_length=SpanLimits.UNSET,
        max_span_attribute_length=SpanLimits.UNSET,
    )
    return SpanEncoder(Shape("both", capture_content=True), limits=no_limits)
