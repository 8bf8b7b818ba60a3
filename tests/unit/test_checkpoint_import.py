"""From the messages of a checkpoint to events: which, under which run, with what in them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
)

from otel_journal.checkpoint_import import MAX_CONTENT, import_events, import_run_id, unix_ns
from otel_journal.events import MAX_ID, Event
from otel_journal.store import MemoryStore

CALL: Any = {"name": "get", "args": {"q": "a"}, "id": "A", "type": "tool_call"}
HISTORY: list[AnyMessage] = [
    SystemMessage("be good"),
    AIMessage("welcome"),
    HumanMessage("go"),
    AIMessage("", tool_calls=[CALL]),
    ToolMessage("for a", tool_call_id="A", name="get"),
    AIMessage("done"),
    HumanMessage("more"),
    AIMessage("no"),
]
KINDS = ["ai", "human", "ai", "tool", "ai", "human", "ai"]


def imported(*messages: object) -> list[Event]:
    """Import messages into thread ``t``."""
    return import_events("t", messages, 7)


def kinds(events: list[Event]) -> list[str]:
    """Kinds of messages, by the contents."""
    return [event.content["type"] for event in events]


def test_history_keeps_its_order() -> None:
    """Human, AI and tool messages become the three types of the feed; system ones nothing."""
    events = imported(*HISTORY)
    assert kinds(events) == KINDS
    types = {"human": "llm.human.input", "ai": "llm.ai.response", "tool": "llm.tool.result"}
    assert [event.event_type for event in events] == [types[kind] for kind in KINDS]
    assert {(e.category, e.thread_id, e.created_ns) for e in events} == {("message", "t", 7)}
    assert events[2].content["tool_calls"] == [CALL]
    assert events[3].content["tool_call_id"] == "A"


def test_metadata() -> None:
    """All are marked; a caller is named on what a person or a model said, and nothing else."""
    for event in imported(*HISTORY):
        said = {} if event.event_type == "llm.tool.result" else {"caller": "lead_agent"}
        assert event.metadata == {"imported": "checkpoint", **said}


def test_every_turn_is_a_run() -> None:
    """A person's message begins a run; what comes before the first one is turn 0."""
    turns = [event.run_id for event in imported(*HISTORY)]
    assert turns == [import_run_id("t", turn) for turn in (0, 1, 1, 1, 1, 2, 2)]
    assert imported(HumanMessage("go"))[0].run_id == import_run_id("t", 1)


def test_ids_are_the_same_every_time() -> None:
    """They depend on the thread and the place alone, and fit a store, whatever the thread is."""
    first, again = imported(*HISTORY), imported(*HISTORY, HumanMessage("later"))
    assert [event.event_id for event in again[:-1]] == [event.event_id for event in first]
    assert len({event.event_id for event in again}) == len(again)
    other = import_events("u", HISTORY, 7)
    assert {e.event_id for e in other}.isdisjoint({e.event_id for e in first})
    many = import_events("\ud800" * 1_000, [HumanMessage("x")] * 10_000, 7)
    assert max(len(event.event_id) for event in many) <= MAX_ID


@pytest.mark.parametrize(
    "written",
    [
        HumanMessage("x", name="summary"),
        HumanMessage("x", additional_kwargs={"lc_source": "summarization"}),
        message_to_dict(HumanMessage("x", name="summary")),
    ],
)
def test_not_by_a_person(written: object) -> None:
    """A human message that a middleware wrote is left out, and begins no turn."""
    events = imported(HumanMessage("go"), written, AIMessage("done"))
    assert kinds(events) == ["human", "ai"]
    assert len({event.run_id for event in events}) == 1


def test_marked_answers_stay() -> None:
    """AI and tool messages are kept whatever their marks: a tool result needs its request."""
    marks: Any = {"lc_source": "x"}
    ai = AIMessage("", tool_calls=[CALL], name="summary", additional_kwargs=marks)
    tool = ToolMessage("r", tool_call_id="A", name="summary", additional_kwargs=marks)
    assert kinds(imported(ai, tool)) == ["ai", "tool"]


@pytest.mark.parametrize("dumped", [message_to_dict, dumpd, lambda message: message.model_dump()])
def test_dumped_messages(dumped: Any) -> None:
    """Every form in which LangChain dumps messages gives what the messages give."""
    plain, rebuilt = imported(*HISTORY), imported(*map(dumped, HISTORY))
    assert kinds(rebuilt) == KINDS
    for one, other in zip(plain, rebuilt, strict=True):
        assert other.event_id == one.event_id
        for name in ("content", "tool_call_id"):
            assert other.content.get(name) == one.content.get(name)


def test_openai_messages() -> None:
    """Mappings with roles are messages too; an answer that only calls tools has no content."""
    call = {"id": "A", "type": "function", "function": {"name": "get", "arguments": "{}"}}
    events = imported(
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "r", "tool_call_id": "A"},
    )
    assert kinds(events) == ["human", "ai", "tool"]


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "go",
        ("user", "go"),
        {},
        {"type": "human"},
        {"type": "human", "content": {"a": 1}},
        {"type": "human", "data": 1},
        {"type": ["human"], "content": "x"},
        {"content": "x"},
        {"type": "ai", "content": None},
        {"type": "tool", "content": "x"},
        {"lc": 1, "id": [], "kwargs": {"content": "x"}},
        RemoveMessage("1"),
    ],
)
def test_unusable_is_dropped(odd: object) -> None:
    """What is no message is left out; the rest is there."""
    assert kinds(imported(odd, HumanMessage("go"), odd)) == ["human"]


def test_chunks_are_messages() -> None:
    """A checkpoint may hold the chunk that a stream ended with."""
    assert kinds(imported(AIMessageChunk("x"))) == ["ai"]


def test_content_is_bounded() -> None:
    """One huge message cannot fill a store."""
    (event,) = imported(HumanMessage("x" * 10 * MAX_CONTENT))
    assert len(msgspec.json.encode(event.content)) <= MAX_CONTENT
    assert "[cut, " in event.content["content"]


def test_round_trip_through_a_store() -> None:
    """The feed of the thread is the history; a second import adds nothing."""
    store = MemoryStore()
    events = imported(*HISTORY)
    assert len(store.append(events)) == len(events)
    assert store.append(imported(*HISTORY)) == []
    assert kinds(store.messages("t")) == KINDS
    assert kinds(store.run_messages(import_run_id("t", 2))) == ["human", "ai"]
    store.close()


@pytest.mark.parametrize(
    "moment",
    ["1970-01-01T00:00:01.000002+00:00", "1970-01-01T01:00:01.000002+01:00",
     "1970-01-01T00:00:01.000002Z", "1970-01-01T00:00:01.000002"],
)  # fmt: skip
def test_timestamps(moment: str) -> None:
    """Timestamps are exact to the microsecond, in any zone; no zone is UTC."""
    assert unix_ns(moment) == 1_000_002_000


def test_no_timestamp() -> None:
    """Text that is no timestamp is refused."""
    with pytest.raises(ValueError, match="soon"):
        unix_ns("soon")
