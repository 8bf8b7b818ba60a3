"""A run that goes on in another process than the one that paused: linked through the store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from otel_journal import Journal, Settings, StoreError, open_store
from otel_journal.events import Event, SpanBlock
from otel_journal.store import past
from otel_journal.store.protocol import Store
from otel_journal.testing.models import ScriptedModel


class State(TypedDict):
    """Enough to have a value."""

    x: int


def graph_of(think: Any) -> Any:
    """Two nodes: one that is done before the pause, and `think`."""
    graph = StateGraph(State)
    graph.add_node("before", lambda _: {"x": 1})
    graph.add_node("think", think)
    graph.add_edge(START, "before")
    graph.add_edge("before", "think")
    return graph.compile(checkpointer=InMemorySaver())


def asking(questions: int = 1) -> Any:
    """Ask a model twice, then a human."""
    model = ScriptedModel(script=[AIMessage("hi")])

    def think(_: State) -> State:
        model.invoke("a")
        model.invoke("b")
        return {"x": [interrupt(number) for number in range(questions)][-1]}

    return graph_of(think)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Provide an empty store."""
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/j.db"
    store = open_store(url)
    yield store
    store.close()


def in_a_process(
    store: Store, graph: Any, *sent: Any, thread: str = "t1", run_id: str | None = None
) -> None:
    """Invoke with a journal that remembers nothing, as after a restart."""
    with Journal(Settings(metrics=False), store=store) as journal:
        for value in sent:
            handler = journal.handler(run_id=run_id)
            config = {"callbacks": [handler], "configurable": {"thread_id": thread}}
            graph.invoke(value, config)


def ends(store: Store, name: str = "") -> list[SpanBlock]:
    """Ended operations of a name; without one, the roots."""
    spans = [event.span for event in store.read() if event.event_id.endswith("/end")]
    return [s for s in spans if s is not None and (s.name == name if name else s.root)]


def relations(span: SpanBlock) -> list[tuple[str, str]]:
    """Relation and target of each link."""
    return [(link.relation, link.span_id) for link in span.links]


def test_steps_that_run_again_are_second_attempts(store: Store) -> None:
    """The node and both of its calls, each linked to its own first attempt; not what was done."""
    graph = asking()
    in_a_process(store, graph, {"x": 1})
    in_a_process(store, graph, Command(resume=1))
    first, second = ends(store)
    thoughts, calls = ends(store, "think"), ends(store, "chat scripted-1")

    assert relations(first) == []
    assert relations(second) == [("resumes", first.span_id)]
    assert second.attempt == 1
    for before, again in ((thoughts[0], thoughts[1]), (calls[0], calls[2]), (calls[1], calls[3])):
        assert relations(before) == []
        assert relations(again) == [("previous_attempt", before.span_id)]
        assert again.links[0].trace_id == before.trace_id
        assert (before.attempt, again.attempt) == (1, 2)
        assert again.attributes["otel_journal.attempt"] == 2
    assert len(ends(store, "before")) == 1
    resumed = [event for event in store.read() if event.event_type == "run.resumed"]
    target = {"trace_id": first.trace_id, "span_id": first.span_id}
    assert [event.metadata for event in resumed] == [{"resumes": [target]}]


def test_starts_know_their_attempt(store: Store) -> None:
    """Whoever looks while it runs sees the same number as at its end."""
    graph = asking()
    in_a_process(store, graph, {"x": 1})
    in_a_process(store, graph, Command(resume=1))
    starts = [
        event.span.attempt
        for event in store.read()
        if event.event_type == "node.start" and event.span and event.span.name == "think"
    ]

    assert starts == [1, 2]


@pytest.mark.parametrize("processes", [[1, 1, 1], [1, 2], [2, 1]])
def test_three_pauses_are_three_attempts(store: Store, processes: list[int]) -> None:
    """Numbered on through all processes, however many resumes each of them does."""
    graph = asking(questions=3)
    in_a_process(store, graph, {"x": 1})
    for count in processes:
        in_a_process(store, graph, *[Command(resume="yes")] * count)
    roots, thoughts = ends(store), ends(store, "think")

    assert [t.attempt for t in thoughts] == [1, 2, 3, 4]
    assert [t.attributes.get("otel_journal.attempt", 1) for t in thoughts] == [1, 2, 3, 4]
    for spans, relation in ((roots, "resumes"), (thoughts, "previous_attempt")):
        for before, again in itertools.pairwise(spans):
            assert relations(again) == [(relation, before.span_id)]


def test_a_run_id_of_the_caller_may_be_the_same(store: Store) -> None:
    """Then pause and resume are one run with two roots, and linked all the same."""
    graph = asking()
    in_a_process(store, graph, {"x": 1}, run_id="mine")
    in_a_process(store, graph, Command(resume=1), run_id="mine")
    first, second = ends(store)

    assert relations(second) == [("resumes", first.span_id)]
    assert ends(store, "think")[1].attempt == 2


def test_going_on_after_a_failure(store: Store) -> None:
    """`invoke(None)` in another process runs the failed node again."""
    fails = [True]

    def think(_: State) -> State:
        if fails.pop() if fails else False:
            raise LookupError
        return {"x": 2}

    graph = graph_of(think)
    with pytest.raises(LookupError):
        in_a_process(store, graph, {"x": 1})
    in_a_process(store, graph, None)
    first, second = ends(store)

    assert relations(second) == [("resumes", first.span_id)]
    assert relations(ends(store, "think")[1]) == [
        ("previous_attempt", ends(store, "think")[0].span_id)
    ]


def test_going_on_after_a_process_died(store: Store) -> None:
    """The run has no end in the store: what it had begun is an attempt."""
    graph = asking()
    alive = open_store("memory:")
    in_a_process(alive, graph, {"x": 1})
    thought = ends(alive, "think")[0].span_id
    kept = [e for e in alive.read() if e.event_type != "run.interrupted"]
    store.append(
        [e for e in kept if e.span is None or e.span.span_id != thought or not e.span.end_ns]
    )
    in_a_process(store, graph, Command(resume=1))
    (root,) = ends(store)
    (thought_again,) = ends(store, "think")

    assert [link.relation for link in root.links] == ["resumes"]
    assert relations(thought_again) == [("previous_attempt", thought)]
    assert thought_again.attempt == 2


def test_only_a_resume_is_linked(store: Store) -> None:
    """Not a new question on the thread, and not what another thread waits for."""
    graph = asking()
    in_a_process(store, graph, {"x": 1})
    in_a_process(store, graph, {"x": 2})
    in_a_process(store, graph, {"x": 2}, thread="t2")
    in_a_process(store, graph, Command(resume=1), thread="t2")
    roots = ends(store)

    assert [relations(root) for root in roots] == [[], [], [], [("resumes", roots[2].span_id)]]


def test_a_second_delivery_of_the_same_events_is_the_same(store: Store) -> None:
    """Completed again elsewhere, with all of them in the store, nothing comes out differently."""
    graph = asking()
    in_a_process(store, graph, {"x": 1})
    in_a_process(store, graph, Command(resume=1))
    in_a_process(store, graph, {"x": 3})
    run_id = next(e.run_id for e in store.read() if e.event_type == "run.resumed")
    written = store.events(run_id)

    def problem(place: str, error: BaseException) -> None:
        pytest.fail(f"{place}: {error}")

    assert list(past.Past(store, failed=problem).complete(written)) == written
    assert list(past.Past(store, failed=problem).complete(stripped(written))) == written


def stripped(events: list[Event]) -> list[Event]:
    """Return events as the ledger of a process without a memory makes them."""
    from msgspec.structs import replace  # noqa: PLC0415 - only here

    found = []
    for event in events:
        span = event.span
        if event.event_type == "run.resumed":
            found.append(replace(event, metadata={"resumes": []}))
        elif span is not None:
            attributes = {k: v for k, v in span.attributes.items() if k != "otel_journal.attempt"}
            bare = replace(span, links=(), attempt=1, attributes=attributes)
            found.append(replace(event, span=bare))
        else:
            found.append(event)
    return found


def test_a_store_that_is_away_gives_no_link(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is written and counted as it is, and the agent hears nothing."""
    graph = asking()
    in_a_process(store, graph, {"x": 1})

    def away(*_: object, **__: object) -> list[Event]:
        message = "away"
        raise StoreError(message)

    with monkeypatch.context() as patched:
        patched.setattr(store, "runs", away)
        in_a_process(store, graph, Command(resume=1))

    assert [relations(root) for root in ends(store)] == [[], []]
    assert [span.attempt for span in ends(store, "think")] == [1, 1]
