"""The tool calls of a run, each with its arguments and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from . import semconv as sc
from .events import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .events import Event

ToolState: TypeAlias = Literal["pending", "ok", "error", "cancelled"]
"""``cancelled`` is every end without a result or an error; `ToolCallView.outcome` says which."""

_STARTED: Final = "tool_call.started"
_COMPLETED: Final = "tool_call.completed"
_NS_PER_MS: Final = 1_000_000
_STATES: Final[dict[Outcome, ToolState]] = {"ok": "ok", "handoff": "ok", "error": "error"}


class ToolCallView(msgspec.Struct, frozen=True):
    """One tool call."""

    call_id: str
    """As the model gave it, or made up for it; unique but for retries and some providers."""
    op_id: str
    """Its operation; empty for a call that only legacy events or an orphan completion tell of."""
    name: str
    state: ToolState
    outcome: Outcome | None
    """None while it is pending."""
    attempt: int
    arguments: Any
    result: Any
    """Any value, None included: `state` says whether there is one."""
    error: str
    latency_ms: int | None
    """Whole milliseconds; None while it is pending, or when nobody measured."""
    orphan: bool
    """True for a completion whose call nobody announced."""


class _Call:
    """A call while its events are read."""

    def __init__(self, call_id: str, name: str, *, orphan: bool = False) -> None:
        self.call_id = call_id
        self.name = name
        self.orphan = orphan
        self.op_id = ""
        self.attempt = 1
        self.arguments: Any = None
        self.outcome: Outcome | None = None
        self.result: Any = None
        self.error = ""
        self.latency_ms: int | None = None

    def complete(self, event: Event) -> None:
        """Take the first completion; a later one changes nothing."""
        if self.outcome is not None:
            return
        said, span = _mapping(event.content), event.span
        self.outcome = _outcome(event, said)
        self.result = said.get("result")
        self.error = _text(said.get("error"))
        latency = said.get("latency_ms")
        if isinstance(latency, int):
            self.latency_ms = latency
        elif span is not None:
            self.latency_ms = (span.end_ns - span.start_ns) // _NS_PER_MS
        if span is not None and span.failure is not None and not self.error:
            self.error = span.failure.message or span.failure.type

    def view(self) -> ToolCallView:
        """Return the call as it stands."""
        return ToolCallView(
            call_id=self.call_id,
            op_id=self.op_id,
            name=self.name,
            state="pending" if self.outcome is None else _STATES.get(self.outcome, "cancelled"),
            outcome=self.outcome,
            attempt=self.attempt,
            arguments=self.arguments,
            result=self.result,
            error=self.error,
            latency_ms=self.latency_ms,
            orphan=self.orphan,
        )


def tool_calls_of(events: Iterable[Event]) -> tuple[ToolCallView, ...]:
    """Pair the calls of events that are in order.

    A completion belongs to the call of its own operation. One without an operation (a legacy
    event, or one whose start another process recorded) belongs to the call that has its id, and
    one without an id to the oldest pending call of its name; else it is kept as an orphan.
    """
    calls: list[_Call] = []
    operations: dict[str, _Call] = {}
    for event in events:
        if event.event_type == _STARTED:
            _open(event, calls, operations)
        elif event.event_type == _COMPLETED:
            call = _open(event, calls, operations) if event.span is not None else None
            call = call or _completed_by(event, calls)
            if call is not None:
                call.complete(event)
    return tuple(call.view() for call in calls)


def _open(event: Event, calls: list[_Call], operations: dict[str, _Call]) -> _Call:
    """The call of an event's operation, which start and end may announce in any order."""
    said, span = _mapping(event.content), event.span
    key = event.event_id.rpartition("/")[0] if span is not None else ""
    call = operations.get(key)
    if call is None:
        call = _Call(_call_id(event) or event.event_id, _name(event))
        calls.append(call)
        if span is not None:
            call.op_id, call.attempt = span.op_id, span.attempt
            operations[key] = call
    if event.event_type == _STARTED:
        call.arguments = said.get("arguments")
    return call


def _completed_by(event: Event, calls: list[_Call]) -> _Call | None:
    """The call that a completion without an operation ends; None when it has ended already."""
    call_id, name = _call_id(event), _name(event)
    if call_id:
        known = [call for call in calls if call.call_id == call_id]
        pending = next((call for call in known if call.outcome is None), None)
        if known:
            return pending
    else:
        for call in calls:
            if call.outcome is None and call.name == name:
                return call
    orphan = _Call(call_id or event.event_id, name, orphan=True)
    calls.append(orphan)
    return orphan


def _call_id(event: Event) -> str:
    given = _text(_mapping(event.content).get("call_id"))
    return given or (_text(event.span.attributes.get(sc.CALL_ID)) if event.span else "")


def _name(event: Event) -> str:
    given = _text(_mapping(event.content).get("name"))
    return given or (_text(event.span.attributes.get(sc.TOOL_NAME)) if event.span else "")


def _outcome(event: Event, said: dict[str, Any]) -> Outcome:
    if event.span is not None:
        return event.span.outcome or "unknown"
    return "error" if said.get("error") is not None else "ok"


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
