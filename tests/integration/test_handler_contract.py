"""What a handler owes the agent: no exception, no warning, no leak, no change of a payload."""

# ruff: noqa: ARG001 - nodes and tools get values they need not read
# ruff: noqa: PLR0913, PLR0917 - fixtures and the dimensions of a case are all parameters

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import gc
import logging
import pickle
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypedDict
from uuid import UUID, uuid4

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.callbacks.manager import handle_event
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.callbacks import GraphCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry

from otel_journal import Journal, RunJournal, Settings, open_store
from otel_journal.testing import ScriptedModel, ai

DEADLINE_S = 5.0
CAP = 100


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    """Let no span that another test left current be around this one, nor ours around others."""
    token = otel_context.attach(otel_context.Context())
    yield
    otel_context.detach(token)


class State(TypedDict, total=False):
    """Anything."""

    x: Any


def asking(**options: Any) -> Any:
    """Compile a graph that asks a person."""
    graph = StateGraph(State)
    graph.add_node("ask", lambda _: {"x": interrupt("ok?")})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=InMemorySaver(), **options)


def eventually(holds: Callable[[], bool], *, within: float = DEADLINE_S) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.01)


def response(text: str = "a", usage: Any = None) -> LLMResult:
    """Return a response."""
    return LLMResult(generations=[[ChatGeneration(message=AIMessage(text, usage_metadata=usage))]])


@pytest.fixture
def stored(tracer_provider: TracerProvider, registry: CollectorRegistry) -> Iterator[Journal]:
    """Provide a journal with a store and content capture: every payload is read."""
    settings = Settings(grace=0.0, linger=0.0, capture_content=True)
    with Journal(
        settings, tracer_provider=tracer_provider, registry=registry, store=open_store("memory:")
    ) as journal:
        yield journal


# Lifecycle hooks ----------------------------------------------------------------------------


def test_handler_is_told_of_pauses() -> None:
    """LangGraph tells only its own kind of handler about pauses and resumes."""
    assert issubclass(RunJournal, GraphCallbackHandler)
    assert issubclass(RunJournal, BaseCallbackHandler)
    assert RunJournal.run_inline is True
    assert RunJournal.raise_error is False


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("place", ["config", "bound", "bound and config"])
def test_pause_and_resume_warn_of_nothing(
    journal: Journal, caplog: pytest.LogCaptureFixture, place: str, way: str
) -> None:
    """The hooks that LangGraph calls at a pause and a resume are there, however it got us."""
    handler = journal.handler()
    graph = asking()
    graph = graph if place == "config" else graph.with_config(callbacks=[handler])
    config: Any = {"configurable": {"thread_id": "t"}}
    if place != "bound":
        config["callbacks"] = [handler]

    async def use() -> None:
        await graph.ainvoke({"x": 1}, config)
        await graph.ainvoke(Command(resume=1), config)

    if way == "async":
        asyncio.run(use())
    else:
        graph.invoke({"x": 1}, config)
        graph.invoke(Command(resume=1), config)
    assert journal.flush()

    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_hooks_of_the_future_do_not_warn(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    """A hook that a later LangChain invents is ignored in silence."""
    handle_event([journal.handler()], "on_something_new", None, run_id=uuid4())

    assert not caplog.records


# Payloads -----------------------------------------------------------------------------------


def _odd(*, deep: bool = True) -> dict[str, Any]:
    circular: dict[str, Any] = {}
    circular["me"] = circular
    nested: list[Any] = []
    for _ in range(2_000 if deep else 20):  # LangChain itself takes the text of tool arguments
        nested = [nested]
    return {
        "when": dt.date(2026, 1, 1),
        "lock": threading.Lock(),
        "circular": circular,
        "bytes": b"\xff",
        "nan": float("nan"),
        "surrogate": "\ud800",
        "deep": nested,
        "object": object(),
        "type": dict,
        1: {2: {3, 4}},
        "big": 10**400,
        "generator": (n for n in range(3)),
    }


class _Hostile:
    """An object none of whose methods work."""

    def __getattribute__(self, name: str) -> Any:
        msg = f"no {name}"
        raise RuntimeError(msg)

    def __repr__(self) -> str:
        msg = "no repr"
        raise RuntimeError(msg)


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke"])
@pytest.mark.parametrize("place", ["chain", "graph", "tool"])
def test_values_that_cannot_be_serialised(
    stored: Journal,
    spans: InMemorySpanExporter,
    caplog: pytest.LogCaptureFixture,
    sample: Any,
    place: str,
    way: str,
) -> None:
    """Whatever goes in and out: every span ends, nothing is logged, nothing is lost."""

    @tool
    def odd(x: Any) -> Any:
        """Return odd things."""
        return _odd()

    if place == "chain":
        runnable: Any = RunnableLambda(lambda _: _odd())
    elif place == "tool":
        runnable = odd
    else:
        graph = StateGraph(State)
        graph.add_node("n", lambda _: {"x": _odd()})
        graph.add_edge(START, "n")
        runnable = graph.compile()
    config: Any = {"callbacks": [stored.handler()]}
    value = {"x": _odd(deep=place != "tool")}

    async def use() -> None:
        await runnable.ainvoke(value, config)

    if way == "ainvoke":
        asyncio.run(use())
    elif way == "stream":
        list(runnable.stream(value, config))
    else:
        runnable.invoke(value, config)
    assert stored.flush()

    assert spans.get_finished_spans()
    assert all(span.end_time for span in spans.get_finished_spans())
    assert sample("otel_journal_operations_open") == 0
    assert sample("otel_journal_handler_errors_total") == 0
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", ["none", "text", "list", "mapping"])
def test_nonsense_in_every_hook(stored: Journal, sample: Any, kind: str) -> None:
    """None or another thing where a payload should be: every operation still ends."""
    value: Any = {"text": "t", "list": [], "mapping": {}}.get(kind)
    handler = stored.handler()
    chain, model, text_model, used, found = (uuid4() for _ in range(5))
    handler.on_chain_start(value, value, run_id=chain)
    handler.on_chat_model_start(value, value, run_id=model, parent_run_id=chain)
    handler.on_llm_new_token(value, chunk=value, run_id=model, parent_run_id=chain)
    handler.on_stream_event(value, run_id=model, parent_run_id=chain)
    handler.on_llm_end(value, run_id=model, parent_run_id=chain)
    handler.on_llm_start(value, value, run_id=text_model, parent_run_id=chain)
    handler.on_llm_error(ValueError(), run_id=text_model, parent_run_id=chain, response=value)
    handler.on_tool_start(value, value, run_id=used, parent_run_id=chain, inputs=value)
    handler.on_tool_end(value, run_id=used, parent_run_id=chain)
    handler.on_retriever_start(value, value, run_id=found, parent_run_id=chain)
    handler.on_retriever_end(value, run_id=found, parent_run_id=chain)
    handler.on_custom_event("name", value, run_id=chain)
    handler.on_chain_end(value, run_id=chain)
    handler.on_interrupt(value)
    handler.on_resume(value)
    stored.flush()

    eventually(lambda: sample("otel_journal_operations_open") == 0)
    assert sample("otel_journal_runs_total", outcome="ok") == 1


class _UnprintableError(ValueError):
    def __str__(self) -> str:
        raise RuntimeError


HOSTILE_PAYLOADS = (
    "chain inputs",
    "chain outputs",
    "tool inputs",
    "tool output",
    "messages",
    "documents",
    "custom event",
    "error",
)


@pytest.mark.parametrize("place", HOSTILE_PAYLOADS)
def test_ending_never_depends_on_the_payload(
    stored: Journal, spans: InMemorySpanExporter, place: str
) -> None:
    """Objects that cannot be read (an unbound proxy, say) cost their content, not the span."""
    hostile, handler = _Hostile(), stored.handler()

    def at(where: str, otherwise: Any) -> Any:
        return hostile if where == place else otherwise

    chain, model, used, found = (uuid4() for _ in range(4))
    handler.on_chain_start({}, at("chain inputs", {}), run_id=chain, name="g")
    below: Any = {"parent_run_id": chain}
    handler.on_chat_model_start({}, [[at("messages", HumanMessage("q"))]], run_id=model, **below)
    handler.on_llm_end(response(), run_id=model, **below)
    handler.on_tool_start({"name": "t"}, "", run_id=used, inputs=at("tool inputs", {}), **below)
    handler.on_tool_end(at("tool output", "r"), run_id=used, **below)
    handler.on_retriever_start({}, "q", run_id=found, **below)
    if place == "error":
        handler.on_retriever_error(_UnprintableError(), run_id=found, **below)
    else:
        handler.on_retriever_end([at("documents", "d")], run_id=found, **below)
    handler.on_custom_event("e", at("custom event", {}), run_id=chain)
    handler.on_chain_end(at("chain outputs", {}), run_id=chain)
    stored.shutdown()

    told = {s.name: dict(s.attributes or {}) for s in spans.get_finished_spans()}
    assert set(told) == {"invoke_workflow g", "chat", "execute_tool t", "retrieval"}
    assert not [name for name, known in told.items() if "otel_journal.closed_by" in known]


@pytest.mark.parametrize(
    "metadata", [None, {}, {1: 2}, {"langgraph_node": object()}, {"thread_id": object()}]
)
@pytest.mark.parametrize("tags", [None, [], [None, 3, "seq:step:x", "retry:attempt:"]])
def test_nonsense_in_tags_and_metadata(
    stored: Journal, sample: Any, tags: Any, metadata: Any
) -> None:
    """Tags and metadata are the application's: any value is survived."""
    handler = stored.handler()
    root, call = uuid4(), uuid4()
    where: Any = {"tags": tags, "metadata": metadata}
    handler.on_chain_start(None, {}, run_id=root, name=None, **where)
    handler.on_chat_model_start(None, [[]], run_id=call, parent_run_id=root, **where)
    handler.on_llm_end(response(), run_id=call, parent_run_id=root)
    handler.on_chain_end({}, run_id=root)
    assert stored.flush()

    assert sample("otel_journal_operations_open") == 0
    assert sample("otel_journal_handler_errors_total") == 0
    assert sample("otel_journal_llm_calls_total", outcome="ok") == 1


def _mutate(kind: str, handler: RunJournal, root: UUID) -> None:
    """Deliver a payload that holds 'before', then change it to 'after'."""
    below: Any = {"run_id": uuid4(), "parent_run_id": root}
    if kind == "prompt":
        message = HumanMessage([{"type": "text", "text": "before"}])
        prompt = [message]
        handler.on_chat_model_start({}, [prompt], **below)
        message.content[0]["text"] = "after"  # type: ignore[index]
        prompt.append(HumanMessage("after"))
    elif kind == "arguments":
        arguments = {"q": ["before"]}
        handler.on_tool_start({"name": "t"}, "", inputs=arguments, **below)
        arguments["q"][0] = "after"
    elif kind == "result":
        result = {"r": ["before"]}
        handler.on_tool_start({"name": "t"}, "", **below)
        handler.on_tool_end(result, **below)
        result["r"][0] = "after"
    elif kind == "tool message":
        told = ToolMessage([{"type": "text", "text": "before"}], tool_call_id="c")
        handler.on_tool_start({"name": "t"}, "", **below)
        handler.on_tool_end(told, **below)
        told.content[0]["text"] = "after"  # type: ignore[index]
    elif kind == "outputs":
        outputs = {"messages": [AIMessage("before")], "x": ["before"]}
        handler.on_chain_end(outputs, run_id=root)
        outputs["messages"][0].content = "after"  # type: ignore[union-attr]
        outputs["x"][0] = "after"
    elif kind == "custom event":
        data = {"d": ["before"]}
        handler.on_custom_event("e", data, run_id=root)
        data["d"][0] = "after"
    elif kind == "metadata":
        metadata = {"thread_id": "before", "ls_model_name": "before"}
        handler.on_chat_model_start({}, [], metadata=metadata, **below)
        metadata["ls_model_name"] = "after"
    elif kind == "parameters":
        stop = ["before"]
        parameters: Any = {"model": "before", "stop": stop}
        handler.on_chat_model_start({}, [], invocation_params=parameters, **below)
        stop[0] = "after"
        parameters["model"] = "after"
    else:
        assert kind == "documents"
        handler.on_retriever_start({}, "before", **below)
        documents: list[Any] = []
        handler.on_retriever_end(documents, **below)
        documents.append("after")


@pytest.mark.parametrize(
    "kind",
    [
        "prompt",
        "arguments",
        "result",
        "tool message",
        "outputs",
        "custom event",
        "metadata",
        "documents",
        "parameters",
    ],
)
def test_payloads_are_read_in_the_callback(
    tracer_provider: TracerProvider,
    registry: CollectorRegistry,
    spans: InMemorySpanExporter,
    kind: str,
) -> None:
    """LangChain's values are live: what changes after the callback returned was not said in it."""
    settings = Settings(grace=0.0, linger=0.5, capture_content=True)
    with Journal(
        settings, tracer_provider=tracer_provider, registry=registry, store=open_store("memory:")
    ) as journal:
        handler, root = journal.handler(), uuid4()
        handler.on_chain_start({}, {}, run_id=root, name="graph")
        _mutate(kind, handler, root)
        handler.on_chain_end({}, run_id=root)
        journal.shutdown()
        told = [
            f"{event.content} {event.metadata} {event.span}"
            for event in journal.store.read(limit=1_000)
        ]
        told += [str(dict(span.attributes or {})) for span in spans.get_finished_spans()]

    assert any("before" in text for text in told)
    assert not [text for text in told if "after" in text]


def test_payloads_are_not_changed(stored: Journal) -> None:
    """The handler only looks: messages, arguments, metadata and tags stay as they were."""
    handler = stored.handler()
    run: Any = {"run_id": uuid4(), "parent_run_id": None}
    prompt = [[HumanMessage("q", additional_kwargs={"a": 1})]]
    metadata, tags = {"thread_id": "t", "ls_provider": "p"}, ["subagent:x"]
    parameters = {"model": "m", "tools": [{"type": "function", "function": {"name": "f"}}]}
    answer = response("a", {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})
    before = copy.deepcopy((prompt, metadata, tags, parameters, answer))
    handler.on_chat_model_start(
        {}, prompt, metadata=metadata, tags=tags, invocation_params=parameters, **run
    )
    handler.on_llm_end(answer, **run)
    assert stored.flush()

    assert (prompt, metadata, tags, parameters, answer) == before


def test_large_payloads_do_not_stay_alive(journal: Journal) -> None:
    """Without a store or capture the handler keeps no reference to what it was shown."""
    handler, root = journal.handler(), uuid4()
    message = HumanMessage("x" * 1_000)
    gone = weakref.ref(message)
    handler.on_chain_start({}, {"messages": [message]}, run_id=root)
    handler.on_chat_model_start({}, [[message]], run_id=uuid4(), parent_run_id=root)
    del message
    assert journal.flush()
    gc.collect()

    assert gone() is None


# The table of open operations ---------------------------------------------------------------


@pytest.fixture
def small(tracer_provider: TracerProvider, registry: CollectorRegistry) -> Iterator[Journal]:
    """Provide a journal with small caps and a short age limit."""
    settings = Settings(
        max_open_operations=CAP, max_remembered=CAP, max_operation_age=0.5, grace=0.0, linger=0.0
    )
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        yield journal


KINDS = ("chain", "chat", "completion", "tool", "retrieval")


def _start(handler: RunJournal, kind: str, parent: UUID | None = None) -> None:
    below: Any = {"run_id": uuid4(), "parent_run_id": parent}
    if kind == "chain":
        handler.on_chain_start({}, {}, name="graph", **below)
    elif kind == "chat":
        handler.on_chat_model_start({}, [[HumanMessage("x" * 1_000)]], **below)
    elif kind == "completion":
        handler.on_llm_start({}, ["x"], **below)
    elif kind == "tool":
        handler.on_tool_start({"name": "t"}, "x", **below)
    else:
        handler.on_retriever_start({}, "x", **below)


@pytest.mark.parametrize(
    ("kind", "nested"),
    [*((kind, False) for kind in KINDS), ("chat", True), ("tool", True)],
)
def test_operations_that_never_end(
    small: Journal, spans: InMemorySpanExporter, sample: Any, kind: str, *, nested: bool
) -> None:
    """Beyond the cap the oldest are closed and counted; the rest go by age, on a timer."""
    handler = small.handler()
    for _ in range(10 * CAP):
        parent = None
        if nested:
            parent = uuid4()
            handler.on_chain_start({}, {}, name="graph", run_id=parent)
        _start(handler, kind, parent)
    assert small.flush()
    assert sample("otel_journal_operations_open") <= CAP
    assert sample("otel_journal_operations_limit") == CAP
    by_cap = sample("otel_journal_operations_closed_total", reason="cap")
    assert by_cap >= 9 * CAP

    eventually(lambda: sample("otel_journal_operations_open") == 0)
    by_age = sample("otel_journal_operations_closed_total", reason="age")
    assert by_cap + by_age == 10 * CAP * (2 if nested else 1)
    assert small.flush()
    found = spans.get_finished_spans()
    for span in found:
        attributes = span.attributes or {}
        assert attributes["otel_journal.outcome"] in {"abandoned", "unknown"}
        assert attributes["otel_journal.closed_by"] in {"cap", "age"}
        assert span.status.status_code.name == "UNSET"


def test_operations_left_current_do_not_pile_up(small: Journal, sample: Any) -> None:
    """In a thread where no end ever comes, later runs work as ever: nothing nests without end."""
    handler = small.handler()
    for _ in range(2_000):
        _start(handler, "tool")
    assert small.flush()
    eventually(lambda: sample("otel_journal_operations_open") == 0)
    handler.on_chain_start({}, {}, run_id=(root := uuid4()), name="later")
    handler.on_chain_end({}, run_id=root)
    assert small.flush()

    assert sample("otel_journal_handler_errors_total") == 0
    assert sample("otel_journal_runs_total", gen_ai_agent_name="later", outcome="ok") == 1


@pytest.mark.parametrize("nested", [False, True], ids=["one after the other", "nested"])
def test_many_operations_without_end_can_be_closed(
    tracer_provider: TracerProvider, registry: CollectorRegistry, sample: Any, *, nested: bool
) -> None:
    """Thousands of operations left open by one thread are closed, and a shutdown succeeds."""
    settings = Settings(grace=0.0, linger=0.0, max_operation_age=0.5)
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        handler, parent = journal.handler(), None
        for _ in range(3_000):
            handler.on_tool_start({"name": "t"}, "", run_id=(used := uuid4()), parent_run_id=parent)
            parent = used if nested else None
        journal.flush()
        eventually(lambda: sample("otel_journal_operations_open") == 0, within=3.0)

        assert sample("otel_journal_operations_closed_total", reason="age") == 3_000
        assert journal.shutdown() is True


def test_old_operations_are_closed_without_any_callback(small: Journal, sample: Any) -> None:
    """The age limit is driven by a timer, not by the next event."""
    _start(small.handler(), "chat")
    assert small.flush()
    assert sample("otel_journal_operations_open") == 1

    eventually(lambda: sample("otel_journal_operations_open") == 0)
    assert sample("otel_journal_operations_closed_total", reason="age") == 1


def test_late_end_of_a_closed_operation(
    small: Journal, spans: InMemorySpanExporter, sample: Any
) -> None:
    """An end that comes after the age limit ends nothing twice; its usage still counts."""
    handler, call = small.handler(), uuid4()
    handler.on_chat_model_start({}, [], run_id=call)
    assert small.flush()
    eventually(lambda: sample("otel_journal_operations_open") == 0)
    used: Any = {"input_tokens": 100, "output_tokens": 1, "total_tokens": 101}
    handler.on_llm_end(response("late", used), run_id=call)
    assert small.flush()

    assert len(spans.get_finished_spans()) == 1
    assert sample("otel_journal_tokens_total", type="input") == 100


def test_nothing_grows_with_the_number_of_runs(small: Journal) -> None:
    """After many more runs than any cap, a journal is no bigger than after a few."""
    handler = small.handler(thread_id="t")

    def runs(count: int) -> None:
        for _ in range(count):
            root, call = uuid4(), uuid4()
            handler.on_chain_start({}, {}, run_id=root, name="graph")
            handler.on_chat_model_start({}, [], run_id=call, parent_run_id=root)
            handler.on_llm_end(response(), run_id=call, parent_run_id=root)
            handler.on_custom_event("e", {}, run_id=root)
            handler.on_chain_end({}, run_id=root)
        assert small.flush(30.0)

    runs(1_500)  # fills every table: summaries, 1,000 of them, are the largest
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        runs(1_500)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # New entries replace untraced old ones: the tables' own size, far below 1,500 runs' worth.
    assert (after - before) / 1_500 < 4_000


# Copies, sampling, switched off -------------------------------------------------------------


def test_copies_record_into_the_same_journal(journal: Journal, sample: Any) -> None:
    """Frameworks copy configurations: a copy is the same journal under the same ids."""
    handler = journal.handler(run_id="r", thread_id="t")
    for one in (copy.copy(handler), copy.deepcopy({"callbacks": [handler]})["callbacks"][0]):
        assert one.journal is journal
        assert (one.run_id, one.thread_id) == ("r", "t")
        one.on_chain_start({}, {}, run_id=(root := uuid4()), name="g")
        one.on_chain_end({}, run_id=root)
    assert journal.flush()

    assert sample("otel_journal_runs_total", outcome="ok") == 2


def test_pickle_is_configuration(journal: Journal) -> None:
    """A pickled handler uses the process-wide journal of the process that loads it."""
    pickled = pickle.dumps(journal.handler(run_id="r", thread_id="t"))
    program = (
        "import pickle, otel_journal\n"
        f"loaded = pickle.loads({pickled!r})\n"
        "assert type(loaded) is otel_journal.RunJournal\n"
        "assert loaded.journal is otel_journal.RunJournal().journal\n"
        "print(loaded.run_id, loaded.thread_id)\n"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.stdout.split(), done.stderr) == (["r", "t"], "")


def test_tool_arguments_are_not_copied(stored: Journal, sample: Any) -> None:
    """A tool may be given what can be neither copied nor pickled."""

    class Uncopyable:
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError

        def __reduce__(self) -> Any:
            raise AssertionError

    @tool
    def use(model: Any) -> str:
        """Use it."""
        return "ok"

    assert use.invoke({"model": Uncopyable()}, {"callbacks": [stored.handler()]}) == "ok"
    assert stored.flush()
    assert sample("otel_journal_handler_errors_total") == 0
    assert sample("otel_journal_tool_calls_total", outcome="ok") == 1


def test_metrics_do_not_depend_on_sampling(
    registry: CollectorRegistry, sample: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With every trace dropped by the sampler, tokens and runs are counted all the same."""
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    used: Any = {"input_tokens": 100, "output_tokens": 1, "total_tokens": 101}
    with Journal(Settings(), tracer_provider=provider, registry=registry) as journal:
        model = ScriptedModel(script=[ai("hi", usage=used)])
        model.invoke("q", {"callbacks": [journal.handler()]})
        assert journal.flush()

        assert sample("otel_journal_tokens_total", type="input") == 100
        assert sample("otel_journal_operations_open") == 0
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    provider.shutdown()


def test_disabled_journal_records_nothing(
    tracer_provider: TracerProvider, registry: CollectorRegistry, spans: InMemorySpanExporter
) -> None:
    """Switched off, the handler is skipped by LangChain and calls by hand do nothing."""
    store = open_store("memory:")
    settings = Settings(disabled=True)
    with Journal(
        settings, tracer_provider=tracer_provider, registry=registry, store=store
    ) as journal:
        ScriptedModel(script=[ai("hi")]).invoke("q", {"callbacks": [journal.handler()]})
        asking().invoke(
            {"x": 1},
            {"callbacks": [journal.handler()], "configurable": {"thread_id": "t"}},
        )
        journal.record_external_usage("r", "s", {"input_tokens": 5})
        assert journal.flush()

    assert not spans.get_finished_spans()
    assert store.read() == []


# Time -----------------------------------------------------------------------------------------


class _SlowMessage(HumanMessage):
    """A message that takes long to read."""

    def __getattribute__(self, name: str) -> Any:
        if name == "content":
            time.sleep(0.2)
        return super().__getattribute__(name)


def test_span_starts_when_its_callback_came(stored: Journal, spans: InMemorySpanExporter) -> None:
    """The handler's own work is no part of the time before the span."""
    handler, call = stored.handler(), uuid4()
    message = _SlowMessage("q")
    before = time.time_ns()
    handler.on_chat_model_start({}, [[message]], run_id=call)
    handler.on_llm_end(response(), run_id=call)
    assert stored.flush()
    (span,) = spans.get_finished_spans()

    assert 0 <= (span.start_time or 0) - before < 100_000_000


def test_spans_do_not_start_late_when_the_journal_is_busy(
    tracer_provider: TracerProvider, registry: CollectorRegistry, spans: InMemorySpanExporter
) -> None:
    """Start times are those of the callbacks, however late the events are made."""
    settings = Settings(linger=0.3)
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        handler = journal.handler()
        expected = {}
        for n in range(5):
            root = uuid4()
            expected[f"invoke_workflow g{n}"] = time.time_ns()
            handler.on_chain_start({}, {}, run_id=root, name=f"g{n}")
            handler.on_chain_end({}, run_id=root)
            time.sleep(0.02)
        assert journal.flush()

    for span in spans.get_finished_spans():
        assert abs((span.start_time or 0) - expected[span.name]) < 10_000_000, span.name
