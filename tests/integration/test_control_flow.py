"""Control flow that looks like failure: pauses, handoffs, lost readers, cancellation."""

# ruff: noqa: ARG001, ARG002 - nodes, tools and models get values they need not read
# ruff: noqa: PLR0913, PLR0917 - fixtures and the dimensions of a case are all parameters

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import operator
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import NodeInterrupt
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from otel_journal import Journal, Settings, open_store
from otel_journal.testing import ScriptedModel, ai, tool_call

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

WAYS = ("invoke", "stream", "ainvoke", "astream")
DEADLINE_S = 5.0
LONG_S = 30.0
"""What is cancelled would last that long."""
QUESTION = "wire 1000 to DE89"


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    """Let no span that another test left current be around this one, nor ours around others."""
    token = otel_context.attach(otel_context.Context())
    yield
    otel_context.detach(token)


class State(TypedDict, total=False):
    """A number in, a log out."""

    x: int
    log: Annotated[list[Any], operator.add]


@pytest.fixture
def settings() -> Settings:
    """Provide settings that close what is left open soon."""
    return Settings(grace=0.05, linger=0.0)


@pytest.fixture
def journal(
    settings: Settings, tracer_provider: TracerProvider, registry: CollectorRegistry
) -> Iterator[Journal]:
    """Provide a journal with a store."""
    with Journal(
        settings, tracer_provider=tracer_provider, registry=registry, store=open_store("memory:")
    ) as journal:
        yield journal


class Seen:
    """What the journal exported, waiting for it first."""

    def __init__(
        self, journal: Journal, spans: InMemorySpanExporter, registry: CollectorRegistry
    ) -> None:
        """Look at these."""
        self._journal, self._spans, self._registry = journal, spans, registry

    def spans(self) -> tuple[ReadableSpan, ...]:
        """All spans, after everything open has ended or been closed."""
        self.wait_until_nothing_is_open()
        assert self._journal.flush()
        return self._spans.get_finished_spans()

    def wait_until_nothing_is_open(self) -> None:
        """Wait for the journal's own closing of what never ended."""
        assert self._journal.flush()
        deadline = time.monotonic() + DEADLINE_S
        while self.open_operations():
            assert time.monotonic() < deadline, f"{self.open_operations()} operations stay open"
            time.sleep(0.01)

    def open_operations(self) -> float:
        """Size of the table of open operations."""
        return self._registry.get_sample_value("otel_journal_operations_open") or 0.0

    def named(self, name: str) -> list[ReadableSpan]:
        """Spans with this name, in the order in which they were exported: that of their ends."""
        return [span for span in self.spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (span,) = self.named(name)
        return span

    def roots(self) -> list[ReadableSpan]:
        """Spans without a parent, in the order in which they were exported."""
        return [span for span in self.spans() if span.parent is None]

    def metric_text(self) -> str:
        """The scrape page."""
        return generate_latest(self._registry).decode()


@pytest.fixture
def seen(journal: Journal, spans: InMemorySpanExporter, registry: CollectorRegistry) -> Seen:
    """Provide a view on what the journal exported."""
    return Seen(journal, spans, registry)


def outcome(span: ReadableSpan) -> object:
    """Return the outcome of a span."""
    return (span.attributes or {}).get("otel_journal.outcome")


def relations(span: ReadableSpan) -> list[object]:
    """Return why a span links to others."""
    return [(link.attributes or {}).get("otel_journal.link.relation") for link in span.links]


def assert_no_failure(spans: Sequence[ReadableSpan]) -> None:
    """No span of these says that anything failed."""
    assert spans
    for span in spans:
        assert span.status.status_code is StatusCode.UNSET, span.name
        assert not span.events, span.name
        assert "error.type" not in (span.attributes or {}), span.name


def run(way: str, graph: Any, value: Any, config: Any) -> Any:
    """Call a runnable one of four ways and consume what it streams."""
    if way == "invoke":
        return graph.invoke(value, config)
    if way == "stream":
        return list(graph.stream(value, config))
    if way == "ainvoke":
        return asyncio.run(_await(graph.ainvoke(value, config)))

    async def consume() -> list[Any]:
        return [chunk async for chunk in graph.astream(value, config)]

    return asyncio.run(consume())


async def _await(awaitable: Any) -> Any:
    return await awaitable


def config(journal: Journal, thread: str = "t1") -> dict[str, Any]:
    """Return a config with a new handler on a thread."""
    return {"callbacks": [journal.handler()], "configurable": {"thread_id": thread}}


def line(*nodes: Any, **options: Any) -> CompiledStateGraph:
    """Compile a graph of nodes one after the other; a tuple names its node."""
    graph = StateGraph(State)
    last = START
    for node in nodes:
        name, body = node if isinstance(node, tuple) else (node.__name__, node)
        graph.add_node(name, body)
        graph.add_edge(last, name)
        last = name
    graph.add_edge(last, END)
    return graph.compile(**options)


def tools_only(*tools: Any, **options: Any) -> CompiledStateGraph:
    """Compile a graph with nothing but a `ToolNode`."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile(**options)


def ask(state: State) -> State:
    """Ask a person."""
    return {"log": [interrupt(QUESTION)]}


def old_ask(state: State) -> State:
    """Ask the way old programs do."""
    if not state.get("log"):
        raise NodeInterrupt(QUESTION)
    return {}


def before(state: State) -> State:
    """Do something else first."""
    return {"x": 2}


@tool
def approve(x: int) -> str:
    """Ask for approval."""
    return f"said {interrupt(QUESTION)}"


ASKED = {"messages": [ai("", tool_call("approve", {"x": 1}, "c1"))]}


def _paused(where: str) -> tuple[CompiledStateGraph, Any]:  # noqa: PLR0911 - one per place
    saver = InMemorySaver()
    if where == "node":
        return line(before, ask, checkpointer=saver), {"x": 1}
    if where == "subgraph":
        return line(before, ("sub", line(before, ask)), checkpointer=saver), {"x": 1}
    if where == "deep subgraph":
        return line(("a", line(("b", line(ask)))), checkpointer=saver), {"x": 1}
    if where == "node interrupt":
        return line(before, old_ask, checkpointer=saver), {"x": 1}
    if where == "tool":
        return tools_only(approve, checkpointer=saver), ASKED
    if where == "agent's tool":
        model = ScriptedModel(script=[ASKED["messages"][0], ai("done")])
        agent = create_agent(model, [approve], name="boss", checkpointer=saver)
        return agent, {"messages": [HumanMessage("q")]}
    assert where == "breakpoint"
    return line(before, ("next", before), checkpointer=saver, interrupt_before=["next"]), {"x": 1}


PLACES = (
    "node", "subgraph", "deep subgraph", "node interrupt", "tool", "agent's tool", "breakpoint",
)  # fmt: skip


# A pause is no failure ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:NodeInterrupt is deprecated")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", PLACES)
def test_pause_is_no_failure(
    journal: Journal, seen: Seen, registry: CollectorRegistry, where: str, way: str
) -> None:
    """A graph that waits for a human has failed nowhere: not in spans, not in metrics."""
    graph, value = _paused(where)
    run(way, graph, value, config(journal))

    assert_no_failure(seen.spans())
    (root,) = seen.roots()
    assert outcome(root) == "interrupted"
    assert registry.get_sample_value(
        "otel_journal_runs_total",
        {"gen_ai_agent_name": root.name.partition(" ")[2], "outcome": "interrupted"},
    )
    assert 'error_type="langgraph' not in seen.metric_text()
    assert 'outcome="error"} 1.0' not in seen.metric_text()


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("where", ["node", "subgraph", "tool", "agent's tool"])
def test_pause_marks_all_that_wait(journal: Journal, seen: Seen, where: str, way: str) -> None:
    """Whatever stood between the question and the root waits too; what ended before is ok."""
    graph, value = _paused(where)
    run(way, graph, value, config(journal))

    asking = "execute_tool approve" if "tool" in where else "ask"
    by_id = {span.context.span_id: span for span in seen.spans()}
    waiting: ReadableSpan | None = seen.one(asking)
    while waiting is not None:
        assert outcome(waiting) == "interrupted", waiting.name
        waiting = by_id.get(waiting.parent.span_id) if waiting.parent is not None else None
    assert all(outcome(span) == "ok" for span in seen.spans() if span.name == "before")


@pytest.mark.parametrize("where", ["node", "tool"])
def test_question_is_content(journal: Journal, seen: Seen, where: str) -> None:
    """What a graph asks is no span attribute; whoever opened a store finds it there."""
    graph, value = _paused(where)
    graph.invoke(value, config(journal))

    for span in seen.spans():
        assert QUESTION not in span.to_json()
    assert QUESTION not in seen.metric_text()
    (event,) = [e for e in journal.store.read() if e.event_type == "run.interrupted"]
    assert QUESTION in str(event.content)


@pytest.mark.parametrize("way", WAYS)
def test_handoff_is_no_failure(journal: Journal, seen: Seen, way: str) -> None:
    """A node that sends its parent elsewhere (``Command.PARENT``) hands off; nothing failed."""

    def leave(state: State) -> Command[Any]:
        return Command(goto="other", graph=Command.PARENT, update={"log": ["left"]})

    graph = StateGraph(State)
    graph.add_node("sub", line(leave))
    graph.add_node("other", before)
    graph.add_edge(START, "sub")
    run(way, graph.compile(), {"x": 1}, config(journal))

    assert_no_failure(seen.spans())
    assert outcome(seen.one("leave")) == "handoff"
    assert outcome(seen.roots()[0]) == "ok"
    assert outcome(seen.one("other")) == "ok"


def test_handoff_from_a_tool_is_no_failure(journal: Journal, seen: Seen) -> None:
    """A tool that hands off to another agent has not failed."""

    @tool
    def transfer(to: str) -> Command[Any]:
        """Hand off."""
        return Command(goto="other", graph=Command.PARENT)

    graph = StateGraph(MessagesState)
    graph.add_node("sub", tools_only(transfer))
    graph.add_node("other", lambda _: {})
    graph.add_edge(START, "sub")
    asked = {"messages": [ai("", tool_call("transfer", {"to": "other"}, "c1"))]}
    graph.compile().invoke(asked, config(journal))

    assert_no_failure(seen.spans())
    assert outcome(seen.roots()[0]) == "ok"


def test_real_failure_is_one(journal: Journal, seen: Seen) -> None:
    """The same checks find a failure when there is one: the node and its run, with the type."""

    def fail(state: State) -> State:
        raise LookupError(QUESTION)

    with pytest.raises(LookupError):
        line(before, fail).invoke({"x": 1}, config(journal))

    for span in (seen.one("fail"), *seen.roots()):
        assert outcome(span) == "error"
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "LookupError"
    assert len([e for e in journal.store.read() if e.event_type == "run.error"]) == 1


# Pause and resume ---------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", ["node", "subgraph", "tool"])
def test_resumed_run_links_to_the_paused_one(
    journal: Journal, seen: Seen, where: str, way: str
) -> None:
    """Two traces, and a link from the second to the first, with a handler of its own for each."""
    graph, value = _paused(where)
    run(way, graph, value, config(journal))
    run(way, graph, Command(resume="yes"), config(journal))
    first, second = seen.roots()

    assert first.context.trace_id != second.context.trace_id
    assert relations(second) == ["resumes"]
    assert second.links[0].context.span_id == first.context.span_id
    assert second.links[0].context.trace_id == first.context.trace_id
    assert not first.links
    for root in (first, second):
        assert (root.attributes or {})["gen_ai.conversation.id"] == "t1"
    assert (outcome(first), outcome(second)) == ("interrupted", "ok")


def test_link_survives_a_restart(
    settings: Settings, tracer_provider: TracerProvider, spans: InMemorySpanExporter
) -> None:
    """The process that resumes need not be the one that paused, if both use one store."""
    store = open_store("memory:")
    graph, value = _paused("node")
    for sent in (value, Command(resume="yes")):
        with Journal(
            settings, tracer_provider=tracer_provider, registry=CollectorRegistry(), store=store
        ) as journal:
            graph.invoke(sent, config(journal))
    first, second = (span for span in spans.get_finished_spans() if span.parent is None)

    assert [link.context.span_id for link in second.links] == [first.context.span_id]


def test_only_a_resume_is_linked(journal: Journal, seen: Seen) -> None:
    """A new question on the thread, and a resume on another one, are not linked to the pause."""
    graph, value = _paused("node")
    graph.invoke(value, config(journal, "t1"))
    graph.invoke(Command(resume="yes"), config(journal, "t1"))
    graph.invoke({"x": 5}, config(journal, "t1"))
    graph.invoke(value, config(journal, "t2"))
    graph.invoke(Command(resume="yes"), config(journal, "t2"))
    roots = seen.roots()

    assert [relations(root) for root in roots] == [[], ["resumes"], [], [], ["resumes"]]
    assert roots[4].links[0].context.span_id == roots[3].context.span_id


def test_run_after_a_pause_without_resume_is_not_linked(journal: Journal, seen: Seen) -> None:
    """Someone who ignores the question and says something new resumes nothing."""
    graph, value = _paused("node")
    graph.invoke(value, config(journal))
    graph.invoke({"x": 5}, config(journal))

    assert [relations(root) for root in seen.roots()] == [[], []]


def test_resume_is_an_event(journal: Journal) -> None:
    """The journal says that the second run went on with the first."""
    graph, value = _paused("node")
    graph.invoke(value, config(journal))
    graph.invoke(Command(resume="yes"), config(journal))
    assert journal.flush()
    types = [event.event_type for event in journal.store.read()]

    assert types.count("run.resumed") == 1
    assert types.index("run.interrupted") < types.index("run.resumed")


@pytest.mark.parametrize("way", WAYS)
def test_node_that_runs_again_is_a_second_attempt(
    journal: Journal, seen: Seen, sample: Any, way: str
) -> None:
    """A resumed node runs from its start: its model is called twice, and both calls are billed."""
    model = ScriptedModel(script=[ai("hi")])

    def think(state: State) -> State:
        model.invoke("the same prompt")
        return {"log": [interrupt("?")]}

    graph = line(think, checkpointer=InMemorySaver())
    run(way, graph, {"x": 1}, config(journal))
    run(way, graph, Command(resume=1), config(journal))
    first, second = seen.named("think")

    assert len(seen.named("chat scripted-1")) == 2
    assert sample("otel_journal_tokens_total", type="input") == 14
    assert "otel_journal.attempt" not in (first.attributes or {})
    assert (second.attributes or {})["otel_journal.attempt"] == 2
    assert relations(second) == ["previous_attempt"]
    assert second.links[0].context.span_id == first.context.span_id
    assert sample("otel_journal_attempts_total", kind="node") == 1


def test_three_pauses_are_three_attempts(journal: Journal, seen: Seen) -> None:
    """Attempts are numbered on, each linked to the one before it."""

    def three(state: State) -> State:
        return {"log": [interrupt("a"), interrupt("b"), interrupt("c")]}

    graph = line(three, checkpointer=InMemorySaver())
    graph.invoke({"x": 1}, config(journal))
    for answer in "abc":
        graph.invoke(Command(resume=answer), config(journal))
    nodes = seen.named("three")

    assert [(n.attributes or {}).get("otel_journal.attempt", 1) for n in nodes] == [1, 2, 3, 4]
    assert [outcome(node) for node in nodes] == ["interrupted"] * 3 + ["ok"]
    for earlier, later in itertools.pairwise(nodes):
        assert later.links[0].context.span_id == earlier.context.span_id


def test_human_turn_is_stored_once(journal: Journal) -> None:
    """The run that resumes repeats the prompt; the feed has the human's turn once."""
    model = ScriptedModel(script=[ASKED["messages"][0], ai("done")])
    agent = create_agent(model, [approve], checkpointer=InMemorySaver())
    agent.invoke({"messages": [HumanMessage("q")]}, config(journal))
    agent.invoke(Command(resume="yes"), config(journal))
    assert journal.flush()
    feed = journal.store.messages("t1")

    assert [event.event_type for event in feed] == [
        "llm.human.input",
        "llm.ai.response",
        "llm.tool.result",
        "llm.ai.response",
    ]


# Readers that stop --------------------------------------------------------------------------


def _streamed(kind: str) -> tuple[CompiledStateGraph, Any]:
    model = ScriptedModel(script=[ai("one two three four")])
    if kind == "nodes":
        return line(before, ("next", before), ("last", before)), {"x": 1}

    def talk(state: State) -> State:
        model.invoke("q")
        return {}

    inside = line(talk, before)
    return (inside if kind == "model" else line(("sub", inside), before)), {"x": 1}


@pytest.mark.parametrize("how", ["break", "close", "drop"])
@pytest.mark.parametrize("kind", ["nodes", "model", "subgraph"])
def test_sync_reader_that_stops(
    journal: Journal, seen: Seen, caplog: pytest.LogCaptureFixture, kind: str, how: str
) -> None:
    """A reader that stops abandons the run: no error, nothing logged, nothing left current."""
    graph, value = _streamed(kind)
    stream = graph.stream(value, config(journal), stream_mode="updates")
    if how == "break":
        for _ in stream:
            break
    else:
        next(stream)
    if how == "close":
        stream.close()
    del stream
    gc.collect()

    assert_no_failure(seen.spans())
    (root,) = seen.roots()
    assert outcome(root) == "abandoned"
    assert trace.get_current_span() is trace.INVALID_SPAN
    assert not caplog.records


@pytest.mark.parametrize("how", ["break", "close", "drop"])
@pytest.mark.parametrize("kind", ["nodes", "model", "subgraph"])
def test_async_reader_that_stops(
    journal: Journal,
    seen: Seen,
    caplog: pytest.LogCaptureFixture,
    tracer_provider: TracerProvider,
    kind: str,
    how: str,
) -> None:
    """The same in an event loop; the next request there has no parent."""
    graph, value = _streamed(kind)

    async def read() -> None:
        stream = graph.astream(value, config(journal), stream_mode="updates")
        if how == "break":
            async for _ in stream:
                break
        else:
            await anext(stream)
        if how == "close":
            await stream.aclose()
        del stream
        gc.collect()
        await asyncio.sleep(0.01)
        with tracer_provider.get_tracer("app").start_as_current_span("next") as following:
            assert following.parent is None  # type: ignore[attr-defined]

    asyncio.run(read())

    assert_no_failure(seen.spans())
    root = next(span for span in seen.roots() if span.name != "next")
    assert outcome(root) == "abandoned"
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_tokens_seen_before_the_reader_stopped_count(
    journal: Journal, seen: Seen, sample: Any
) -> None:
    """What the model had answered is billed, read or not."""
    graph, value = _streamed("model")
    stream = graph.stream(value, config(journal), stream_mode="updates")
    next(stream)
    stream.close()

    assert (seen.one("chat scripted-1").attributes or {})["gen_ai.usage.input_tokens"] == 7
    assert sample("otel_journal_tokens_total", type="input") == 7


@pytest.mark.parametrize("way", ["sync", "async"])
def test_reader_of_a_model_stops(journal: Journal, seen: Seen, way: str) -> None:
    """A model's stream that nobody reads to its end is abandoned too."""
    model = ScriptedModel(script=[ai("one two three four")])
    given = {"callbacks": [journal.handler()]}
    if way == "sync":
        stream = model.stream("q", given)
        next(stream)
        stream.close()  # type: ignore[attr-defined]
    else:

        async def read() -> None:
            chunks = model.astream("q", given)
            await anext(chunks)
            await chunks.aclose()  # type: ignore[attr-defined]

        asyncio.run(read())

    chat = seen.one("chat scripted-1")
    assert_no_failure([chat])
    assert outcome(chat) == "abandoned"


# Cancellation -------------------------------------------------------------------------------


def _waiting(where: str, reached: asyncio.Event) -> tuple[Any, Any]:
    """A runnable whose model, tool or node waits when `reached` is set."""

    async def wait() -> None:
        reached.set()
        await asyncio.sleep(LONG_S)

    class WaitingModel(ScriptedModel):
        async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
            await wait()

        async def _astream(self, *args: Any, **kwargs: Any) -> Any:
            await wait()
            yield None

    model = WaitingModel(script=[ai("never")])

    async def think(state: Any) -> Any:
        await model.ainvoke("q")
        return {}

    @tool
    async def helper(q: str) -> str:
        """Ask another model."""
        return str((await model.ainvoke(q)).content)

    if where == "node":
        return line(("think", think)), {"x": 1}
    if where == "subgraph":
        return line(("sub", line(("think", think)))), {"x": 1}
    if where == "agent":
        return create_agent(model, [approve]), {"messages": [HumanMessage("q")]}
    if where == "tool":
        return tools_only(helper), {"messages": [ai("", tool_call("helper", {"q": "x"}, "c1"))]}
    assert where == "bare"
    return model, "q"


@pytest.mark.parametrize("streamed", [False, True], ids=["ainvoke", "astream"])
@pytest.mark.parametrize("where", ["node", "subgraph", "agent", "tool"])
def test_model_call_in_flight_when_cancelled(
    journal: Journal, seen: Seen, caplog: pytest.LogCaptureFixture, where: str, *, streamed: bool
) -> None:
    """LangChain never says how such a call ended: it is closed with its parent, as cancelled."""

    async def use() -> None:
        reached = asyncio.Event()
        graph, value = _waiting(where, reached)

        async def consume() -> None:
            if streamed:
                async for _ in graph.astream(value, config(journal), stream_mode="messages"):
                    pass
            else:
                await graph.ainvoke(value, config(journal))

        task = asyncio.create_task(consume())
        await asyncio.wait_for(reached.wait(), DEADLINE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())

    assert_no_failure(seen.spans())
    (chat,) = seen.named("chat scripted-1")
    assert outcome(chat) == "cancelled"
    assert outcome(seen.roots()[0]) == "cancelled"
    assert (chat.end_time or 0) <= max(span.end_time or 0 for span in seen.spans())
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_cancelled_call_ends_when_its_parent_did(journal: Journal, seen: Seen) -> None:
    """The closing time of a call without an end is its parent's, not the sweep's."""

    async def use() -> None:
        reached = asyncio.Event()
        graph, value = _waiting("node", reached)
        task = asyncio.create_task(graph.ainvoke(value, config(journal)))
        await asyncio.wait_for(reached.wait(), DEADLINE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())

    chat, node = seen.one("chat scripted-1"), seen.one("think")
    assert chat.end_time == node.end_time
    assert (chat.attributes or {})["otel_journal.closed_by"] == "parent_end"


def _cancel_a_group(journal: Journal) -> None:
    """Do what a cancelled ``atrace_as_chain_group`` does: leave a root pending."""

    async def use() -> None:
        reached = asyncio.Event()
        model, question = _waiting("bare", reached)

        async def work() -> None:
            handlers = [journal.handler()]
            manager = AsyncCallbackManager(handlers, handlers)
            group = await manager.on_chain_start({"name": "group"}, {})
            await model.ainvoke(question, {"callbacks": group.get_child()})

        task = asyncio.create_task(work())
        await asyncio.wait_for(reached.wait(), DEADLINE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())


def test_cancelled_group_does_not_stay_open(
    tracer_provider: TracerProvider, registry: CollectorRegistry, spans: InMemorySpanExporter
) -> None:
    """A root that LangChain leaves pending is closed by the age limit, without being an error."""
    settings = Settings(grace=0.0, linger=0.0, max_operation_age=0.2)
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        _cancel_a_group(journal)
        seen = Seen(journal, spans, registry)

        assert_no_failure(seen.spans())
        (root,) = seen.roots()
        assert outcome(root) in {"abandoned", "cancelled"}
        assert (root.attributes or {})["otel_journal.closed_by"] == "age"
        assert outcome(seen.one("chat scripted-1")) in {"abandoned", "cancelled"}
        closed = registry.get_sample_value(
            "otel_journal_operations_closed_total", {"reason": "age"}
        )
        assert closed == 2


@pytest.mark.parametrize("where", ["node", "agent", "bare"])
def test_cancellation_is_not_masked(journal: Journal, where: str) -> None:
    """The caller sees its cancellation, not an error of the handler."""

    async def use() -> None:
        reached = asyncio.Event()
        runnable, value = _waiting(where, reached)
        task = asyncio.create_task(runnable.ainvoke(value, config(journal)))
        await asyncio.wait_for(reached.wait(), DEADLINE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(use())


def test_caller_that_times_out_cancels(journal: Journal, seen: Seen) -> None:
    """``asyncio.wait_for`` is a cancellation to the run inside."""

    async def use() -> None:
        graph, value = _waiting("node", asyncio.Event())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(graph.ainvoke(value, config(journal)), 0.1)

    asyncio.run(use())

    assert_no_failure(seen.spans())
    assert {outcome(span) for span in seen.spans()} == {"cancelled"}


def test_one_cancelled_run_leaves_the_others_alone(journal: Journal, seen: Seen) -> None:
    """Of two runs of one handler, only the cancelled one is."""

    async def use() -> None:
        reached = asyncio.Event()
        handler: Callable[[], Any] = journal.handler
        shared = {"callbacks": [handler()]}
        graph, value = _waiting("node", reached)
        task = asyncio.create_task(graph.ainvoke(value, shared))
        await asyncio.wait_for(reached.wait(), DEADLINE_S)
        await line(before).ainvoke({"x": 1}, shared)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())

    assert sorted(str(outcome(root)) for root in seen.roots()) == ["cancelled", "ok"]
    assert outcome(seen.one("before")) == "ok"
