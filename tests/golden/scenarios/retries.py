"""The same step twice: retries, resumed failures, time travel, fallbacks, middleware."""

# ruff: noqa: ARG001 - nodes get a state they need not read

from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ModelRetryMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy

from otel_journal.testing import ScriptedModel, ai, tool_call

from .graphs import INPUT, QUESTION, State, a, line, model_that_says
from .registry import Caller, scenario


def _flaky(failures: int) -> Callable[[State], State]:
    tries = 0

    def flaky(state: State) -> State:
        nonlocal tries
        tries += 1
        if tries <= failures:
            msg = f"try {tries}"
            raise ConnectionError(msg)
        return {"log": ["ok"]}

    return flaky


@scenario("12")
def failure_resumed_then_time_travel(call: Caller) -> None:
    """A failed node runs again from the checkpoint; then the run is replayed from before."""
    graph = line(a, _flaky(1), checkpointer=InMemorySaver())
    _fail_and_resume(call, graph, durability="sync")
    history = graph.get_state_history({"configurable": {"thread_id": "t1"}})
    before_a = next(state for state in history if state.next == ("a",))
    call.invoke(graph, None, call.config(**before_a.config))


@scenario("12b")
def failure_resumed_from_the_exit_checkpoint(call: Caller) -> None:
    """As 12 with checkpoints written only at exit: the finished node does not run again."""
    graph = line(a, _flaky(1), checkpointer=InMemorySaver())
    _fail_and_resume(call, graph, durability="exit")


def _fail_and_resume(call: Caller, graph: Any, *, durability: str) -> None:
    with pytest.raises(ConnectionError):
        call.invoke(graph, INPUT, call.config(thread_id="t1"), durability=durability)
    call.invoke(graph, None, call.config(thread_id="t1"), durability=durability)


@scenario("17")
def node_retried(call: Caller) -> None:
    """A retry policy runs a node until its third try succeeds."""
    graph = StateGraph(State)
    policy = RetryPolicy(max_attempts=3, initial_interval=0.01, jitter=False)
    graph.add_node("flaky", _flaky(2), retry_policy=policy)
    graph.add_edge(START, "flaky")
    call.invoke(graph.compile(), INPUT)


@scenario("17b")
def model_retried(call: Caller) -> None:
    """``with_retry`` calls a model a second time."""
    model = ScriptedModel(script=[ConnectionError("down"), ai("hi there")])
    retrying = model.with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
    call.invoke(retrying, "q")


@scenario("19")
def fallback_model(call: Caller) -> None:
    """The first model fails, a second answers; LangChain gives both no parent."""
    broken = ScriptedModel(script=[ConnectionError("down")])
    call.invoke(
        broken.with_fallbacks([model_that_says("from fallback", model_name="scripted-2")]), "q"
    )


class _Watching(AgentMiddleware):
    def before_model(self, state: Any, runtime: Any) -> None:
        """Become a node of the agent's graph."""

    def after_model(self, state: Any, runtime: Any) -> None:
        """Become a node of the agent's graph."""


@scenario("38")
def model_and_tool_retried_by_middleware(call: Caller) -> None:
    """Middleware repeats a failed model call and a failed tool call; its hooks are nodes."""
    tries = 0

    @tool
    def flaky(x: int) -> int:
        """Fail once."""
        nonlocal tries
        tries += 1
        if tries == 1:
            msg = "tool try 1"
            raise ConnectionError(msg)
        return x

    script = [ConnectionError("model try 1"), ai("", tool_call("flaky", {"x": 1}, "c1"))]
    agent = create_agent(
        ScriptedModel(script=[*script, ai("done")]),
        [flaky],
        middleware=[
            _Watching(),
            ModelRetryMiddleware(max_retries=2, initial_delay=0.01),
            ToolRetryMiddleware(max_retries=2, initial_delay=0.01),
        ],
    )
    call.invoke(agent, QUESTION)
