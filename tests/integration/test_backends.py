"""The journal against real backends: an OpenTelemetry collector (rotel) and Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.callbacks import GraphCallbackHandler
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from prometheus_client import CollectorRegistry, start_http_server
from servers.otlp_records import ReceivedSpan
from servers.otlp_sink import OtlpSink
from servers.prometheus import Prometheus, check_metrics

from otel_journal import Journal, Settings
from otel_journal.testing import ScriptedModel, ai, tool_call

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

QUESTION: Final = {"messages": [("user", "1 + 2 and 3 + 4?")]}
SPANS_OF_AN_ANSWER: Final = {
    "invoke_agent calculator": 1,
    "model": 2,
    "chat scripted-1": 2,
    "tools": 2,
    "execute_tool add": 2,
}
"""One question: the model asks for two sums at once, then answers."""
SPANS_OF_A_FAILURE: Final = {"invoke_agent calculator": 1, "model": 1, "chat scripted-1": 1}


def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def calculator(*failure: BaseException) -> Any:
    """Return an agent that answers one question with known usage, or fails at its first call."""
    asks = ai(
        "",
        tool_call("add", {"x": 1, "y": 2}, "c1"),
        tool_call("add", {"x": 3, "y": 4}, "c2"),
        usage={
            "input_tokens": 12,
            "output_tokens": 5,
            "total_tokens": 17,
            "input_token_details": {"cache_read": 4},
        },
    )
    answers = ai("3 and 7", usage={"input_tokens": 20, "output_tokens": 7, "total_tokens": 27})
    model = ScriptedModel(script=failure or [asks, answers])
    return create_agent(model, [add], name="calculator")


class Parents(BaseCallbackHandler):
    """Notes, straight from LangChain, which callback run is whose child."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self.parents: dict[UUID, UUID | None] = {}

    def _note(
        self, _serialized: Any, _payload: Any, *, run_id: UUID, parent_run_id: UUID | None, **_: Any
    ) -> None:
        self.parents[run_id] = parent_run_id

    on_chain_start = on_chat_model_start = on_tool_start = _note

    def nearest(self, run_id: UUID, kept: Mapping[UUID, ReceivedSpan]) -> str:
        """Return the span id of the closest ancestor that has a span, empty for a root."""
        parent = self.parents[run_id]
        while parent is not None and parent not in kept:
            parent = self.parents[parent]
        return "" if parent is None else kept[parent].span_id


def _twice(hook: str) -> Callable[..., None]:
    def deliver(self: Twice, *args: Any, **kwargs: Any) -> None:
        for _ in range(2):
            getattr(self.handler, hook)(*args, **kwargs)

    return deliver


class Twice(GraphCallbackHandler):
    """Delivers every callback twice to the handler it wraps."""

    run_inline = True

    def __init__(self, handler: BaseCallbackHandler) -> None:
        """Wrap `handler`."""
        self.handler = handler


for _hook in dir(GraphCallbackHandler):
    if _hook.startswith("on_"):
        setattr(Twice, _hook, _twice(_hook))


class TestCollector:
    """Traces through a real OpenTelemetry collector."""

    @pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
    def test_a_run_arrives_complete_with_exact_parents(
        self,
        protocol: str,
        rotel: Callable[..., Any],
        otlp_sink: OtlpSink,
        registry: CollectorRegistry,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """With OTEL_* alone, every span arrives once, below the nearest ancestor that has one."""
        truth = Parents()
        # No test may inherit a global provider that another one has set.
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
        with rotel(forward_to=otlp_sink.grpc_endpoint) as collector:
            endpoints = {"grpc": collector.grpc_endpoint, "http/protobuf": collector.http_endpoint}
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoints[protocol])
            monkeypatch.setenv("OTEL_SERVICE_NAME", "calculator-service")
            with Journal(Settings.from_env(), registry=registry) as journal:
                calculator().invoke(QUESTION, {"callbacks": [truth, journal.handler()]})
                assert journal.flush()
            arrived = otlp_sink.wait_for_spans(sum(SPANS_OF_AN_ANSWER.values()))

        assert Counter(span.name for span in arrived) == SPANS_OF_AN_ANSWER
        assert len({span.trace_id for span in arrived}) == 1
        assert {span.resource["service.name"] for span in arrived} == {"calculator-service"}
        by_run = {UUID(span.attributes["langchain.run_id"]): span for span in arrived}
        assert {run: span.parent_span_id for run, span in by_run.items()} == {
            run: truth.nearest(run, by_run) for run in by_run
        }


@dataclass(frozen=True)
class Scene:
    """What was left behind by a script in which every callback came twice."""

    prometheus: Prometheus
    sink: OtlpSink
    exposition: str
    """The body of ``/metrics`` as text."""


ANSWERS: Final = 3
"""Questions that the script answers; one more fails."""

TOTALS: Final = {
    'otel_journal_runs_total{outcome="ok"}': ANSWERS,
    'otel_journal_runs_total{outcome="error"}': 1,
    "otel_journal_runs_started_total": ANSWERS + 1,
    "otel_journal_runs_in_flight": 0,
    'otel_journal_llm_calls_total{outcome="ok"}': ANSWERS * 2,
    'otel_journal_llm_calls_total{outcome="error"}': 1,
    'otel_journal_tokens_total{type="input"}': ANSWERS * (12 + 20),
    'otel_journal_tokens_total{type="output"}': ANSWERS * (5 + 7),
    'otel_journal_token_details_total{detail="cache_read"}': ANSWERS * 4,
    'otel_journal_tool_calls_total{gen_ai_tool_name="add",outcome="ok"}': ANSWERS * 2,
    "otel_journal_usage_missing_total": 0,
    "otel_journal_events_dropped_total": 0,
    "otel_journal_handler_errors_total": 0,
    "gen_ai_client_inference_usage_input_tokens_total": ANSWERS * (12 + 20),
    "gen_ai_client_inference_usage_output_tokens_total": ANSWERS * (5 + 7),
    "gen_ai_client_inference_duration_seconds_count": ANSWERS * 2 + 1,
    "gen_ai_execute_tool_duration_seconds_count": ANSWERS * 2,
    "gen_ai_invoke_agent_duration_seconds_count": ANSWERS + 1,
}
"""Metric -> its sum over all series after the script, as if no callback had been repeated."""


@pytest.fixture(scope="module")
def scene(prometheus_server: Callable[..., Prometheus]) -> Iterator[Scene]:
    """Run the script with every callback delivered twice; let Prometheus scrape the result."""
    registry = CollectorRegistry()
    provider = TracerProvider(shutdown_on_exit=False)
    with ExitStack() as cleanup:
        sink = cleanup.enter_context(OtlpSink())
        exporter = OTLPSpanExporter(endpoint=f"{sink.http_endpoint}/v1/traces")
        provider.add_span_processor(BatchSpanProcessor(exporter))
        cleanup.callback(provider.shutdown)
        server, thread = start_http_server(0, "127.0.0.1", registry)
        for stop in (thread.join, server.server_close, server.shutdown):
            cleanup.callback(stop)
        journal = cleanup.enter_context(
            Journal(Settings(), tracer_provider=provider, registry=registry)
        )
        for _ in range(ANSWERS):
            calculator().invoke(QUESTION, {"callbacks": [Twice(journal.handler())]})
        broken = calculator(ConnectionError("no answer"))
        with pytest.raises(ConnectionError):
            broken.invoke(QUESTION, {"callbacks": [Twice(journal.handler())]})
        assert journal.flush()
        target = f"127.0.0.1:{server.server_port}"
        prometheus = cleanup.enter_context(prometheus_server(targets=[target]))
        assert prometheus.wait_for_scrape()
        exposition = httpx.get(f"http://{target}/metrics").text
        yield Scene(prometheus, sink, exposition)


class TestPrometheus:
    """Counters and exemplars in a real Prometheus, after a script with every callback repeated."""

    @pytest.mark.parametrize(("metric", "total"), TOTALS.items())
    def test_counters_have_the_known_totals(self, scene: Scene, metric: str, total: int) -> None:
        """A second delivery of every callback adds nothing to any counter."""
        assert scene.prometheus.value(f"sum({metric})") == total

    def test_the_repeats_were_seen(self, scene: Scene) -> None:
        """Half of all callbacks are counted as replays, of every kind that the script uses."""
        kinds = '{kind=~"run|node|llm|tool"}'
        ratio = (
            f"sum by (kind) (otel_journal_replays_dropped_total{kinds})"
            f" / sum by (kind) (otel_journal_observations_total{kinds})"
        )
        found = {series.labels["kind"]: series.value for series in scene.prometheus.query(ratio)}
        assert found == {"run": 0.5, "node": 0.5, "llm": 0.5, "tool": 0.5}

    def test_every_span_is_exported_once(self, scene: Scene) -> None:
        """The receiver holds one span per operation, although each ended twice."""
        expected = Counter({name: n * ANSWERS for name, n in SPANS_OF_AN_ANSWER.items()})
        expected.update(SPANS_OF_A_FAILURE)
        assert Counter(span.name for span in scene.sink.spans) == expected

    def test_an_exemplar_leads_to_its_trace(self, scene: Scene) -> None:
        """Exemplars of the latency histogram name model calls that the receiver holds."""
        exemplars = scene.prometheus.exemplars("gen_ai_client_inference_duration_seconds_bucket")
        calls = {
            (span.trace_id, span.span_id)
            for span in scene.sink.spans
            if span.attributes.get("gen_ai.operation.name") == "chat"
        }
        named = {(found.labels["trace_id"], found.labels["span_id"]) for found in exemplars}
        assert named
        assert named <= calls

    def test_promtool_has_no_objection(self, scene: Scene, promtool: Any) -> None:
        """The exposition follows Prometheus' rules for names, units and help texts."""
        assert check_metrics(promtool, scene.exposition) == ""
        assert check_metrics(promtool, "# TYPE calls gauge\ncalls_total 1\n") != ""
