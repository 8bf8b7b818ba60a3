"""The graphs, nodes and tools that most scenarios are made of."""

# ruff: noqa: ARG001 - nodes get a state they need not read

import asyncio
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import HumanMessage
from langchain_core.messages.tool import ToolCall
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode

from otel_journal.testing import ScriptedModel, ai

INPUT = {"x": 1}
"""Input of the graphs built by `line`."""
QUESTION = {"messages": [HumanMessage("q")]}
"""Input of an agent."""


class State(TypedDict, total=False):
    """A number in, a log out."""

    x: int
    log: Annotated[list[Any], operator.add]


def line(*nodes: Callable[..., Any] | tuple[str, Any], **options: Any) -> CompiledStateGraph:
    """Compile a graph that runs the nodes one after the other; functions name themselves."""
    graph = StateGraph(State)
    previous = START
    for node in nodes:
        name, body = node if isinstance(node, tuple) else (node.__name__, node)
        graph.add_node(name, body)
        graph.add_edge(previous, name)
        previous = name
    graph.add_edge(previous, END)
    return graph.compile(**options)


def side_by_side(**nodes: Callable[..., Any]) -> CompiledStateGraph:
    """Compile a graph that runs the nodes in parallel, in one step."""
    graph = StateGraph(State)
    for name, body in nodes.items():
        graph.add_node(name, body)
        graph.add_edge(START, name)
    return graph.compile()


def tool_graph(
    tools: Sequence[BaseTool], *, checkpointer: Any = None, **options: Any
) -> CompiledStateGraph:
    """Compile a graph with nothing but a `ToolNode`."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools, **options))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile(checkpointer=checkpointer)


def asking_for(*calls: ToolCall) -> dict[str, Any]:
    """Return the input of a `tool_graph`: an answer that asks for these calls."""
    return {"messages": [ai("", *calls)]}


def model_that_says(text: str, **options: Any) -> ScriptedModel:
    """Return a model that always gives this answer."""
    return ScriptedModel(script=[ai(text)], **options)


def a(state: State) -> State:
    """First node."""
    return {"log": ["a"]}


def b(state: State) -> State:
    """Second node."""
    return {"log": ["b"]}


def boom(state: State) -> State:
    """Node that fails."""
    msg = "node boom"
    raise ValueError(msg)


async def sleepy(state: State) -> State:
    """Node that is cancelled before it ends."""
    await asyncio.sleep(5)
    return {"log": ["sleepy"]}


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


@tool
def bad(x: int) -> int:
    """Fail."""
    msg = f"tool broke on {x}"
    raise ValueError(msg)
