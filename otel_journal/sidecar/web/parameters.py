"""Query parameters: each is described once, for reading it and for the OpenAPI document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from otel_journal.events import MAX_EVENT_TYPE, MAX_ID
from otel_journal.store.checks import storable

from .problems import bad_parameter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 500
"""Most elements of a page: what a store reads at once."""
MAX_SEQ: Final = 2**63 - 1
"""The largest `seq` of any store."""
MAX_TYPES: Final = 50
"""Most event types of one filter; the catalogue has fewer."""

NO_CONTROLS: Final = r"^[^\x00-\x1f\x7f]+$"
"""Pattern of ids and names, as `store.checks` has it."""
_WHOLE: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


@dataclass(frozen=True)
class Parameter:
    """One query parameter."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """JSON Schema of its value."""
    allowed: str
    """What it may be, for messages."""
    parse: Callable[[str], Any]
    """Return the value; raise ValueError when it is not allowed."""
    default: Any = None


def whole(
    name: str, description: str, low: int, high: int, default: int | None = None
) -> Parameter:
    """Return a parameter that is a whole number."""

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError
        return int(text)

    schema: dict[str, Any] = {"type": "integer", "minimum": low, "maximum": high}
    if default is not None:
        schema["default"] = default
    return Parameter(name, description, schema, f"{low} to {high}", parse, default)


def _text(text: str, longest: int) -> str:
    if not 0 < len(text) <= longest or not storable(text):
        raise ValueError
    return text


def _types(text: str) -> list[str]:
    names = [_text(name, MAX_EVENT_TYPE) for name in text.split(",")]
    if len(names) > MAX_TYPES:
        raise ValueError
    return names


LIMIT: Final = whole("limit", "Most elements of the page.", 1, MAX_LIMIT, DEFAULT_LIMIT)
BEFORE: Final = whole("before", "Only what has a smaller `seq`.", 0, MAX_SEQ)
AFTER: Final = whole("after", "Only what has a larger `seq`.", 0, MAX_SEQ)
LAST_EVENT_ID: Final = whole(
    "last_event_id",
    "Go on behind this `seq`; the header Last-Event-ID, when it is sent, comes first.",
    0,
    MAX_SEQ,
)
THREAD_ID: Final = Parameter(
    "thread_id",
    "Only runs of this thread.",
    {"type": "string", "minLength": 1, "maxLength": MAX_ID, "pattern": NO_CONTROLS},
    f"1 to {MAX_ID} characters without controls",
    lambda text: _text(text, MAX_ID),
)
TYPES: Final = Parameter(
    "types",
    "Only events of these types, separated by commas.",
    {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_TYPES,
        "items": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_EVENT_TYPE,
            "pattern": r"^[^\x00-\x1f\x7f,]+$",
        },
    },
    f"1 to {MAX_TYPES} names of 1 to {MAX_EVENT_TYPE} characters, separated by commas",
    _types,
)

RUNS: Final = (THREAD_ID, BEFORE, LIMIT)
RUN: Final[tuple[Parameter, ...]] = ()
EVENTS: Final = (TYPES, AFTER, LIMIT)
MESSAGES: Final = (BEFORE, AFTER, LIMIT)
EVENTS_STREAM: Final = (TYPES, LAST_EVENT_ID)
STREAM: Final = (LAST_EVENT_ID,)

_LAST_EVENT_ID_HEADER: Final = "Last-Event-ID"


def read_query(request: Request, parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Return the value of each parameter, its default where it was not given.

    Raises:
        ProblemError: one is not known, is given twice, or has a value that is not allowed.
    """
    found: dict[str, Any] = {one.name: one.default for one in parameters}
    known = {one.name: one for one in parameters}
    given: set[str] = set()
    pairs = parse_qsl(request.url.query, keep_blank_values=True)
    for name, text in pairs:
        if name not in known:
            names = ", ".join(known) or "no parameter"
            raise bad_parameter(repr(name[:MAX_ID]), text, f"only {names} here")
        if name in given:
            raise bad_parameter(name, text, "it once")
        given.add(name)
        found[name] = _parsed(known[name], text)
    return found


def read_id(request: Request, name: str) -> str:
    """Return the id of a run or thread in the path.

    Raises:
        ProblemError: nothing is stored under such an id.
    """
    value: str = request.path_params[name]
    try:
        return _text(value, MAX_ID)
    except ValueError:
        raise bad_parameter(name, value, THREAD_ID.allowed) from None


def resume_from(request: Request, query: Mapping[str, Any]) -> int | None:
    """Return the `seq` behind which a stream goes on; None for a reader that is new.

    A browser that connects again sends the header, and the query of its first request.

    Raises:
        ProblemError: the header is not a `seq`.
    """
    header = request.headers.get(_LAST_EVENT_ID_HEADER)
    if not header:
        after: int | None = query[LAST_EVENT_ID.name]
        return after
    try:
        return int(LAST_EVENT_ID.parse(header))
    except ValueError:
        raise bad_parameter(_LAST_EVENT_ID_HEADER, header, LAST_EVENT_ID.allowed) from None


def _parsed(parameter: Parameter, text: str) -> Any:  # noqa: ANN401 - of the parameter's type
    try:
        return parameter.parse(text)
    except ValueError:
        raise bad_parameter(parameter.name, text, parameter.allowed) from None
