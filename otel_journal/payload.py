"""Any Python value as JSON of bounded size, in bounded time and memory.

Payloads are foreign, mutable, sometimes huge or cyclic, and they are serialised inside the
agent's callbacks. So the walk knows its budget in characters at every step and never looks at
more of a value than fits: a 50 MB string costs one slice. It never copies deeply, never calls
``repr`` or ``str`` of foreign objects (they leak secrets and can wait for locks), and never raises.

The cost of a text is the length msgspec gives it, so what was counted is what is encoded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from .builtin_json import PLAIN_INT, OddValueError, copied
from .foreign import guarded
from .json_shape import clean, contents, cost, distinct, encode_text, integer, key_text, leaf

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .json_shape import Contents

Json: TypeAlias = "dict[str, Any] | list[Any] | str | int | float | bool | None"
"""A value `json.dumps` accepts without help."""

MAX_DEPTH: Final = 64
"""Containers inside containers; deeper ones are named, not shown. Real payloads stay below 20,
and the walk uses a few Python frames a level."""

MIN_LIMIT: Final = 48
"""Room that any leaf or shortened container fits in, separator included; below it a value that
does not fit becomes null."""

_MARKER_ROOM: Final = 32
"""Room for the marker of left-out elements, separator included."""

_SIBLING_ROOM: Final = 256
"""Room kept per later sibling (up to half of what is left), so that one huge element does not
hide the ones after it."""

_MAX_ESCAPE: Final = 6
r"""Longest JSON escape of one character: ``\u001f``."""

Place: TypeAlias = Literal[
    "input",
    "output",
    "tool.arguments",
    "tool.result",
    "query",
    "documents",
    "error",
    "interrupt",
    "custom",
    "state",
]
"""Where a payload comes from; the closed set that a redaction hook is told:

- ``input``, ``output``: messages, to and from a model or a graph. For spans a list in the form
  of the GenAI conventions, for the feed one message's fields.
- ``tool.arguments``, ``tool.result``: the value; for the feed's message rows its fields.
- ``query``, ``documents``: a retriever's text; ids and scores of what it found.
- ``error``: text of an exception. ``interrupt``: what a graph asked a human.
- ``custom``: custom events and annotations. ``state``: what a run returned.
"""

Redact: TypeAlias = Callable[[str, object], object]
"""A redaction hook: the place and the payload, to what is recorded instead."""

_ELLIPSIS: Final = "…"
_TOO_DEEP: Final = "…[cut, too deep]"
_CYCLE: Final = "<cycle>"


class Encoded(NamedTuple):
    """A value as JSON text."""

    text: str
    """Valid JSON, whatever was cut."""
    truncated: bool
    """True when something was left out; the text marks the places with ``…[cut, …]``."""


def encode(value: object, *, limit: int, more: int = 0) -> Encoded:
    """Serialise any value to at most `limit` characters of valid JSON.

    Args:
        value: anything; it is only read, and later changes of it do not matter.
        limit: characters; at least 4. Below `MIN_LIMIT` what does not fit becomes ``null``.
        more: further elements of a list, which the caller knows not to fit and left out.

    Never raises.
    """
    if type(value) is str and len(value) * _MAX_ESCAPE + 2 <= limit and value.isascii():
        return Encoded(encode_text(value).decode(), truncated=False)
    try:
        _, text, truncated = _fit(value, limit, more)
    except RecursionError:  # called with hardly any stack left
        return Encoded("null", truncated=True)
    return Encoded(text, truncated)


def plain(value: object, *, limit: int) -> tuple[Json, bool]:
    """Return a value as plain JSON types that encode to at most `limit` characters.

    The second element is True when something was left out. Models, dataclasses and structs
    become objects of their declared fields (those hidden from ``repr`` or excluded stay hidden),
    other unknown objects ``<module.Class>``, bytes ``<bytes N>``. Never raises.
    """
    if type(value) is str and len(value) * _MAX_ESCAPE + 2 <= limit and value.isascii():
        return value, False
    try:
        return copied(value, limit // _MAX_ESCAPE), False
    except OddValueError:
        pass
    try:
        tree, _, truncated = _fit(value, limit)
    except RecursionError:  # called with hardly any stack left
        return None, True
    return tree, truncated


def both(value: object, *, limit: int) -> tuple[Json, Encoded]:
    """Return a value as `plain` and as `encode` do, for the price of one. Never raises."""
    try:
        tree, text, truncated = _fit(value, limit)
    except RecursionError:  # called with hardly any stack left
        return None, Encoded("null", truncated=True)
    return tree, Encoded(text, truncated)


def shorten(text: str, *, limit: int) -> tuple[str, bool]:
    """Return a text that is no JSON at `limit` characters, cut and marked if it is longer.

    Lone surrogates, which no exporter can send, become replacement characters.
    """
    size = len(text)
    if size <= limit:
        return clean(text), False
    marker = f"{_ELLIPSIS}[cut, {size} chars]"
    return clean(text[: max(0, limit - len(marker))]) + marker[:limit], True


class _TooLongError(Exception):
    """The whole value does not fit."""


def _fit(value: object, limit: int, more: int = 0) -> tuple[Json, str, bool]:
    """Return a value and its JSON: all of it if that fits, else cut, and then fairly."""
    try:
        whole = _Whole(limit - more)
        tree = whole.value(value, 0)
        text = encode_text(tree).decode()
        if len(text) <= limit:
            return tree, text, whole.truncated
    except _TooLongError:
        pass
    if limit < MIN_LIMIT:
        return None, "null", True
    tree = _Cut(limit, more).value(value, 0)
    return tree, encode_text(tree).decode(), True


class _Whole:
    """A pass that takes everything or raises `_TooLongError`.

    `left` counts a lower bound of the JSON's length, which is cheap; the exact length is that of
    the encoded result, at most `_MAX_ESCAPE` times longer.
    """

    __slots__ = ("left", "open", "truncated")

    def __init__(self, limit: int) -> None:
        self.left = limit
        self.open: set[int] = set()
        self.truncated = False

    def value(self, value: object, depth: int) -> Json:
        kind = type(value)
        if kind is str:
            return self.text(value, len(value))  # type: ignore[arg-type]
        if value is None or kind is bool or kind is int:
            self.spend(1)
            return value if kind is not int else integer(value)  # type: ignore[arg-type,return-value]
        found = contents(value, kind)
        if found is not None:
            return self.container(value, depth, found)
        if issubclass(kind, str) and not issubclass(kind, Enum):
            return self.text(value, str.__len__(value))  # type: ignore[arg-type]
        shown = leaf(value, kind)
        if type(shown) is str:
            return self.text(shown, len(shown))
        self.spend(1)
        return shown

    def text(self, text: str, size: int) -> str:
        self.spend(size + 2)
        return text if type(text) is str and text.isascii() else clean(str.__str__(text))

    def key(self, key: object) -> str:
        kind = type(key)
        if issubclass(kind, str) and not issubclass(kind, Enum):
            return self.text(key, str.__len__(key))  # type: ignore[arg-type]
        return key_text(key)

    def spend(self, characters: int) -> None:
        self.left -= characters
        if self.left < 0:
            raise _TooLongError

    def container(self, value: object, depth: int, found: Contents) -> Json:
        if depth >= MAX_DEPTH:
            self.truncated = True
            return _TOO_DEEP
        if id(value) in self.open:
            return _CYCLE
        array, items, total = found
        self.spend(total + 1)
        taken: list[Any] | None = guarded(list, items)
        if taken is None:  # changed by another thread while it was read
            raise _TooLongError
        self.open.add(id(value))
        result: Json
        if array:
            result = [self.value(element, depth + 1) for element in taken]
        else:
            result = {}
            for key, element in taken:
                name = self.key(key)
                if name in result:
                    name = distinct(name, result)
                result[name] = self.value(element, depth + 1)
        self.open.discard(id(value))
        return result


class _Cut:
    """A pass that fits any value into its budget, exactly counted.

    Invariant: `value()` is entered with at least `MIN_LIMIT` characters left (less a separator),
    which any leaf and any shortened container fits in.
    """

    __slots__ = ("left", "more", "open")

    def __init__(self, limit: int, more: int = 0) -> None:
        self.left = limit
        self.more = more
        self.open: set[int] = set()

    def value(self, value: object, depth: int) -> Json:
        kind = type(value)
        if kind is int and -PLAIN_INT < value < PLAIN_INT:  # type: ignore[operator]
            self.left -= len(repr(value))
            return value  # type: ignore[return-value]
        found = None if kind is str else contents(value, kind)
        if found is not None:
            return self.container(value, depth, found)
        if issubclass(kind, str) and not issubclass(kind, Enum):
            head = str.__getitem__(value, slice(self.left))  # type: ignore[index]
            return self.text(head, str.__len__(value))  # type: ignore[arg-type]
        shown = leaf(value, kind)
        if type(shown) is str:
            return self.text(shown, len(shown))
        self.left -= len(encode_text(shown))
        return shown

    def container(self, value: object, depth: int, found: Contents) -> Json:
        if depth >= MAX_DEPTH or id(value) in self.open:
            mark = _TOO_DEEP if depth >= MAX_DEPTH else _CYCLE
            return self.text(mark, len(mark))
        self.left -= 2
        # A snapshot, for other threads may change the container, of no more than can fit.
        array, items, total = found
        room = self.left // (2 if array else 5) + 1  # `0,` and `"":0,`
        taken = guarded(_take, items, room) or []
        if 0 < len(taken) < room:
            total = len(taken)
        total += self.more if array and not depth else 0
        self.open.add(id(value))
        result = self.array(taken, total, depth) if array else self.pairs(taken, total, depth)
        self.open.discard(id(value))
        return result

    def array(self, taken: list[Any], total: int, depth: int) -> list[Json]:
        result: list[Json] = []
        for index, element in enumerate(taken):
            held = self.hold(total - index - 1, MIN_LIMIT)
            if held < 0:
                break
            self.left -= 1 if index else 0
            result.append(self.value(element, depth + 1))
            self.left += held
        if len(result) < total:  # the room for it was held
            self.left -= _MARKER_ROOM
            result.append(f"{_ELLIPSIS}[cut, {total - len(result)} more]")
        return result

    def pairs(self, taken: list[Any], total: int, depth: int) -> dict[str, Json]:
        result: dict[str, Json] = {}
        for index, (key, element) in enumerate(taken):
            held = self.hold(total - index - 1, 2 * MIN_LIMIT)
            if held < 0:
                self.left -= _MARKER_ROOM
                result[_ELLIPSIS] = f"[cut, {total - index} more]"
                break
            self.left -= 2 if index else 1
            name = self.key(key, result)
            result[name] = self.value(element, depth + 1)
            self.left += held
        return result

    def key(self, key: object, taken: dict[str, Json]) -> str:
        kind = type(key)
        if issubclass(kind, str) and not issubclass(kind, Enum):
            name = str.__str__(key)
        else:
            name = key_text(key)
        self.left -= MIN_LIMIT  # kept for the value
        shown = self.text(name, len(name))
        if shown in taken:
            self.left += cost(shown)
            shown = distinct(shown, taken)
            self.left -= cost(shown)
        self.left += MIN_LIMIT
        return shown

    def text(self, text: str, size: int) -> str:
        """Return a text, shortened if it must be; `size` is its true length."""
        if size + 2 <= self.left:
            whole = clean(text)
            length = cost(whole)
            if length <= self.left:
                self.left -= length
                return whole
        marker = f"{_ELLIPSIS}[cut, {size} chars]"
        room = max(2, self.left - len(marker))
        head = clean(text[: room - 2])
        if cost(head) > room:  # escapes are longer than what they stand for
            head = head[: bisect_right(range(len(head)), room, key=lambda n: cost(head[:n])) - 1]
        self.left -= cost(head) + len(marker)
        return head + marker

    def hold(self, rest: int, need: int) -> int:
        """Set room aside for `rest` later siblings; -1 when not even the next one has `need`."""
        marker = _MARKER_ROOM if rest else 0
        if self.left < need + marker:
            return -1
        share = min(self.left // 2, rest * _SIBLING_ROOM)
        held = min(max(marker, share), self.left - need)
        self.left -= held
        return held


def _take(items: Iterable[Any], count: int) -> list[Any]:
    return list(islice(items, count))
