"""Human in the loop: a run pauses, a later one resumes it."""

# ruff: noqa: ARG001 - nodes get a state they need not read

import threading
import time

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from otel_journal.testing import tool_call

from .graphs import INPUT, State, a, asking_for, b, line, tool_graph
from .registry import Caller, scenario


def ask(state: State) -> State:
    """Ask a person."""
    return {"log": [interrupt({"q": "ok?"})]}


@scenario("11")
def interrupt_and_resume(call: Caller) -> None:
    """A node asks, the answer resumes it; it runs again from its start."""
    graph = line(a, ask, b, checkpointer=InMemorySaver())
    call.invoke(graph, INPUT, call.config(thread_id="t1"))
    call.invoke(graph, Command(resume="yes"), call.config(thread_id="t1"))


@scenario("11b")
def interrupt_and_resume_streamed(call: Caller) -> None:
    """As 11, with both runs streamed."""
    graph = line(ask, b, checkpointer=InMemorySaver())
    call.stream(graph, INPUT, call.config(thread_id="t1"))
    call.stream(graph, Command(resume="yes"), call.config(thread_id="t1"))


@scenario("11c")
def interrupt_in_a_subgraph(call: Caller) -> None:
    """The node that asks is in a subgraph: both nodes and the subgraph pause."""
    graph = line(a, ("sub", line(ask)), checkpointer=InMemorySaver())
    call.invoke(graph, INPUT, call.config(thread_id="t1"))
    call.invoke(graph, Command(resume="yes"), call.config(thread_id="t1"))


@scenario("11d")
def interrupt_in_a_tool(call: Caller) -> None:
    """One of two parallel tools asks; on resume both run again, under the same call ids."""
    other_ran = threading.Event()

    @tool
    def approve(x: int) -> str:
        """Ask for approval."""
        other_ran.wait()
        time.sleep(0.05)  # the other tool's end is seen before the pause
        return f"human said {interrupt('approve?')}"

    @tool
    def note(x: int) -> int:
        """Run beside it."""
        other_ran.set()
        return x

    graph = tool_graph([approve, note], checkpointer=InMemorySaver())
    calls = tool_call("approve", {"x": 1}, "c1"), tool_call("note", {"x": 1}, "c2")
    call.invoke(graph, asking_for(*calls), call.config(thread_id="t1"))
    call.invoke(graph, Command(resume="yes"), call.config(thread_id="t1"))


@scenario("11e")
def static_breakpoint(call: Caller) -> None:
    """A graph stops before a node by its definition and goes on when called with nothing."""
    graph = StateGraph(State)
    graph.add_node("a", a)
    graph.add_node("b", b)
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    graph.add_edge("b", END)
    stopping = graph.compile(checkpointer=InMemorySaver(), interrupt_before=["b"])
    call.invoke(stopping, INPUT, call.config(thread_id="t1"))
    call.invoke(stopping, None, call.config(thread_id="t1"))
