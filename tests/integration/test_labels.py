"""Labels and buckets of the scrape page, and the conversation on spans: bounded, and as agreed."""

# ruff: noqa: ARG001 - nodes and tools get values they need not read

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Iterator
from typing import Any, TypedDict
from uuid import UUID, uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from otel_journal import Journal, Settings
from otel_journal.testing import ScriptedModel, ai, tool_call

FORBIDDEN_LABELS = re.compile(
    r"run_id|thread|conversation|trace|span|user|session|checkpoint|call_id|prompt|document"
)
RUNS = 5_000
CAP = 50

USAGE: Any = {
    "input_tokens": 100,
    "output_tokens": 20,
    "total_tokens": 120,
    "input_token_details": {"cache_read": 40},
}


class State(TypedDict, total=False):
    """A number."""

    x: int


def bounds(registry: CollectorRegistry, name: str) -> list[float]:
    """Return the finite bucket bounds of a histogram, one label set of it."""
    found = {
        float(sample.labels["le"])
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"{name}_bucket"
    }
    return sorted(found)[:-1]


def series(registry: CollectorRegistry) -> int:
    """Return how many samples a scrape gets."""
    return sum(len(family.samples) for family in registry.collect())


def labels(registry: CollectorRegistry) -> set[str]:
    """Return the names of all labels."""
    return {label for family in registry.collect() for s in family.samples for label in s.labels}


def _everything(journal: Journal) -> None:
    """Use an agent, a workflow, a tool, a failing tool, a stream."""

    @tool
    def look(q: str) -> str:
        """Look."""
        return q

    script = [ai("", tool_call("look", {"q": "x"}, "c1"), usage=USAGE), ai("done", usage=USAGE)]
    agent = create_agent(ScriptedModel(script=script), [look], name="boss")
    config: Any = {"callbacks": [journal.handler()], "configurable": {"thread_id": "t1"}}
    agent.invoke({"messages": [HumanMessage("q")]}, config)
    list(ScriptedModel(script=[ai("one two", usage=USAGE)]).stream("q", config))
    graph = StateGraph(State)
    graph.add_node("n", lambda _: {})
    graph.add_edge(START, "n")
    graph.compile(name="flow").invoke({"x": 1}, config)
    assert journal.flush()


# Buckets ------------------------------------------------------------------------------------

D = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
A = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6]
T = [
    1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864,
]  # fmt: skip
N = [1, 2, 4, 8, 16, 32, 64, 128]
W = [1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200]


@pytest.mark.parametrize(
    ("semconv", "name", "expected"),
    [
        ("0.1", "gen_ai_client_inference_duration_seconds", D),
        ("0.1", "gen_ai_client_inference_time_to_first_chunk_seconds", D),
        ("0.1", "gen_ai_client_inference_time_per_output_chunk_seconds", D),
        ("0.1", "gen_ai_client_inference_operation_input_tokens", T),
        ("0.1", "gen_ai_client_inference_operation_output_tokens", T),
        ("0.1", "gen_ai_execute_tool_duration_seconds", D),
        ("0.1", "gen_ai_invoke_agent_duration_seconds", A),
        ("0.1", "gen_ai_invoke_agent_inference_calls", N),
        ("0.1", "gen_ai_invoke_agent_tool_calls", N),
        ("1.41", "gen_ai_client_operation_duration_seconds", D),
        ("1.41", "gen_ai_client_token_usage", T),
        ("1.41", "gen_ai_invoke_workflow_duration_seconds", W),
        ("both", "gen_ai_client_inference_duration_seconds", D),
        ("both", "gen_ai_client_token_usage", T),
    ],
)
def test_buckets_are_those_of_the_conventions(
    tracer_provider: TracerProvider,
    registry: CollectorRegistry,
    semconv: Any,
    name: str,
    expected: list[float],
) -> None:
    """A duration in seconds lands in buckets of seconds, tokens in powers of four."""
    settings = Settings(semconv=semconv)
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        _everything(journal)

        assert bounds(registry, name) == expected


# Conversation -------------------------------------------------------------------------------


def _nested(journal: Journal, way: str) -> None:
    model = ScriptedModel(script=[ai("hi")])

    @tool
    def look(q: str) -> str:
        """Look."""
        return str(model.invoke(q).content)

    script = [ai("", tool_call("look", {"q": "x"}, "c1")), ai("done")]
    agent = create_agent(ScriptedModel(script=script), [look], name="boss")
    inner = StateGraph(State)
    inner.add_node("think", lambda _: {"x": len(str(model.invoke("q").content))})
    inner.add_edge(START, "think")

    async def ask_async(state: State) -> State:
        await agent.ainvoke({"messages": [HumanMessage("q")]})
        return {}

    def ask(state: State) -> State:
        agent.invoke({"messages": [HumanMessage("q")]})
        return {}

    outer = StateGraph(State)
    outer.add_node("sub", inner.compile())
    outer.add_node("ask", ask_async if way == "async" else ask)
    outer.add_edge(START, "sub")
    outer.add_edge("sub", "ask")
    graph = outer.compile()
    config: Any = {"callbacks": [journal.handler()], "configurable": {"thread_id": "t1"}}

    async def use() -> None:
        await graph.ainvoke({"x": 1}, config)

    if way == "async":
        asyncio.run(use())
    elif way == "stream":
        list(graph.stream({"x": 1}, config))
    else:
        graph.invoke({"x": 1}, config)


@pytest.mark.parametrize("way", ["invoke", "stream", "async"])
def test_conversation_is_on_every_span(
    journal: Journal, spans: InMemorySpanExporter, registry: CollectorRegistry, way: str
) -> None:
    """The thread is inherited down to subgraphs, tools and models in tools, but is no label."""
    _nested(journal, way)
    assert journal.flush()
    found = spans.get_finished_spans()

    assert len(found) >= 10
    missing = [
        span.name for span in found if (span.attributes or {}).get("gen_ai.conversation.id") != "t1"
    ]
    assert missing == []
    assert '"t1"' not in generate_latest(registry).decode()


def test_conversation_is_never_invented(journal: Journal, spans: InMemorySpanExporter) -> None:
    """Without a thread there is no conversation id, not a run id in its place."""
    ScriptedModel(script=[ai("hi")]).invoke("q", {"callbacks": [journal.handler()]})
    assert journal.flush()
    (span,) = spans.get_finished_spans()

    assert "gen_ai.conversation.id" not in (span.attributes or {})


def test_handlers_thread_wins(journal: Journal, spans: InMemorySpanExporter) -> None:
    """A thread bound to the handler is the conversation of all its runs."""
    handler = journal.handler(thread_id="bound")
    ScriptedModel(script=[ai("hi")]).invoke("q", {"callbacks": [handler]})
    assert journal.flush()
    (span,) = spans.get_finished_spans()

    assert (span.attributes or {})["gen_ai.conversation.id"] == "bound"


# Cardinality --------------------------------------------------------------------------------


@pytest.fixture
def capped(registry: CollectorRegistry) -> Iterator[Journal]:
    """Provide a journal with a small cap on label values and without spans."""
    settings = Settings(max_label_values=CAP, spans="none", linger=0.0)
    with Journal(settings, registry=registry) as journal:
        yield journal


def test_no_label_identifies_a_run(journal: Journal, registry: CollectorRegistry) -> None:
    """No label can hold an id of a run, a thread, a user or a call."""
    _everything(journal)

    assert not {name for name in labels(registry) if FORBIDDEN_LABELS.search(name)}


def test_series_do_not_grow_with_runs(
    capped: Journal, registry: CollectorRegistry, sample: Any
) -> None:
    """Thousands of runs with names, threads, users and models of their own fit into the caps."""
    handler = capped.handler()
    sizes = []
    for n in range(RUNS):
        root, call, used = UUID(int=3 * n + 1), UUID(int=3 * n + 2), UUID(int=3 * n + 3)
        metadata = {"thread_id": f"t{n}", "user_id": n, "ls_model_name": f"m{n}"}
        metadata |= {"ls_provider": f"p{n}"}
        handler.on_chain_start({}, {}, run_id=root, name=f"r{n}", metadata=metadata)
        handler.on_chat_model_start({}, [], run_id=call, parent_run_id=root, metadata=metadata)
        handler.on_llm_error(ValueError(n), run_id=call, parent_run_id=root)
        handler.on_tool_start({"name": f"hallucinated_{n}"}, "", run_id=used, parent_run_id=root)
        handler.on_tool_end("ok", run_id=used, parent_run_id=root)
        handler.on_chain_end({}, run_id=root)
        if n in {RUNS // 2, RUNS - 1}:
            assert capped.flush(30.0)
            sizes.append(series(registry))

    assert sizes[0] == sizes[1], "the page grows with the number of runs"
    for label in ("gen_ai_agent_name", "gen_ai_request_model", "gen_ai_tool_name"):
        values = {
            s.labels[label]
            for family in registry.collect()
            for s in family.samples
            if label in s.labels
        }
        assert "__other__" in values, label
        assert len(values) <= CAP + 2, label
        assert sample("otel_journal_label_overflow_total", label=label) > 0
    assert sample("otel_journal_runs_total", outcome="ok") == RUNS
    assert sample("otel_journal_tool_calls_total", outcome="ok") == RUNS
    assert sample("otel_journal_operations_open") == 0


def test_threads_and_users_alone_add_no_series(
    capped: Journal, registry: CollectorRegistry
) -> None:
    """With one graph, the number of series after many users is that after one."""
    graph = StateGraph(State)
    graph.add_node("n", lambda _: {})
    graph.add_edge(START, "n")
    compiled = graph.compile(name="flow")
    sizes = []
    for n in range(100):
        config: Any = {
            "callbacks": [capped.handler()],
            "configurable": {"thread_id": str(n)},
            "metadata": {"user_id": n},
        }
        compiled.invoke({"x": n}, config)
        if n in {0, 99}:
            assert capped.flush()
            sizes.append(series(registry))

    assert sizes[0] == sizes[1]
    assert sizes[1] < 500


def test_values_within_the_cap_keep_their_names(capped: Journal, sample: Any) -> None:
    """The first values are counted under their own names, later ones under one."""
    handler = capped.handler()
    for n in range(CAP + 10):
        handler.on_tool_start({"name": f"tool_{n:03}"}, "", run_id=(used := uuid4()))
        handler.on_tool_end("ok", run_id=used)
    assert capped.flush()

    first = sample("otel_journal_tool_calls_total", gen_ai_tool_name="tool_000", outcome="ok")
    other = sample("otel_journal_tool_calls_total", gen_ai_tool_name="__other__", outcome="ok")
    assert first == 1
    assert other >= 10
    assert sample("otel_journal_tool_calls_total", outcome="ok") == CAP + 10


# Exemplars ----------------------------------------------------------------------------------

EXEMPLAR = re.compile(r'_bucket\{[^}]*\} [\d.]+ # \{(?:trace_id="(\w{32})"|span_id="\w{16}"|,)+\}')


def test_exemplars_in_openmetrics(
    journal: Journal, spans: InMemorySpanExporter, registry: CollectorRegistry
) -> None:
    """Buckets and counters point at traces that exist."""
    _everything(journal)
    text = openmetrics.generate_latest(registry).decode()
    traces = {f"{span.context.trace_id:032x}" for span in spans.get_finished_spans()}

    found = {match.group(1) for match in EXEMPLAR.finditer(text)}
    assert found
    assert found <= traces
    with_exemplar = {line.partition("{")[0] for line in text.splitlines() if "# {" in line}
    assert "gen_ai_client_inference_duration_seconds_bucket" in with_exemplar
    assert "gen_ai_execute_tool_duration_seconds_bucket" in with_exemplar


def test_no_exemplars_of_unsampled_traces(registry: CollectorRegistry) -> None:
    """A trace that nobody exports is no exemplar; its tokens count all the same."""
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    with Journal(Settings(), tracer_provider=provider, registry=registry) as journal:
        _everything(journal)
        text = openmetrics.generate_latest(registry).decode()

    assert "# {" not in text
    tokens = [line for line in text.splitlines() if 'type="input"' in line and "journal" in line]
    assert sum(float(line.split("}")[1].split()[0]) for line in tokens) == 300
    provider.shutdown()


@pytest.mark.parametrize("openly", [True, False], ids=["openmetrics", "text"])
def test_exemplars_over_http(
    journal: Journal, registry: CollectorRegistry, *, openly: bool
) -> None:
    """A scraper that asks for OpenMetrics gets exemplars, another one valid text without."""
    _everything(journal)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        accept = "application/openmetrics-text; version=1.0.0" if openly else "text/plain"
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        request = urllib.request.Request(url, headers={"Accept": accept})
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            text = answer.read().decode()
            kind = answer.headers["Content-Type"]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    assert ("openmetrics" in kind) is openly
    assert (EXEMPLAR.search(text) is not None) is openly
