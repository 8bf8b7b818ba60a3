"""Text for a terminal: moments, durations, tables, and content that cannot take it over."""

from __future__ import annotations

import json
import os
import re
import sys
import unicodedata
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Final, NamedTuple

import click
import msgspec

from otel_journal.events import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_journal.events import Outcome

RUNNING: Final = "running"
"""Shown in place of an outcome while there is none."""

_NS_PER_MS: Final = 1_000_000
_COLOURS: Final = {"ok": "green", "error": "red", RUNNING: "cyan", "pending": "cyan"}
_OTHER_COLOUR: Final = "yellow"
_JOINER: Final = "\u200d"
"""Joins emoji; the only invisible character that may stay."""
_MINUTE: Final = 60
_HOUR: Final = 3_600
_UNITS: Final = {"s": 1, "m": _MINUTE, "h": _HOUR, "d": 24 * _HOUR, "w": 7 * 24 * _HOUR}
_DURATION: Final = re.compile(r"([0-9]{1,6})([smhdw])", re.ASCII)


class Glyphs(NamedTuple):
    """Characters that not every terminal can show."""

    branch: str
    last: str
    pipe: str
    arrow: str


_UNICODE: Final = Glyphs("├─ ", "└─ ", "│  ", "→")
_ASCII: Final = Glyphs("|- ", "`- ", "|  ", "->")
_GAP: Final = "   "


def glyphs() -> Glyphs:
    """Characters for trees that standard output can encode."""
    return _UNICODE if "utf" in _encoding().lower() else _ASCII


def indent(path: Sequence[bool], marks: Glyphs) -> str:
    """Lines that lead to a node of a tree; `path` says per level whether the node is the last."""
    if len(path) == 1:
        return ""
    above = "".join(_GAP if last else marks.pipe for last in path[1:-1])
    return above + (marks.last if path[-1] else marks.branch)


def echo(line: str = "") -> None:
    """Print a line; what standard output cannot encode is escaped, NO_COLOR takes styles away."""
    encoding = _encoding()
    shown = line.encode(encoding, "backslashreplace").decode(encoding)
    click.echo(shown, color=False if os.environ.get("NO_COLOR") else None)


def echo_json(value: object) -> None:
    """Print a value as one line of JSON, in ASCII: controls and all that is odd is escaped."""
    click.echo(json.dumps(msgspec.to_builtins(value), separators=(",", ":")))


def safe(text: str) -> str:
    r"""Escape what could move the cursor, colour, hide or reorder text: ``\x1b``, ``\u202e``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one if _harmless(one) else _escaped(one) for one in text)


def safe_lines(text: str) -> list[str]:
    """Lines of content, each `safe`; at least one."""
    return [safe(line) for line in text.replace("\r\n", "\n").split("\n")]


def _harmless(one: str) -> bool:
    return one.isprintable() or one == _JOINER or unicodedata.category(one) == "Zs"


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


def styled(word: str, shown: str | None = None) -> str:
    """Colour an outcome or state; `shown` is its text when that is padded."""
    return click.style(word if shown is None else shown, fg=_COLOURS.get(word, _OTHER_COLOUR))


def word_of(outcome: Outcome | None) -> str:
    """An outcome, or that there is none yet."""
    return outcome or RUNNING


def moment(ns: int) -> str:
    """Unix nanoseconds as date and time in UTC, to the second."""
    at = datetime.fromtimestamp(ns // NS_PER_S, tz=timezone.utc)
    return at.strftime("%Y-%m-%d %H:%M:%SZ")


def span_of(start_ns: int, end_ns: int) -> str:
    """Duration between two moments; a dash while there is no end."""
    return duration(max(0, end_ns - start_ns)) if end_ns else "-"


def duration(ns: int) -> str:
    """Nanoseconds in the two units that matter: ``12.3 ms``, ``4.56 s``, ``2m 03s``, ``1h 02m``."""
    if ns < NS_PER_S:
        return f"{ns / _NS_PER_MS:.1f} ms"
    seconds = ns / NS_PER_S
    if seconds < _MINUTE:
        return f"{seconds:.2f} s"
    whole = int(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}m {whole % _MINUTE:02}s"
    return f"{whole // _HOUR}h {whole % _HOUR // _MINUTE:02}m"


def duration_ns(text: str) -> int:
    """Read a duration such as ``30d`` or ``12h``.

    Returns:
        Nanoseconds.

    Raises:
        ValueError: it is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        units = ", ".join(_UNITS)
        msg = f"duration {text!r} is not allowed; allowed: a whole number and one of {units}"
        raise ValueError(msg)
    return int(found[1]) * _UNITS[found[2]] * NS_PER_S


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str]) -> list[str]:
    """Align columns to the left, those named in `right` to the right; colour ``outcome``."""
    cells = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for number, row in enumerate(cells):
        padded = [
            f"{cell:>{width}}" if name in right else f"{cell:<{width}}"
            for name, cell, width in zip(head, row, widths, strict=True)
        ]
        if number and "outcome" in head:
            column = head.index("outcome")
            padded[column] = styled(row[column], padded[column])
        line = "  ".join(padded).rstrip()
        lines.append(line if number else click.style(line, bold=True))
    return lines


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", "") or "ascii"
