"""Agents made by ``create_agent``: tools, subagents, approvals, failures."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from otel_journal.testing import ScriptedModel, ai, tool_call

from .graphs import QUESTION, add
from .registry import Caller, scenario

ADD_ONCE = ai("", tool_call("add", {"x": 1, "y": 2}, "c1"))
ADD_TWICE = ai(
    "", tool_call("add", {"x": 1, "y": 2}, "c1"), tool_call("add", {"x": 3, "y": 4}, "c2")
)


@scenario("25")
def agent_with_parallel_tools(call: Caller) -> None:
    """A named agent: two model calls, two tool calls at once between them."""
    agent = create_agent(ScriptedModel(script=[ADD_TWICE, ai("done")]), [add], name="boss")
    call.invoke(agent, QUESTION, call.config(metadata={"tenant": "t9"}, thread_id="T"))


def _mathematician() -> ScriptedModel:
    return ScriptedModel(script=[ai("", tool_call("add", {"x": 1, "y": 2}, "i1")), ai("3")])


def _boss() -> ScriptedModel:
    return ScriptedModel(script=[ai("", tool_call("ask_math", {"q": "1+2"}, "o1")), ai("it is 3")])


@scenario("25b", way="sync")
def subagent_as_a_tool(call: Caller) -> None:
    """An agent is a tool of another: its run hangs below the tool call."""
    inner = create_agent(_mathematician(), [add], name="mathsub")

    @tool
    def ask_math(q: str) -> str:
        """Ask the mathematician."""
        return inner.invoke({"messages": [HumanMessage(q)]})["messages"][-1].text

    call.invoke(create_agent(_boss(), [ask_math], name="boss"), QUESTION)


@scenario("25b")
async def _subagent_as_a_tool(call: Caller) -> None:
    inner = create_agent(_mathematician(), [add], name="mathsub")

    @tool
    async def ask_math(q: str) -> str:
        """Ask the mathematician."""
        answer = await inner.ainvoke({"messages": [HumanMessage(q)]})
        return answer["messages"][-1].text

    await create_agent(_boss(), [ask_math], name="boss").ainvoke(QUESTION, call.config())


@scenario("25c")
def agent_waits_for_approval(call: Caller) -> None:
    """A middleware asks before the tool runs; the approval resumes the agent."""
    agent = create_agent(
        ScriptedModel(script=[ADD_ONCE, ai("done")]),
        [add],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"add": True})],
        checkpointer=InMemorySaver(),
    )
    call.invoke(agent, QUESTION, call.config(thread_id="T"))
    approval = Command(resume={"decisions": [{"type": "approve"}]})
    call.invoke(agent, approval, call.config(thread_id="T"))


@scenario("25d")
def model_fails_on_the_second_turn(call: Caller) -> None:
    """The provider is down when the agent has its tool result."""
    script = [ADD_ONCE, ConnectionError("provider down")]
    with pytest.raises(ConnectionError):
        call.invoke(create_agent(ScriptedModel(script=script), [add]), QUESTION)


def _streaming_agent() -> ScriptedModel:
    call_it = ai("call it", tool_call("add", {"x": 1, "y": 2}, "c1"))
    return ScriptedModel(script=[call_it, ai("all done now")])


@scenario("25e", way="sync")
def agent_stream_closed_after_the_tool(call: Caller) -> None:
    """The caller stops reading after the first tool result."""
    agent = create_agent(_streaming_agent(), [add])
    chunks = agent.stream(QUESTION, call.config(), stream_mode=["updates", "messages"])
    for mode, chunk in chunks:
        if mode == "updates" and "tools" in chunk:
            break
    chunks.close()


@scenario("25e")
async def _agent_stream_closed_after_the_tool(call: Caller) -> None:
    agent = create_agent(_streaming_agent(), [add])
    chunks = agent.astream(QUESTION, call.config(), stream_mode=["updates", "messages"])
    async for mode, chunk in chunks:
        if mode == "updates" and "tools" in chunk:
            break
    await chunks.aclose()
    await asyncio.sleep(0.05)
