"""`fold_run`: the view of a run is what its events say, in whatever order they come."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from prometheus_client import CollectorRegistry

from otel_journal import Journal, RunSummary, Settings
from otel_journal.demo.agent import Incident
from otel_journal.demo.redelivery import Redelivery
from otel_journal.events import Event
from otel_journal.run_view import RunView, fold_run, walk
from otel_journal.store import MemoryStore
from otel_journal.testing import ScriptedModel, ai, tool_call


class Recorded(NamedTuple):
    """A run: its events as the store has them, and what the journal says it came to."""

    events: list[Event]
    summary: RunSummary


def new_journal(**settings: Any) -> Journal:
    """Make a journal with a store and nothing else."""
    return Journal(
        Settings(spans="none", metrics=False, **settings),
        registry=CollectorRegistry(),
        store=MemoryStore(),
    )


def recorded(journal: Journal, run_id: object) -> Recorded:
    """Collect one run of a journal."""
    assert journal.flush()
    summary = journal.summary(str(run_id))
    assert summary is not None
    return Recorded(journal.store.events(str(run_id), limit=10_000), summary)


def config(journal: Journal, handler: Any = None) -> dict[str, Any]:
    """Return a configuration with a fresh run id, on thread ``t``."""
    return {
        "callbacks": [handler or journal.handler()],
        "run_id": uuid4(),
        "configurable": {"thread_id": "t"},
    }


def nested_agent(journal: Journal) -> Recorded:
    """Play an agent that calls one tool twice in parallel, then an agent as a tool."""
    inner = create_agent(ScriptedModel(script=[ai("found")], model_name="small"), [], name="inner")

    @tool
    def get(q: str) -> str:
        """Get."""
        return f"for {q}"

    @tool
    def ask(q: str) -> str:
        """Ask the other agent."""
        return str(inner.invoke({"messages": [("user", q)]})["messages"][-1].text)

    asked = ai("", tool_call("get", {"q": "a"}, "A"), tool_call("get", {"q": "b"}, "B"))
    script = [asked, ai("", tool_call("ask", {"q": "c"}, "C")), ai("done")]
    agent = create_agent(ScriptedModel(script=script), [get, ask], name="outer")
    where = config(journal)
    agent.invoke({"messages": [("user", "go")]}, where)
    return recorded(journal, where["run_id"])


def failed_run(journal: Journal) -> Recorded:
    """Play a graph whose node raises."""

    def fail(_state: MessagesState) -> MessagesState:
        message = "gone"
        raise LookupError(message)

    graph = StateGraph(MessagesState)
    graph.add_node("fail", fail)
    graph.add_edge(START, "fail")
    graph.add_edge("fail", END)
    where = config(journal)
    with pytest.raises(LookupError):
        graph.compile(name="broken").invoke({"messages": [("user", "go")]}, where)
    return recorded(journal, where["run_id"])


def incident(journal: Journal) -> list[Recorded]:
    """Play the demo: everything twice, an interrupt, a resume, usage after the end."""
    handler = Redelivery(journal.handler())
    played, runs = Incident(hurry=True), [uuid4(), uuid4()]
    played.ask("t", runs[0], handler)
    played.approve("t", runs[1], handler)
    assert journal.flush()
    handler.deliver_bills()
    return [recorded(journal, run_id) for run_id in runs]


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Recorded]]:
    """Provide runs of real graphs, each played once."""
    with new_journal() as journal:
        paused, resumed = incident(journal)
        yield {
            "nested": nested_agent(journal),
            "failed": failed_run(journal),
            "paused": paused,
            "resumed": resumed,
        }


NAMES = ("nested", "failed", "paused", "resumed")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), name=st.sampled_from(NAMES), numbered=st.booleans())
def test_order_and_number_of_deliveries_do_not_matter(
    runs: dict[str, Recorded], data: st.DataObject, name: str, *, numbered: bool
) -> None:
    """Shuffled and repeated events, numbered by a store or not yet, give the view in order."""
    live = [msgspec.structs.replace(event, seq=0) for event in runs[name].events]
    events = runs[name].events if numbered else live
    again = data.draw(st.lists(st.sampled_from([*events, *live]), max_size=20))
    chance: random.Random = data.draw(st.randoms(use_true_random=False))
    delivered = [*events, *again]
    chance.shuffle(delivered)

    assert fold_run(delivered) == fold_run(events)


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_those_of_the_summary(runs: dict[str, Recorded], name: str) -> None:
    """Per agent, caller, provider and model: calls, tokens and details, late usage included."""
    view, summary = fold_run(runs[name].events), runs[name].summary
    spent = {
        (row.agent, row.caller, row.provider, row.model): (
            row.calls, row.input_tokens, row.output_tokens, row.details,
        )
        for row in view.tokens
    }  # fmt: skip
    assert spent == {
        tuple(who): (row.calls, row.input_tokens, row.output_tokens, row.details)
        for who, row in summary.tokens.items()
    }
    assert view.total_tokens == summary.total_tokens
    assert view.model_calls == summary.llm_calls
    assert view.outcome == summary.outcome
    assert len(view.messages) == summary.messages
    for dimension in ("agent", "caller", "provider", "model"):
        assert view.tokens_by(dimension) == summary.by(dimension)


def test_late_usage_was_amended(runs: dict[str, Recorded]) -> None:
    """The demo's report is billed after its end: an event of its own, and shown at its call."""
    recorded_run = runs["resumed"]
    assert "usage.amended" in {event.event_type for event in recorded_run.events}
    (chat,) = [one for one, _ in walk(fold_run(recorded_run.events).operations) if one.usage]
    assert chat.usage is not None
    assert (chat.usage.input_tokens, chat.usage.output_tokens) == (1_480, 23)


def test_dimension_is_checked(runs: dict[str, Recorded]) -> None:
    """A wrong dimension is told with those there are."""
    with pytest.raises(ValueError, match="'colour' is not allowed; allowed: agent, caller"):
        fold_run(runs["nested"].events).tokens_by("colour")


def test_parallel_calls_of_one_tool_keep_their_results(runs: dict[str, Recorded]) -> None:
    """Keyed by call id, not by name."""
    view = fold_run(runs["nested"].events)
    found = {
        call.call_id: (call.name, call.state, call.arguments, call.result)
        for call in view.tool_calls
    }
    assert found == {
        "A": ("get", "ok", {"q": "a"}, "for a"),
        "B": ("get", "ok", {"q": "b"}, "for b"),
        "C": ("ask", "ok", {"q": "c"}, "found"),
    }
    call = view.tool_call("B")
    assert call is not None
    assert call.result == "for b"
    assert view.tool_call("Z") is None


def test_operations_are_a_tree(runs: dict[str, Recorded]) -> None:
    """The nested agent lies below the tool that asked it, and its chat below that."""
    view = fold_run(runs["nested"].events)
    (root,) = view.operations
    assert (root.name, root.kind, root.outcome) == ("invoke_agent outer", "agent", "ok")
    assert view.name == root.name
    (ask,) = [one for one, _ in walk(view.operations) if one.name == "execute_tool ask"]
    below = [(one.name, one.agent) for one, _ in walk(ask.children)]
    assert below[0] == ("invoke_agent inner", "inner")
    assert below[-1] == ("chat small", "inner")
    assert view.start_ns == root.start_ns
    assert view.end_ns == root.end_ns > root.start_ns


def test_messages_are_in_order(runs: dict[str, Recorded]) -> None:
    """As they came: the question, answers and results, and the last answer."""
    messages = fold_run(runs["nested"].events).messages
    assert (messages[0].role, messages[0].text) == ("human", "go")
    assert (messages[-1].role, messages[-1].text) == ("ai", "done")
    assert [one.seq for one in messages] == sorted(one.seq for one in messages)
    assert {one.text for one in messages if one.role == "tool"} == {"for a", "for b", "found"}


def test_failure_is_told_once(runs: dict[str, Recorded]) -> None:
    """At the innermost operation; the run has the outcome."""
    view = fold_run(runs["failed"].events)
    assert view.outcome == "error"
    (failure,) = view.failures
    assert (failure.type, failure.message) == ("LookupError", "gone")


def test_paused_and_resumed_run(runs: dict[str, Recorded]) -> None:
    """The demo's two runs: one waits for a person, the other is well; a failed tool says why."""
    paused, resumed = fold_run(runs["paused"].events), fold_run(runs["resumed"].events)
    assert (paused.outcome, resumed.outcome) == ("interrupted", "ok")
    states = {call.call_id: call.state for call in paused.tool_calls}
    assert states == {"call-1": "ok", "call-2": "ok", "call-3": "error", "call-4": "ok"}
    failed = paused.tool_call("call-3")
    assert failed is not None
    assert "does not answer" in failed.error


def test_running_run_has_no_outcome(runs: dict[str, Recorded]) -> None:
    """Without the end of its root, a run is open, and so are the calls without an end."""
    events = runs["nested"].events
    cut = next(n for n, e in enumerate(events) if e.event_type == "tool_call.started") + 1
    view = fold_run(events[:cut])
    assert view.outcome is None
    assert view.end_ns == 0
    assert [call.state for call in view.tool_calls] == ["pending"]
    assert view.tool_calls[0].latency_ms is None


def test_ends_alone_are_enough(runs: dict[str, Recorded]) -> None:
    """An end describes its operation completely: lost starts cost nothing but arguments."""
    events = runs["nested"].events
    ends = [event for event in events if not event.event_id.endswith("/start")]
    whole, view = fold_run(events), fold_run(ends)
    assert view.operations == whole.operations
    assert [call.result for call in view.tool_calls] == [call.result for call in whole.tool_calls]


def test_unknown_types_are_skipped(runs: dict[str, Recorded]) -> None:
    """A newer release's events do not disturb; its messages are shown under their type."""
    events = runs["nested"].events
    run_id = events[0].run_id
    odd = Event("x/0/odd", run_id, "newer.thing", "trace", 1, content={"a": 1})
    said = Event("x/0/said", run_id, "newer.message", "message", 2, content={"content": "hi"})
    view, plain = fold_run([odd, *events, said]), fold_run(events)
    assert view.operations == plain.operations
    assert view.tool_calls == plain.tool_calls
    assert view.messages[:-1] == plain.messages
    assert (view.messages[-1].role, view.messages[-1].text) == ("newer.message", "hi")


def test_cancelled_tool() -> None:
    """A tool whose task was cancelled is neither pending nor an error."""
    with new_journal() as journal:
        begun = asyncio.Event()

        @tool
        async def get(q: str) -> str:
            """Get."""
            begun.set()
            await asyncio.sleep(60)
            return q

        model = ScriptedModel(script=[ai("", tool_call("get", {"q": "a"}, "A"))])
        agent = create_agent(model, [get])
        where = config(journal)

        async def use() -> None:
            task = asyncio.create_task(agent.ainvoke({"messages": [("user", "go")]}, where))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(use())
        journal.recorder.close()
        view = fold_run(recorded(journal, where["run_id"]).events)
    (call,) = view.tool_calls
    assert (call.state, call.outcome) == ("cancelled", "cancelled")
    assert view.outcome == "cancelled"


def test_usage_from_outside_is_counted_once() -> None:
    """Tokens reported by hand are in the totals, without a call, and draw no operation."""
    with new_journal() as journal:
        handler, run_id = journal.handler(), uuid4()
        handler.on_chain_start({}, {}, run_id=run_id, name="adapter")
        for _ in range(2):
            journal.record_external_usage(
                run_id, "bill-1", {"input_tokens": 5, "output_tokens": 2}, model="m"
            )
        handler.on_chain_end({}, run_id=run_id)
        found = recorded(journal, run_id)
    view = fold_run([*found.events, *found.events])
    assert view.total_tokens == found.summary.total_tokens == 7
    assert view.model_calls == 0
    assert [one.name for one, _ in walk(view.operations)] == ["invoke_workflow adapter"]


def test_one_call_id_in_two_turns_is_two_calls() -> None:
    """Some providers use the tool's name as id; the newest is found by it."""
    with new_journal() as journal:

        @tool
        def get(q: str) -> str:
            """Get."""
            return f"for {q}"

        script = [ai("", tool_call("get", {"q": q}, "get")) for q in ("one", "two")]
        where = config(journal)
        agent = create_agent(ScriptedModel(script=[*script, ai("done")]), [get])
        agent.invoke({"messages": [("user", "go")]}, where)
        view = fold_run(recorded(journal, where["run_id"]).events)
    assert [call.result for call in view.tool_calls] == ["for one", "for two"]
    newest = view.tool_call("get")
    assert newest is not None
    assert newest.result == "for two"


# Events that are not ours -------------------------------------------------------------------


def legacy(number: int, phase: str, **content: Any) -> Event:
    """Make an event as an older emitter wrote it: no span, perhaps no call id."""
    return Event(f"e{number}", "run", f"tool_call.{phase}", "trace", number, content=content)


def calls_of(*events: Event) -> list[tuple[str, str, Any]]:
    """Fold in reverse order of delivery; return id, state and result of each call."""
    view: RunView = fold_run(reversed(events))
    return [(call.call_id, call.state, call.result) for call in view.tool_calls]


def test_completion_without_id_ends_the_oldest_of_its_name() -> None:
    """Each takes the oldest that is still pending; another tool's call is left alone."""
    assert calls_of(
        legacy(1, "started", name="get", call_id="A"),
        legacy(2, "started", name="put", call_id="P"),
        legacy(3, "started", name="get", call_id="B"),
        legacy(4, "completed", name="get", result=1),
        legacy(5, "completed", name="get", result=2),
    ) == [("A", "ok", 1), ("P", "pending", None), ("B", "ok", 2)]


def test_start_without_id_is_found_by_name() -> None:
    """It is known by its event's id."""
    found = calls_of(legacy(1, "started", name="get"), legacy(2, "completed", name="get", result=1))
    assert found == [("e1", "ok", 1)]


def test_unknown_id_is_an_orphan() -> None:
    """It ends no other call, whatever its name."""
    assert calls_of(
        legacy(1, "started", name="get", call_id="A"),
        legacy(2, "completed", name="get", call_id="other", result=1),
    ) == [("A", "pending", None), ("other", "ok", 1)]
    view = fold_run([legacy(2, "completed", name="get", call_id="other", result=1)])
    assert view.tool_calls[0].orphan


def test_second_completion_changes_nothing() -> None:
    """The first wins, also with a null result."""
    assert calls_of(
        legacy(1, "started", name="get", call_id="A"),
        legacy(2, "completed", name="get", call_id="A", result=None),
        legacy(3, "completed", name="get", call_id="A", result="late"),
        legacy(4, "completed", name="get", call_id="A", error="later"),
    ) == [("A", "ok", None)]


def test_error_of_a_legacy_completion() -> None:
    """An error is a state of its own, told as it was."""
    view = fold_run([
        legacy(1, "started", name="get", call_id="A"),
        legacy(2, "completed", name="get", call_id="A", error="gone", latency_ms=3),
    ])  # fmt: skip
    (call,) = view.tool_calls
    assert (call.state, call.error, call.latency_ms) == ("error", "gone", 3)


def test_orphan_of_the_journal_then_start() -> None:
    """A start behind its orphaned completion opens a call of its own (as in the journal)."""
    with new_journal() as journal:
        handler, run_id = journal.handler(), uuid4()
        handler.on_chain_start({}, {}, run_id=run_id, name="adapter")
        journal.tool_call_completed(run_id, "get", "x", result="early")
        journal.tool_call_started(run_id, "get", {"q": 1}, "x")
        view = fold_run(recorded(journal, run_id).events)
    assert [(call.state, call.orphan) for call in view.tool_calls] == [
        ("ok", True),
        ("pending", False),
    ]


def test_completion_in_another_process_ends_the_call() -> None:
    """One journal starts, another completes: one call for who reads both.

    The first journal then closes what it knows as open, which takes nothing away.
    """
    with new_journal() as one, new_journal() as other:
        one.tool_call_started("run", "get", {"q": 1}, "x")
        assert one.flush()
        began = one.store.events("run")
        other.tool_call_completed("run", "get", "x", result="there")
        assert other.flush()
        ended = other.store.events("run")
        one.recorder.close()
        assert one.flush()
        closed = one.store.events("run")[len(began) :]
    assert [event.event_type for event in closed] == ["tool_call.completed"]
    shared = MemoryStore()
    shared.append([*began, *ended, *closed])
    (call,) = fold_run(shared.events("run")).tool_calls
    assert (call.state, call.result, call.arguments) == ("ok", "there", {"q": 1})


@pytest.mark.parametrize("runs_given", [(), ("a", "b")], ids=["none", "two"])
def test_events_are_of_one_run(runs_given: tuple[str, ...]) -> None:
    """Nothing can be said about no run, or about two at once."""
    events = [Event(f"{run}/0/x", run, "annotation:x", "trace", 1) for run in runs_given]
    expected = f"events of {len(runs_given)} runs .* are not allowed; allowed: of one run"
    with pytest.raises(ValueError, match=expected):
        fold_run(events)


def test_deep_trees_are_walked_without_recursion(runs: dict[str, Recorded]) -> None:
    """A journal may hold deeper trees than the interpreter's stack."""
    start = runs["nested"].events[0]
    assert start.span is not None
    events = [
        msgspec.structs.replace(
            start,
            event_id=f"{depth}/0/start",
            seq=depth + 1,
            span=msgspec.structs.replace(
                start.span,
                span_id=f"{depth + 1:016x}",
                parent_span_id=f"{depth:016x}" if depth else "",
                root=depth == 0,
            ),
        )
        for depth in range(5_000)
    ]
    paths = [path for _, path in walk(fold_run(events).operations)]
    assert len(paths) == len(paths[-1]) == 5_000
