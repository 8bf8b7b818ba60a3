"""What a block looks like as a span: contexts, links, names; and its exception as a log record.

Span events for exceptions are deprecated (semantic conventions, exceptions in spans).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from opentelemetry._logs import (
    Logger,
    LoggerProvider,
    LogRecord,
    SeverityNumber,
    get_logger_provider,
)
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    TraceState,
    set_span_in_context,
)
from opentelemetry.trace.status import Status, StatusCode

from . import semconv
from .provider import SCOPE, scope_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import SpanLimits

    from .events import LinkRelation, SpanBlock

EVENT_EXCEPTION: Final = "exception"
"""Event name where GenAI conventions define none (general semantic conventions)."""

_EVENTS: Final = {
    "chat": semconv.EVENT_INFERENCE_EXCEPTION,
    "completion": semconv.EVENT_INFERENCE_EXCEPTION,
    "tool": semconv.EVENT_TOOL_EXCEPTION,
}
_EVENTS_1_41: Final = {
    "chat": semconv.EVENT_INFERENCE_EXCEPTION_1_41,
    "completion": semconv.EVENT_INFERENCE_EXCEPTION_1_41,
}


_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NOT_SAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)
_NO_STATE: Final = TraceState()

_LONGEST_RELATION: Final = len("previous_attempt")

PARENTS_KEPT: Final = 256
"""Parent contexts remembered: siblings end close together, and one costs 0.7 microseconds."""


def span_context(block: SpanBlock) -> SpanContext:
    """Return the context of the block's own span."""
    return SpanContext(
        int(block.trace_id, 16),
        int(block.span_id, 16),
        False,  # noqa: FBT003 - by position because that is a quarter faster
        _SAMPLED if block.sampled else _NOT_SAMPLED,
        trace_state(block.trace_state) if block.trace_state else _NO_STATE,
    )


def parent_context(block: SpanBlock) -> SpanContext | None:
    """Return the context of the parent span; None for a root without one."""
    if not block.parent_span_id:
        return None
    return _parent(
        block.trace_id, block.parent_span_id, block.remote_parent, block.sampled, block.trace_state
    )


@lru_cache(maxsize=PARENTS_KEPT)
def _parent(
    trace_id: str,
    span_id: str,
    remote: bool,  # noqa: FBT001 - by position because that is the faster cache key
    sampled: bool,  # noqa: FBT001
    state: str,
) -> SpanContext:
    flags = _SAMPLED if sampled else _NOT_SAMPLED
    return SpanContext(int(trace_id, 16), int(span_id, 16), remote, flags, trace_state(state))


def links_of(block: SpanBlock, limits: SpanLimits | None = None) -> Sequence[Link]:
    """Return the links of a block, under the limits that a live span would apply itself."""
    links = [_link(link.trace_id, link.span_id, link.relation) for link in block.links]
    if limits is None or _roomy(limits, len(links)):
        return links
    most, longest = limits.max_link_attributes, limits.max_attribute_length
    kept = [
        Link(link.context, BoundedAttributes(most, link.attributes, max_value_len=longest))
        for link in links
    ]
    return BoundedList.from_seq(limits.max_links, kept)


def _link(trace_id: str, span_id: str, relation: LinkRelation) -> Link:
    context = SpanContext(
        int(trace_id, 16),
        int(span_id, 16),
        False,  # noqa: FBT003 - by position because that is a quarter faster
    )
    return Link(context, _relation(relation))


@lru_cache
def _relation(relation: LinkRelation) -> BoundedAttributes:
    """The attributes of a link; immutable, and the same for all links of a kind."""
    return BoundedAttributes(attributes={semconv.LINK_RELATION: relation})


def _roomy(limits: SpanLimits, links: int) -> bool:
    """True when no limit would cut `links` links of ours."""
    longest = limits.max_attribute_length
    return (
        (limits.max_links is None or links <= limits.max_links)
        and (limits.max_link_attributes is None or limits.max_link_attributes > 0)
        and (longest is None or longest >= _LONGEST_RELATION)
    )


@lru_cache(maxsize=PARENTS_KEPT)
def trace_state(header: str) -> TraceState:
    """Parse a W3C tracestate header, the same for all spans of a trace."""
    return TraceState.from_header([header]) if header else _NO_STATE


_KINDS: Final = {"chat": SpanKind.CLIENT, "completion": SpanKind.CLIENT}
_KINDS_1_41: Final = {**_KINDS, "retrieval": SpanKind.CLIENT}
_UNSET: Final = Status(StatusCode.UNSET)

_ALWAYS: Final = frozenset({semconv.OUTCOME, semconv.ERROR_TYPE})
"""Attributes that no allow-list takes away: without them a span does not say how it ended."""

_NAMES_KEPT: Final = 1_024
"""Attribute names whose decision is remembered; we write about a hundred, samplers may add some."""


def _allowed(keep: Sequence[str]) -> Callable[[str], bool]:
    """Return a test for attribute names, which remembers its answers."""
    names = _ALWAYS.union(keep)
    prefixes = tuple(name[:-1] for name in keep if name.endswith("*"))

    @lru_cache(maxsize=_NAMES_KEPT)
    def allowed(name: str) -> bool:
        return name in names or name.startswith(prefixes)

    return allowed


class Shape:
    """What a block looks like as a span: the part both ways of building one share."""

    def __init__(
        self,
        generation: semconv.Generation,
        *,
        capture_content: bool,
        keep: Sequence[str] = (),
    ) -> None:
        """Use the names of `generation`; exception messages only if `capture_content`.

        `keep` are the attributes to put onto spans, by name or, ending in ``*``, by prefix;
        none means all.
        """
        self._renamed = {} if generation == "0.1" else semconv.RENAMED_1_41
        self._keep_old = generation == "both"
        self._capture_content = capture_content
        self._kept = _allowed(keep) if keep else None
        self.kinds = _KINDS_1_41 if generation == "1.41" else _KINDS
        """Span kinds by operation kind; the others are INTERNAL."""

    def attributes(self, block: SpanBlock) -> dict[str, Any]:
        """Return the attributes to show, under the names of the generation."""
        named, kept = self._named(block), self._kept
        if kept is None:
            return named
        return {name: value for name, value in named.items() if kept(name)}

    def _named(self, block: SpanBlock) -> dict[str, Any]:
        old, renamed = block.attributes, self._renamed
        if renamed and block.kind == "workflow":
            renamed = {**renamed, semconv.AGENT_NAME: semconv.WORKFLOW_NAME_1_41}
        if old.keys().isdisjoint(renamed):
            return old
        new = {renamed.get(key, key): value for key, value in old.items()}
        return {**old, **new} if self._keep_old else new

    def status(self, block: SpanBlock) -> Status:
        """Return ERROR for failures only; the message is content."""
        if block.outcome != "error":
            return _UNSET
        failure = block.failure
        message = failure.message if failure is not None and self._capture_content else ""
        return Status(StatusCode.ERROR, message or None)


class ExceptionLog:
    """Writes one log record per failure, at the innermost operation only.

    Records go to the given logger provider, else to the global one once that is an SDK
    provider; without one they go nowhere. They do not depend on sampling.
    """

    def __init__(
        self,
        provider: LoggerProvider | None = None,
        *,
        generation: semconv.Generation = "0.1",
        capture_content: bool = False,
    ) -> None:
        """Write to `provider`, with exception messages only if `capture_content`.

        A record has one event name: with generation ``both`` that of 0.1.
        """
        self._provider = provider
        self._events = _EVENTS_1_41 if generation == "1.41" else _EVENTS
        self._capture_content = capture_content
        self._logger: Logger | None = None

    def record(self, block: SpanBlock) -> None:
        """Write the failure of `block`, in the context of its span; nothing if it has none."""
        failure = block.failure
        logger = self._find_logger()
        if failure is None or logger is None:
            return
        attributes: dict[str, Any] = {semconv.EXCEPTION_TYPE: failure.type}
        if self._capture_content and failure.message:
            attributes[semconv.EXCEPTION_MESSAGE] = failure.message
        if failure.stacktrace:
            attributes[semconv.EXCEPTION_STACKTRACE] = failure.stacktrace
        logger.emit(
            LogRecord(
                timestamp=block.end_ns,
                context=set_span_in_context(NonRecordingSpan(span_context(block)), Context()),
                severity_number=SeverityNumber.WARN,
                severity_text="WARN",
                attributes=attributes,
                event_name=self._events.get(block.kind, EVENT_EXCEPTION),
            )
        )

    def _find_logger(self) -> Logger | None:
        if self._logger is None:
            provider = self._provider or get_logger_provider()
            if provider is self._provider or isinstance(provider, SdkLoggerProvider):
                self._logger = provider.get_logger(SCOPE, scope_version())
        return self._logger
