"""A quick copy of what is JSON already: exact built-in types, well within the limit.

Nearly every payload is that, and it is copied inside the agent's callbacks. Whatever is odd, large,
deep or changed meanwhile is left to the careful walk of `payload`, which gives the same result.
"""

from __future__ import annotations

from typing import Any, Final

from .json_shape import clean

MAX_DEPTH: Final = 24
"""Deeper values are left to the careful walk, which finds cycles."""

PLAIN_INT: Final = 2**53
"""Integers below it are written as they are, by every reader."""
_INFINITY: Final = float("inf")
_ATOM: Final = 24
"""Longest JSON of a number or a constant, separator included."""


class OddValueError(Exception):
    """The value needs the careful walk."""


def copied(value: object, room: int) -> Any:
    """Return a copy of `value` whose JSON, before escapes, has at most `room` characters.

    Raises:
        OddValueError: there is something in it that is not plainly JSON, or it is too long.
    """
    left = [room]
    try:
        copy = _copy(value, left, 0)
    except RuntimeError as error:  # a container changed while it was read; or no stack is left
        raise OddValueError from error
    if left[0] < 0:
        raise OddValueError
    return copy


def _copy(value: Any, room: list[int], depth: int) -> Any:
    kind = type(value)
    if kind is str:
        room[0] -= len(value) + 3
        if room[0] < 0:
            raise OddValueError
        return value if value.isascii() else clean(value)
    if value is None or kind is bool or (kind is int and -PLAIN_INT < value < PLAIN_INT):
        room[0] -= _ATOM
        return value
    if kind is float and -_INFINITY < value < _INFINITY:
        room[0] -= _ATOM
        return value
    if depth < MAX_DEPTH and room[0] >= 0:
        if kind is dict:
            return _pairs(value, room, depth + 1)
        if kind is list or kind is tuple:
            room[0] -= 2 + len(value)
            if room[0] < 0:  # before a walk through a million numbers
                raise OddValueError
            return [_copy(element, room, depth + 1) for element in value]
    raise OddValueError


def _pairs(value: dict[Any, Any], room: list[int], depth: int) -> dict[str, Any]:
    room[0] -= 2 + len(value)
    if room[0] < 0:
        raise OddValueError
    result = {}
    for key, element in value.items():
        if type(key) is not str or not key.isascii():
            raise OddValueError
        room[0] -= len(key) + 4
        result[key] = _copy(element, room, depth)
    return result
