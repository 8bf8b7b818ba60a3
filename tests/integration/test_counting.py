"""Tokens: every call once, whoever delivers it, however often, in pieces or late."""

# ruff: noqa: ARG001, ARG002 - nodes, tools and models get values they need not read
# ruff: noqa: PLR0913, PLR0917 - fixtures and the dimensions of a case are all parameters

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, LLMResult
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, open_store
from otel_journal.testing import ScriptedModel, ai, tool_call

WAYS = ("invoke", "stream", "ainvoke", "astream")
FULL: Any = {
    "input_tokens": 100,
    "output_tokens": 20,
    "total_tokens": 120,
    "input_token_details": {"cache_read": 40, "cache_creation": 10},
    "output_token_details": {"reasoning": 8},
}
"""Usage of one call, with its details."""


class State(TypedDict, total=False):
    """A number in, a log out."""

    x: int
    log: Annotated[list[Any], operator.add]


@pytest.fixture
def journal(tracer_provider: TracerProvider, registry: CollectorRegistry) -> Iterator[Journal]:
    """Provide a journal with a store."""
    settings = Settings(grace=0.0, linger=0.0)
    with Journal(
        settings, tracer_provider=tracer_provider, registry=registry, store=open_store("memory:")
    ) as journal:
        yield journal


class Chunked(BaseChatModel):
    """A model whose streamed chunks carry the usage that a test gives them."""

    chunks: list[Any]
    """Usage of each chunk, None for a chunk without."""
    whole: Any = None
    """Usage of an answer that is not streamed."""
    beside: Any = None
    """``llm_output`` of an answer that is not streamed."""

    @property
    def _llm_type(self) -> str:
        return "chunked-chat"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage("a b", usage_metadata=self.whole)
        generation = ChatGeneration(message=message)
        return ChatResult(generations=[generation], llm_output=self.beside)

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for number, usage in enumerate(self.chunks):
            content = f"w{number} " if usage is None or usage["output_tokens"] else ""
            yield ChatGenerationChunk(message=AIMessageChunk(content=content, usage_metadata=usage))


def run(way: str, runnable: Any, value: Any, config: Any) -> Any:
    """Call a runnable one of four ways and consume what it streams."""
    if way == "invoke":
        return runnable.invoke(value, config)
    if way == "stream":
        return list(runnable.stream(value, config))

    async def use() -> Any:
        if way == "ainvoke":
            return await runnable.ainvoke(value, config)
        return [chunk async for chunk in runnable.astream(value, config)]

    return asyncio.run(use())


def line(*nodes: Any) -> CompiledStateGraph:
    """Compile a graph of nodes one after the other; a tuple names its node."""
    graph = StateGraph(State)
    last = START
    for node in nodes:
        name, body = node if isinstance(node, tuple) else (node.__name__, node)
        graph.add_node(name, body)
        graph.add_edge(last, name)
        last = name
    graph.add_edge(last, END)
    return graph.compile()


def calling(model: BaseChatModel, place: str) -> tuple[Any, Any]:
    """Return a runnable that calls the model once, in this place, and its input."""

    def think(state: State) -> State:
        model.invoke("q")
        return {}

    @tool
    def consult(q: str) -> str:
        """Ask the model."""
        return str(model.invoke(q).content)

    if place == "bare":
        return model, "q"
    if place == "node":
        return line(think), {"x": 1}
    if place == "subgraph":
        return line(("sub", line(think))), {"x": 1}
    if place == "tool":
        return consult, {"q": "x"}
    assert place == "agent"
    return create_agent(model, []), {"messages": [HumanMessage("q")]}


PLACES = ("bare", "node", "subgraph", "tool", "agent")


def model_spans(journal: Journal, spans: InMemorySpanExporter) -> list[dict[str, Any]]:
    """Return the attributes of all exported model calls."""
    assert journal.flush()
    found = [dict(span.attributes or {}) for span in spans.get_finished_spans()]
    return [a for a in found if a.get("gen_ai.operation.name") == "chat"]


def roots(journal: Journal, spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """Return the exported root spans."""
    assert journal.flush()
    return [span for span in spans.get_finished_spans() if span.parent is None]


@pytest.fixture
def tokens(journal: Journal, sample: Any) -> Any:
    """Provide a reader of the token counters: ``tokens("input", gen_ai_agent_name="x")``."""

    def read(kind: str, **labels: str) -> float:
        assert journal.flush()
        return sample("otel_journal_tokens_total", type=kind, **labels) or 0.0

    return read


# Delivered twice ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["node", "subgraph", "agent"])
@pytest.mark.parametrize("twice", ["bound and passed", "twice in the list", "two handlers"])
def test_two_deliveries_are_one_run(
    journal: Journal,
    spans: InMemorySpanExporter,
    tokens: Any,
    sample: Any,
    twice: str,
    place: str,
    way: str,
) -> None:
    """One run stays one, however its callbacks come twice."""
    graph, value = calling(ScriptedModel(script=[ai("hi", usage=FULL)]), place)
    one = journal.handler()
    if twice == "bound and passed":
        graph, passed = graph.with_config(callbacks=[one]), [one]
    else:
        passed = [one, one if twice == "twice in the list" else journal.handler()]
    run(way, graph, value, {"callbacks": passed})

    assert (tokens("input"), tokens("output")) == (100, 20)
    assert len(model_spans(journal, spans)) == 1
    assert len(roots(journal, spans)) == 1
    assert sample("otel_journal_operations_open") == 0
    assert sample("otel_journal_runs_total", outcome="ok") == 1
    assert sum(s.context.span_id != 0 for s in spans.get_finished_spans()) == len(
        {s.context.span_id for s in spans.get_finished_spans()}
    )


def test_handler_at_model_and_graph(
    journal: Journal, spans: InMemorySpanExporter, tokens: Any
) -> None:
    """A handler in the model's own callbacks and in the run's config sees one call."""
    handler = journal.handler()
    model = ScriptedModel(script=[ai("hi", usage=FULL)], callbacks=[handler])
    graph, value = calling(model, "node")
    graph.invoke(value, {"callbacks": [handler]})

    assert tokens("input") == 100
    assert len(model_spans(journal, spans)) == 1


def test_replays_are_counted(journal: Journal, sample: Any) -> None:
    """What was dropped as a repeat is told by kind."""
    model = ScriptedModel(script=[ai("hi")])
    graph, value = calling(model, "node")
    graph.invoke(value, {"callbacks": [journal.handler(), journal.handler()]})
    assert journal.flush()

    for kind in ("run", "node", "llm"):
        dropped = sample("otel_journal_replays_dropped_total", kind=kind)
        seen = sample("otel_journal_observations_total", kind=kind)
        assert dropped == seen / 2, kind
        assert dropped > 0, kind


def test_two_journals_on_one_store(registry: CollectorRegistry, sample: Any) -> None:
    """The second journal adds nothing to the store that the first has written."""
    store = open_store("memory:")
    graph, value = calling(ScriptedModel(script=[ai("hi")]), "node")
    with (
        Journal(Settings(grace=0.0), registry=registry, store=store) as one,
        Journal(Settings(grace=0.0), registry=CollectorRegistry(), store=store) as two,
    ):
        graph.invoke(value, {"callbacks": [one.handler(), two.handler()]})
        assert one.flush()
        assert two.flush()
    ids = [event.event_id for event in store.read(limit=1_000)]

    assert len(ids) == len(set(ids))
    assert sum(event.event_type == "run.end" for event in store.read(limit=1_000)) == 1
    assert sum(event.event_type == "llm.end" for event in store.read(limit=1_000)) == 1


@pytest.mark.parametrize("times", [2, 3])
def test_replayed_start_and_end(
    journal: Journal, spans: InMemorySpanExporter, tokens: Any, times: int
) -> None:
    """The whole life of a call delivered again is the same call."""
    handler, call = journal.handler(), uuid4()
    for _ in range(times):
        handler.on_chat_model_start({}, [[HumanMessage("q")]], run_id=call)
        handler.on_llm_end(_response(FULL), run_id=call)

    assert tokens("input") == 100
    assert len(model_spans(journal, spans)) == 1


def _response(usage: Any) -> LLMResult:
    return LLMResult(generations=[[ChatGeneration(message=AIMessage("a", usage_metadata=usage))]])


def test_equal_prompts_are_different_calls(
    journal: Journal, spans: InMemorySpanExporter, tokens: Any
) -> None:
    """Identity is the run id, never the text: the same prompt sent twice is billed twice."""
    model = ScriptedModel(script=[ai("hi", usage=FULL)])
    for _ in range(2):
        model.invoke("same", {"callbacks": [journal.handler()]})

    assert tokens("input") == 200
    assert len(model_spans(journal, spans)) == 2


# Usage in pieces ----------------------------------------------------------------------------


def usage(given: int, written: int, **details: Any) -> Any:
    """Return usage as a chunk carries it."""
    return {
        "input_tokens": given,
        "output_tokens": written,
        "total_tokens": given + written,
        **details,
    }


@pytest.mark.parametrize("way", ["stream", "astream"])
def test_usage_split_over_chunks(
    journal: Journal, spans: InMemorySpanExporter, tokens: Any, way: str
) -> None:
    """Input in the first chunk, output in the others: LangChain merges them, once."""
    cached = {"input_token_details": {"cache_read": 40}}
    model = Chunked(chunks=[usage(100, 1, **cached), usage(0, 9), usage(0, 10)])
    run(way, model, "q", {"callbacks": [journal.handler()]})

    assert (tokens("input"), tokens("output")) == (100, 20)
    (chat,) = model_spans(journal, spans)
    assert chat["gen_ai.usage.input_tokens"] == 100
    assert chat["gen_ai.usage.output_tokens"] == 20
    assert chat["gen_ai.request.stream"] is True


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_details_are_parts_not_extras(
    journal: Journal, spans: InMemorySpanExporter, tokens: Any, sample: Any, place: str, way: str
) -> None:
    """Cache and reasoning tokens stand beside the totals they belong to, never on top of them."""
    runnable, value = calling(ScriptedModel(script=[ai("hi", usage=FULL)]), place)
    run(way, runnable, value, {"callbacks": [journal.handler()]})

    assert (tokens("input"), tokens("output")) == (100, 20)
    for detail, count in (("cache_read", 40), ("cache_write", 10), ("reasoning", 8)):
        assert sample("otel_journal_token_details_total", detail=detail) == count
        assert sample("otel_journal_tokens_total", type=detail) is None
    stem = "gen_ai_client_inference_usage_"
    assert sample(f"{stem}cache_read_input_tokens_total") == 40
    assert sample(f"{stem}cache_write_input_tokens_total") == 10
    assert sample(f"{stem}reasoning_output_tokens_total") == 8
    assert sample(f"{stem}input_tokens_total") == 100
    (chat,) = model_spans(journal, spans)
    assert chat["gen_ai.usage.cache_read.input_tokens"] == 40
    assert chat["gen_ai.usage.cache_write.input_tokens"] == 10
    assert chat["gen_ai.usage.reasoning.output_tokens"] == 8


def test_unknown_details_are_kept_in_a_bounded_set(
    journal: Journal, registry: CollectorRegistry, tokens: Any
) -> None:
    """Providers invent detail names: they are folded, and never billed twice."""
    details = {f"invented_{n}": 1 for n in range(300)}
    for _ in range(2):
        found = usage(100, 20, input_token_details=details)
        model = ScriptedModel(script=[ai("hi", usage=found)])
        model.invoke("q", {"callbacks": [journal.handler()]})

    assert (tokens("input"), tokens("output")) == (200, 40)
    names = {
        s.labels["detail"]
        for family in registry.collect()
        for s in family.samples
        if s.name == "otel_journal_token_details_total"
    }
    assert len(names) <= 120


@pytest.mark.parametrize(
    ("usage_metadata", "llm_output", "expected"),
    [
        (usage(458, 20), {"token_usage": {"prompt_tokens": 3, "completion_tokens": 1}}, (458, 20)),
        (None, {"token_usage": {"prompt_tokens": 100, "completion_tokens": 20}}, (100, 20)),
        (None, {"usage": {"input_tokens": 100, "output_tokens": 20}}, (100, 20)),
    ],
    ids=["the message wins", "only beside (OpenAI)", "only beside (Anthropic)"],
)
def test_source_of_usage(
    journal: Journal, tokens: Any, usage_metadata: Any, llm_output: Any, expected: tuple[int, int]
) -> None:
    """LangChain's own usage wins; what stands beside it is used only if there is none."""
    model = Chunked(chunks=[], whole=usage_metadata, beside=llm_output)
    model.disable_streaming = True
    model.invoke("q", {"callbacks": [journal.handler()]})

    assert (tokens("input"), tokens("output")) == expected


# No usage, free usage -----------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_absent_usage_is_not_zero(
    journal: Journal, spans: InMemorySpanExporter, tokens: Any, sample: Any, place: str, way: str
) -> None:
    """A provider that reports nothing gives no tokens and no zero, but is counted as silent."""
    runnable, value = calling(ScriptedModel(script=[ai("hi")], usage=None), place)
    run(way, runnable, value, {"callbacks": [journal.handler()]})

    (chat,) = model_spans(journal, spans)
    assert not [name for name in chat if name.startswith("gen_ai.usage.")]
    assert tokens("input") == 0
    assert sample("otel_journal_usage_missing_total") == 1
    assert sample("otel_journal_llm_calls_total", outcome="ok") == 1


def test_reported_zero_is_zero(journal: Journal, spans: InMemorySpanExporter, sample: Any) -> None:
    """A provider that says 0 said something."""
    model = ScriptedModel(script=[ai("hi", usage=usage(0, 0))])
    model.invoke("q", {"callbacks": [journal.handler()]})

    (chat,) = model_spans(journal, spans)
    assert chat["gen_ai.usage.input_tokens"] == 0
    assert sample("otel_journal_usage_missing_total") in {None, 0.0}


def test_failed_call_is_not_missing_usage(
    journal: Journal, spans: InMemorySpanExporter, sample: Any
) -> None:
    """A call that failed has no usage to miss."""
    model = ScriptedModel(script=[LookupError("no")])
    with pytest.raises(LookupError):
        model.invoke("q", {"callbacks": [journal.handler()]})
    assert journal.flush()

    assert sample("otel_journal_llm_calls_total", outcome="error") == 1
    assert sample("otel_journal_usage_missing_total") in {None, 0.0}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["bare", "node", "tool"])
def test_cached_answer_is_not_billed(
    journal: Journal, spans: InMemorySpanExporter, tokens: Any, sample: Any, place: str, way: str
) -> None:
    """A hit of LangChain's cache is a call with a mark, and costs nothing."""
    model = ScriptedModel(script=[ai("hi", usage=FULL)], cache=InMemoryCache())
    runnable, value = calling(model, place)
    for _ in range(2):
        run(way, runnable, value, {"callbacks": [journal.handler()]})
    first, second = sorted(
        model_spans(journal, spans), key=lambda span: "otel_journal.cache_hit" in span
    )

    if "stream" in way and place == "bare":
        assert (tokens("input"), len(model_spans(journal, spans))) == (200, 2)
        return  # LangChain does not look into its cache when the caller streams a model
    assert tokens("input") == 100
    assert "otel_journal.cache_hit" not in first
    assert second["otel_journal.cache_hit"] is True
    assert not [name for name in second if name.startswith("gen_ai.usage.")]
    assert sample("otel_journal_usage_missing_total") in {None, 0.0}


# Late usage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("settled", ["waiting", "flushed", "run over"])
def test_late_usage_counts_once(
    tracer_provider: TracerProvider,
    registry: CollectorRegistry,
    spans: InMemorySpanExporter,
    sample: Any,
    settled: str,
) -> None:
    """Whenever the first positive usage comes it is booked once, and it can be found."""
    with Journal(
        Settings(grace=60.0),
        tracer_provider=tracer_provider,
        registry=registry,
        store=open_store("memory:"),
    ) as journal:
        handler, root, call = journal.handler(), uuid4(), uuid4()
        handler.on_chain_start({}, {}, run_id=root, name="graph")
        handler.on_chat_model_start({}, [[HumanMessage("q")]], run_id=call, parent_run_id=root)
        handler.on_llm_end(_response(None), run_id=call, parent_run_id=root)
        if settled == "flushed":
            assert journal.flush()
        if settled == "run over":
            handler.on_chain_end({}, run_id=root)
        for _ in range(2):
            handler.on_llm_end(_response(FULL), run_id=call, parent_run_id=root)
        handler.on_llm_end(_response(usage(999, 9)), run_id=call, parent_run_id=root)
        handler.on_chain_end({}, run_id=root)
        assert journal.flush()

        assert sample("otel_journal_tokens_total", type="input") == 100
        assert sample("otel_journal_usage_conflicts_total") == 1
        assert journal.summary(root).input_tokens == 100
        booked = [
            event.span.usage.input_tokens
            for event in journal.store.events(str(root), {"llm.end", "usage.amended"})
            if event.span.usage is not None
        ]
        assert booked == [100]
        (chat,) = model_spans(journal, spans)
        assert ("gen_ai.usage.input_tokens" in chat) is (settled == "waiting")


def test_late_usage_of_two_interleaved_calls(journal: Journal, tokens: Any) -> None:
    """Each of two silent parallel calls gets its own usage."""
    handler, root, calls = journal.handler(), uuid4(), [uuid4(), uuid4()]
    handler.on_chain_start({}, {}, run_id=root, name="graph")
    for call in calls:
        handler.on_chat_model_start({}, [[HumanMessage("q")]], run_id=call, parent_run_id=root)
    for call in calls:
        handler.on_llm_end(_response(None), run_id=call, parent_run_id=root)
    for call, count in zip(calls, (100, 50), strict=True):
        handler.on_llm_end(_response(usage(count, 1)), run_id=call, parent_run_id=root)
    handler.on_chain_end({}, run_id=root)
    assert journal.flush()
    ends = journal.store.events(str(root), {"llm.end", "usage.amended"})

    assert tokens("input") == 150
    booked = {e.span.op_id: e.span.usage.input_tokens for e in ends if e.span.usage}
    assert booked == {str(calls[0]): 100, str(calls[1]): 50}


# Who pays -----------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_subagent_pays_for_its_calls(
    journal: Journal, spans: InMemorySpanExporter, tokens: Any, way: str
) -> None:
    """Tokens are charged to the innermost agent; the outer one pays for its own calls."""
    search_once = ai("", tool_call("note", {"q": "x"}, "n1"), usage=FULL)

    @tool
    def note(q: str) -> str:
        """Note."""
        return q

    inner = create_agent(
        ScriptedModel(script=[search_once, ai("found", usage=FULL)]), [note], name="researcher"
    )

    @tool
    def research(q: str) -> str:
        """Research."""
        return str(inner.invoke({"messages": [HumanMessage(q)]})["messages"][-1].content)

    ask_once = ai("", tool_call("research", {"q": "x"}, "r1"), usage=FULL)
    outer = create_agent(
        ScriptedModel(script=[ask_once, ai("done", usage=FULL)]), [research], name="outer"
    )
    run(way, outer, {"messages": [HumanMessage("q")]}, {"callbacks": [journal.handler()]})

    assert tokens("input", gen_ai_agent_name="researcher") == 200
    assert tokens("input", gen_ai_agent_name="outer") == 200
    assert tokens("input", caller="subagent:researcher") == 200
    assert tokens("input") == 400
    (root,) = roots(journal, spans)
    assert (root.attributes or {})["otel_journal.usage.input_tokens"] == 400


def test_summary_agrees_with_the_counters(journal: Journal, tokens: Any) -> None:
    """The totals of a run by agent, caller and model are those of the series."""
    root = uuid4()
    model = ScriptedModel(script=[ai("hi", usage=FULL)])
    graph, value = calling(model, "node")
    graph.invoke(value, {"callbacks": [journal.handler()], "run_id": root})
    summary = journal.summary(root)

    assert summary.total_tokens == tokens("input") + tokens("output") == 120
    assert summary.by("model")["scripted-1"].input_tokens == 100
    assert summary.by("caller")["lead_agent"].calls == 1
    assert summary.by("provider")["scripted"].details["reasoning"] == 8


def test_external_usage_shares_the_callbacks_ids(
    journal: Journal, tokens: Any, sample: Any
) -> None:
    """Work reported by hand counts once per source, and not if its callback was counted."""
    handler, root, call = journal.handler(), uuid4(), uuid4()
    handler.on_chain_start({}, {}, run_id=root, name="graph")
    handler.on_chat_model_start({}, [[HumanMessage("q")]], run_id=call, parent_run_id=root)
    handler.on_llm_end(_response(FULL), run_id=call, parent_run_id=root)
    for source in (str(call), "other", "other", ""):
        journal.record_external_usage(root, source, usage(50, 5), model="m", caller="subagent:x")
    handler.on_chain_end({}, run_id=root)

    assert tokens("input") == 150
    assert tokens("input", caller="subagent:x") == 50
    assert journal.summary(root).input_tokens == 150
    assert journal.summary(root).by("model")["m"].input_tokens == 50
    assert sample("otel_journal_usage_amended_total") == 0  # it was not late
