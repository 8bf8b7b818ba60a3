"""Graphs that run to their end: nodes, subgraphs, branches, chains, the functional API."""

# ruff: noqa: ARG001 - nodes get a state they need not read

import asyncio
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain_core.callbacks import dispatch_custom_event
from langchain_core.prompts import ChatPromptTemplate
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.types import CachePolicy, Send

from .graphs import INPUT, State, a, b, line, model_that_says
from .registry import GRACE_LONG, Caller, scenario


@scenario("01")
def two_nodes(call: Caller) -> None:
    """Two nodes run one after the other."""
    call.invoke(line(a, b), INPUT)


@scenario("02")
async def callbacks_in_executor_threads(call: Caller) -> None:
    """A handler that is not inline is called in threads of the loop's executor."""
    handler = call.handler()
    handler.run_inline = False
    await line(a, b).ainvoke(INPUT, {"callbacks": [handler]})


@scenario("03")
def callbacks_inline(call: Caller) -> None:
    """An inline handler is called in the thread of the loop."""
    handler = call.handler()
    handler.run_inline = True
    call.invoke(line(a), INPUT, {"callbacks": [handler]})


@scenario("12c")
def reading_and_updating_state(call: Caller) -> None:
    """Reading and updating the state of a thread fires no callback at all."""
    graph = line(a, checkpointer=InMemorySaver())
    graph.invoke(INPUT, {"configurable": {"thread_id": "t1"}})
    config = call.config(thread_id="t1")
    if call.way == "sync":
        graph.get_state(config)
        graph.update_state(config, {"log": ["u"]}, as_node="a")
    else:
        asyncio.run(_read_and_update(graph, config))


async def _read_and_update(graph: Any, config: Any) -> None:
    await graph.aget_state(config)
    await graph.aupdate_state(config, {"log": ["u"]}, as_node="a")


@scenario("13")
def subgraph_as_a_node(call: Caller) -> None:
    """A compiled graph is a node of another."""
    call.invoke(line(a, ("sub", line(b))), INPUT)


@scenario("13b", way="sync")
def subgraph_called_in_a_node(call: Caller) -> None:
    """A node calls another graph and passes no config on."""
    inner = line(b)

    def n(state: State) -> State:
        inner.invoke({"x": 2})
        return {"log": ["n"]}

    call.invoke(line(n), INPUT)


@scenario("13b")
async def _subgraph_called_in_a_node(call: Caller) -> None:
    inner = line(b)

    async def n(state: State) -> State:
        await inner.ainvoke({"x": 2})
        return {"log": ["n"]}

    await line(n).ainvoke(INPUT, call.config())


@scenario("13c")
def model_called_in_a_thread(call: Caller) -> None:
    """A thread the node starts itself loses the context: its call is not seen."""
    model = model_that_says("hi")

    def n(state: State) -> State:
        thread = threading.Thread(target=model.invoke, args=("q",))
        thread.start()
        thread.join()
        return {"log": ["n"]}

    call.invoke(line(n), INPUT)


@scenario("14")
def fan_out(call: Caller) -> None:
    """One node sends work to three parallel runs of another."""

    def work(state: State) -> State:
        time.sleep(0.02)
        return {"log": [state["x"]]}

    graph = StateGraph(State)
    graph.add_node("plan", a)
    graph.add_node("work", work)
    graph.add_edge(START, "plan")
    graph.add_conditional_edges(
        "plan", lambda _: [Send("work", {"x": n}) for n in range(3)], ["work"]
    )
    graph.add_edge("work", END)
    call.invoke(graph.compile(), INPUT)


@scenario("18")
def node_cache_hit(call: Caller) -> None:
    """The second run takes the node's result from the cache: no callbacks for the node."""
    graph = StateGraph(State)
    graph.add_node("c", a, cache_policy=CachePolicy(ttl=60))
    graph.add_edge(START, "c")
    cached = graph.compile(cache=InMemoryCache())
    call.invoke(cached, INPUT)
    call.invoke(cached, INPUT)


@scenario("23", way="sync")
def two_runs_at_once(call: Caller) -> None:
    """One handler serves two runs at once."""
    both_inside = threading.Barrier(2)

    def n(state: State) -> State:
        both_inside.wait()
        return {"log": ["n"]}

    graph, handler = line(n), call.handler()
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(graph.invoke, INPUT, _named_run(call, handler, i)) for i in range(2)]
    assert all(run.exception() is None for run in runs)


@scenario("23")
async def _two_tasks(call: Caller) -> None:
    async def n(state: State) -> State:
        await asyncio.sleep(0.01)
        return {"log": ["n"]}

    graph, handler = line(n), call.handler()
    await asyncio.gather(*[graph.ainvoke(INPUT, _named_run(call, handler, i)) for i in range(2)])


def _named_run(call: Caller, handler: Any, index: int) -> Any:
    return call.config(
        callbacks=[handler],
        thread_id=str(index),
        metadata={"req": index},
        tags=[f"t{index}"],
        run_name=f"run{index}",
    )


@scenario("23b")
def run_id_used_twice(call: Caller) -> None:
    """The caller chooses the run id, and uses it for a second run."""
    run_id = uuid.uuid4()
    graph = line(a)
    call.invoke(graph, INPUT, call.config(run_id=run_id))
    call.invoke(graph, INPUT, call.config(run_id=run_id))


@scenario("27")
def custom_event(call: Caller) -> None:
    """A node dispatches a custom event."""

    def n(state: State) -> State:
        dispatch_custom_event("progress", {"p": 1})
        return {}

    call.invoke(line(n), INPUT)


@scenario("28")
def chain_in_a_node(call: Caller) -> None:
    """A node calls prompt, model and function as a chain; only the model call is kept."""
    prompt = ChatPromptTemplate.from_messages([("human", "{q}")])
    chain = prompt | model_that_says("hi") | (lambda message: message.text)

    def n(state: State) -> State:
        return {"log": [chain.invoke({"q": "x"})]}

    call.invoke(line(n), INPUT)


@scenario("29", way="sync")
def entrypoint_and_tasks(call: Caller) -> None:
    """The functional API: an entrypoint calls a task twice."""

    @task
    def increment(x: int) -> int:
        return x + 1

    @entrypoint()
    def flow(x: int) -> int:
        return increment(x).result() + increment(x + 1).result()

    call.invoke(flow, 1)


@scenario("29")
async def _entrypoint_and_tasks(call: Caller) -> None:
    @task
    async def increment(x: int) -> int:
        return x + 1

    @entrypoint()
    async def flow(x: int) -> int:
        return await increment(x) + await increment(x + 1)

    await flow.ainvoke(1, call.config())


@scenario("30", grace=GRACE_LONG)
async def background_task(call: Caller) -> None:
    """A model call started in a node ends after the run has ended."""
    model = model_that_says("late", delay=0.1)
    background: list[asyncio.Task[Any]] = []

    async def n(state: State) -> State:
        background.append(asyncio.create_task(model.ainvoke("q")))
        await asyncio.sleep(0.02)  # let the call start inside the node
        return {"log": ["n"]}

    await line(n).ainvoke(INPUT, call.config())
    await asyncio.gather(*background)


@scenario("36")
async def sync_calls_under_ainvoke(call: Caller) -> None:
    """An async and a sync node call a model the sync way."""
    model = model_that_says("hi")

    async def async_node(state: State) -> State:
        model.invoke("q")
        return {}

    def sync_node(state: State) -> State:
        model.invoke("q")
        return {}

    await line(async_node, sync_node).ainvoke(INPUT, call.config())
