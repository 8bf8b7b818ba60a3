"""Protobuf wire format, as far as OTLP attributes need it: varints, texts, AnyValue, KeyValue.

Written by hand: building the generated message classes costs several times as much as everything
else the sidecar does for a span. Nothing here raises, whatever the values are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from otel_journal.json_shape import clean

DEEPEST: Final = 24
"""Containers within one another. Receivers refuse messages nested deeper than 100; a container
takes up to three of those levels, and those around an attribute take the rest."""

LONGEST_KEPT: Final = 128
"""Characters in name and value of what is remembered, so that the memory for it stays small."""

TEXTS_KEPT: Final = 16_384
"""Attributes with a short text remembered, 10 MB: most repeat from span to span of a run."""

HEADS_KEPT: Final = 8_192
"""Beginnings of attributes remembered by name and length, 3 MB: we have about a hundred names."""

_GROUP_BITS: Final = 7
_GROUP_MASK: Final = 0x7F
_MORE_GROUPS: Final = 0x80
_THREE_BYTES: Final = 1 << 2 * _GROUP_BITS
"""First number whose varint takes a third byte; nearly all lengths and token counts are below."""

_INT64: Final = range(-(1 << 63), 1 << 63)
_COMPLEMENT: Final = 1 << 64
"""Negative numbers are sent as their distance to this."""

_DECIMAL_BITS: Final = 8_192
"""Longer integers become hexadecimal text: Python refuses to write them in decimal."""

# Tags: (field number << 3) | wire type
_STRING: Final = b"\x0a"
_INT: Final = b"\x18"
_DOUBLE: Final = b"\x21"
_ARRAY: Final = b"\x2a"
_KEY_VALUES: Final = b"\x32"
_BYTES: Final = b"\x3a"
_ITEM: Final = b"\x0a"
"""Both of an ArrayValue and of a KeyValueList."""
_KEY: Final = b"\x0a"
_VALUE: Final = b"\x12"

_TRUE: Final = b"\x10\x01"
_FALSE: Final = b"\x10\x00"

_tagged_double: Final = struct.Struct("<cd").pack


def _groups(number: int) -> bytes:
    """Write a number in groups of seven bits, the lowest first."""
    groups = bytearray()
    while number > _GROUP_MASK:
        groups.append(number & _GROUP_MASK | _MORE_GROUPS)
        number >>= _GROUP_BITS
    groups.append(number)
    return bytes(groups)


_VARINTS: Final = tuple(_groups(number) for number in range(_THREE_BYTES))


def varint(number: int) -> bytes:
    """Return an integer of 0 or more as a varint."""
    return _VARINTS[number] if number < _THREE_BYTES else _groups(number)


def utf8(text: str) -> bytes:
    """Return a text as UTF-8; lone surrogates, which it cannot hold, are replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean(text).encode()


def delimited(tag: bytes, body: bytes) -> bytes:
    """Return the body of a message, text or list as a field: behind its tag and length."""
    return tag + varint(len(body)) + body


def attribute_fields(tag: bytes, attributes: Mapping[str, object]) -> bytes:
    """Return attributes as a repeated field of KeyValues with this tag, one byte.

    Values without a place in OTLP, such as sets, and what is nested deeper than `DEEPEST`, are left
    out together with their name.
    """
    fields = [b""]  # so that the join begins with a tag
    for name, value in attributes.items():
        if type(value) is str and len(name) + len(value) <= LONGEST_KEPT:
            fields.append(_short_text(name, value))
            continue
        encode = _ENCODERS.get(type(value)) or _inherited(value)
        body = encode(value, DEEPEST)
        if body is not None:
            head = _head if len(name) <= LONGEST_KEPT else _head.__wrapped__
            fields.append(head(name, len(body)) + body)
    return tag.join(fields)


@lru_cache(maxsize=HEADS_KEPT)
def _head(name: str, size: int) -> bytes:
    """Return all of a delimited KeyValue but the last `size` bytes, which are its value."""
    start = delimited(_KEY, utf8(name)) + _VALUE + varint(size)
    return varint(len(start) + size) + start


@lru_cache(maxsize=TEXTS_KEPT)
def _short_text(name: str, text: str) -> bytes:
    body = _string(text, 0)
    return _head(name, len(body)) + body


def any_value(value: object, room: int = DEEPEST) -> bytes | None:
    """Return the body of an AnyValue; None for what has no place in OTLP.

    Integers beyond 64 bits become text. `room` is how many containers may still be nested.
    """
    encode = _ENCODERS.get(type(value)) or _inherited(value)
    return encode(value, room)


def _null(_value: object, _room: int) -> bytes:
    return b""


def _bool(value: object, _room: int) -> bytes:
    return _TRUE if value else _FALSE


def _string(value: str, _room: int) -> bytes:
    try:
        body = value.encode()  # without the call of `utf8`: most values are texts
    except UnicodeEncodeError:
        body = utf8(value)
    return _STRING + varint(len(body)) + body


def _int(value: int, _room: int) -> bytes:
    if 0 <= value < _THREE_BYTES:
        return _INT + _VARINTS[value]
    if value in _INT64:
        return _INT + _groups(value if value > 0 else value + _COMPLEMENT)
    return _string(str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value), 0)


def _float(value: float, _room: int) -> bytes:
    return _tagged_double(_DOUBLE, value)


def _bytes(value: bytes, _room: int) -> bytes:
    return delimited(_BYTES, value)


def _array(values: Sequence[object], room: int) -> bytes | None:
    if not room:
        return None
    parts: list[bytes] = []
    for value in values:
        body = any_value(value, room - 1)
        if body is None:
            return None
        parts += (_ITEM, varint(len(body)), body)
    return delimited(_ARRAY, b"".join(parts))


def _key_values(values: Mapping[object, object], room: int) -> bytes | None:
    if not room:
        return None
    parts: list[bytes] = []
    for name, value in values.items():
        body = any_value(value, room - 1)
        if body is None:
            return None
        parts += (_ITEM, _head.__wrapped__(str(name), len(body)), body)
    return delimited(_KEY_VALUES, b"".join(parts))


def _no_place(_value: object, _room: int) -> None:
    return None


_BASES: Final[dict[type, Callable[[Any, int], bytes | None]]] = {
    type(None): _null,
    bool: _bool,
    str: _string,
    int: _int,
    float: _float,
    bytes: _bytes,
    Sequence: _array,
    Mapping: _key_values,
}
"""What a value may be an instance of, in the order of trying: a bool is an int as well."""

_ENCODERS: Final[dict[type, Callable[[Any, int], bytes | None]]] = {
    **_BASES,
    list: _array,
    tuple: _array,
    dict: _key_values,
}
"""The encoders of the types that values have nearly always."""


def _inherited(value: object) -> Callable[[Any, int], bytes | None]:
    """Find the encoder for an enumeration, a number of a numerical library and the like."""
    for base, encode in _BASES.items():
        if isinstance(value, base):
            return encode
    return _no_place
