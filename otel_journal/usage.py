"""Token usage of one model call, whatever dialect the provider speaks.

What providers do differently is data, in `usage_dialects`; this module looks it up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .events import Usage
from .foreign import mapping, text
from .usage_dialects import (
    COUNT_FIELDS,
    DIALECTS,
    INPUT_DETAILS,
    LANGCHAIN,
    OTHER_INPUT,
    OTHER_OUTPUT,
    OUTPUT_DETAILS,
    PLACES,
    TTL_SPLIT,
    Dialect,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TOKENS: Final = 10**15
"""Counts above it are garbage: every sum must stay an exact integer in JSON and in a float."""

_MAX_NUMBER_TEXT: Final = 24
"""Longest text that is read as a number; keeps `float()` away from megabytes."""


class Reading(msgspec.Struct, frozen=True, gc=False):
    """What one response says about its tokens."""

    usage: Usage | None
    """None when the provider reported nothing (which is not zero), and on a cache hit."""
    cached: bool
    """The answer came from LangChain's LLM cache and is not billed."""


_MISSING: Final = Reading(usage=None, cached=False)
_CACHED: Final = Reading(usage=None, cached=True)
_ZERO: Final = Reading(usage=Usage(), cached=False)


def read_usage(
    usage_metadata: object,
    llm_output: object = None,
    response_metadata: object = None,
    generation_info: object = None,
) -> Reading:
    """Read the tokens of one model call; never raises, whatever the objects are.

    The first place with a positive count wins: `usage_metadata`, which LangChain standardises,
    then `llm_output`, `response_metadata` and `generation_info`. Only mappings are read; counts
    may be integers, floats or numeric text, negative ones are 0, anything else is ignored.

    A hit of LangChain's LLM cache is told by ``usage_metadata["total_cost"] == 0``, which
    langchain-core adds and no provider does.
    """
    found: Usage | None = None
    standard = usage_metadata if type(usage_metadata) is dict else mapping(usage_metadata)
    if standard:
        cost = standard.get("total_cost")
        if cost is not None and type(cost) in (int, float) and cost == 0:
            return _CACHED
        found = _langchain(standard)
        if found is not None and (found.input_tokens or found.output_tokens):
            return Reading(found, False)  # noqa: FBT003 - positional is faster, once per call
    for source in (llm_output, response_metadata, generation_info):
        if source is not None and (usage := _search(source)) is not None:
            if usage.positive:
                return Reading(usage=usage, cached=False)
            found = found or usage
    if found is not None:
        return Reading(usage=found, cached=False)
    # LLMResult.flatten() leaves {} for every prompt but the first, whose usage covers them all.
    output = mapping(llm_output)
    emptied = output.get("token_usage") if output else None
    return _ZERO if type(emptied) is dict and not emptied else _MISSING


def _langchain(standard: dict[Any, Any]) -> Usage | None:
    """Read `usage_metadata`; the branch nearly every call takes, hence written out."""
    inputs = standard.get("input_tokens")
    outputs = standard.get("output_tokens")
    if not (
        type(inputs) is int
        and type(outputs) is int
        and 0 <= inputs <= MAX_TOKENS
        and 0 <= outputs <= MAX_TOKENS
        and inputs + outputs
    ):
        return _read(standard, LANGCHAIN)
    details: dict[str, int] = {}
    group = standard.get("input_token_details")
    if group is not None:
        _add_details(group, INPUT_DETAILS, OTHER_INPUT, details)
        if TTL_SPLIT in details:
            _merge_ttl(details)
    group = standard.get("output_token_details")
    if group is not None:
        _add_details(group, OUTPUT_DETAILS, OTHER_OUTPUT, details)
    return Usage(inputs, outputs, details)


def _search(source: object) -> Usage | None:
    """Return the first positive usage of a container, else the first of any size."""
    container = mapping(source)
    if not container:
        return None
    found: Usage | None = None
    candidates = [container[place] for place in PLACES if place in container]
    for candidate in (*candidates, container):
        raw = mapping(candidate)
        if not raw or raw.keys().isdisjoint(COUNT_FIELDS):
            continue
        usage = _read(raw, _dialect_of(raw))
        if usage is not None:
            if usage.positive:
                return usage
            found = found or usage
    return found


def _dialect_of(raw: dict[Any, Any]) -> Dialect:
    """Return the first dialect with an input or output count, else the first with a total."""
    totals = LANGCHAIN
    for dialect in DIALECTS:
        if dialect.only_with and not any(name in raw for name in dialect.only_with):
            continue
        if _first(raw, dialect.input) is not None or _first(raw, dialect.output) is not None:
            return dialect
        if totals is LANGCHAIN and dialect.total in raw:
            totals = dialect
    return totals


def _read(raw: dict[Any, Any], dialect: Dialect) -> Usage | None:
    """Read one mapping in one dialect; None when it holds none of the dialect's counts."""
    inputs = _first(raw, dialect.input)
    outputs = _first(raw, dialect.output)
    total = _count(raw.get(dialect.total))
    if inputs is None and outputs is None and total is None:
        return None
    details: dict[str, int] = {}
    for name in dialect.input_details:
        _add_details(raw.get(name), INPUT_DETAILS, OTHER_INPUT, details)
    for name in dialect.output_details:
        _add_details(raw.get(name), OUTPUT_DETAILS, OTHER_OUTPUT, details)
    for name, detail in dialect.flat.items():
        if value := _count(raw.get(name)):
            details[detail] = max(value, details.get(detail, 0))
    if TTL_SPLIT in details:
        _merge_ttl(details)
    added_inputs = sum(details.get(name, 0) for name in dialect.beside_input)
    added_outputs = sum(details.get(name, 0) for name in dialect.beside_output)
    if total and not (inputs and outputs):
        inputs, outputs = _split(total, inputs, outputs, beside=added_inputs + added_outputs)
    return Usage(
        input_tokens=(inputs or 0) + added_inputs,
        output_tokens=(outputs or 0) + added_outputs,
        details=details,
    )


def _split(total: int, inputs: int | None, outputs: int | None, *, beside: int) -> tuple[int, int]:
    """Fill a missing side from the total; all of it is input when both are missing or zero."""
    known = (inputs or 0) + (outputs or 0)
    rest = max(0, total - known - beside)
    if outputs is None and inputs:
        return inputs, rest
    if inputs is None or not known:
        return (inputs or 0) + rest, outputs or 0
    return inputs, outputs or 0


def _add_details(group: object, names: Mapping[str, str], other: str, into: dict[str, int]) -> None:
    """Add the positive counts of a nested mapping under their bounded names."""
    entries = group if type(group) is dict else mapping(group)
    if not entries:
        return
    for key, raw in entries.items():
        value = raw if type(raw) is int else _count(raw)
        if value is None or not 0 < value <= MAX_TOKENS:
            continue
        name = names.get(key, other) if type(key) is str else other
        seen = into.get(name)
        if seen is None:
            into[name] = value
        elif name is other or name is TTL_SPLIT:
            into[name] = seen + value
        elif seen < value:  # two spellings of one count are one count
            into[name] = value


def _merge_ttl(details: dict[str, int]) -> None:
    """Fold the split by time to live into `cache_write`.

    langchain-anthropic zeroes ``cache_creation`` when it gives the split; the raw API reports
    both. The larger is the total in either case.
    """
    split = details.pop(TTL_SPLIT)
    details["cache_write"] = max(split, details.get("cache_write", 0))


def _first(raw: dict[Any, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = _count(raw.get(name))
        if value is not None:
            return value
    return None


def _count(value: object) -> int | None:
    """Return a token count, or None for what is no number; negative counts are 0."""
    kind = type(value)
    number: float
    if kind is int:
        number = value  # type: ignore[assignment]
    elif value is None or kind is bool:
        return None
    elif issubclass(kind, str):
        number = _number(text(value))
    elif issubclass(kind, int):
        number = int.__int__(value)  # type: ignore[arg-type]
    elif issubclass(kind, float):
        number = float.__float__(value)  # type: ignore[arg-type]
    else:
        return None
    # NaN fails both comparisons.
    return max(0, int(number)) if -math.inf < number <= MAX_TOKENS else None


def _number(source: str) -> float:
    if len(source) > _MAX_NUMBER_TEXT:
        return math.nan
    try:
        return float(source)
    except ValueError:
        return math.nan
