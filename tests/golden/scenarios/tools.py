"""Tool calls: parallel, failing, returning commands, with ids that repeat."""

import asyncio
import threading
import time
from typing import Annotated

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.types import Command

from otel_journal.testing import tool_call

from .graphs import add, asking_for, bad, model_that_says, tool_graph
from .registry import GRACE_LONG, Caller, scenario


@scenario("15")
def parallel_tools(call: Caller) -> None:
    """Three calls of one tool run at the same time, told apart by their ids."""
    calls = [tool_call("add", {"x": n, "y": 1}, f"c{n}") for n in range(3)]
    call.invoke(tool_graph([add]), asking_for(*calls))


@scenario("15b")
async def parallel_async_tools(call: Caller) -> None:
    """As 15 with an async tool: all three are open at once."""

    @tool
    async def add_slowly(x: int, y: int) -> int:
        """Add two numbers."""
        await asyncio.sleep(0.02)
        return x + y

    calls = [tool_call("add_slowly", {"x": n, "y": 1}, f"c{n}") for n in range(3)]
    await tool_graph([add_slowly]).ainvoke(asking_for(*calls), call.config())


@scenario("15c")
async def sync_tools_under_ainvoke(call: Caller) -> None:
    """Sync tools of an async run are called in threads."""
    calls = [tool_call("add", {"x": n, "y": 1}, f"c{n}") for n in range(2)]
    await tool_graph([add]).ainvoke(asking_for(*calls), call.config())


@tool
def soft(x: int) -> int:
    """Fail in a way the tool itself answers for."""
    msg = f"soft failure on {x}"
    raise ToolException(msg)


soft.handle_tool_error = True


@scenario("16")
def failing_tools(call: Caller) -> None:
    """A tool fails in all the ways it can, from unhandled to answered; last an unknown tool."""
    failing = asking_for(tool_call("bad", {"x": 1}, "c1"))
    with pytest.raises(ValueError, match="tool broke"):
        call.invoke(tool_graph([bad]), failing)
    call.invoke(tool_graph([bad], handle_tool_errors=True), failing)
    with pytest.raises(ValueError, match="tool broke"):
        call.invoke(tool_graph([bad], handle_tool_errors=False), failing)
    call.invoke(tool_graph([soft]), asking_for(tool_call("soft", {"x": 1}, "c1")))
    adding = tool_graph([add], handle_tool_errors=True)
    call.invoke(adding, asking_for(tool_call("add", {"x": "zz"}, "c1")))
    call.invoke(adding, asking_for(tool_call("nope", {"x": 1}, "c9")))


@tool
def commanding(x: int, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[None]:
    """Return a command instead of a result."""
    return Command(
        update={"messages": [ToolMessage(f"via command {x}", tool_call_id=tool_call_id)]}
    )


@scenario("16b")
def unusual_calls(call: Caller) -> None:
    """A command as result, plain arguments, a call by hand, an id twice, no id."""
    call.invoke(tool_graph([commanding]), asking_for(tool_call("commanding", {"x": 1}, "c1")))
    call.invoke(add, {"x": 1, "y": 2})
    call.invoke(add, tool_call("add", {"x": 1, "y": 2}, "c7"))
    twice = tool_call("add", {"x": 1, "y": 2}, "dup"), tool_call("add", {"x": 3, "y": 4}, "dup")
    call.invoke(tool_graph([add]), asking_for(*twice))
    call.invoke(add, tool_call("add", {"x": 1, "y": 2}))


@scenario("24")
def model_called_in_a_tool(call: Caller) -> None:
    """A tool calls a model and passes no config on."""
    model = model_that_says("inner")

    @tool
    def ask(x: int) -> str:
        """Ask a model."""
        return model.invoke(str(x)).text

    call.invoke(tool_graph([ask]), asking_for(tool_call("ask", {"x": 1}, "c1")))


@scenario("33", way="sync", grace=GRACE_LONG)
def parallel_tool_fails(call: Caller) -> None:
    """One of two tools fails the run; the other ends well, in async runs after the root."""
    started = threading.Event()

    @tool
    def failing(x: int) -> int:
        """Fail."""
        started.wait()
        raise ValueError(x)

    @tool
    def slow(x: int) -> int:
        """Take a while."""
        started.set()
        time.sleep(0.1)
        return x

    graph = tool_graph([failing, slow], handle_tool_errors=False)
    with pytest.raises(ValueError, match="1"):
        call.invoke(graph, _failing_and_slow())


@scenario("33")
async def _parallel_tool_fails(call: Caller) -> None:
    started = asyncio.Event()

    @tool
    async def failing(x: int) -> int:
        """Fail."""
        await started.wait()
        raise ValueError(x)

    @tool
    async def slow(x: int) -> int:
        """Take a while."""
        started.set()
        await asyncio.sleep(0.1)
        return x

    graph = tool_graph([failing, slow], handle_tool_errors=False)
    with pytest.raises(ValueError, match="1"):
        await graph.ainvoke(_failing_and_slow(), call.config())
    await asyncio.sleep(0.2)


def _failing_and_slow() -> dict[str, object]:
    return asking_for(tool_call("failing", {"x": 1}, "c1"), tool_call("slow", {"x": 1}, "c2"))


class _Unprintable:
    def __str__(self) -> str:
        msg = "cannot str"
        raise RuntimeError(msg)

    __repr__ = __str__


@scenario("41")
def unprintable_tool_output(call: Caller) -> None:
    """A tool's output cannot be turned into text: LangChain reports neither end nor error."""

    @tool
    def weird(x: int) -> object:  # noqa: ARG001
        """Return something unprintable."""
        return _Unprintable()

    with pytest.raises(RuntimeError, match="cannot str"):
        call.invoke(weird, tool_call("weird", {"x": 1}, "c1"))
