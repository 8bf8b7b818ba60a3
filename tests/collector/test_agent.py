"""The collector beside the application: spans reach a real Jaeger whole, without content."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from langchain.agents import create_agent
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Status, StatusCode
from prometheus_client import CollectorRegistry
from servers.jaeger import Jaeger, StoredSpan
from servers.otelcol import Otelcol
from servers.process import wait_until

from otel_journal import Journal, Settings, semconv
from otel_journal.testing import ScriptedModel, ai, tool_call

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden.recording import record
from golden.scenarios import SCENARIOS

ARRIVAL_S: Final = 30.0
SECRET: Final = "zq-content"  # noqa: S105 - stands for what people say

CONTENT: Final = (
    semconv.INPUT_MESSAGES,
    semconv.OUTPUT_MESSAGES,
    semconv.TOOL_DEFINITIONS,
    semconv.TOOL_CALL_ARGUMENTS,
    semconv.TOOL_CALL_RESULT,
    semconv.RETRIEVAL_QUERY,
    semconv.RETRIEVAL_DOCUMENTS,
    semconv.EXCEPTION_MESSAGE,
    semconv.EXCEPTION_STACKTRACE,
    "gen_ai.system_instructions",
    "gen_ai.prompt",
    "gen_ai.prompt.0.content",
    "gen_ai.completion.1.content",
    "gen_ai.completion.0.tool_calls.0.arguments",
    "input.value",
    "output.value",
    "llm.input_messages.0.message.content",
    "llm.output_messages.0.message.content",
    "llm.prompts.0",
    "llm.prompt_template.template",
    "retrieval.documents.0.document.content",
    "tool.parameters",
    "metadata",
    "traceloop.entity.input",
    "traceloop.entity.output",
)
"""Attributes that carry what people or models said; ours, then those of other instrumentations."""

HARMLESS: Final = (
    semconv.OPERATION_NAME,
    semconv.PROMPT_NAME,
    semconv.OUTPUT_TYPE,
    semconv.TOOL_NAME,
    semconv.TOOL_CALL_ID,
    semconv.TOOL_DESCRIPTION,
    semconv.RETRIEVAL_TOP_K,
    semconv.EXCEPTION_TYPE,
    semconv.OUTCOME,
    semconv.ERROR_TYPE,
    "input.mime_type",
    "llm.model_name",
    "traceloop.entity.name",
)
"""Names that look alike and stay."""


class Pair:
    """An agent's collector that sends to a Jaeger."""

    def __init__(self, otelcol: Callable[..., Otelcol], jaeger: Callable[..., Jaeger]) -> None:
        """Start both."""
        self.jaeger = jaeger()
        self.otelcol = otelcol("otelcol.yaml", export_to=self.jaeger.place.grpc_endpoint)

    def stored(self, sent: list[ReadableSpan], service: str) -> dict[str, StoredSpan]:
        """Wait until all traces have arrived whole; return what is there: span id -> span."""
        trace_ids = {f"{span.context.trace_id:032x}" for span in sent}
        self.jaeger.wait_for_traces(service, len(trace_ids), ARRIVAL_S)
        wait_until(lambda: len(self.jaeger.spans(trace_ids)) >= len(sent), ARRIVAL_S)
        return self.jaeger.spans(trace_ids)


@pytest.fixture
def pair(otelcol: Callable[..., Otelcol], jaeger: Callable[..., Jaeger]) -> Pair:
    """Provide a running pair."""
    return Pair(otelcol, jaeger)


def _sent(span: ReadableSpan) -> dict[str, Any]:
    context = span.context
    return {
        "name": span.name,
        "trace_id": f"{context.trace_id:032x}",
        "parent_span_id": f"{span.parent.span_id:016x}" if span.parent else "",
        "kind": span.kind.name,
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "status": span.status.status_code.name,
        "attributes": {
            name: json.dumps(value, separators=(",", ":")) if isinstance(value, tuple) else value
            for name, value in (span.attributes or {}).items()
        },
        # Jaeger's store on disk keeps lists as JSON, and no attributes of links.
        "links": [
            (f"{one.context.trace_id:032x}", f"{one.context.span_id:016x}") for one in span.links
        ],
    }


def _stored(span: StoredSpan) -> dict[str, Any]:
    links = [(link.trace_id, link.span_id) for link in span.links]
    same = ("name", "trace_id", "parent_span_id", "kind", "start_ns", "end_ns", "status")
    return {name: getattr(span, name) for name in same} | {
        "attributes": dict(span.attributes),
        "links": links,
    }


def test_all_golden_scenarios_arrive_as_they_were_sent(
    pair: Pair, send: Callable[..., bool]
) -> None:
    """Trees, ids, times, attributes, links and statuses of 75 real programs, read back."""
    sent = [
        span
        for number in SCENARIOS
        for span in record(number, next(iter(SCENARIOS[number].programs)))
    ]
    assert send(pair.otelcol.place.http_endpoint, sent)
    [service] = {str(span.resource.attributes["service.name"]) for span in sent}

    stored = pair.stored(sent, service)

    assert len(sent) >= 300
    assert {span_id: _stored(span) for span_id, span in stored.items()} == {
        f"{span.context.span_id:016x}": _sent(span) for span in sent
    }
    assert sum(len(span.links) for span in stored.values()) >= 10
    assert {span.status for span in stored.values()} == {"UNSET", "ERROR"}


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_journal_exports_through_it(
    pair: Pair, protocol: str, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With OTEL_* alone a run reaches Jaeger; content that was captured on purpose ends here."""
    place = pair.otelcol.place
    endpoints = {"grpc": place.grpc_endpoint, "http/protobuf": place.http_endpoint}
    # No test may inherit a global provider that another one has set.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoints[protocol])
    monkeypatch.setenv("OTEL_SERVICE_NAME", "calculator-service")
    monkeypatch.setenv("OTEL_JOURNAL_CAPTURE_CONTENT", "true")

    def add(x: int, y: int) -> int:
        """Add two numbers."""
        raise ArithmeticError(SECRET, x, y)

    model = ScriptedModel(script=[ai(SECRET, tool_call("add", {"x": 1, "y": 2}, "c1"))])
    agent = create_agent(model, [add], name="calculator")
    with Journal(Settings.from_env(), registry=registry) as journal:
        with pytest.raises(ArithmeticError):
            agent.invoke({"messages": [("user", SECRET)]}, {"callbacks": [journal.handler()]})
        assert journal.flush()
    [trace_id] = pair.jaeger.wait_for_traces("calculator-service", 1, ARRIVAL_S)
    wait_until(lambda: len(pair.jaeger.trace(trace_id)) >= 5, ARRIVAL_S)
    spans = pair.jaeger.trace(trace_id)

    assert sorted(span.name for span in spans) == [
        "chat scripted-1", "execute_tool add", "invoke_agent calculator", "model", "tools",
    ]  # fmt: skip
    assert SECRET not in repr(spans)
    assert {span.attributes.get("error.type") for span in spans} == {None, "ArithmeticError"}


def _of_events() -> dict[str, str]:
    """Content under the names of the conventions, which span events use, too."""
    names = (name for name in CONTENT if name.startswith(("gen_ai.", "exception.")))
    return dict.fromkeys(names, SECRET)


def test_content_ends_at_the_agent(pair: Pair, maker: Any, send: Callable[..., bool]) -> None:
    """Texts of attributes, span events and statuses are gone; names that look alike stay."""
    with maker.tracer.start_as_current_span("said") as span:
        for name in (*CONTENT, *HARMLESS):
            span.set_attribute(name, SECRET if name in CONTENT else "kept")
        span.add_event("exception", _of_events() | {"exception.type": "kept"})
        span.add_event("gen_ai.user.message", {"content": SECRET, "role": "user"})
        span.set_status(Status(StatusCode.ERROR, SECRET))
    sent = maker.take()
    assert send(pair.otelcol.place.http_endpoint, sent)

    [stored] = pair.stored(sent, maker.service).values()

    assert dict(stored.attributes) == dict.fromkeys(HARMLESS, "kept")
    assert SECRET not in repr(stored)
    assert stored.status == "ERROR"
    events = dict(stored.events)
    assert events["exception"]["exception.type"] == "kept"
    assert events["gen_ai.user.message"] == {"role": "user"}


class Load:
    """Sends traces one after the other, each until it is acknowledged."""

    def __init__(self, endpoint: str, maker: Any, send: Callable[..., bool]) -> None:
        """Begin to send in a thread."""
        self.acknowledged: list[ReadableSpan] = []
        self.refused = 0
        self._endpoint, self._maker, self._send = endpoint, maker, send
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            with self._maker.tracer.start_as_current_span("run"):
                for _ in range(9):
                    self._maker.tracer.start_span("step").end()
            spans = self._maker.take()
            while not self._send(self._endpoint, spans):
                self.refused += 1
                if self._stop.wait(0.1):
                    return
            self.acknowledged += spans

    def wait_for_more(self, spans: int) -> None:
        """Wait until so many more spans are acknowledged."""
        goal = len(self.acknowledged) + spans
        assert wait_until(lambda: len(self.acknowledged) >= goal, ARRIVAL_S)

    def stop(self) -> None:
        """Send no further trace."""
        self._stop.set()
        self._thread.join()


@pytest.fixture
def load(maker: Any, send: Callable[..., bool]) -> Iterator[Callable[[str], Load]]:
    """Provide a factory: ``load(endpoint)``."""
    with ExitStack() as running:

        def start(endpoint: str) -> Load:
            load = Load(endpoint, maker, send)
            running.callback(load.stop)
            return load

        yield start


def test_nothing_acknowledged_is_lost_by_a_crash_or_an_outage(
    pair: Pair,
    otelcol: Callable[..., Otelcol],
    jaeger: Callable[..., Jaeger],
    load: Callable[[str], Load],
    maker: Any,
) -> None:
    """Jaeger away, the agent killed without it and with it again, under load: all arrives."""
    sending = load(pair.otelcol.place.http_endpoint)
    sending.wait_for_more(100)
    pair.jaeger.stop()
    sending.wait_for_more(400)  # on disk only
    pair.otelcol.kill()
    pair.otelcol = otelcol(
        "otelcol.yaml", export_to=pair.jaeger.place.grpc_endpoint, place=pair.otelcol.place
    )
    sending.wait_for_more(100)
    pair.jaeger = jaeger(pair.jaeger.place)
    sending.wait_for_more(100)
    pair.otelcol.kill()
    pair.otelcol = otelcol(
        "otelcol.yaml", export_to=pair.jaeger.place.grpc_endpoint, place=pair.otelcol.place
    )
    sending.stop()

    traces = {f"{span.context.trace_id:032x}" for span in sending.acknowledged}
    wait_until(lambda: traces <= pair.jaeger.trace_ids(maker.service), ARRIVAL_S)
    assert sending.refused
    assert traces <= pair.jaeger.trace_ids(maker.service)
    # A request that was sent again may be there twice; none may lack a span.
    wanted = {f"{span.context.span_id:016x}" for span in sending.acknowledged}
    found = {span.span_id for trace_id in traces for span in pair.jaeger.trace(trace_id)}
    assert found >= wanted


def test_a_full_queue_refuses(
    otelcol: Callable[..., Otelcol], maker: Any, send: Callable[..., bool]
) -> None:
    """Beyond its limit the agent acknowledges nothing: whoever sends keeps it."""
    nobody = "http://127.0.0.1:9"
    agent = otelcol("otelcol.yaml", export_to=nobody, OTELCOL_QUEUE_BYTES="1000000")
    answers = []
    for _ in range(40):
        with maker.tracer.start_as_current_span("run") as span:
            span.set_attribute("filler", "x" * 100_000)
        answers.append(send(agent.place.http_endpoint, maker.take()))

    assert answers[0]
    assert not answers[-1]
