"""Who is compared: nothing, the floor, otel-journal, and other instrumentations if installed.

The floor is what any handler must at least do: one OpenTelemetry SDK span per operation with
twelve attributes (seven at the start, five at the end), one dictionary, one Prometheus counter
pair per model call. All export through a BatchSpanProcessor into an exporter that touches the
attributes and forgets the spans; metrics of others are recorded into a reader nobody reads.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, set_span_in_context
from prometheus_client import CollectorRegistry, Counter

QUEUE = 65_536
"""Spans that may wait: a benchmark must not be cheap by dropping."""
NOWHERE = "http://127.0.0.1:9"


class Forgetful(SpanExporter):
    """Touches what it is given, as any exporter would, and forgets it."""

    def __init__(self) -> None:
        """Start at nothing."""
        self.spans = self.attributes = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Count."""
        self.spans += len(spans)
        self.attributes += sum(len(span.attributes or ()) for span in spans)
        return SpanExportResult.SUCCESS


class Telemetry:
    """The application's side: providers, also the global ones, and a registry."""

    def __init__(self) -> None:
        """Set everything up."""
        self.exporter = Forgetful()
        self.resource = Resource.create({"service.name": "bench"})
        self.provider = TracerProvider(resource=self.resource)
        self.provider.add_span_processor(BatchSpanProcessor(self.exporter, max_queue_size=QUEUE))
        self.meters = MeterProvider(self.resource_readers(), resource=self.resource)
        self.registry = CollectorRegistry()
        trace.set_tracer_provider(self.provider)
        metrics.set_meter_provider(self.meters)

    @staticmethod
    def resource_readers() -> list[InMemoryMetricReader]:
        """Return the reader that makes recording cost what it costs."""
        return [InMemoryMetricReader()]


@dataclass
class Contender:
    """Somebody who listens to callbacks."""

    handlers: Callable[[], list[Any]] = list
    enter: Callable[[], object] = lambda: None
    """Switch on what patches globally."""
    leave: Callable[[], object] = lambda: None
    flush: Callable[[], object] = lambda: None
    """Finish work of threads of its own; belongs to what is timed."""
    patches: bool = False
    """It adds its handlers to every run by itself."""
    packages: tuple[str, ...] = field(default=())


class Floor(BaseCallbackHandler):
    """The least a handler can do."""

    run_inline = True

    def __init__(self, telemetry: Telemetry) -> None:
        """Prepare tracer and counters."""
        counter = Counter("bench_tokens", "Tokens", ["model", "type"], registry=telemetry.registry)
        self._tracer = telemetry.provider.get_tracer("floor")
        self._input = counter.labels("bench-1", "input")
        self._output = counter.labels("bench-1", "output")
        self._spans: dict[Any, Any] = {}

    def _start(self, name: str, operation: str, kind: SpanKind, run: Any, parent: Any) -> None:
        above = self._spans.get(parent)
        self._spans[run] = self._tracer.start_span(
            name,
            context=set_span_in_context(above) if above is not None else None,
            kind=kind,
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "openai",
                "gen_ai.conversation.id": "t-1",
                "langgraph.node": name,
                "langgraph.step": 1,
                "gen_ai.agent.name": "agent",
                "run.name": name,
            },
        )

    def _end(self, run: Any) -> None:
        span = self._spans.pop(run, None)
        if span is not None:
            span.set_attributes(
                {
                    "gen_ai.request.model": "bench-1",
                    "gen_ai.response.model": "bench-1",
                    "status": "ok",
                    "gen_ai.usage.input_tokens": 812,
                    "gen_ai.usage.output_tokens": 64,
                }
            )
            span.end()

    def on_chain_start(self, serialized, inputs, *, run_id, parent_run_id=None, **kwargs):  # noqa: ARG002
        """Begin a span."""
        name = kwargs.get("name") or "chain"
        self._start(name, "invoke_agent", SpanKind.INTERNAL, run_id, parent_run_id)

    def on_chat_model_start(self, serialized, messages, *, run_id, parent_run_id=None, **kwargs):  # noqa: ARG002
        """Begin a span."""
        self._start("chat bench-1", "chat", SpanKind.CLIENT, run_id, parent_run_id)

    def on_tool_start(self, serialized, input_str, *, run_id, parent_run_id=None, **kwargs):  # noqa: ARG002
        """Begin a span."""
        name = serialized["name"]
        self._start(name, "execute_tool", SpanKind.INTERNAL, run_id, parent_run_id)

    def on_llm_end(self, response, *, run_id, **kwargs):  # noqa: ARG002
        """Count tokens, end a span."""
        usage = response.generations[0][0].message.usage_metadata
        self._input.inc(usage["input_tokens"])
        self._output.inc(usage["output_tokens"])
        self._end(run_id)

    def on_chain_end(self, outputs, *, run_id, **kwargs):  # noqa: ARG002
        """End a span."""
        self._end(run_id)

    on_tool_end = on_chain_error = on_llm_error = on_tool_error = on_chain_end


def nothing(_telemetry: Telemetry) -> Contender:
    """Return nobody."""
    return Contender()


def floor(telemetry: Telemetry) -> Contender:
    """Return the floor."""
    handler = Floor(telemetry)
    return Contender(handlers=lambda: [handler])


def _journal(telemetry: Telemetry, **settings: Any) -> Contender:
    from otel_journal import Journal, Settings  # noqa: PLC0415 - the others run without us

    journal = Journal(
        Settings(**settings), tracer_provider=telemetry.provider, registry=telemetry.registry
    )
    handler = journal.handler()
    return Contender(
        handlers=lambda: [handler], flush=lambda: journal.flush(10), packages=("otel-journal",)
    )


def journal(telemetry: Telemetry) -> Contender:
    """Return otel-journal as it is."""
    return _journal(telemetry)


def journal_content(telemetry: Telemetry) -> Contender:
    """Return otel-journal with content capture."""
    return _journal(telemetry, capture_content=True)


# Others; names that are private to them are used where nothing else gives their handler -----


def openinference(telemetry: Telemetry, *, content: bool = True) -> Contender:
    """Return OpenInference (Arize Phoenix), which captures content by default."""
    base = importlib.import_module("openinference.instrumentation")
    module = importlib.import_module("openinference.instrumentation.langchain")
    instrumentor = module.LangChainInstrumentor()
    config = base.TraceConfig(hide_inputs=not content, hide_outputs=not content)
    return Contender(
        handlers=lambda: [instrumentor._tracer],
        enter=lambda: instrumentor.instrument(tracer_provider=telemetry.provider, config=config),
        leave=instrumentor.uninstrument,
        patches=True,
        packages=("openinference-instrumentation-langchain",),
    )


def traceloop(telemetry: Telemetry, *, content: bool = True) -> Contender:
    """Return OpenLLMetry (Traceloop), which captures content by default."""
    os.environ["TRACELOOP_TRACE_CONTENT"] = str(content).lower()
    module = importlib.import_module("opentelemetry.instrumentation.langchain")
    instrumentor = module.LangchainInstrumentor()
    meter = telemetry.meters.get_meter("traceloop")
    handler = module.TraceloopCallbackHandler(
        telemetry.provider.get_tracer("traceloop"),
        meter.create_histogram("gen_ai.client.operation.duration"),
        meter.create_histogram("gen_ai.client.token.usage"),
    )
    return Contender(
        handlers=lambda: [handler],
        enter=lambda: instrumentor.instrument(
            tracer_provider=telemetry.provider, meter_provider=telemetry.meters
        ),
        leave=instrumentor.uninstrument,
        patches=True,
        packages=("opentelemetry-instrumentation-langchain",),
    )


def genai(telemetry: Telemetry) -> Contender:
    """Return OpenTelemetry's own instrumentation, without content, its default."""
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "NO_CONTENT"
    module = importlib.import_module("opentelemetry.instrumentation.genai.langchain")
    instrumentor = module.LangChainInstrumentor()
    return Contender(
        handlers=lambda: [instrumentor._callback_handler],
        enter=lambda: instrumentor.instrument(
            tracer_provider=telemetry.provider, meter_provider=telemetry.meters
        ),
        leave=instrumentor.uninstrument,
        patches=True,
        packages=("opentelemetry-instrumentation-genai-langchain",),
    )


def langfuse(telemetry: Telemetry) -> Contender:
    """Return Langfuse, whose provider of its own exports to the same exporter."""
    client = importlib.import_module("langfuse").Langfuse(
        public_key="pk",
        secret_key="sk",  # noqa: S106 - of nobody
        base_url=NOWHERE,
        span_exporter=telemetry.exporter,
        tracer_provider=TracerProvider(resource=telemetry.resource),
    )
    handler = importlib.import_module("langfuse.langchain").CallbackHandler()
    return Contender(handlers=lambda: [handler], flush=client.flush, packages=("langfuse",))


CONTENDERS: dict[str, Callable[[Telemetry], Contender]] = {
    "otel-journal": journal,
    "otel-journal, content": journal_content,
    "openinference": openinference,
    "openinference, no content": lambda telemetry: openinference(telemetry, content=False),
    "traceloop": traceloop,
    "traceloop, no content": lambda telemetry: traceloop(telemetry, content=False),
    "otel genai": genai,
    "langfuse": langfuse,
}
"""Rows of the table; those that are not installed are left out."""

NEEDS = {
    "otel-journal": "otel_journal",
    "openinference": "openinference.instrumentation.langchain",
    "traceloop": "opentelemetry.instrumentation.langchain",
    "otel genai": "opentelemetry.instrumentation.genai.langchain",
    "langfuse": "langfuse",
}


def installed(name: str) -> bool:
    """Tell whether a contender can take part."""
    try:
        return importlib.util.find_spec(NEEDS[name.partition(",")[0]]) is not None
    except ModuleNotFoundError:
        return False


def versions(packages: tuple[str, ...]) -> str:
    """Return the versions of packages, as far as they are known."""
    return ", ".join(map(_version, packages))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


class Patches:
    """Puts back what instrumentors patch: some leave wrappers, and stack new ones each time."""

    _OWNERS = (
        "langchain_core.callbacks:BaseCallbackManager",
        "langchain_core.callbacks:CallbackManager",
        "langchain_core.callbacks:AsyncCallbackManager",
        "langchain_core.language_models:BaseChatModel",
        "langchain_core.tools:BaseTool",
        "langchain_core.retrievers:BaseRetriever",
        "langchain_core.runnables:Runnable",
        "langchain_core.runnables:RunnableLambda",
        "langchain_core.runnables.base:",
        "langchain_core.runnables.fallbacks:",
        "langgraph.pregel:Pregel",
        "langgraph.types:Command",
        "langgraph._internal._runnable:",
    )

    def __init__(self) -> None:
        """Note what is there now."""
        self._saved = []
        for owner in self._OWNERS:
            module, _, name = owner.partition(":")
            found: Any = importlib.import_module(module)
            found = getattr(found, name) if name else found
            self._saved.append((found, dict(vars(found))))

    def undo(self) -> None:
        """Put it back."""
        for owner, saved in self._saved:
            for name, value in saved.items():
                if callable(value) and vars(owner).get(name) is not value:
                    setattr(owner, name, value)
