"""How an outcome, a moment, a duration, tokens and content look on a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from otel_journal.commands.terminal import duration, moment, safe, safe_lines, word_of

from .html import Html, element

if TYPE_CHECKING:
    from otel_journal.events import Outcome, Usage

MAX_TEXT: Final = 10_000
"""Characters shown of one value: a page stays small; the JSON of the run has all of it."""
_SIGNS: Final = {"ok": "✓", "error": "✕", "running": "●", "pending": "●"}
_OTHER_SIGN: Final = "◆"


def badge(word: str) -> Html:
    """Return an outcome or state: a sign, the word and a colour."""
    sign = element("span", {"aria-hidden": "true"}, f"{_SIGNS.get(word, _OTHER_SIGN)} ")
    return element("span", {"class": f"badge o-{word}"}, sign, word)


def outcome(value: Outcome | None) -> Html:
    """Return the outcome of an operation, or that it runs."""
    return badge(word_of(value))


def when(ns: int) -> Html:
    """Return Unix nanoseconds as date and time in UTC."""
    shown = moment(ns)
    machine = shown.replace(" ", "T", 1)
    return element("time", {"datetime": machine}, shown)


def took(start_ns: int, end_ns: int, now_ns: int) -> str:
    """Return a duration; of what has not ended so far, marked with three dots."""
    if end_ns:
        return duration(max(0, end_ns - start_ns))
    return f"{duration(max(0, now_ns - start_ns))} …"


def tokens(input_tokens: int, output_tokens: int) -> str:
    """Return input and output tokens."""
    return f"{input_tokens:,} → {output_tokens:,}"


def usage_text(usage: Usage | None) -> str:
    """Return the tokens of a model call; empty when it reported none."""
    return "" if usage is None else tokens(usage.input_tokens, usage.output_tokens)


def name_of(text: str) -> str:
    """Return a name; something to click on when it is empty."""
    return safe(text) or "(no name)"


def content(value: object) -> Html:
    """Return a stored value as a block of text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    cut = "" if len(text) <= MAX_TEXT else f"\n… ({len(text):,} characters)"
    return element("pre", {"tabindex": "0"}, "\n".join(safe_lines(text[:MAX_TEXT])) + cut)
