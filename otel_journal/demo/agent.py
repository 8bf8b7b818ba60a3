"""The demo's agent: a real LangGraph graph whose models answer from a script.

An on-call assistant looks into slow checkouts: it queries two services at once, asks for a
runbook that cannot be read, sends a subagent to search, waits for a person's approval, and
writes a report, which is streamed. Nothing leaves the process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from otel_journal.testing import ScriptedModel, ai, tool_call

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import BaseMessage
    from langchain_core.messages.ai import UsageMetadata
    from langchain_core.runnables import Runnable, RunnableConfig
    from langchain_core.tools import BaseTool
    from langgraph.graph.state import CompiledStateGraph

AGENT: Final = "oncall"
"""Name of the graph, given to ``compile``; spans and series carry it."""
LEAD: Final = "scripted-large"
"""Model that plans; reports its usage with each answer, as most providers do."""
RESEARCHER: Final = "scripted-small"
"""Model of the subagent; its usage comes with a second delivery of the same answer."""
REPORTER: Final = "scripted-stream"
"""Model of the streamed report; its usage comes after the run has ended."""
SUBAGENT: Final = "subagent:researcher"
"""Tag of the subagent's graph: all model calls below it are attributed to this caller."""

QUESTION: Final = "Checkout is slow since 14:05. What happened?"
APPROVAL: Final = "roll back checkout to v41?"
_WRITER: Final = "report"
"""Node whose model answer is streamed."""
_REPORT: Final = "Checkout v42 exhausted its connection pool. v41 is live again and p99 is 180 ms."

MODEL_DELAY_S: Final = 0.12
"""Time a model takes for an answer, long enough to be seen on the demo's time line."""
CHUNK_DELAY_S: Final = 0.015
"""Time between two chunks of the streamed report."""
TOOL_DELAY_S: Final = 0.08
"""Time a tool takes."""


def _tokens(input_tokens: int, output_tokens: int, cache_read: int = 0) -> UsageMetadata:
    usage: UsageMetadata = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    if cache_read:
        usage["input_token_details"] = {"cache_read": cache_read}
    return usage


TURNS: Final[tuple[AIMessage, ...]] = (
    ai(
        "Both services at once, and the runbook.",
        tool_call("query_latency", {"service": "checkout"}, "call-1"),
        tool_call("query_latency", {"service": "payments"}, "call-2"),
        tool_call("read_runbook", {"name": "checkout"}, "call-3"),
        usage=_tokens(820, 96),
    ),
    ai(
        "Only checkout is slow. Look for a cause.",
        tool_call("ask_researcher", {"question": "what changed in checkout?"}, "call-4"),
        usage=_tokens(1_150, 48, cache_read=768),
    ),
    ai("The deploy at 14:03 is the cause.", usage=_tokens(1_390, 31, cache_read=1_152)),
)
"""What the planning model answers, turn by turn."""

LATE_USAGE: Final[dict[str, UsageMetadata]] = {
    RESEARCHER: _tokens(410, 57),
    REPORTER: _tokens(1_480, 23),
}
"""Model -> the usage its answers do not bring; see `redelivery`."""


@dataclass(frozen=True, slots=True)
class Known:
    """What one model spends in one incident, by the script alone."""

    calls: int
    input_tokens: int
    output_tokens: int


def _known(usages: Sequence[UsageMetadata]) -> Known:
    return Known(
        calls=len(usages),
        input_tokens=sum(usage["input_tokens"] for usage in usages),
        output_tokens=sum(usage["output_tokens"] for usage in usages),
    )


KNOWN: Final[dict[str, Known]] = {
    LEAD: _known([turn.usage_metadata for turn in TURNS if turn.usage_metadata]),
    **{model: _known([usage]) for model, usage in LATE_USAGE.items()},
}
"""Model -> what it spends per incident: what every account must come to."""


class Incident:
    """One incident: a run that pauses for approval and the run that goes on after it."""

    def __init__(self, *, hurry: bool = False) -> None:
        """Build the graph; with `hurry` models and tools take no time."""
        self._saver = InMemorySaver()
        self._graph = _oncall(self._saver, pace=0.0 if hurry else 1.0)

    def ask(self, thread_id: str, run_id: UUID, handler: BaseCallbackHandler) -> str:
        """Run until the agent wants an approval; return what it asks."""
        inputs = MessagesState(messages=[HumanMessage(QUESTION)])
        state = self._graph.invoke(inputs, _config(thread_id, run_id, handler))
        return str(state["__interrupt__"][0].value)

    def approve(self, thread_id: str, run_id: UUID, handler: BaseCallbackHandler) -> str:
        """Approve, stream the rest of the work, and return the report."""
        parts = self._graph.stream(
            Command(resume="yes"),
            _config(thread_id, run_id, handler),
            stream_mode="messages",
        )
        report = "".join(
            chunk.text
            for chunk, origin in cast("Any", parts)
            if origin["langgraph_node"] == _WRITER
        )
        self._saver.delete_thread(thread_id)
        return report


def _config(thread_id: str, run_id: UUID, handler: BaseCallbackHandler) -> RunnableConfig:
    return {
        "callbacks": [handler],
        "run_id": run_id,
        "configurable": {"thread_id": thread_id},
    }


def _oncall(saver: InMemorySaver, *, pace: float) -> CompiledStateGraph[Any, Any, Any, Any]:
    tools = _tools(pace)
    planner = ScriptedModel(
        script=[_next_turn], model_name=LEAD, delay=pace * MODEL_DELAY_S
    ).bind_tools(tools)
    reporter = _model(REPORTER, _REPORT, delay=pace * CHUNK_DELAY_S)

    def plan(state: MessagesState) -> MessagesState:
        return {"messages": [planner.invoke(state["messages"])]}

    def approve(state: MessagesState) -> MessagesState:  # noqa: ARG001 - LangGraph reads the name
        return {"messages": [HumanMessage(f"{APPROVAL} {interrupt(APPROVAL)}")]}

    def report(state: MessagesState) -> MessagesState:
        return {"messages": [reporter.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("plan", plan)
    graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
    graph.add_node("approve", approve)
    graph.add_node(_WRITER, report)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges("plan", _after_plan, ["tools", "approve"])
    graph.add_edge("tools", "plan")
    graph.add_edge("approve", _WRITER)
    graph.add_edge(_WRITER, END)
    return graph.compile(saver, name=AGENT)


def _next_turn(messages: Sequence[BaseMessage]) -> AIMessage:
    """Answer by what was said before, so that one model serves any number of incidents."""
    return TURNS[sum(isinstance(message, AIMessage) for message in messages)]


def _after_plan(state: MessagesState) -> str:
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else "approve"


def _model(name: str, answer: str, *, delay: float) -> ScriptedModel:
    return ScriptedModel(script=[ai(answer)], model_name=name, usage=None, delay=delay)


def _researcher(pace: float) -> Runnable[Any, Any]:
    """Build the subagent: a graph of its own, called from a tool of the other."""
    model = _model(RESEARCHER, "checkout v42 was deployed at 14:03.", delay=pace * MODEL_DELAY_S)

    def search(state: MessagesState) -> MessagesState:
        return {"messages": [model.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("search", search)
    graph.add_edge(START, "search")
    graph.add_edge("search", END)
    return graph.compile(name="researcher").with_config(tags=[SUBAGENT])


def _tools(pace: float) -> list[BaseTool]:
    researcher = _researcher(pace)

    @tool
    def query_latency(service: str) -> str:
        """Return the 99th percentile of a service's latency."""
        time.sleep(pace * TOOL_DELAY_S * (1.0 if service == "checkout" else 1.5))
        return f"{service}: p99 {'2.9 s' if service == 'checkout' else '41 ms'}"

    @tool
    def read_runbook(name: str) -> str:
        """Return a runbook."""
        time.sleep(pace * TOOL_DELAY_S / 2)
        msg = f"the wiki that holds runbook {name} does not answer"
        raise ConnectionError(msg)

    @tool
    def ask_researcher(question: str) -> str:
        """Let the researcher look into a question."""
        found = researcher.invoke({"messages": [HumanMessage(question)]})
        return str(found["messages"][-1].text)

    return [query_latency, read_runbook, ask_researcher]
