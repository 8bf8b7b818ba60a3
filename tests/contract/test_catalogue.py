"""The catalogue of events is the truth: all that is emitted is in it, all in it is emitted."""

# ruff: noqa: ARG001 - nodes and tools get values they need not read

from __future__ import annotations

import asyncio
from typing import Any, TypedDict
from uuid import uuid4

import msgspec
import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, open_store
from otel_journal.events import (
    CATALOGUE,
    MAX_CATEGORY,
    MAX_EVENT_TYPE,
    MAX_ID,
    OPEN_FAMILIES,
    OUTCOMES,
    Event,
    category_of,
)
from otel_journal.testing import ScriptedModel, ai, tool_call

FROZEN = {
    "run.start": "trace",
    "run.end": "outputs",
    "run.error": "error",
    "run.interrupted": "trace",
    "run.resumed": "trace",
    "node.start": "trace",
    "node.end": "trace",
    "llm.start": "trace",
    "llm.human.input": "message",
    "llm.ai.response": "message",
    "llm.end": "trace",
    "llm.error": "trace",
    "usage.amended": "trace",
    "tool_call.started": "trace",
    "tool_call.completed": "trace",
    "llm.tool.result": "message",
    "retrieval.end": "trace",
    "process.beat": "trace",
}
"""Names and categories; renaming, removing or re-categorising one breaks every reader."""

STARTS = {"run.start", "node.start", "llm.start", "tool_call.started"}
ENDS = {
    "run.end", "run.error", "run.interrupted", "node.end", "llm.end", "llm.error",
    "tool_call.completed", "retrieval.end",
}  # fmt: skip
WITHOUT_SPAN = {
    "llm.human.input", "llm.ai.response", "llm.tool.result", "run.resumed", "process.beat",
}  # fmt: skip


class State(TypedDict, total=False):
    """Anything."""

    x: Any


def _graphs(handler: Any) -> None:
    """Run real graphs: an agent with a tool, a failure, a pause and a resume, a custom event."""

    @tool
    def look(q: str) -> str:
        """Look."""
        return q

    @tool
    def fail(q: str) -> str:
        """Fail."""
        raise LookupError(q)

    config: Any = {"callbacks": [handler], "configurable": {"thread_id": "t"}}
    script = [ai("", tool_call("look", {"q": "x"}, "c1")), ai("done")]
    agent = create_agent(ScriptedModel(script=script), [look], name="boss")
    agent.invoke({"messages": [HumanMessage("q")]}, config)
    with pytest.raises(LookupError):
        fail.invoke({"q": "x"}, config)
    with pytest.raises(ConnectionError):
        ScriptedModel(script=[ConnectionError("gone")]).invoke("q", config)

    def ask(state: State) -> State:
        dispatch_custom_event("progress", {"done": 1})
        return {"x": interrupt("ok?")}

    def broken(state: State) -> State:
        msg = "broken"
        raise ValueError(msg)

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_node("broken", broken)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", "broken")
    pausing = graph.compile(checkpointer=InMemorySaver())
    pausing.invoke({"x": 1}, config)
    with pytest.raises(ValueError, match="broken"):
        pausing.invoke(Command(resume=1), config)


def _every_hook(handler: Any) -> None:
    """Call every hook by hand, in every way it can end."""
    usage: Any = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    silent = LLMResult(generations=[[ChatGeneration(message=AIMessage("a"))]])
    answered = LLMResult(
        generations=[[ChatGeneration(message=AIMessage("a", usage_metadata=usage))]]
    )
    endings: tuple[BaseException, ...] = (
        ValueError("no"),
        asyncio.CancelledError(),
        GeneratorExit(),
        TimeoutError(),
    )
    for error in (None, *endings):
        ids = [uuid4() for _ in range(6)]
        root, node, chat, text, used, found = ids
        handler.on_chain_start({}, {}, run_id=root, name="g", metadata={"thread_id": "h"})
        at_root: Any = {"parent_run_id": root}
        marks = {"langgraph_node": "n", "langgraph_step": 1, "langgraph_checkpoint_ns": "n:1"}
        handler.on_chain_start(
            {}, {}, run_id=node, name="n", tags=["graph:step:1"], metadata=marks, **at_root
        )
        below: Any = {"parent_run_id": node}
        handler.on_chat_model_start({}, [[HumanMessage("q")]], run_id=chat, **below)
        handler.on_llm_start({}, ["q"], run_id=text, **below)
        handler.on_tool_start({"name": "t"}, "", run_id=used, **below)
        handler.on_retriever_start({}, "q", run_id=found, **below)
        handler.on_llm_new_token("x", run_id=chat, **below)
        if error is None:
            handler.on_llm_end(silent, run_id=chat, **below)
            handler.journal.flush()
            handler.on_llm_end(answered, run_id=chat, **below)
            handler.on_llm_end(LLMResult(generations=[[Generation(text="a")]]), run_id=text)
            handler.on_tool_end("r", run_id=used, **below)
            handler.on_retriever_end([Document("d")], run_id=found, **below)
            handler.on_chain_end({}, run_id=node, **at_root)
            handler.on_chain_end({}, run_id=root)
            continue
        handler.on_llm_error(error, run_id=chat, **below)
        handler.on_llm_error(error, run_id=text, **below)
        handler.on_tool_error(error, run_id=used, **below)
        handler.on_retriever_error(error, run_id=found, **below)
        handler.on_chain_error(error, run_id=node, **at_root)
        handler.on_chain_error(error, run_id=root)


def _by_hand(journal: Journal) -> None:
    run = uuid4()
    journal.tool_call_completed(run, "t", journal.tool_call_started(run, "t"), result=1)
    journal.tool_call_completed(run, "t", "orphan", result=1)
    journal.annotate(run, "x" * 21, a=1)
    journal.record_external_usage(run, "s", {"input_tokens": 3, "output_tokens": 1})


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """Provide all events of real graphs and of every hook called by hand."""
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('catalogue')}/journal.db")
    settings = Settings(grace=0.0, linger=0.0, spans="none")
    with Journal(settings, registry=CollectorRegistry(), store=store) as journal:
        _graphs(journal.handler())
        _every_hook(journal.handler())
        _by_hand(journal)
        assert journal.shutdown()
        snapshot = journal.snapshot()
    assert snapshot.handler_errors == 0
    events = store.read(limit=10_000)
    store.close()
    return events


def test_names_are_frozen() -> None:
    """Types and categories are those that were promised."""
    assert CATALOGUE == FROZEN
    assert OPEN_FAMILIES == {"middleware:": "middleware", "annotation:": "trace"}
    assert (MAX_EVENT_TYPE, MAX_CATEGORY, MAX_ID) == (32, 16, 64)


def test_limits_hold_for_the_catalogue() -> None:
    """No name is longer than a reader may expect."""
    assert all(1 <= len(name) <= MAX_EVENT_TYPE for name in CATALOGUE)
    assert all(1 <= len(category) <= MAX_CATEGORY for category in CATALOGUE.values())


def test_everything_emitted_is_in_the_catalogue(emitted: list[Event]) -> None:
    """An event has a known type and the category of its type."""
    for event in emitted:
        assert event.category == category_of(event.event_type), event.event_type


@pytest.mark.parametrize("event_type", FROZEN)
def test_everything_in_the_catalogue_is_emitted(emitted: list[Event], event_type: str) -> None:
    """No entry is dead."""
    assert event_type in {event.event_type for event in emitted}


@pytest.mark.parametrize("family", ["middleware:", "annotation:"])
def test_every_family_is_emitted(emitted: list[Event], family: str) -> None:
    """Open families are used, within the longest allowed name."""
    found = {e.event_type for e in emitted if e.event_type.startswith(family)}

    assert found
    assert all(len(name) <= MAX_EVENT_TYPE for name in found)


def test_event_ids_are_unique(emitted: list[Event]) -> None:
    """The id is the key of once-only."""
    ids = [event.event_id for event in emitted]

    assert len(ids) == len(set(ids))
    assert [event.seq for event in emitted] == list(range(1, len(emitted) + 1))


def test_ids_fit_their_limit(emitted: list[Event]) -> None:
    """Every id fits the column that a store gives it."""
    for event in emitted:
        assert 1 <= len(event.event_id) <= MAX_ID, event.event_id
        assert 1 <= len(event.run_id) <= MAX_ID
        assert len(event.thread_id) <= MAX_ID


@pytest.mark.parametrize("encoding", [msgspec.json, msgspec.msgpack], ids=["json", "msgpack"])
def test_events_survive_a_round_trip(emitted: list[Event], encoding: Any) -> None:
    """An event is data: encoded and decoded, it is equal to what it was."""
    for event in emitted:
        encoded = encoding.encode(event)
        back = encoding.decode(encoded, type=Event)
        assert encoding.encode(back) == encoded
        assert (back.event_id, back.seq, back.content) == (event.event_id, event.seq, event.content)


def test_every_operation_ends_exactly_once(emitted: list[Event]) -> None:
    """Whatever happened, each operation that began has one end event with all it needs."""
    began = [e.span.op_id for e in emitted if e.event_type in STARTS and e.span]
    ended = [e.span.op_id for e in emitted if e.event_type in ENDS and e.span]

    assert len(began) == len(set(began))
    assert len(ended) == len(set(ended))
    assert set(began) <= set(ended)


def test_every_event_says_which_process_made_it(emitted: list[Event]) -> None:
    """A sidecar must know whose operations are open when a process dies."""
    beats = [event for event in emitted if event.event_type == "process.beat"]

    assert {event.process for event in emitted} == {beats[0].process} == {beats[0].run_id}
    assert beats[0].metadata["resource"]["service.name"]


def test_end_events_are_complete(emitted: list[Event]) -> None:
    """A projection needs nothing but the end event to draw the span."""
    for event in emitted:
        if event.event_type not in ENDS or event.metadata.get("orphan"):
            continue
        block = event.span
        assert block is not None, event.event_type
        assert block.outcome in OUTCOMES
        assert block.end_ns >= block.start_ns > 0
        assert len(block.trace_id) == 32
        assert len(block.span_id) == 16
        assert block.root or block.parent_span_id
        assert block.attributes["otel_journal.outcome"] == block.outcome
        assert bool(block.error_type) is (block.outcome == "error")


def test_start_events_are_open(emitted: list[Event]) -> None:
    """A start event has a span block without an end."""
    for event in emitted:
        if event.event_type in STARTS:
            assert event.span is not None
            assert event.span.end_ns == 0
            assert event.span.outcome is None


def test_feed_rows_have_no_span(emitted: list[Event]) -> None:
    """What people read is not what projections draw."""
    for event in emitted:
        if event.event_type in WITHOUT_SPAN or ":" in event.event_type:
            assert event.span is None, event.event_type


def test_outcomes_seen(emitted: list[Event]) -> None:
    """The programs above end in every way that a callback can tell."""
    found = {e.span.outcome for e in emitted if e.event_type in ENDS and e.span}

    assert found >= {"ok", "error", "interrupted", "cancelled", "abandoned"}


def test_one_failure_is_one_run_error(emitted: list[Event]) -> None:
    """A failure in a node is told once for the run, not once per level."""
    failed = [event for event in emitted if event.event_type == "run.error"]

    assert len(failed) == len({event.run_id for event in failed})
    assert all(event.span is not None and event.span.root for event in failed)


@pytest.mark.parametrize(
    "name", ["", "run.begin", "middleware:", "annotation:", "middleware:" + "x" * 22, "ai_message"]
)
def test_unknown_types_are_refused(name: str) -> None:
    """What is not in the catalogue has no category."""
    with pytest.raises(ValueError, match="not in the catalogue"):
        category_of(name)
