"""What people said stays out of telemetry unless content capture is on; captured, it is bounded.

A secret is planted in every place where LangChain hands the handler text of the application; then
everything that leaves the process is searched for all of them.
"""

# ruff: noqa: ARG001, ARG002 - nodes, tools and retrievers get values they need not read

from __future__ import annotations

import asyncio
import json
import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypedDict
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForRetrieverRun, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from opentelemetry import _logs
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics import exposition as openmetrics

from otel_journal import Journal, Settings, open_store
from otel_journal.testing import ScriptedModel, ai, tool_call

PLANTED = {
    "system prompt": "zq-system-1",
    "prompt": "zq-prompt-2",
    "answer": "zq-answer-3",
    "tool argument": "zq-argument-4",
    "tool result": "zq-result-5",
    "tool error": "zq-toolerror-6",
    "handled tool error": "zq-handled-7",
    "node error": "zq-nodeerror-8",
    "model error": "zq-modelerror-9",
    "retriever error": "zq-retrievererror-10",
    "question": "zq-interrupt-11",
    "answer to the question": "zq-resume-12",
    "query": "zq-query-13",
    "document": "zq-document-14",
    "document metadata": "zq-docmeta-15",
    "metadata value": "zq-metadata-16",
    "state": "zq-state-17",
    "custom event": "zq-custom-18",
    "cause of an error": "zq-cause-19",
    "update of a command": "zq-update-20",
    "config value": "zq-configurable-21",
}
"""Place -> what is planted there."""
MB = 1_000_000


@pytest.fixture
def log_records() -> Iterator[InMemoryLogRecordExporter]:
    """Provide the records that reach OpenTelemetry's logs while the global provider is ours."""
    exporter = InMemoryLogRecordExporter()
    provider = LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    before = _logs._internal._LOGGER_PROVIDER
    _logs._internal._LOGGER_PROVIDER = provider
    yield exporter
    _logs._internal._LOGGER_PROVIDER = before
    provider.shutdown()


class Secretive(BaseRetriever):
    """Finds a secret document, or fails secretly."""

    fail: bool = False

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.fail:
            raise LookupError(PLANTED["retriever error"])
        found = {"source": PLANTED["document metadata"]}
        return [Document(PLANTED["document"], metadata=found, id="d1")]


class State(TypedDict, total=False):
    """Anything."""

    note: str


def _run(handler: Any) -> dict[str, Any]:
    return {
        "callbacks": [handler],
        "metadata": {"customer": PLANTED["metadata value"]},
        "configurable": {"thread_id": "t", "customer": PLANTED["config value"]},
    }


def _agent_program(handler: Any, call: Callable[..., Any]) -> None:
    @tool
    def look(q: str) -> str:
        """Look."""
        return PLANTED["tool result"]

    @tool
    def refuse(q: str) -> str:
        """Refuse."""
        raise ToolException(PLANTED["handled tool error"])

    refuse.handle_tool_error = True
    secret = {"q": PLANTED["tool argument"]}
    script = [
        ai("", tool_call("look", secret, "c1"), tool_call("refuse", secret, "c2")),
        ai(PLANTED["answer"]),
    ]
    agent = create_agent(
        ScriptedModel(script=script),
        [look, refuse],
        system_prompt=SystemMessage(PLANTED["system prompt"]),
        name="boss",
    )
    call(agent, {"messages": [HumanMessage(PLANTED["prompt"])]}, _run(handler))


def _failing_programs(handler: Any, call: Callable[..., Any]) -> None:
    @tool
    def fail(q: str) -> str:
        """Fail."""
        raise ValueError(PLANTED["tool error"]) from KeyError(PLANTED["cause of an error"])

    def node(state: State) -> State:
        raise ValueError(PLANTED["node error"])

    graph = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    broken = ScriptedModel(script=[ConnectionError(PLANTED["model error"])])
    for runnable, value in (
        (fail, {"q": PLANTED["tool argument"]}),
        (graph.compile(), {"note": PLANTED["state"]}),
        (broken, PLANTED["prompt"]),
        (Secretive(fail=True), PLANTED["query"]),
    ):
        with suppress(ValueError, ConnectionError, LookupError):
            call(runnable, value, _run(handler))


def _asking_program(handler: Any, call: Callable[..., Any]) -> None:
    def ask(state: State) -> Command[Any]:
        answer = interrupt({"q": PLANTED["question"]})
        return Command(update={"note": PLANTED["update of a command"] + answer})

    def tell(state: State) -> State:
        dispatch_custom_event("told", {"what": PLANTED["custom event"]})
        Secretive().invoke(PLANTED["query"])
        return {}

    graph = StateGraph(State)
    graph.add_node("tell", tell)
    graph.add_node("ask", ask)
    graph.add_edge(START, "tell")
    graph.add_edge("tell", "ask")
    asking = graph.compile(checkpointer=InMemorySaver())
    call(asking, {"note": PLANTED["state"]}, _run(handler))
    call(asking, Command(resume=PLANTED["answer to the question"]), _run(handler))


def _manual_program(handler: Any, call: Callable[..., Any]) -> None:
    journal = handler.journal
    started = journal.tool_call_started("r", "by_hand", {"q": PLANTED["tool argument"]})
    journal.tool_call_completed("r", "by_hand", started, error=ValueError(PLANTED["tool error"]))
    journal.tool_call_completed("r", "by_hand", "orphan", result=PLANTED["tool result"])
    journal.annotate("r", "note", text=PLANTED["custom event"])


def invoke(runnable: Any, value: Any, config: Any) -> None:
    """Call it."""
    runnable.invoke(value, config)


def stream(runnable: Any, value: Any, config: Any) -> None:
    """Stream it."""
    list(runnable.stream(value, config))


def ainvoke(runnable: Any, value: Any, config: Any) -> None:
    """Await it."""

    async def use() -> None:
        await runnable.ainvoke(value, config)

    asyncio.run(use())


PROGRAMS = (_agent_program, _failing_programs, _asking_program, _manual_program)


class Output:
    """Everything that left the process during a set of programs."""

    def __init__(
        self,
        spans: tuple[ReadableSpan, ...],
        registry: CollectorRegistry,
        records: InMemoryLogRecordExporter,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Turn all of it into text."""
        self.raw = spans
        self.spans = "\n".join(map(_span_text, spans))
        self.metrics = openmetrics.generate_latest(registry).decode()
        self.otel_logs = "\n".join(record.to_json() for record in _records(records))
        self.python_logs = "\n".join(
            f"{record.getMessage()} {record.exc_info} {record.exc_text} {record.args}"
            for record in caplog.records
        )

    def leaks(self) -> dict[str, list[str]]:
        """Which planted secret is where."""
        texts = vars(self)
        where = ("spans", "metrics", "otel_logs", "python_logs")
        found = {
            name: [place for place in where if PLANTED[name] in texts[place]] for name in PLANTED
        }
        return {name: places for name, places in found.items() if places}


def _span_text(span: ReadableSpan) -> str:
    parts = [span.name, str(span.status.description), str(dict(span.attributes or {}))]
    parts += [f"{event.name} {dict(event.attributes or {})}" for event in span.events]
    parts += [str(dict(link.attributes or {})) for link in span.links]
    parts += [span.context.trace_state.to_header() if span.context else "", span.to_json()]
    return " ".join(parts)


def _records(exporter: InMemoryLogRecordExporter) -> list[Any]:
    return list(exporter.get_finished_logs())


Record = Callable[..., Output]


@pytest.fixture
def record(
    tracer_provider: TracerProvider,
    spans: InMemorySpanExporter,
    registry: CollectorRegistry,
    log_records: InMemoryLogRecordExporter,
    caplog: pytest.LogCaptureFixture,
) -> Record:
    """Provide a function that runs programs in a journal with these settings."""

    def run(call: Callable[..., Any], *, store: bool = False, **settings: Any) -> Output:
        caplog.set_level(logging.DEBUG)
        with Journal(
            Settings(grace=0.0, linger=0.0, **settings),
            tracer_provider=tracer_provider,
            registry=registry,
            store=open_store("memory:") if store else None,
        ) as journal:
            for program in PROGRAMS:
                program(journal.handler(), call)
        return Output(spans.get_finished_spans(), registry, log_records, caplog)

    return run


@pytest.mark.parametrize("call", [invoke, stream, ainvoke])
@pytest.mark.parametrize("store", [False, True], ids=["no store", "store"])
@pytest.mark.parametrize("spans_setting", ["kept", "all"])
def test_nothing_that_was_said_leaves(
    record: Record, call: Callable[..., Any], spans_setting: str, *, store: bool
) -> None:
    """With capture off no planted secret is in a span, a metric or a log, however one looks."""
    output = record(call, store=store, spans=spans_setting)

    assert output.leaks() == {}
    assert len(output.raw) > 12
    assert "error.type" in output.spans


@pytest.mark.parametrize("semconv", ["0.1", "1.41", "both"])
def test_nothing_leaves_in_any_generation(record: Record, semconv: str) -> None:
    """The other generations of names leak nothing either."""
    assert record(invoke, semconv=semconv).leaks() == {}


def test_capture_shows_what_was_said(record: Record) -> None:
    """The same search finds the content on spans when capture is on: it is not blind."""
    leaks = record(invoke, capture_content=True).leaks()

    for name in ("prompt", "answer", "tool argument", "tool result", "query", "system prompt"):
        assert "spans" in leaks.get(name, []), name
    assert not [name for name, places in leaks.items() if "metrics" in places]


def test_run_metadata_is_no_attribute_even_with_capture(record: Record) -> None:
    """Free metadata and configuration of a run are not content; they never leave."""
    leaks = record(invoke, capture_content=True).leaks()

    assert "metadata value" not in leaks
    assert "config value" not in leaks


def test_failures_are_told_by_type_and_place(record: Record) -> None:
    """Without messages an error still says what and where: type and stack."""
    logged = record(invoke).otel_logs

    assert '"exception.type": "ValueError"' in logged
    assert "in fail" in logged
    assert "exception.message" not in logged


def test_capture_shows_messages_of_exceptions(record: Record) -> None:
    """With capture on the log records have the messages: the search there is not blind either."""
    leaks = record(invoke, capture_content=True).leaks()

    for name in ("tool error", "model error", "node error", "retriever error"):
        assert "otel_logs" in leaks.get(name, []), name


def test_store_has_no_run_metadata(tracer_provider: TracerProvider) -> None:
    """The feed has messages, never the free metadata of a run's configuration (X50)."""
    store = open_store("memory:")
    settings = Settings(grace=0.0)
    with Journal(
        settings, tracer_provider=tracer_provider, registry=CollectorRegistry(), store=store
    ) as journal:
        _agent_program(journal.handler(), invoke)
    rows = "\n".join(
        f"{event.content} {event.metadata} {event.span}" for event in store.read(limit=1_000)
    )

    assert PLANTED["answer"] in rows
    assert PLANTED["metadata value"] not in rows
    assert PLANTED["config value"] not in rows


class Hostile(list):  # type: ignore[type-arg]
    """Tags that cannot be read, and say something private about it."""

    def __iter__(self) -> Any:
        """Fail."""
        raise ValueError(PLANTED["prompt"])


@pytest.mark.parametrize("start", ["chain", "model", "tool"])
def test_handler_failure_is_logged_without_content(
    journal: Journal, caplog: pytest.LogCaptureFixture, sample: Any, start: str
) -> None:
    """A failure of the handler itself is told, without what the payload said."""
    handler, run = journal.handler(), {"run_id": uuid4(), "tags": Hostile("a")}
    if start == "chain":
        handler.on_chain_start({}, {}, **run)
    elif start == "model":
        handler.on_chat_model_start({}, [], **run)
    else:
        handler.on_tool_start({}, "", **run)
    journal.flush()
    logged = "\n".join(logging.Formatter().format(record) for record in caplog.records)

    assert sample("otel_journal_handler_errors_total") == 1
    assert "ValueError" in logged
    assert PLANTED["prompt"] not in logged


# Bounded --------------------------------------------------------------------------------------


LIMIT = 4_096


@pytest.fixture
def captured(tracer_provider: TracerProvider, registry: CollectorRegistry) -> Iterator[Journal]:
    """Provide a journal that captures content up to a small limit."""
    settings = Settings(capture_content=True, max_content_chars=LIMIT, grace=0.0)
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        yield journal


def _long(kind: str) -> Any:
    if kind == "text":
        return "x" * 5 * MB
    if kind == "quotes":
        return '"\\\n' * MB
    if kind == "emoji":
        return "\N{GRINNING FACE}" * MB
    assert kind == "blocks"
    return [{"type": "text", "text": "x" * 1_000} for _ in range(5_000)]


@pytest.mark.parametrize("kind", ["text", "quotes", "emoji", "blocks"])
@pytest.mark.parametrize("where", ["prompt", "answer", "graph"])
def test_long_content_is_cut_inside_valid_json(
    captured: Journal, spans: InMemorySpanExporter, sample: Any, where: str, kind: str
) -> None:
    """An attribute is at most as long as the setting says, is valid JSON, and is counted."""
    content = _long(kind)
    answer = AIMessage(content) if where == "answer" else ai("short")
    model = ScriptedModel(script=[answer])
    prompt = [HumanMessage("q" if where == "answer" else content)]
    config: Any = {"callbacks": [captured.handler()]}
    if where == "graph":
        create_agent(model, []).invoke({"messages": prompt}, config)
    else:
        model.invoke(prompt, config)
    assert captured.flush()

    found = {
        name: value
        for span in spans.get_finished_spans()
        for name, value in (span.attributes or {}).items()
        if name in {"gen_ai.input.messages", "gen_ai.output.messages"}
    }
    assert found
    for value in found.values():
        assert len(str(value)) <= LIMIT
        assert json.loads(str(value))
    assert max(len(str(value)) for value in found.values()) > LIMIT / 2
    assert sample("otel_journal_content_truncated_total") >= 1


@pytest.mark.parametrize("where", ["argument", "result"])
def test_long_tool_content_is_cut(
    captured: Journal, spans: InMemorySpanExporter, sample: Any, where: str
) -> None:
    """Tool arguments and results are held to the same limit."""

    @tool
    def echo(q: str) -> Any:
        """Echo."""
        return {"items": ["x" * 1_000] * 5_000} if where == "result" else "ok"

    value = {"q": "x" * 5 * MB if where == "argument" else "q"}
    echo.invoke(value, {"callbacks": [captured.handler()]})
    assert captured.flush()
    (span,) = spans.get_finished_spans()
    attribute = f"gen_ai.tool.call.{where}" + ("s" if where == "argument" else "")

    assert len(str((span.attributes or {})[attribute])) <= LIMIT
    assert json.loads(str((span.attributes or {})[attribute]))
    assert sample("otel_journal_content_truncated_total") == 1


def test_short_content_is_not_cut(
    captured: Journal, spans: InMemorySpanExporter, sample: Any
) -> None:
    """What fits is complete and not counted."""
    ScriptedModel(script=[ai("short")]).invoke("q", {"callbacks": [captured.handler()]})
    assert captured.flush()
    (span,) = spans.get_finished_spans()
    answer = json.loads(str((span.attributes or {})["gen_ai.output.messages"]))

    assert answer[0]["parts"] == [{"type": "text", "content": "short"}]
    assert sample("otel_journal_content_truncated_total") == 0


def test_long_content_is_not_copied(captured: Journal) -> None:
    """The handler never builds the whole text of what it cuts."""
    block = "x" * 1_000
    prompt = [HumanMessage([{"type": "text", "text": block} for _ in range(20_000)])]
    handler = captured.handler()
    handler.on_chat_model_start({}, [[HumanMessage("warm up")]], run_id=uuid4())
    tracemalloc.start()
    try:
        handler.on_chat_model_start({}, [prompt], run_id=uuid4())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 2 * MB, f"{peak} bytes for 20 MB of content"
