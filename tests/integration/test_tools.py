"""Tool calls: which call failed, which id was the model's, what a handled error is."""

# ruff: noqa: ARG001 - tools get arguments they need not read

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from otel_journal import Journal, Settings
from otel_journal.testing import ScriptedModel, ai, tool_call

TIMEOUT_S = 5.0
ASK_TWICE = ai("", tool_call("get", {"q": "a"}, "A"), tool_call("get", {"q": "b"}, "B"))


@pytest.fixture
def settings() -> Settings:
    """Provide settings that close what is left open soon."""
    return Settings(grace=0.05, linger=0.0)


def tool_spans(journal: Journal, spans: InMemorySpanExporter) -> list[ReadableSpan]:
    """Return the exported tool calls, in the order of their ends."""
    assert journal.flush()
    return [s for s in spans.get_finished_spans() if s.name.startswith("execute_tool ")]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def tools_only(*tools: BaseTool, **options: Any) -> CompiledStateGraph:
    """Compile a graph with nothing but a `ToolNode`."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools, **options))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile()


def nested(graph: Any, depth: int) -> Any:
    """Put a graph into this many graphs."""
    for _ in range(depth):
        outer = StateGraph(MessagesState)
        outer.add_node("sub", graph)
        outer.add_edge(START, "sub")
        graph = outer.compile()
    return graph


def asked(answer: Any) -> dict[str, Any]:
    """Return a state whose last message asks for tools."""
    return {"messages": [HumanMessage("q"), answer]}


# Parallel calls of one tool -----------------------------------------------------------------


def _racing_tool(*, is_async: bool) -> BaseTool:
    """Return a tool that fails for A after B has ended well."""
    b_ended = threading.Event()

    def finish(q: str) -> str:
        if q == "a":
            msg = "a failed"
            raise LookupError(msg)
        return f"for {q}"

    if is_async:

        @tool
        async def get(q: str) -> str:
            """Get."""
            if q == "b":
                asyncio.get_running_loop().call_later(0.02, b_ended.set)
            else:
                assert await asyncio.to_thread(b_ended.wait, TIMEOUT_S)
            return finish(q)

    else:

        @tool
        def get(q: str) -> str:
            """Get."""
            if q == "b":
                threading.Timer(0.02, b_ended.set).start()
            else:
                assert b_ended.wait(TIMEOUT_S)
            return finish(q)

    return get


@pytest.mark.parametrize("place", ["graph", "subgraph", "agent"])
@pytest.mark.parametrize("way", ["sync tool", "async tool", "sync tool, awaited"])
def test_parallel_calls_keep_apart(
    journal: Journal, spans: InMemorySpanExporter, place: str, way: str
) -> None:
    """B ends first and well, A fails after it: each span has its own id, error and parent."""
    get = _racing_tool(is_async=way == "async tool")
    config: Any = {"callbacks": [journal.handler()]}
    if place == "agent":
        runnable = create_agent(ScriptedModel(script=[ASK_TWICE, ai("done")]), [get], name="boss")
        value: Any = {"messages": [HumanMessage("q")]}
    else:
        runnable, value = tools_only(get), asked(ASK_TWICE)
        runnable = nested(runnable, 1) if place == "subgraph" else runnable

    async def use() -> None:
        await runnable.ainvoke(value, config)

    with pytest.raises(LookupError):
        runnable.invoke(value, config) if way == "sync tool" else asyncio.run(use())
    found = tool_spans(journal, spans)

    failed = {
        attributes(span)["gen_ai.tool.call.id"]: span.status.status_code is StatusCode.ERROR
        for span in found
    }
    assert failed == {"A": True, "B": False}
    assert [attributes(span)["gen_ai.tool.call.id"] for span in found] == ["B", "A"]
    assert attributes(found[1])["error.type"] == "LookupError"
    assert len({span.parent.span_id for span in found if span.parent}) in {1, 2}
    names = {span.context.span_id: span.name for span in spans.get_finished_spans()}
    assert {names[span.parent.span_id] for span in found if span.parent} == {"tools"}


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_tool_links_to_the_call_that_asked(
    journal: Journal, spans: InMemorySpanExporter, depth: int
) -> None:
    """Each tool span points at the model call that asked for it."""

    @tool
    def get(q: str) -> str:
        """Get."""
        return q

    script = [ASK_TWICE, ai("", tool_call("get", {"q": "c"}, "C")), ai("done")]
    agent = create_agent(ScriptedModel(script=script), [get], name="boss")
    nested(agent, depth).invoke(
        {"messages": [HumanMessage("q")]}, {"callbacks": [journal.handler()]}
    )
    found = tool_spans(journal, spans)
    chats = [s for s in spans.get_finished_spans() if s.name == "chat scripted-1"]

    assert len(chats) == 3
    for span in found:
        (link,) = span.links
        assert (link.attributes or {})["otel_journal.link.relation"] == "requested_by"
        turn = 1 if attributes(span)["gen_ai.tool.call.id"] == "C" else 0
        assert link.context.span_id == chats[turn].context.span_id


def test_ids_that_repeat_do_not_collide(journal: Journal, spans: InMemorySpanExporter) -> None:
    """Some providers use the tool's name as id of every call: turns and parallel calls differ."""

    @tool
    def get(q: str) -> str:
        """Get."""
        if q == "bad":
            msg = "no"
            raise ToolException(msg)
        return q

    get.handle_tool_error = True
    turns = [
        ai("", tool_call("get", {"q": "bad"}, "get")),
        ai("", tool_call("get", {"q": "x"}, "get"), tool_call("get", {"q": "y"}, "get")),
        ai("done"),
    ]
    agent = create_agent(ScriptedModel(script=turns), [get])
    agent.invoke({"messages": [HumanMessage("q")]}, {"callbacks": [journal.handler()]})
    found = tool_spans(journal, spans)

    assert len({span.context.span_id for span in found}) == 3
    assert {attributes(span)["gen_ai.tool.call.id"] for span in found} == {"get"}
    outcomes = [attributes(span)["otel_journal.outcome"] for span in found]
    assert sorted(outcomes) == ["error", "ok", "ok"]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("place", ["bare", "in a node"])
def test_id_is_never_made_up(
    journal: Journal, spans: InMemorySpanExporter, place: str, way: str
) -> None:
    """A tool that a program calls itself has no id of a model, only the journal's."""

    @tool
    def get(q: str) -> str:
        """Get."""
        return q

    config: Any = {"callbacks": [journal.handler()]}
    if place == "bare":
        target: Any = get
        value: Any = {"q": "c"}
    else:
        graph = StateGraph(MessagesState)
        graph.add_node("n", lambda _: {"messages": [get.invoke({"q": "c"})]})
        graph.add_edge(START, "n")
        target, value = graph.compile(), {"messages": []}

    async def use() -> None:
        await target.ainvoke(value, config)

    target.invoke(value, config) if way == "invoke" else asyncio.run(use())
    (span,) = tool_spans(journal, spans)

    assert "gen_ai.tool.call.id" not in attributes(span)
    assert attributes(span)["otel_journal.call_id"]
    assert attributes(span)["otel_journal.call_id"] != attributes(span)["langchain.run_id"]


def test_failed_call_keeps_its_id(journal: Journal, spans: InMemorySpanExporter) -> None:
    """A tool that raises has the id of the call that failed."""

    @tool
    def get(q: str) -> str:
        """Get."""
        msg = "no"
        raise LookupError(msg)

    with pytest.raises(LookupError):
        tools_only(get).invoke(
            asked(ai("", tool_call("get", {"q": "a"}, "A"))), {"callbacks": [journal.handler()]}
        )
    (span,) = tool_spans(journal, spans)

    assert attributes(span)["gen_ai.tool.call.id"] == "A"
    assert attributes(span)["error.type"] == "LookupError"


# Handled errors -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize(
    ("handled_by", "place"),
    [
        ("tool", "graph"),
        ("tool", "subgraph"),
        ("tool", "agent"),
        ("node", "graph"),
        ("node", "subgraph"),  # the tool node of create_agent lets a ToolException pass
    ],
)
def test_handled_error_is_an_error_of_the_call(  # noqa: PLR0913, PLR0917 - a case has 3 dimensions
    journal: Journal,
    spans: InMemorySpanExporter,
    sample: Any,
    handled_by: str,
    place: str,
    way: str,
) -> None:
    """A tool that answers with an error has failed, though nothing above it has."""

    @tool
    def bad(q: str) -> str:
        """Fail."""
        msg = "card 4111"
        raise ToolException(msg)

    bad.handle_tool_error = handled_by == "tool"
    request = ai("", tool_call("bad", {"q": "a"}, "A"))
    node = ToolNode([bad], handle_tool_errors=True)
    config: Any = {"callbacks": [journal.handler()]}
    if place == "agent":
        runnable: Any = create_agent(ScriptedModel(script=[request, ai("sorry")]), [bad])
        value: Any = {"messages": [HumanMessage("q")]}
    else:
        graph = StateGraph(MessagesState)
        graph.add_node("tools", node)
        graph.add_edge(START, "tools")
        runnable, value = graph.compile(), asked(request)
        runnable = nested(runnable, 1) if place == "subgraph" else runnable

    async def use() -> None:
        await runnable.ainvoke(value, config)

    runnable.invoke(value, config) if way == "invoke" else asyncio.run(use())
    (span,) = tool_spans(journal, spans)

    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["otel_journal.outcome"] == "error"
    if handled_by == "tool":
        assert attributes(span)["error.type"] == "tool_error"
    else:
        assert attributes(span)["error.type"].endswith("ToolException")
    assert "4111" not in span.to_json()
    assert sample("otel_journal_tool_calls_total", gen_ai_tool_name="bad", outcome="error") == 1
    assert sample("otel_journal_runs_total", outcome="ok") == 1
    others = [s for s in spans.get_finished_spans() if s is not span]
    assert others
    assert all(s.status.status_code is StatusCode.UNSET for s in others)


def test_invalid_arguments_are_an_error_of_the_call(
    journal: Journal, spans: InMemorySpanExporter
) -> None:
    """A call whose arguments do not fit never runs; the call failed, the agent goes on."""

    @tool
    def add(x: int, y: int) -> int:
        """Add."""
        return x + y

    add.handle_validation_error = True
    request = ai("", tool_call("add", {"x": "one"}, "A"))
    agent = create_agent(ScriptedModel(script=[request, ai("sorry")]), [add])
    agent.invoke({"messages": [HumanMessage("q")]}, {"callbacks": [journal.handler()]})
    (span,) = tool_spans(journal, spans)

    assert attributes(span)["otel_journal.outcome"] == "error"
    assert attributes(span)["error.type"] == "tool_error"


@pytest.mark.parametrize("captured", [False, True], ids=["private", "captured"])
def test_message_of_a_handled_error_is_content(
    tracer_provider: Any, registry: Any, spans: InMemorySpanExporter, *, captured: bool
) -> None:
    """What the tool says about its failure is on the span only with content capture."""

    @tool
    def bad(q: str) -> str:
        """Fail."""
        msg = "card 4111"
        raise ToolException(msg)

    bad.handle_tool_error = True
    settings = Settings(capture_content=captured)
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        request = ai("", tool_call("bad", {"q": "a"}, "A"))
        tools_only(bad).invoke(asked(request), {"callbacks": [journal.handler()]})
        (span,) = tool_spans(journal, spans)

    assert ("4111" in span.to_json()) is captured


def test_tool_that_did_not_fail_is_ok(
    journal: Journal, spans: InMemorySpanExporter, sample: Any
) -> None:
    """The same checks see a tool that works: outcome ok, no error type, status unset."""

    @tool
    def good(q: str) -> str:
        """Work."""
        return "error: this is only text"

    request = ai("", tool_call("good", {"q": "a"}, "A"))
    tools_only(good).invoke(asked(request), {"callbacks": [journal.handler()]})
    (span,) = tool_spans(journal, spans)

    assert attributes(span)["otel_journal.outcome"] == "ok"
    assert "error.type" not in attributes(span)
    assert span.status.status_code is StatusCode.UNSET
    assert sample("otel_journal_tool_calls_total", gen_ai_tool_name="good", outcome="ok") == 1


def test_tool_whose_end_never_comes(
    journal: Journal, spans: InMemorySpanExporter, sample: Any
) -> None:
    """A call without an end is closed with its parent; what became of it is unknown."""
    handler, root, call = journal.handler(), uuid4(), uuid4()
    handler.on_chain_start({}, {}, run_id=root, name="graph")
    handler.on_tool_start({"name": "t"}, "x", run_id=call, parent_run_id=root)
    handler.on_chain_end({}, run_id=root)
    deadline = time.monotonic() + TIMEOUT_S
    while not tool_spans(journal, spans) and time.monotonic() < deadline:
        time.sleep(0.01)
    (span,) = tool_spans(journal, spans)

    assert attributes(span)["otel_journal.outcome"] == "unknown"
    assert span.status.status_code is StatusCode.UNSET
    assert sample("otel_journal_operations_closed_total", reason="parent_end") == 1
