"""Reading objects that other people wrote, without being hurt by them.

Everything the callbacks receive is foreign: properties may raise, a mapping may be lazy. The
capture modules touch foreign code only through this one, which reads and never calls methods
that a caller did not name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

Foreign: TypeAlias = Any
"""A value that someone else made and that nothing is known about yet."""

_T = TypeVar("_T")

MAX_ENTRIES: Final = 1_000
"""Entries read from a mapping that is not a dict; metadata of a model call has a few dozen."""

MAX_TYPE_NAME: Final = 200
"""Longest type name, in characters; generated classes can have names of any length."""


def guarded(read: Callable[..., _T], *arguments: object) -> _T | None:
    """Return ``read(*arguments)``, or None when that raises.

    The one place where foreign code runs. It may raise anything at all, `RecursionError`
    included, so nothing narrower than `Exception` would do.
    """
    try:
        return read(*arguments)
    except Exception:  # noqa: BLE001 - see above
        return None


def attribute(value: object, name: str) -> Foreign:
    """Return an attribute of a foreign object, or None when it has none or reading it raises."""
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - a property is foreign code, see `guarded`
        return None


def identifier(value: object, limit: int = 1_024) -> str:
    """Return a name or id as text of at most `limit` characters; empty when it cannot be read.

    Ids come from applications and names from models: neither has a length one may rely on.
    """
    text = value if type(value) is str else guarded(str, value)
    return text[:limit] if isinstance(text, str) else ""


def mapping(value: object) -> dict[Any, Any] | None:
    """Return `value` as a plain dict, or None when it is no mapping.

    A dict is returned as it is (do not change it); its subclasses are read without their own
    methods; other mappings are copied, up to `MAX_ENTRIES`.
    """
    kind = type(value)
    if kind is dict:
        return value  # type: ignore[return-value]
    if issubclass(kind, dict):
        return dict(dict.items(value))  # type: ignore[arg-type]
    if issubclass(kind, Mapping):
        return guarded(_copy, value)
    return None


def elements(value: Foreign, limit: int) -> list[Foreign]:
    """Return the first elements of a list or tuple, or an empty list for anything else."""
    kind = type(value)
    if issubclass(kind, list):
        return list.__getitem__(value, slice(limit))
    return list(tuple.__getitem__(value, slice(limit))) if issubclass(kind, tuple) else []


def field(value: object, name: str) -> Foreign:
    """Return an entry of a mapping or an attribute of any other object; None when there is none."""
    entries = mapping(value)
    return attribute(value, name) if entries is None else entries.get(name)


def text(value: object) -> str:
    """Return non-empty text as an exact `str`; the empty string for anything else."""
    if type(value) is str:
        return value
    # A subclass may override __str__; the base method returns the characters it really holds.
    return str.__str__(value) if issubclass(type(value), str) else ""


def type_name(value: object) -> str:
    """Return ``module.Class`` of an object (of a class: its own name), never its repr.

    A repr can hold secrets, take long, or wait for a lock.
    """
    kind = value if issubclass(type(value), type) else type(value)
    module = text(attribute(kind, "__module__")) or "?"
    name = text(attribute(kind, "__qualname__")) or "?"
    return f"{module}.{name}"[:MAX_TYPE_NAME]


def _copy(source: Mapping[Any, Any]) -> dict[Any, Any]:
    return dict(islice(source.items(), MAX_ENTRIES))
