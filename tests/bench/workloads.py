"""The work that is measured: an agent run as bare callbacks, as a graph, concurrently, as a stream.

No network and no model: answers come from `otel_journal.testing.ScriptedModel`, which asks for
four tools at once and then answers in text. What a handler adds is the difference to the same work
without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict
from uuid import UUID, uuid4

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode

from otel_journal.testing import ScriptedModel, ai, tool_call

MODEL = "bench-1"
USAGE: Any = {
    "input_tokens": 812,
    "output_tokens": 64,
    "total_tokens": 876,
    "input_token_details": {"cache_read": 512},
    "output_token_details": {"reasoning": 16},
}
CALLS = (
    tool_call("search", {"q": "otel"}, "c1"),
    tool_call("search", {"q": "langgraph"}, "c2"),
    tool_call("weather", {"city": "Oslo"}, "c3"),
    tool_call("add", {"a": 1, "b": 2}, "c4"),
)
SYSTEM = "You are a helpful assistant. " * 8
QUESTION = "Compare OpenTelemetry with LangGraph streaming, then tell me the weather in Oslo. " * 3
ANSWER = "OpenTelemetry is a vendor neutral standard; LangGraph is an agent runtime. " * 6
CHUNKS = 500
CONCURRENT = 100

Handlers = Sequence[Any]


# One run, callback by callback ----------------------------------------------------------------


class Step(NamedTuple):
    """One callback: `run` and `parent` number the operations of the script."""

    hook: str
    given: tuple[Any, ...]
    more: dict[str, Any]
    run: int
    parent: int | None


def _metadata(node: str, step: int, **more: Any) -> dict[str, Any]:
    return {
        "thread_id": "t-1",
        "ls_integration": "langgraph",
        "langgraph_step": step,
        "langgraph_node": node,
        "langgraph_triggers": (f"branch:to:{node}",),
        "langgraph_path": ("__pregel_pull", node),
        "langgraph_checkpoint_ns": f"{node}:d437dc7f-c190-6ce1-b1a6-5c103ff0c604",
        **more,
    }


def _said(*, final: bool) -> AIMessage:
    message = ai(ANSWER, usage=USAGE) if final else ai("", *CALLS, usage=USAGE)
    reason = "stop" if final else "tool_calls"
    message.response_metadata = {"model_name": MODEL, "finish_reason": reason}
    return message


class _Writer:
    """Writes a script as langchain-core would report the run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.history: list[AnyMessage] = [
            SystemMessage(SYSTEM, id="m0"),
            HumanMessage("Hi", id="m1"),
            AIMessage("Hello, how can I help?", id="m2"),
            HumanMessage(QUESTION, id="m3"),
            _said(final=False),
            ToolMessage("rain in Oslo", tool_call_id="c3", name="weather"),
        ]

    def chain(self, phase: str, run: int, name: str, step: int = 0) -> None:
        root = run == 0
        more: dict[str, Any] = {"tags": [] if root else [f"graph:step:{step}"]}
        given: tuple[Any, ...] = ({"messages": self.history[-1:]},)
        if phase == "start":
            given = (None, {"messages": self.history})
            more["name"] = name
            thread = {"thread_id": "t-1", "ls_integration": "langgraph"}
            more["metadata"] = thread if root else _metadata(name, step)
        self.steps.append(Step(f"on_chain_{phase}", given, more, run, None if root else 0))

    def chat(self, run: int, parent: int, step: int, *, final: bool) -> None:
        serialized = {"lc": 1, "type": "not_implemented", "id": ["bench"], "name": "Model"}
        schemas = [{"type": "function", "function": {"name": tool.name}} for tool in TOOLS]
        parameters = {
            "model_name": MODEL,
            "temperature": 0.2,
            "max_tokens": 1_024,
            "tools": schemas,
        }
        told = {"ls_provider": "openai", "ls_model_name": MODEL, "ls_model_type": "chat"}
        more = {
            "tags": [],
            "name": None,
            "options": {"stop": None},
            "metadata": _metadata("model", step, **told),
            "invocation_params": {**parameters, "_type": "bench", "stop": None},
        }
        given = (serialized, [self.history])
        self.steps.append(Step("on_chat_model_start", given, more, run, parent))
        said = ChatGeneration(message=_said(final=final))
        result = LLMResult(generations=[[said]], llm_output={"model_name": MODEL})
        self.steps.append(Step("on_llm_end", (result,), {"tags": []}, run, parent))

    def tool(self, phase: str, run: int, call: Any) -> None:
        more: dict[str, Any] = {"tags": ["seq:step:1"]}
        given: tuple[Any, ...] = (
            ToolMessage("lorem ipsum " * 10, name=call["name"], tool_call_id=call["id"]),
        )
        if phase == "start":
            given = ({"name": call["name"], "description": "A tool."}, str(call["args"]))
            more["metadata"] = _metadata("tools", 2)
            more["inputs"], more["tool_call_id"] = call["args"], call["id"]
        self.steps.append(Step(f"on_tool_{phase}", given, more, run, 3))


def script() -> list[Step]:
    """Return one agent run: 10 operations, 20 callbacks; two tools of one name in parallel."""
    run = _Writer()
    run.chain("start", 0, "agent")
    run.chain("start", 1, "model", 1)
    run.chat(2, 1, 1, final=False)
    run.chain("end", 1, "model", 1)
    run.chain("start", 3, "tools", 2)
    run.tool("start", 4, CALLS[0])
    run.tool("start", 5, CALLS[1])
    run.tool("end", 4, CALLS[0])
    run.tool("end", 5, CALLS[1])
    for number, call in ((6, CALLS[2]), (7, CALLS[3])):
        run.tool("start", number, call)
        run.tool("end", number, call)
    run.chain("end", 3, "tools", 2)
    run.chain("start", 8, "model", 3)
    run.chat(9, 8, 3, final=True)
    run.chain("end", 8, "model", 3)
    run.chain("end", 0, "agent")
    return run.steps


class Player:
    """Plays a script to handlers; each run has ids and a context of its own."""

    def __init__(self, steps: list[Step]) -> None:
        """Play `steps`."""
        self.steps = steps
        self._operations = 1 + max(step.run for step in steps)
        self._ids: list[list[UUID]] = []

    def prepare(self, runs: int) -> None:
        """Make ids for as many runs, outside of what is timed."""
        self._ids = [[uuid4() for _ in range(self._operations)] for _ in range(runs)]

    def play(self, handlers: Handlers) -> None:
        """Play every prepared run."""
        hooks = [getattr(handler, step.hook) for step in self.steps for handler in handlers]
        steps = [step for step in self.steps for _ in handlers] or self.steps
        plan = list(zip(hooks or [_nothing] * len(steps), steps, strict=True))
        for ids in self._ids:
            copy_context().run(_play, plan, ids)


def _nothing(*_given: Any, **_more: Any) -> None:
    pass


def _play(plan: list[tuple[Callable[..., None], Step]], ids: list[UUID]) -> None:
    for hook, (_, given, more, run, parent) in plan:
        told = dict(more, run_id=ids[run], parent_run_id=None if parent is None else ids[parent])
        if "metadata" in told:
            told["metadata"] = dict(told["metadata"])
        hook(*given, **told)


# The same run as a graph ----------------------------------------------------------------------


def search(q: str) -> str:
    """Search the web."""
    return f"results for {q}: " + "lorem ipsum " * 10


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"rain in {city}"


def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


def _tool(function: Callable[..., Any]) -> StructuredTool:
    async def coroutine(**given: Any) -> Any:
        return function(**given)

    return StructuredTool.from_function(function, coroutine)


TOOLS = [_tool(function) for function in (search, weather, add)]
QUESTIONS: Any = {"messages": [SystemMessage(SYSTEM, id="m0"), HumanMessage(QUESTION, id="m1")]}


class State(TypedDict):
    """What the graph works on."""

    messages: Annotated[list[AnyMessage], add_messages]


def _answer(messages: list[Any]) -> AIMessage:
    return _said(final=any(isinstance(message, ToolMessage) for message in messages))


def graph(*, use_async: bool) -> Any:
    """Return a model node and a tool node: two model calls, four tools in parallel."""
    model = ScriptedModel(script=[_answer], model_name=MODEL).bind_tools(TOOLS)

    def call(state: State) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def acall(state: State) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    def route(state: State) -> str:
        return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END

    built = StateGraph(State)
    built.add_node("model", acall if use_async else call)
    built.add_node("tools", ToolNode(TOOLS))
    built.add_edge(START, "model")
    built.add_conditional_edges("model", route, {"tools": "tools", END: END})
    built.add_edge("tools", "model")
    return built.compile(name="agent")


# What is measured -----------------------------------------------------------------------------


@dataclass
class Workload:
    """Work in units; `run(handlers, config, units)` does it, `prepare(units)` comes before."""

    title: str
    rounds: int
    units: int
    run: Callable[[Handlers, Any, int], None]
    prepare: Callable[[int], None] = lambda _units: None
    runs_per_unit: int = 1
    parts: tuple[int, str] = (0, "")
    """What a run is divided by for a second figure, and its name."""


def w1() -> Workload:
    """Return bare callbacks."""
    player = Player(script())
    return Workload(
        "20 callbacks of one run",
        rounds=60,
        units=40,
        run=lambda handlers, _config, _units: player.play(handlers),
        prepare=player.prepare,
        parts=(len(player.steps), "callback"),
    )


def w2() -> Workload:
    """Return a graph, run after run."""
    agent = graph(use_async=False)

    def run(_handlers: Handlers, config: Any, units: int) -> None:
        for _ in range(units):
            agent.invoke(QUESTIONS, config)

    return Workload("graph.invoke", rounds=60, units=20, run=run)


def w3() -> Workload:
    """Return a graph, a hundred runs at once in one event loop."""
    agent = graph(use_async=True)
    loop = asyncio.new_event_loop()

    async def many(config: Any) -> None:
        await asyncio.gather(*(agent.ainvoke(QUESTIONS, config) for _ in range(CONCURRENT)))

    def run(_handlers: Handlers, config: Any, units: int) -> None:
        for _ in range(units):
            loop.run_until_complete(many(config))

    title = f"{CONCURRENT} concurrent ainvoke, per run"
    return Workload(title, rounds=20, units=1, run=run, runs_per_unit=CONCURRENT)


class Streaming(ScriptedModel):
    """Streams as fast as it can, so that what a handler adds is not lost in the model's noise."""

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):  # noqa: ARG002
        for _ in range(CHUNKS - 1):
            yield ChatGenerationChunk(message=AIMessageChunk(content="tok "))
        last = AIMessageChunk(content="", usage_metadata=USAGE, chunk_position="last")
        last.response_metadata = {"model_name": MODEL, "finish_reason": "stop"}
        yield ChatGenerationChunk(message=last)


def w4() -> Workload:
    """Return a model that streams."""
    model = Streaming(script=[ai(ANSWER)], model_name=MODEL)

    def run(_handlers: Handlers, config: Any, units: int) -> None:
        for _ in range(units):
            for _chunk in model.stream(QUESTIONS["messages"], config):
                pass

    title = f"model.stream of {CHUNKS} chunks"
    return Workload(title, rounds=40, units=4, run=run, parts=(CHUNKS, "chunk"))


WORKLOADS: dict[str, Callable[[], Workload]] = {"W1": w1, "W2": w2, "W3": w3, "W4": w4}
