"""How a setting is declared: its default, what it means, and which texts are allowed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final, cast

from .errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

BOOLEAN: Final = "true or false"
"""What `boolean` allows, for messages."""

_TRUE: Final = frozenset({"true", "1", "yes", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "off"})


def setting(default: Any, doc: str, parse: Callable[[str], Any], allowed: str) -> Any:
    """Declare a field of a settings class; `allowed` says in words what `parse` takes."""
    return dataclasses.field(
        default=default, metadata={"doc": doc, "parse": parse, "allowed": allowed}
    )


def boolean(text: str) -> bool:
    """Parse true or false, in the usual spellings.

    Raises:
        ValueError: it is neither.
    """
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError


def integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of integers within both bounds; it raises ValueError."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return parse


def seconds(low: float, high: float) -> Callable[[str], float]:
    """Return a parser of seconds within both bounds; it raises ValueError."""

    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:  # NaN fails both comparisons
            raise ValueError
        return value

    return parse


def choice(*values: str) -> Callable[[str], str]:
    """Return a parser of one of these words, in any case; it raises ValueError."""

    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError
        return text.lower()

    return parse


def parsed(
    name: str,
    text: str,
    field: dataclasses.Field[Any],
    parse: Callable[[str], Any] | None = None,
    allowed: str = "",
) -> Any:
    """Return the value of a text for a field; `name` is what the user knows it by.

    `parse` and `allowed` stand in for the field's own.

    Raises:
        SettingsError: the text is not allowed.
    """
    take = parse or cast("Callable[[str], Any]", field.metadata["parse"])
    try:
        return take(text)
    except (ValueError, KeyError):
        msg = f"{name}={text!r} is not allowed; allowed: {allowed or field.metadata['allowed']}"
        raise SettingsError(msg) from None


def check(settings: Any) -> None:
    """Check the values of a settings object that was made in code by the rules for texts.

    Raises:
        SettingsError: a value is not allowed.
    """
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value != field.default:
            parsed(field.name, str(value), field)
