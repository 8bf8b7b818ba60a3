"""Runs that somebody stops: cancelled tasks, time-outs, callers that went away."""

# ruff: noqa: ARG001 - nodes get a state they need not read

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool

from otel_journal.testing import tool_call

from .graphs import (
    INPUT,
    QUESTION,
    State,
    a,
    add,
    asking_for,
    line,
    model_that_says,
    sleepy,
    tool_graph,
)
from .registry import GRACE_LONG, Caller, scenario

LONG_ENOUGH_TO_START = 0.4
"""Seconds until a graph of two nodes sleeps in the second."""


async def _cancel(work: Coroutine[Any, Any, Any], after: float = LONG_ENOUGH_TO_START) -> None:
    task = asyncio.create_task(work)
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@scenario("07")
async def node_cancelled(call: Caller) -> None:
    """The task is cancelled while a node sleeps."""
    await _cancel(line(a, sleepy).ainvoke(INPUT, call.config()))


@scenario("07b")
async def model_call_cancelled(call: Caller) -> None:
    """The task is cancelled while a model answers: the call never hears of its end."""
    model = model_that_says("hi", delay=5)

    async def n(state: State) -> State:
        await model.ainvoke("q")
        return {}

    await _cancel(line(n).ainvoke(INPUT, call.config()))


@scenario("07c")
async def tool_cancelled(call: Caller) -> None:
    """The task is cancelled while an async tool runs."""

    @tool
    async def slow(x: int) -> int:
        """Take long."""
        await asyncio.sleep(5)
        return x

    graph = tool_graph([slow])
    await _cancel(graph.ainvoke(asking_for(tool_call("slow", {"x": 1}, "c1")), call.config()))


@scenario("07d")
async def node_cancelled_inline(call: Caller) -> None:
    """As 07, with the handler called in the thread of the loop."""
    handler = call.handler()
    handler.run_inline = True
    await _cancel(line(a, sleepy).ainvoke(INPUT, {"callbacks": [handler]}))


@scenario("08")
async def caller_timed_out(call: Caller) -> None:
    """The caller gives the run a tenth of a second."""
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(line(a, sleepy).ainvoke(INPUT, call.config()), LONG_ENOUGH_TO_START)


@scenario("08b", way="sync")
def step_timed_out(call: Caller) -> None:
    """A step exceeds the graph's own limit; its thread cannot be stopped and ends well."""

    def slow(state: State) -> State:
        time.sleep(0.6)
        return {"log": ["slow"]}

    graph = line(a, slow)
    graph.step_timeout = 0.3
    with pytest.raises(TimeoutError):
        call.invoke(graph, INPUT)


@scenario("08c")
async def async_step_timed_out(call: Caller) -> None:
    """A step exceeds the graph's own limit and is cancelled."""
    graph = line(a, sleepy)
    graph.step_timeout = 0.3
    with pytest.raises(asyncio.TimeoutError):
        await graph.ainvoke(INPUT, call.config())


@scenario("34")
async def agent_cancelled(call: Caller) -> None:
    """An agent is cancelled while its model answers, then while it streams."""
    waiting = create_agent(model_that_says("one two three four", delay=5), [add])
    await _cancel(waiting.ainvoke(QUESTION, call.config()))

    first_chunk = asyncio.Event()
    streaming = create_agent(model_that_says("one two three four", delay=0.1), [add])

    async def consume() -> None:
        async for _ in streaming.astream(QUESTION, call.config(), stream_mode="messages"):
            first_chunk.set()

    task = asyncio.create_task(consume())
    await first_chunk.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.05)


@scenario("35", grace=GRACE_LONG)
async def thread_outlives_its_caller(call: Caller) -> None:
    """A sync run in a thread goes on when the task that waits for it is cancelled."""

    def slow(state: State) -> State:
        time.sleep(0.8)
        return {"log": ["slow"]}

    await _cancel(asyncio.to_thread(line(a, slow).invoke, INPUT, call.config()))
    await asyncio.sleep(0.8)
