"""Budgets, objectives, limits, prices and addresses of a user -> the settings group of the rules.

Pure: text in, text out. The rules and boards in ``dashboards/`` read the series that this group
records, and hold no number of their own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from .errors import SettingsError

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[import-not-found,no-redef]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

EXAMPLE: Final = """\
# What only you can know. `otel-journal rules --settings FILE` makes Prometheus rules of it.

[budgets]            # tokens (input + output) that an agent may use in 30 days; others never alert
oncall = 100_000_000

[objectives]         # share of runs that must not fail: the default, then the agents that differ
default = 0.99
oncall = 0.98

[stuck_after]        # seconds that a run may stay in flight: the default, then agents that differ
default = 1800
oncall = 3600

# USD per million tokens, as the provider bills them; prices age, check them. Kinds: input, output,
# cache_read, cache_write (parts of the input), reasoning (part of the output).
# Tokens without a price are shown as such on the board.
[prices.openai."gpt-4o"]
input = 2.50
cache_read = 1.25
output = 10.00

[links]              # where alerts lead, without a slash at the end
runbooks = "http://localhost:8000/runbooks"
grafana = "http://localhost:3000"
"""
"""A file to begin with, every table explained."""

PARTS: Final = {"cache_read": "input", "cache_write": "input", "reasoning": "output"}
"""Kind of token that is part of another -> that one: its line holds the difference of prices."""
KINDS: Final = ("input", "output", *PARTS)

_MILLION: Final = 1_000_000
_MOST_TOKENS: Final = 10**15
_MOST_SECONDS: Final = 30 * 86_400
_MOST_USD: Final = 100_000
_DEFAULT: Final = "default"
_NAME: Final = re.compile(r"[^\x00-\x1f]{1,200}")


def _number(low: float, high: float) -> Callable[[Any], bool]:
    def allowed(value: Any) -> bool:  # noqa: ANN401 - whatever TOML holds
        plain = isinstance(value, (int, float)) and not isinstance(value, bool)
        return plain and low < value <= high

    return allowed


def _ratio(value: Any) -> bool:  # noqa: ANN401 - as in `_number`
    return isinstance(value, float) and 0 < value < 1


def _address(value: Any) -> bool:  # noqa: ANN401 - as in `_number`
    if not isinstance(value, str) or value.endswith("/"):
        return False
    parts = urlsplit(value)
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


_AMOUNT: Final = _number(0, _MOST_TOKENS)
_SECONDS: Final = _number(0, _MOST_SECONDS)
_USD: Final = _number(-1e-12, _MOST_USD)


@dataclass(frozen=True)
class _Table:
    """What a table may hold: names of agents or links, and values."""

    allows: Callable[[Any], bool]
    words: str
    names: tuple[str, ...] = ()
    """The names that are allowed; empty: any agent's."""


_TABLES: Final = {
    "budgets": _Table(_AMOUNT, "a number of tokens above 0, at most 1e15"),
    "objectives": _Table(_ratio, "a share above 0.0 and below 1.0"),
    "stuck_after": _Table(_SECONDS, "seconds above 0, at most 2592000"),
    "links": _Table(_address, "an http or https URL without a slash at the end",
                    ("runbooks", "grafana")),
}  # fmt: skip
_PRICE: Final = _Table(_USD, "USD per million tokens from 0 to 100000", KINDS)


def settings_group(text: str, source: str) -> str:
    """Return the rules file that a settings file asks for.

    Args:
        text: the TOML file, as `EXAMPLE`.
        source: its name, for messages and the first line.

    Raises:
        SettingsError: the file is no TOML, or something in it is not allowed; the message names
            the line, the key, the value and what is allowed.
    """
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"settings file {source!r}: {error}"
        raise SettingsError(msg) from error
    _Checker(text, source).check(found)
    rules = "\n".join(_rules(found))
    head = (
        f"# Made by `otel-journal rules` of {json.dumps(source)}: change that file, not this one.\n"
        "groups:\n  - name: otel-journal.settings\n    rules:"
    )
    return f"{head}\n{rules}\n" if rules else f"{head} []\n"


class _Checker:
    """Goes through a file that was read, and refuses what is not allowed."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source

    def check(self, found: Mapping[str, Any]) -> None:
        for name, table in found.items():
            if name in _TABLES:
                self._table((name,), table, _TABLES[name])
            elif name != "prices":
                known = ", ".join(f"[{known}]" for known in (*_TABLES, "prices"))
                self._refuse((name,), table, known)
        for provider, models in self._below(found.get("prices", {}), ("prices",)):
            for model, prices in self._below(models, ("prices", provider)):
                path = ("prices", provider, model)
                self._table(path, prices, _PRICE)
                for kind in prices.keys() & PARTS.keys():
                    if PARTS[kind] not in prices:
                        allowed = f"only beside a price of {PARTS[kind]}"
                        self._refuse((*path, kind), prices[kind], allowed)

    def _table(self, path: tuple[str, ...], table: object, form: _Table) -> None:
        if not isinstance(table, dict):
            self._refuse(path, table, "a table")
            return
        for name, value in table.items():
            if (form.names and name not in form.names) or not _NAME.fullmatch(name):
                words = ", ".join(form.names) or "a name without control characters"
                self._refuse((*path, name), value, words)
            if not form.allows(value):
                self._refuse((*path, name), value, form.words)

    def _below(self, table: object, path: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
        if not isinstance(table, dict):
            self._refuse(path, table, "tables [prices.PROVIDER.MODEL]")
            return
        for name, below in table.items():
            if not isinstance(below, dict):
                self._refuse((*path, name), below, "tables [prices.PROVIDER.MODEL]")
            yield name, below

    def _refuse(self, path: tuple[str, ...], value: object, allowed: str) -> None:
        shown = "" if isinstance(value, dict) else f" = {value!r}"
        where = f"settings file {self._source!r}, line {_line(self._text, path)}"
        msg = f"{where}: {'.'.join(path)}{shown} is not allowed; allowed: {allowed}"
        raise SettingsError(msg)


def _line(text: str, path: tuple[str, ...]) -> int:
    """Number of the line that a key stands in; of its table, if it has no line of its own."""
    table: tuple[str, ...] = ()
    found = 1
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if plain.startswith("["):
            table = _keys(plain.partition("]")[0].strip("["))
            if table == path[: len(table)]:
                found = number
        elif "=" in plain and (*table, *_keys(plain.partition("=")[0])) == path:
            return number
    return found


def _keys(text: str) -> tuple[str, ...]:
    """The parts of a dotted key."""
    parts = re.findall(r'"([^"]*)"|\'([^\']*)\'|([^.\s"\']+)', text)
    return tuple(next(filter(None, part), "") for part in parts)


def _rules(found: Mapping[str, Any]) -> Iterator[str]:
    for agent, tokens in found.get("budgets", {}).items():
        labels = {"gen_ai_agent_name": agent}
        yield _rule("otel_journal:token_budget:tokens30d", tokens, labels)
    for table, stem, unit in (
        ("objectives", "otel_journal:run_objective", "ratio"),
        ("stuck_after", "otel_journal:run_stuck_after", "seconds"),
    ):
        for agent, value in found.get(table, {}).items():
            if agent == _DEFAULT:
                yield _rule(f"{stem}_default:{unit}", value, {})
            else:
                yield _rule(f"{stem}:{unit}", value, {"gen_ai_agent_name": agent})
    for provider, models in found.get("prices", {}).items():
        for model, prices in models.items():
            yield from _prices(provider, model, prices)
    for name, url in found.get("links", {}).items():
        yield _rule(f"otel_journal:{name}:info", 1, {"url": url})


def _prices(provider: str, model: str, prices: Mapping[str, float]) -> Iterator[str]:
    for kind, usd in prices.items():
        labels = {
            "gen_ai_provider_name": provider,
            "gen_ai_request_model": model,
            "type": kind,
        }
        whole = prices[PARTS[kind]] if kind in PARTS else 0.0
        # In billionths, so that 1.25 - 2.5 and the division leave no dust.
        per_token = round((usd - whole) * 1_000_000_000) / 1_000_000_000 / _MILLION
        yield _rule("otel_journal:token_price_usd:per_token", per_token, labels)


def _rule(record: str, value: float, labels: Mapping[str, str]) -> str:
    shown = ", ".join(f"{name}: {json.dumps(text)}" for name, text in labels.items())
    lines = [f"      - record: {record}"]
    if labels:
        lines.append(f"        labels: {{{shown}}}")
    lines.append(f"        expr: vector({value:.12g})")
    return "\n".join(lines)
