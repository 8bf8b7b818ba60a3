"""What a foreign value is, seen as JSON: a container with contents, or a leaf with a text.

Nothing here calls a method that the value's own class wrote, except reading declared fields:
containers are read by the methods of their built-in base, leaves rendered by those of theirs,
and what is left over is named by its type, never by its repr.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import deque
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import chain
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

import msgspec

from .foreign import Foreign, attribute, guarded, mapping, type_name

if TYPE_CHECKING:
    from collections.abc import Mapping

Contents: TypeAlias = tuple[bool, Iterable[Any], int]
"""What a container holds: is it an array, its elements or (key, value) pairs, how many."""

encode_text = msgspec.json.Encoder().encode
"""The encoder whose text the costs are measured by."""

_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**63 - 1
"""Integers outside become text: JSON readers would round or refuse them."""

_MAX_INT_TEXT_BITS: Final = 1_024
"""Wider integers are only described; converting them takes quadratic time."""

_REMEMBERED_TYPES: Final = 512
"""Classes whose field names are remembered."""

_DISTINCT_CHARS: Final = 6
"""Characters kept of a key that needs a number to be told apart; all escaped, it still fits in
`payload.MIN_LIMIT`."""

_SURROGATES: Final = re.compile("[\ud800-\udfff]+")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_REPLACEMENT: Final = "\ufffd"

_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""JSON has no such numbers; as text they keep their meaning."""

_SEQUENCES: Final[tuple[tuple[type, Any, Any], ...]] = (
    (list, list.__iter__, list.__len__),
    (tuple, tuple.__iter__, tuple.__len__),
    (set, set.__iter__, set.__len__),
    (frozenset, frozenset.__iter__, frozenset.__len__),
    (deque, deque.__iter__, deque.__len__),
)
"""Containers shown as arrays, read by the methods of the base type, not by overrides."""

_RENDERED: Final[tuple[tuple[type, Any], ...]] = (
    (datetime, datetime.isoformat),
    (date, date.isoformat),
    (time, time.isoformat),
    (timedelta, timedelta.__str__),
    (UUID, UUID.__str__),
    (Decimal, Decimal.__str__),
    (PurePath, PurePath.__str__),
)
"""Leaves with a text form of their own."""

_LEAVES: Final = frozenset({type(None), str, int, float, bool, bytes, *(t for t, _ in _RENDERED)})
"""Types that need no look for fields."""


def contents(value: Foreign, kind: type) -> Contents | None:
    """Return what is in a container, without calling methods of its own; None for a leaf."""
    if kind in _LEAVES:
        return None
    if issubclass(kind, dict):
        return (False, dict.items(value), dict.__len__(value))
    for base, iterate, size in _SEQUENCES:
        if issubclass(kind, base):
            return (True, iterate(value), size(value))
    if kind is MappingProxyType:
        entries = mapping(value) or {}
        return (False, entries.items(), len(entries))
    names = guarded(_field_names, kind)
    if names is None:
        return None
    pairs = [(name, attribute(value, name)) for name in names]
    extra = mapping(attribute(value, "__pydantic_extra__")) or {}
    return (False, chain(pairs, extra.items()) if extra else pairs, len(pairs) + len(extra))


@lru_cache(maxsize=_REMEMBERED_TYPES)
def _field_names(kind: type) -> tuple[str, ...] | None:
    """Return the declared, shown fields of a model, dataclass or struct; None for the rest."""
    declared = attribute(kind, "__pydantic_fields__")
    if type(declared) is dict:
        return tuple(name for name, info in declared.items() if _shown(info))
    if type(attribute(kind, "__dataclass_fields__")) is dict:
        return tuple(f.name for f in dataclasses.fields(kind) if _shown(f))
    structure = attribute(kind, "__struct_fields__")
    return structure if type(structure) is tuple else None


def _shown(info: object) -> bool:
    """Say whether a field may be shown: ``repr=False`` and ``exclude=True`` mark secrets."""
    return attribute(info, "repr") is not False and attribute(info, "exclude") is not True


def leaf(value: Foreign, kind: type) -> str | int | float | bool | None:
    """Return a leaf as JSON; its own size is what bounds it."""
    if value is None:
        return None
    if kind is bool:
        return bool(value)
    if issubclass(kind, Enum):
        inner = attribute(value, "_value_")
        return leaf(inner, type(inner)) if type(inner) in (str, int) else f"<{type_name(value)}>"
    if issubclass(kind, int):
        return integer(int.__int__(value))
    if issubclass(kind, float):
        number = float.__float__(value)
        return number if math.isfinite(number) else _NOT_FINITE[float.__repr__(number)]
    return _described(value, kind)


def _described(value: Foreign, kind: type) -> str:
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, bytes):
        return f"<bytes {bytes.__len__(value)}>"
    if issubclass(kind, bytearray):
        return f"<bytes {bytearray.__len__(value)}>"
    for base, render in _RENDERED:
        if issubclass(kind, base):
            shown = guarded(render, value)
            return shown if type(shown) is str else f"<{type_name(value)}>"
    return f"<{type_name(value)}>"


def integer(number: int) -> int | str:
    """Return an integer, as text if it is wider than 64 bits."""
    if _MIN_INT <= number <= _MAX_INT:
        return number
    bits = number.bit_length()
    return str(number) if bits <= _MAX_INT_TEXT_BITS else f"<int of {bits} bits>"


def key_text(key: object) -> str:
    """Return a key that is no plain text as text, the way `json.dumps` would."""
    shown = leaf(key, type(key))
    return clean(shown) if type(shown) is str else encode_text(shown).decode()


def distinct(name: str, taken: Mapping[str, object]) -> str:
    """Tell keys apart that look alike as text, such as 1 and "1"."""
    other = f"{name[:_DISTINCT_CHARS]}~{len(taken)}"
    while other in taken:
        other += "~"
    return other


def clean(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot hold, and join paired ones."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub(_joined, text)
    return text


def _joined(surrogates: re.Match[str]) -> str:
    found = surrogates.group()
    if _PAIR.search(found):
        return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _REPLACEMENT * len(found)


def cost(text: str) -> int:
    """Return the length of a clean text as JSON, quotes and escapes included."""
    return len(encode_text(text)) if text.isascii() else len(encode_text(text).decode())
