"""Streams: consumed, broken off by the caller, cut by the provider."""

# ruff: noqa: ARG001 - nodes get a state they need not read

import asyncio
from contextlib import suppress

import pytest
from langchain_core.runnables import RunnableConfig

from .graphs import INPUT, State, a, b, line, model_that_says
from .registry import Caller, scenario


@scenario("04")
def stream_consumed(call: Caller) -> None:
    """The caller reads the stream of a graph to its end."""
    assert len(call.stream(line(a, b), INPUT, stream_mode="updates")) == 2


@scenario("05", way="sync")
def stream_closed_early(call: Caller) -> None:
    """The caller closes the stream of a graph after the first chunk."""
    chunks = line(a, b).stream(INPUT, call.config(), stream_mode="updates")
    next(chunks)
    chunks.close()


@scenario("05")
async def _stream_closed_early(call: Caller) -> None:
    chunks = line(a, b).astream(INPUT, call.config(), stream_mode="updates")
    await anext(chunks)
    await chunks.aclose()


@scenario("06")
async def astream_closed_early(call: Caller) -> None:
    """The caller breaks out of an async stream and closes it."""
    chunks = line(a, b).astream(INPUT, call.config(), stream_mode="updates")
    async for _ in chunks:
        break
    await chunks.aclose()


@scenario("06b", way="sync")
def stream_dropped(call: Caller) -> None:
    """The caller breaks out of a stream and drops it: collector or event loop close it."""
    for _ in line(a, b).stream(INPUT, call.config(), stream_mode="updates"):
        break


@scenario("06b")
async def _stream_dropped(call: Caller) -> None:
    async for _ in line(a, b).astream(INPUT, call.config(), stream_mode="updates"):
        break


@scenario("06c", way="sync")
def stream_never_closed(call: Caller) -> None:
    """The caller keeps a stream it no longer reads until the process ends."""
    chunks = line(a, b).stream(INPUT, call.config(), stream_mode="updates")
    next(chunks)
    call.kept.append(chunks)


@scenario("21")
def model_stream_consumed(call: Caller) -> None:
    """A streamed answer brings its usage in the last chunk."""
    call.stream(model_that_says("one two three"), "q")


@scenario("21b", way="sync")
def model_stream_closed_early(call: Caller) -> None:
    """The caller closes the stream of a model after the first chunk: no usage."""
    chunks = model_that_says("one two three").stream("q", call.config())
    next(chunks)
    chunks.close()


@scenario("21b")
async def _model_stream_closed_early(call: Caller) -> None:
    chunks = model_that_says("one two three").astream("q", call.config())
    await anext(chunks)
    await chunks.aclose()


@scenario("21c")
async def model_stream_cancelled(call: Caller) -> None:
    """A task is cancelled between two chunks; another caller breaks and closes."""
    first_chunk = asyncio.Event()

    async def consume() -> None:
        async for _ in model_that_says("one two three", delay=0.02).astream("q", call.config()):
            first_chunk.set()

    task = asyncio.create_task(consume())
    await first_chunk.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task

    chunks = model_that_says("one two three").astream("q", call.config())
    async for _ in chunks:
        break
    await chunks.aclose()


@scenario("21d")
def model_stream_cut(call: Caller) -> None:
    """The connection to the provider breaks in the middle of an answer."""
    model = model_that_says("one two three", fail_midstream=ConnectionError("stream cut"))
    with pytest.raises(ConnectionError):
        call.stream(model, "q")


@scenario("21e", way="sync")
def messages_mode_streams_the_model(call: Caller) -> None:
    """A graph streamed in messages mode turns ``model.invoke`` into a streamed call."""
    model = model_that_says("one two")

    def n(state: State) -> State:
        model.invoke("q")
        return {"log": ["n"]}

    call.stream(line(n), INPUT, stream_mode="messages")


@scenario("21e")
async def _messages_mode_streams_the_model(call: Caller) -> None:
    model = model_that_says("one two")

    async def n(state: State) -> State:
        await model.ainvoke("q")
        return {"log": ["n"]}

    async for _ in line(n).astream(INPUT, call.config(), stream_mode="messages"):
        pass


@scenario("21f")
async def stream_of_events(call: Caller) -> None:
    """``astream_events`` adds a handler of its own and streams every model call."""
    model = model_that_says("one two")

    async def n(state: State, config: RunnableConfig) -> State:
        await model.ainvoke("q", config)
        return {"log": ["n"]}

    async for _ in line(n).astream_events(INPUT, call.config(), version="v2"):
        pass
