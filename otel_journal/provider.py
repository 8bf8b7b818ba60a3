"""Where spans go: the application's TracerProvider, or one built from ``OTEL_*``.

Private names of the OpenTelemetry SDK are used in `spans.SdkTracer` only.
"""

from __future__ import annotations

import importlib
import os
import threading
import weakref
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, DEFAULT_ON, Decision, Sampler
from opentelemetry.trace import (
    INVALID_SPAN,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    set_span_in_context,
)

from . import process_life
from .errors import SettingsError
from .resources import environment_resource
from .stats import SinkCounts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from opentelemetry.sdk.resources import Resource

SCOPE: Final = "otel_journal"
"""Instrumentation scope of every span and log record we emit."""

EXPORTER_VARIABLE: Final = "OTEL_TRACES_EXPORTER"
ENDPOINT_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOL_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
QUEUE_VARIABLE: Final = "OTEL_BSP_MAX_QUEUE_SIZE"
DISABLED_VARIABLE: Final = "OTEL_SDK_DISABLED"
ENTRY_POINT_GROUP: Final = "opentelemetry_traces_exporter"
"""Entry points under which packages register span exporters (the SDK's own group)."""

DEFAULT_QUEUE_SIZE: Final = 2048
"""Spans waiting for the exporter; OpenTelemetry's default of `QUEUE_VARIABLE`."""

_PROTOCOLS: Final = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_EXPORTERS: Final = {
    "console": "opentelemetry.sdk.trace.export:ConsoleSpanExporter",
    "otlp_proto_grpc": "opentelemetry.exporter.otlp.proto.grpc.trace_exporter:OTLPSpanExporter",
    "otlp_proto_http": "opentelemetry.exporter.otlp.proto.http.trace_exporter:OTLPSpanExporter",
}
"""Known without a scan of all installed packages, which takes milliseconds."""


class Sampling(NamedTuple):
    """What the sampler decided about one trace."""

    sampled: bool
    """The trace is exported; goes into the trace flags."""
    recording: bool
    """Spans are built at all; False when the sampler drops the trace."""
    attributes: dict[str, Any]
    """Attributes the sampler adds to the root span."""
    trace_state: str
    """W3C tracestate of the trace; empty when there is none."""


_ALWAYS: Final = (DEFAULT_ON, ALWAYS_ON)
"""Samplers that take every new trace: the SDK's default and the plainest one."""

_TAKEN: Final = Sampling(sampled=True, recording=True, attributes={}, trace_state="")


def ask_sampler(
    sampler: Sampler,
    trace_id: int,
    root: tuple[str, SpanKind, Mapping[str, Any]],
    parent: SpanContext | None,
) -> Sampling:
    """Ask an SDK sampler about the trace of a root span (name, kind, attributes)."""
    if parent is None and sampler in _ALWAYS:
        return _TAKEN
    name, kind, attributes = root
    # The current context is kept for its baggage, its span replaced by the given parent.
    context = set_span_in_context(INVALID_SPAN if parent is None else NonRecordingSpan(parent))
    result = sampler.should_sample(context, trace_id, name, kind, dict(attributes), ())
    added = {
        key: value
        for key, value in (result.attributes or {}).items()
        if key not in attributes or attributes[key] != value
    }
    return Sampling(
        sampled=result.decision is Decision.RECORD_AND_SAMPLE,
        recording=result.decision is not Decision.DROP,
        attributes=added,
        trace_state=result.trace_state.to_header() if result.trace_state else "",
    )


class CountingExporter(SpanExporter):
    """Counts what became of the spans of a provider we built, so that a flush can be honest.

    The batch processor drops spans in silence when its queue is full, and its ``force_flush``
    answers True with everything lost. Both are avoided by letting no more spans in than fit
    (`admit`) and by reading each export result. What the exporter itself takes for a success
    counts as one: an OTLP receiver's partial rejection cannot be seen from here.
    """

    def __init__(
        self, exporter: SpanExporter, counts: SinkCounts, capacity: int = DEFAULT_QUEUE_SIZE
    ) -> None:
        """Wrap `exporter`; at most `capacity` spans may be admitted and not yet exported."""
        self._exporter = exporter
        self._counts = counts
        self._capacity = capacity
        self._outstanding = 0
        self._losses = 0
        self._losses_told = 0
        self._abandoned = False
        self._lock = threading.Lock()
        after_fork = weakref.WeakMethod(self._after_fork)
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=lambda: (hook := after_fork()) and hook())

    def admit(self) -> bool:
        """Make room for one sampled span; False (counted as ``queue_full``) when there is none."""
        with self._lock:
            if self._outstanding >= self._capacity:
                self._lose(1, "queue_full")
                return False
            self._outstanding += 1
            return True

    def accept(self, events: int) -> None:
        """Count events that need no export as exported."""
        with self._lock:
            self._counts.exported += events

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export and count: success as exported, failure and exceptions as ``rejected``."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._settle(len(spans), ok=result is SpanExportResult.SUCCESS)
        return result

    def all_delivered(self) -> bool:
        """Tell whether nothing waits and nothing was lost since this was last asked."""
        with self._lock:
            delivered = self._outstanding <= 0 and self._losses == self._losses_told
            self._losses_told = self._losses
            return delivered

    def abandon(self) -> None:
        """Count what still waits as dropped by ``shutdown``; later results change nothing."""
        with self._lock:
            self._abandoned = True
            self._lose(self._outstanding, "shutdown")
            self._outstanding = 0

    def shutdown(self) -> None:
        """Shut the wrapped exporter down."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the wrapped exporter; milliseconds."""
        return self._exporter.force_flush(timeout_millis)

    def _settle(self, spans: int, *, ok: bool) -> None:
        with self._lock:
            if self._abandoned:
                return
            self._outstanding -= spans
            if ok:
                self._counts.exported += spans
            else:
                self._lose(spans, "rejected")

    def _lose(self, spans: int, reason: str) -> None:
        self._losses += spans
        self._counts.dropped[reason] += spans

    def _after_fork(self) -> None:
        """Start empty in a forked child: the SDK clears its queue there, the parent exports it."""
        self._lock = threading.Lock()
        self._outstanding = 0


class _FanOut(SpanExporter):
    """Several exporters behind one queue; a batch counts as delivered when all took it."""

    def __init__(self, exporters: Sequence[SpanExporter]) -> None:
        self._exporters = exporters

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        results = [exporter.export(spans) for exporter in self._exporters]
        failed = any(result is not SpanExportResult.SUCCESS for result in results)
        return SpanExportResult.FAILURE if failed else SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        for exporter in self._exporters:
            exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        flushed = [exporter.force_flush(timeout_millis) for exporter in self._exporters]
        return all(flushed)


class EnvironmentProvider(TracerProvider):
    """A TracerProvider configured by ``OTEL_*`` alone, never registered as the global one.

    Exporters are imported and connected when the first tracer is asked for: the sampling
    decision is made on the agent's thread, which must not wait for an import of gRPC.
    It has no exit hook: an unreachable endpoint would hold up the exit for 30 s.
    """

    def __init__(
        self,
        exporters: Sequence[str],
        counts: SinkCounts,
        *,
        resource: Resource | None = None,
        sampler: Sampler | None = None,
    ) -> None:
        """Prepare export to `exporters` (names as in `EXPORTER_VARIABLE`)."""
        super().__init__(sampler=sampler, resource=resource, shutdown_on_exit=False)
        self.delivery: CountingExporter | None = None
        """None until the first tracer is asked for."""
        self.counts = counts
        """Receives what is exported and dropped."""
        self._names = exporters
        self._connecting = threading.Lock()
        process_life.hold_at_fork(self._connecting)  # and with it the locks of the imports

    def renewed(self) -> EnvironmentProvider:
        """Return the same provider without connections, for a forked child.

        Sockets and channels are the parent's: two processes would write into one stream.
        """
        return EnvironmentProvider(
            self._names, self.counts, resource=self.resource, sampler=self.sampler
        )

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:  # noqa: ANN401 - passed on
        """Return a tracer, connected to the exporters.

        Raises:
            SettingsError: an exporter cannot be imported, or refuses its own ``OTEL_*`` variables.
        """
        with self._connecting:
            if self.delivery is None:
                self._connect()
        return super().get_tracer(*args, **kwargs)

    def _connect(self) -> None:
        # requests imports it in the middle of a request: a child forked then could not.
        importlib.import_module("netrc")
        capacity = _queue_size()
        exporters = [_create(name) for name in self._names]
        exporter = exporters[0] if len(exporters) == 1 else _FanOut(exporters)
        delivery = CountingExporter(exporter, self.counts, capacity=capacity)
        try:
            self.add_span_processor(BatchSpanProcessor(delivery, max_queue_size=capacity))
        except ValueError as error:  # batch size above queue size, delay of zero
            msg = f"OTEL_BSP_*: {error}"
            raise SettingsError(msg) from error
        self.delivery = delivery


def tracer_provider_from_environment(
    counts: SinkCounts | None = None,
) -> EnvironmentProvider | None:
    """Build a provider from the standard ``OTEL_*`` variables, for applications without one.

    ``OTEL_TRACES_EXPORTER`` names the exporters (``otlp``, ``console``, any
    ``opentelemetry_traces_exporter`` entry point, or a comma list); it defaults to ``otlp`` when an
    OTLP endpoint is set. ``OTEL_EXPORTER_OTLP_(TRACES_)PROTOCOL`` picks gRPC (default) or
    HTTP. Exporters, batch processor, sampler, limits and resource read the rest themselves.
    Empty values count as unset. `counts` receives what is exported and dropped.

    Returns:
        None when the variables ask for no export.

    Raises:
        SettingsError: a value is not allowed; the message names variable, value and what is.
    """
    names = _exporter_names()
    if not names or _sdk_disabled():
        return None
    try:
        return EnvironmentProvider(
            names, SinkCounts() if counts is None else counts, resource=environment_resource()
        )
    except ValueError as error:  # the SDK's span limits; its message names the variable
        raise SettingsError(str(error)) from error


def resolve_provider(
    given: TracerProvider | None = None, counts: SinkCounts | None = None
) -> TracerProvider | None:
    """Return the given provider, else the global one of the SDK, else one from ``OTEL_*``.

    Call it as late as possible: applications may set their provider after building a handler.

    Raises:
        SettingsError: see `tracer_provider_from_environment`.
    """
    if _sdk_disabled():
        return None
    if given is not None:
        return given
    current = trace.get_tracer_provider()
    if isinstance(current, TracerProvider):
        return current
    return tracer_provider_from_environment(counts)


@lru_cache(maxsize=1)
def scope_version() -> str:
    """Return the version of this package, ``0`` when it is not installed."""
    try:
        return metadata.version("otel-journal")
    except metadata.PackageNotFoundError:
        return "0"


def _sdk_disabled() -> bool:
    return os.environ.get(DISABLED_VARIABLE, "").strip().lower() == "true"


def _first_set(variables: Sequence[str]) -> tuple[str, str]:
    """Return the first variable with a value, and the value; two empty strings when none has."""
    for variable in variables:
        if text := os.environ.get(variable, "").strip():
            return variable, text
    return "", ""


def _exporter_names() -> list[str]:
    """Read which exporters are wanted."""
    _, text = _first_set((EXPORTER_VARIABLE,))
    if not text:
        text = "otlp" if _first_set(ENDPOINT_VARIABLES)[1] else "none"
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == ["none"]:
        return []
    return [_otlp_by_protocol() if name == "otlp" else _checked(name, text) for name in names]


def _otlp_by_protocol() -> str:
    variable, protocol = _first_set(PROTOCOL_VARIABLES)
    try:
        return _PROTOCOLS[protocol or "grpc"]
    except KeyError:
        raise _not_allowed(variable, protocol, sorted(_PROTOCOLS)) from None


def _checked(name: str, text: str) -> str:
    if name in _EXPORTERS:
        return name
    known = metadata.entry_points(group=ENTRY_POINT_GROUP).names
    if name in known:
        return name
    allowed = sorted({"none (alone)", "otlp", *_EXPORTERS, *known})
    raise _not_allowed(EXPORTER_VARIABLE, text, allowed)


def _queue_size() -> int:
    _, text = _first_set((QUEUE_VARIABLE,))
    if not text:
        return DEFAULT_QUEUE_SIZE
    if not text.isdecimal() or not int(text):
        raise _not_allowed(QUEUE_VARIABLE, text, ["an integer above 0"])
    return int(text)


def _create(name: str) -> SpanExporter:
    """Import and build one exporter; it reads its own variables."""
    try:
        if name in _EXPORTERS:
            module, _, attribute = _EXPORTERS[name].partition(":")
            factory = getattr(importlib.import_module(module), attribute)
        else:
            factory = next(iter(metadata.entry_points(group=ENTRY_POINT_GROUP, name=name))).load()
        return cast("SpanExporter", factory())
    except (ImportError, ValueError) as error:
        msg = f"{EXPORTER_VARIABLE}: the exporter {name!r} cannot be built: {error}"
        raise SettingsError(msg) from error


def _not_allowed(variable: str, value: str, allowed: Sequence[str]) -> SettingsError:
    return SettingsError(f"{variable}={value!r} is not allowed; allowed: {', '.join(allowed)}")
