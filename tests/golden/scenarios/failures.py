"""Runs that fail: exceptions of nodes, limits, exceptions that are no `Exception`."""

# ruff: noqa: ARG001 - nodes get a state they need not read

import asyncio
import threading
import time

import pytest
from langchain_core.exceptions import OutputParserException
from langchain_core.output_parsers import JsonOutputParser
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, StateGraph

from .graphs import INPUT, State, a, boom, line, model_that_says, side_by_side
from .registry import Caller, scenario


@scenario("09")
def node_fails(call: Caller) -> None:
    """The second node raises."""
    with pytest.raises(ValueError, match="node boom"):
        call.invoke(line(a, boom), INPUT)


@scenario("09b", way="sync")
def parallel_node_fails(call: Caller) -> None:
    """One of two threads fails; the other cannot be stopped and ends well."""
    started = threading.Event()

    def failing(state: State) -> State:
        started.wait()
        return boom(state)

    def slow(state: State) -> State:
        started.set()
        time.sleep(0.1)
        return {"log": ["slow"]}

    with pytest.raises(ValueError, match="node boom"):
        call.invoke(side_by_side(failing=failing, slow=slow), INPUT)


@scenario("09c")
async def parallel_task_fails(call: Caller) -> None:
    """One of two tasks fails; the other is cancelled."""
    started = asyncio.Event()

    async def failing(state: State) -> State:
        await started.wait()
        return boom(state)

    async def slow(state: State) -> State:
        started.set()
        await asyncio.sleep(5)
        return {"log": ["slow"]}

    with pytest.raises(ValueError, match="node boom"):
        await side_by_side(failing=failing, slow=slow).ainvoke(INPUT, call.config())
    await asyncio.sleep(0.05)


@scenario("10")
def recursion_limit(call: Caller) -> None:
    """A graph that never stops exceeds its limit of three steps: the root fails, no node does."""
    graph = StateGraph(State)
    graph.add_node("a", a)
    graph.add_edge(START, "a")
    graph.add_edge("a", "a")
    with pytest.raises(GraphRecursionError):
        call.invoke(graph.compile(), INPUT, call.config(recursion_limit=3))


@scenario("32", way="sync")
def process_told_to_stop(call: Caller) -> None:
    """A node raises KeyboardInterrupt, another SystemExit."""

    def interrupted(state: State) -> State:
        raise KeyboardInterrupt

    def stopped(state: State) -> State:
        raise SystemExit(3)

    with pytest.raises(KeyboardInterrupt):
        call.invoke(line(a, interrupted), INPUT)
    with pytest.raises(SystemExit):
        call.invoke(line(a, stopped), INPUT)


@scenario("40")
def parser_fails(call: Caller) -> None:
    """The model answers, but not in JSON."""
    with pytest.raises(OutputParserException):
        call.invoke(model_that_says("not json") | JsonOutputParser(), "q")
