"""The span projection: end event -> span, with the ids and times the event carries.

Spans enter the application's own processor chain. With its provider, "exported" therefore
means handed to its processors; with a provider built from ``OTEL_*`` it means that the
exporter reported success.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import INVALID_SPAN, NonRecordingSpan, SpanKind, set_span_in_context

from .bounded_call import BoundedCall
from .errors import SettingsError
from .events import Event, SpanBlock
from .exceptions_log import (
    ExceptionLog,
    Shape,
    links_of,
    parent_context,
    span_context,
    trace_state,
)
from .provider import (
    SCOPE,
    CountingExporter,
    EnvironmentProvider,
    Sampling,
    ask_sampler,
    resolve_provider,
    scope_version,
)
from .stats import SinkCounts

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.trace import SpanContext

    from . import semconv

END_EVENTS: Final = frozenset({
    "run.end", "run.error", "run.interrupted", "node.end",
    "llm.end", "llm.error", "tool_call.completed", "retrieval.end",
})  # fmt: skip
"""Events that end an operation; exactly one per operation carries its whole span."""

Found = TypeVar("Found")

Emit: TypeAlias = Callable[[SpanBlock], None]
"""Builds the span of a block and gives it to the processors."""

_MS_PER_S: Final = 1000

_logger = logging.getLogger(__name__)


class SdkTracer(NamedTuple):
    """What we need from the inside of one SDK tracer, private names with a public fallback."""

    tracer: Tracer

    def processors(self) -> tuple[SpanProcessor, ...]:
        """Return the attached processors, or the composite when it does not show them."""
        composite = self.tracer.span_processor
        found = getattr(composite, "_span_processors", None)
        return found if isinstance(found, tuple) else (composite,)

    def limits(self) -> SpanLimits:
        """Return the span limits of the provider, else those of the environment."""
        found = getattr(self.tracer, "_span_limits", None)
        return found if isinstance(found, SpanLimits) else SpanLimits()

    def enabled(self) -> bool:
        """Return False when a tracer configurator switched our scope off."""
        check = getattr(self.tracer, "_is_enabled", None)
        return bool(check()) if callable(check) else True


_QUIET_HOOKS: Final = {
    hook: {getattr(c, hook, None) for c in (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)}
    for hook in ("on_start", "_on_ending")
}
"""Implementations of processor hooks that are known to do nothing."""


def only_listens_to_ends(processor: SpanProcessor) -> bool:
    """Tell whether `processor` does nothing while a span starts or is still writable."""
    return all(
        getattr(getattr(processor, hook, None), "__func__", None) in quiet
        for hook, quiet in _QUIET_HOOKS.items()
    )


class Spans:
    """Sink that turns end events into spans of an OpenTelemetry TracerProvider."""

    name = "spans"

    def __init__(  # noqa: PLR0913 - independent choices
        self,
        provider: TracerProvider | None = None,
        *,
        generation: semconv.Generation = "0.1",
        capture_content: bool = False,
        logger_provider: LoggerProvider | None = None,
        span_attributes: Sequence[str] = (),
        shutdown_provider: bool = False,
    ) -> None:
        """Export to `provider`, found by `resolve_provider` when it is first needed.

        Args:
            provider: an SDK provider; default the global one or one from ``OTEL_*``.
            generation: names to use.
            capture_content: put exception messages on spans and log records.
            logger_provider: destination of exceptions; default the global SDK one.
            span_attributes: names to keep, see `Settings`; default all.
            shutdown_provider: `close` also shuts down the given provider. One built here
                from ``OTEL_*`` is always shut down, the global one never.

        Raises:
            SettingsError: `provider` is not a TracerProvider of the SDK.
        """
        if provider is not None and not isinstance(provider, TracerProvider):
            msg = f"tracer_provider={provider!r} is not allowed; allowed: an SDK TracerProvider"
            raise SettingsError(msg)
        self.counts = provider.counts if isinstance(provider, EnvironmentProvider) else SinkCounts()
        """What became of the events offered."""
        self._given = provider
        self._shutdown_given = shutdown_provider and provider is not None
        self._shape = Shape(generation, capture_content=capture_content, keep=span_attributes)
        self._exceptions = ExceptionLog(
            logger_provider, generation=generation, capture_content=capture_content
        )
        self._resolving = threading.Lock()
        self._provider: TracerProvider | None = None
        self._error: SettingsError | None = None
        self._tracer: SdkTracer | None = None
        self._processors: tuple[SpanProcessor, ...] | None = None
        self._emit: Emit | None = None
        self._bounded = BoundedCall()
        self._closed = False
        self._sampler_failed = False

    @property
    def exporting(self) -> bool:
        """True when there is a provider that spans will go to."""
        return self._provider is not None and not self._closed

    def write(self, events: Sequence[Event]) -> None:
        """Build and hand over the spans of all end events; other events need nothing.

        Raises:
            SettingsError: the ``OTEL_*`` variables do not describe a provider.
            Exception: whatever a processor of the application raises.
        """
        if self._closed:
            self.counts.dropped["shutdown"] += len(events)
            return
        emit = self._current_emit()
        delivery = self._delivery()
        later = 0
        for event in events:
            block = event.span
            if block is None or event.event_type not in END_EVENTS:
                continue
            if block.failure is not None:
                self._exceptions.record(block)
            if emit is None or not block.recording:
                continue
            if delivery is not None and block.sampled:
                later += 1
                if not delivery.admit():
                    continue
            emit(block)
        if delivery is None:
            self.counts.exported += len(events)
        else:
            delivery.accept(len(events) - later)

    def sample(
        self,
        trace_id: int,
        name: str,
        kind: str,
        attributes: Mapping[str, Any],
        parent: SpanContext | None = None,
    ) -> Sampling:
        """Ask the application's sampler about a new trace; call it once, at the root's start.

        Without a provider, or with a sampler that raises, the parent's decision holds and
        traces without a parent are sampled. Never raises. `trace_id` is the parent's if there
        is one, `parent` the ambient span; name, kind and attributes are those known so far.
        """
        try:
            provider = self._resolve()
            if provider is not None:
                root = (name, self._shape.kinds.get(kind, SpanKind.INTERNAL), attributes)
                return ask_sampler(provider.sampler, trace_id, root, parent)
        except Exception as error:  # noqa: BLE001 - samplers are foreign code on the agent's thread
            if not self._sampler_failed:
                self._sampler_failed = True
                # Not the message of foreign code: it may hold content.
                detail = error if isinstance(error, SettingsError) else type(error).__name__
                _logger.warning("No sampling decision, traces follow their parent: %s", detail)
        sampled = parent is None or not parent.is_valid or parent.trace_flags.sampled
        return Sampling(sampled, sampled, {}, parent.trace_state.to_header() if parent else "")

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything written was exported.

        With a provider from ``OTEL_*`` the export results decide: False when something still
        waits, or was lost since the last flush. The application's ``force_flush`` is believed.
        """
        provider, delivery = self._provider, self._delivery()
        if provider is None or self._error is not None:
            return self._error is None
        if isinstance(provider, EnvironmentProvider) and delivery is None:
            return not self.counts.seen  # unless nothing was written, connecting has failed
        limit_ms = max(1, int(timeout * _MS_PER_S))
        flushed = self._bounded(lambda: provider.force_flush(limit_ms), timeout)
        return flushed if delivery is None else delivery.all_delivered()

    def close(self, timeout: float) -> bool:
        """Flush, and shut down a provider that is ours, within `timeout` seconds.

        What an owned exporter could not send by then is counted as dropped by ``shutdown``.
        """
        if self._closed:
            return True
        self._closed = True
        provider, delivery = self._provider, self._delivery()
        if provider is None or not (self._shutdown_given or delivery is not None):
            return self.flush(timeout)
        finished = self._bounded(provider.shutdown, timeout)
        if delivery is None:
            return finished
        delivered = delivery.all_delivered()
        delivery.abandon()
        return delivered

    def forked(self) -> None:
        """Connect anew in a forked child; what was inherited is kept, closing it might hang."""
        self._resolving = threading.Lock()
        self._bounded = BoundedCall()
        if isinstance(self._provider, EnvironmentProvider):
            self._inherited = self._provider
            self._provider = self._provider.renewed()
            self._tracer = self._processors = self._emit = None

    def _resolve(self) -> TracerProvider | None:
        """Find the provider; once found it stays, until then every call looks again."""
        if self._provider is None:
            with self._resolving:
                self._provider = self._provider or self._or_remember(
                    lambda: resolve_provider(self._given, self.counts)
                )
        return self._provider

    def _or_remember(self, find: Callable[[], Found]) -> Found:
        """Try `find` until it fails once: the environment will not get better by itself."""
        if self._error is not None:
            raise self._error
        try:
            return find()
        except SettingsError as error:
            self._error = error
            raise

    def _delivery(self) -> CountingExporter | None:
        provider = self._provider
        return provider.delivery if isinstance(provider, EnvironmentProvider) else None

    def _current_emit(self) -> Emit | None:
        """Return how to build spans now: the application may have added a processor since."""
        if self._tracer is None and (provider := self._resolve()) is not None:
            tracer = self._or_remember(lambda: provider.get_tracer(SCOPE, scope_version()))
            self._tracer = SdkTracer(tracer) if isinstance(tracer, Tracer) else None
        if self._tracer is None or not self._tracer.enabled():
            return None
        processors = self._tracer.processors()
        if processors != self._processors:
            quiet = all(only_listens_to_ends(processor) for processor in processors)
            build = direct_emit if quiet else replayed_emit
            self._emit, self._processors = build(self._tracer, self._shape), processors
        return self._emit


def direct_emit(sdk: SdkTracer, shape: Shape) -> Emit:
    """Build finished spans for ``on_end``: a tenth of the cost, while no processor wants starts."""
    limits, tracer, kinds = sdk.limits(), sdk.tracer, shape.kinds
    scope = InstrumentationScope(SCOPE, scope_version())
    on_end, named, status = sdk.tracer.span_processor.on_end, shape.attributes, shape.status
    most, longest = limits.max_span_attributes, limits.max_span_attribute_length

    def emit(block: SpanBlock) -> None:
        attributes: Any = named(block)
        if longest is not None or (most is not None and len(attributes) > most):
            attributes = BoundedAttributes(most, attributes, max_value_len=longest)
        on_end(
            ReadableSpan(
                block.name,
                span_context(block),
                parent_context(block),
                tracer.resource,
                attributes,
                (),
                links_of(block, limits) if block.links else (),
                kinds.get(block.kind, SpanKind.INTERNAL),
                None,
                status(block),
                block.start_ns,
                block.end_ns,
                scope,
            )
        )

    return emit


def replayed_emit(sdk: SdkTracer, shape: Shape) -> Emit:
    """Start and end live SDK spans, for processors that act at the start of one.

    The tracer's provider is our own and shares resource, limits and processor chain with the
    application's. Processors see a parent context without baggage: the journal keeps none.
    """
    decided = _Decided()
    shadow = TracerProvider(
        sampler=decided,
        resource=sdk.tracer.resource,
        shutdown_on_exit=False,
        active_span_processor=sdk.tracer.span_processor,
        id_generator=decided,
        span_limits=sdk.limits(),
    )
    tracer = shadow.get_tracer(SCOPE, scope_version())

    def emit(block: SpanBlock) -> None:
        parent = parent_context(block)
        above = INVALID_SPAN if parent is None else NonRecordingSpan(parent)
        decided.take(block, shape.attributes(block))
        span = tracer.start_span(
            block.name,
            set_span_in_context(above, Context()),
            shape.kinds.get(block.kind, SpanKind.INTERNAL),
            links=links_of(block),
            start_time=block.start_ns,
        )
        span.set_status(shape.status(block))
        span.end(block.end_ns)

    return emit


class _Decided(Sampler, IdGenerator):
    """Hands the ids and the sampling decision of one block at a time to a tracer."""

    def take(self, block: SpanBlock, attributes: dict[str, Any]) -> None:
        decision = Decision.RECORD_AND_SAMPLE if block.sampled else Decision.RECORD_ONLY
        self._trace_id = int(block.trace_id, 16)
        self._span_id = int(block.span_id, 16)
        self._result = SamplingResult(decision, attributes, trace_state(block.trace_state))

    def should_sample(self, *_args: object, **_kwargs: object) -> SamplingResult:
        return self._result

    def get_description(self) -> str:
        return "otel_journal: decided at the start of the trace"

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        return self._span_id
