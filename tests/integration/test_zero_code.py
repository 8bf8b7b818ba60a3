"""Recording without a handler in any call: `instrument`, and ``opentelemetry-instrument``."""

from __future__ import annotations

import asyncio
import copy
import importlib
import logging
import pickle
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers import context as tracing
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from servers.otlp_sink import OtlpSink
from servers.programs import SPANS_OF_A_RUN, run_program, telemetry

from otel_journal import Journal, Settings
from otel_journal import model_hooks as hooks
from otel_journal.testing import ScriptedModel, ai

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

instrumenting = importlib.import_module("otel_journal.instrumentation")
"""The module: the package may export its function under the same name."""

GRAPHS: Final = importlib.import_module("langgraph.pregel.main")


class State(TypedDict, total=False):
    """Anything."""

    x: Any


def asking(*, model: ScriptedModel | None = None) -> Any:
    """Compile a graph that calls a model and then waits for a person."""
    model = model or ScriptedModel(script=[ai("a")])

    def ask(_: State) -> State:
        model.invoke("hi")
        return {"x": interrupt("ok?")}

    graph = StateGraph(State)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph.compile(name="asker", checkpointer=InMemorySaver())


def answering() -> Any:
    """Compile a graph of one node that calls a model."""
    graph = StateGraph(State)
    graph.add_node("answer", lambda _: {"x": ScriptedModel(script=[ai("a")]).invoke("hi").text})
    graph.add_edge(START, "answer")
    return graph.compile(name="adder")


def names(spans: InMemorySpanExporter, journal: Journal) -> Counter[str]:
    """Return what was exported, by name."""
    assert journal.flush()
    return Counter(span.name for span in spans.get_finished_spans())


ONE_RUN: Final = dict.fromkeys(SPANS_OF_A_RUN, 1)


@pytest.fixture
def instrumented(journal: Journal) -> Iterator[Journal]:
    """Provide a journal that records every run."""
    instrumenting.instrument(journal)
    yield journal
    instrumenting.uninstrument()


class TestInstrument:
    """One handler in every callback manager."""

    @pytest.mark.parametrize("where", ["here", "thread", "async", "task", "stream"])
    def test_every_run_is_recorded(
        self, where: str, instrumented: Journal, spans: InMemorySpanExporter
    ) -> None:
        """A run without callbacks is recorded, in threads with an empty context too."""
        graph = answering()

        async def in_a_task() -> None:
            await asyncio.create_task(graph.ainvoke({}))

        def in_a_thread() -> None:
            thread = threading.Thread(target=lambda: graph.invoke({}))
            thread.start()
            thread.join()

        ways: dict[str, Callable[[], object]] = {
            "here": lambda: graph.invoke({}),
            "thread": in_a_thread,
            "async": lambda: asyncio.run(graph.ainvoke({})),
            "task": lambda: asyncio.run(in_a_task()),
            "stream": lambda: list(graph.stream({}, stream_mode="messages")),
        }
        ways[where]()
        assert names(spans, instrumented) == ONE_RUN

    @pytest.mark.parametrize("is_async", [False, True])
    def test_pauses_and_resumes_are_seen(
        self, instrumented: Journal, spans: InMemorySpanExporter, *, is_async: bool
    ) -> None:
        """Graphs tell pauses by another manager; the run is interrupted, its resume links to it."""
        graph, config = asking(), {"configurable": {"thread_id": "t"}}
        for given in ({}, Command(resume="yes")):
            if is_async:
                asyncio.run(graph.ainvoke(given, config))
            else:
                graph.invoke(given, config)
        assert instrumented.flush()
        roots = [s for s in spans.get_finished_spans() if s.parent is None]
        outcomes = [(s.attributes or {})["otel_journal.outcome"] for s in roots]
        assert outcomes == ["interrupted", "ok"]
        (link,) = roots[1].links
        assert roots[0].context is not None
        assert link.context.span_id == roots[0].context.span_id

    def test_callbacks_cut_off_inside(
        self, instrumented: Journal, spans: InMemorySpanExporter
    ) -> None:
        """A call that is given an empty list of callbacks is recorded all the same."""
        model = ScriptedModel(script=[ai("a")])
        RunnableLambda(lambda _: model.invoke("hi", {"callbacks": []})).invoke(1)
        assert names(spans, instrumented)["chat scripted-1"] == 1

    @pytest.mark.parametrize("given", ["invoke", "with_config", "both", "model", "twice"])
    def test_a_handler_of_the_user_changes_nothing(
        self, given: str, instrumented: Journal, spans: InMemorySpanExporter, sample: Any
    ) -> None:
        """Whatever else carries a handler of ours: one record, one span, one count."""
        one, other = instrumented.handler(), instrumented.handler()
        model = ScriptedModel(script=[ai("a")], callbacks=[other] if given == "model" else None)
        graph = StateGraph(State)
        graph.add_node("answer", lambda _: {"x": model.invoke("hi").text})
        graph.add_edge(START, "answer")
        adder: Any = graph.compile(name="adder")
        if given in {"with_config", "both"}:
            adder = adder.with_config(callbacks=[one])
        callbacks = {"invoke": [one], "both": [one], "twice": [one, one, other]}.get(given)
        adder.invoke({}, {"callbacks": callbacks} if callbacks else None)
        assert names(spans, instrumented) == ONE_RUN
        assert sample("otel_journal_tokens_total", type="input") == 7
        assert sample("otel_journal_runs_started_total") == 1
        assert sample("otel_journal_operations_open") == 0

    def test_a_run_with_a_handler_of_another_journal(
        self, instrumented: Journal, spans: InMemorySpanExporter
    ) -> None:
        """A run that is given a handler is recorded by that one alone."""
        with Journal(Settings(spans="none"), registry=CollectorRegistry()) as other:
            handler = other.handler(run_id="mine")
            answering().invoke({}, {"callbacks": [handler]})
            summary = other.summary("mine")
        assert summary is not None
        assert summary.total_tokens == 10
        assert names(spans, instrumented) == {}

    def test_a_second_call_replaces_the_journal(
        self, instrumented: Journal, spans: InMemorySpanExporter
    ) -> None:
        """There is one handler at a time."""
        with Journal(Settings(spans="none"), registry=CollectorRegistry()) as other:
            instrumenting.instrument(other)
            answering().invoke({})
            assert other.flush()
            assert other.snapshot().ledger.observations["llm"] == 2
        assert names(spans, instrumented) == {}

    def test_uninstrument_leaves_nothing_behind(
        self, journal: Journal, spans: InMemorySpanExporter
    ) -> None:
        """LangChain and LangGraph are as they were, however often it is repeated."""

        def state() -> tuple[Any, ...]:
            functions = [getattr(GRAPHS, name) for name in instrumenting._LIFECYCLE]
            return list(tracing._configure_hooks), functions, BaseCallbackManager.__init__

        before = state()
        for _ in range(2):
            instrumenting.instrument(journal)
            assert state() != before
            instrumenting.uninstrument()
            instrumenting.uninstrument()
            assert state() == before
        answering().invoke({})
        assert names(spans, journal) == {}

    def test_a_wrapper_of_somebody_else_is_left_alone(self, journal: Journal) -> None:
        """What was patched over us after us stays in place, and ours below it does nothing."""
        name = instrumenting._LIFECYCLE[0]
        original = getattr(GRAPHS, name)
        instrumenting.instrument(journal)
        ours = getattr(GRAPHS, name)

        def theirs(*args: Any, **kwargs: Any) -> Any:
            return ours(*args, **kwargs)

        setattr(GRAPHS, name, theirs)
        try:
            instrumenting.uninstrument()
            assert getattr(GRAPHS, name) is theirs
            asking().invoke({}, {"configurable": {"thread_id": "t"}})
        finally:
            setattr(GRAPHS, name, original)

    def test_without_a_journal_the_process_wide_one_records(
        self, monkeypatch: pytest.MonkeyPatch, registry: CollectorRegistry
    ) -> None:
        """When that one has been shut down and made anew, the new one records."""
        journals = [Journal(Settings(spans="none"), registry=registry) for _ in range(2)]
        current = iter(journals)
        monkeypatch.setattr(instrumenting, "process_journal", lambda: journals[0])
        instrumenting.instrument()
        try:
            monkeypatch.setattr(instrumenting, "process_journal", lambda: journals[1])
            instrumenting.renew()
            answering().invoke({})
        finally:
            instrumenting.uninstrument()
        assert next(current).snapshot().ledger.observations["llm"] == 0
        assert journals[1].flush()
        assert journals[1].snapshot().ledger.observations["llm"] == 2
        for journal in journals:
            journal.shutdown()

    def test_a_disabled_journal_is_not_asked(
        self, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """``OTEL_JOURNAL_DISABLED`` holds for injected handlers too."""
        monkeypatch.setenv("OTEL_JOURNAL_DISABLED", "true")
        with Journal(registry=registry) as journal:
            instrumenting.instrument(journal)
            try:
                answering().invoke({})
            finally:
                instrumenting.uninstrument()
            assert journal.flush()
            assert journal.snapshot().ledger.observations["run"] == 0


COPIES: Final[dict[str, Callable[[Any], Any]]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda callbacks: pickle.loads(pickle.dumps(callbacks)),  # noqa: S301 - our own
}


class TestCopies:
    """Frameworks copy configurations, with the callback managers in them."""

    @pytest.mark.parametrize("way", COPIES)
    @pytest.mark.parametrize("injected", [True, False])
    def test_callbacks_of_a_running_node(
        self,
        way: str,
        journal: Journal,
        spans: InMemorySpanExporter,
        monkeypatch: pytest.MonkeyPatch,
        *,
        injected: bool,
    ) -> None:
        """A copied manager records into the same journal, below the same node."""
        # A pickled handler belongs to the process-wide journal of whoever loads it.
        monkeypatch.setattr(hooks, "process_journal", lambda: journal)

        def answer(_: State) -> State:
            callbacks = COPIES[way](get_config()["callbacks"])
            return {
                "x": ScriptedModel(script=[ai("a")]).invoke("hi", {"callbacks": callbacks}).text
            }

        graph = StateGraph(State)
        graph.add_node("answer", answer)
        graph.add_edge(START, "answer")
        adder = graph.compile(name="adder")
        if injected:
            instrumenting.instrument(journal)
        try:
            adder.invoke({}, None if injected else {"callbacks": [journal.handler()]})
        finally:
            instrumenting.uninstrument()
        assert names(spans, journal) == ONE_RUN
        assert len({s.context.trace_id for s in spans.get_finished_spans() if s.context}) == 1

    def test_bound_ids_are_kept(self, journal: Journal) -> None:
        """A handler keeps run id and thread id through every kind of copy."""
        handler = journal.handler(run_id="r", thread_id="t")
        config = {"callbacks": [handler], "metadata": {"a": 1}}
        for way in COPIES.values():
            (copied,) = way(config)["callbacks"]
            assert (copied.run_id, copied.thread_id) == ("r", "t")


class TestInstrumentor:
    """The class behind the entry point."""

    def test_entry_point(self) -> None:
        """It has a name of its own: peers share one, and one switch turns all of them off."""
        (found,) = metadata.entry_points(group="opentelemetry_instrumentor", name="otel_journal")
        assert found.load() is instrumenting.OtelJournalInstrumentor

    def test_protocol(
        self, tracer_provider: TracerProvider, journal: Journal, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It does what `BaseInstrumentor` does, once, and takes a provider."""
        base = importlib.import_module(
            "opentelemetry.instrumentation.instrumentor"
        ).BaseInstrumentor
        public = {n for n in vars(base) if not n.startswith("_")}
        instrumentor = instrumenting.OtelJournalInstrumentor()
        assert all(hasattr(instrumentor, name) for name in public)
        assert instrumentor.instrumentation_dependencies()
        instrumentor.instrument(skip_dep_check=True, journal=journal)
        assert instrumentor.is_instrumented_by_opentelemetry
        instrumentor.instrument(tracer_provider=tracer_provider)
        assert "already" in caplog.text
        instrumentor.uninstrument()
        assert not instrumentor.is_instrumented_by_opentelemetry

    def test_provider(self, tracer_provider: TracerProvider, spans: InMemorySpanExporter) -> None:
        """A provider given by the caller gets the spans."""
        instrumentor = instrumenting.OtelJournalInstrumentor()
        instrumentor.instrument(tracer_provider=tracer_provider)
        journal = instrumenting._injected.handler.journal
        try:
            answering().invoke({})
        finally:
            instrumentor.uninstrument()
        assert names(spans, journal) == ONE_RUN
        journal.shutdown()

    def test_bad_settings_are_logged_only(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A setting that is not allowed does not keep other instrumentations from loading."""
        monkeypatch.setenv("OTEL_JOURNAL_GRACE", "long")
        hooks.process_journal.cache_clear()
        instrumentor = instrumenting.OtelJournalInstrumentor()
        instrumentor.instrument()
        assert not instrumentor.is_instrumented_by_opentelemetry
        assert "OTEL_JOURNAL_GRACE" in caplog.text


PEERS: Final = {
    "openinference-instrumentation-langchain": (
        "openinference.instrumentation.langchain",
        "LangChainInstrumentor",
    ),
    "opentelemetry-instrumentation-langchain": (
        "opentelemetry.instrumentation.langchain",
        "LangchainInstrumentor",
    ),
    "opentelemetry-instrumentation-genai-langchain": (
        "opentelemetry.instrumentation.genai.langchain",
        "LangChainInstrumentor",
    ),
}
"""Distribution -> module and class of its instrumentor."""

ACTIVATE: Final = """
import importlib, sys, logging
logging.basicConfig(format="%(levelname)s %(message)s")
import otel_journal
instrumenting = importlib.import_module("otel_journal.instrumentation")
peer = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])() if len(sys.argv) > 1 else None
if peer: peer.instrument()
instrumenting.instrument(otel_journal.Journal(otel_journal.Settings(spans="none")))
from agent import QUESTION, answering
for _ in range(2):
    answering().invoke(QUESTION)
for found in instrumenting.other_instrumentations():
    print(found.name, found.active)
"""


class TestPeers:
    """Other instrumentations of LangChain in the same process."""

    @pytest.mark.parametrize("active", [*PEERS, None])
    def test_active_peers_are_found_and_told_once(self, active: str | None) -> None:
        """One warning at the first run, whoever was set up first; none when nobody is active."""
        arguments = PEERS[active] if active else ()
        ended = run_program(
            *("-W", "ignore", "-c", ACTIVATE, *arguments), variables=telemetry("http://[::1]:9")
        )
        assert ended.returncode == 0, ended.stderr
        found = dict(line.split() for line in ended.stdout.splitlines())
        assert found == {name: str(name == active) for name in PEERS}
        warnings = [x for x in ended.stderr.splitlines() if "another LangChain instr" in x]
        assert len(warnings) == (1 if active else 0)
        assert all("tokens may be counted by both" in warning for warning in warnings)

    def test_unknown_patches_are_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A wrapper that no installed package explains is named by its module."""
        original = BaseCallbackManager.__init__

        def wrapper(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)

        wrapper.__wrapped__ = original  # type: ignore[attr-defined]
        monkeypatch.setattr(BaseCallbackManager, "__init__", wrapper)
        found = instrumenting.other_instrumentations()
        assert (__name__, True) in found
        assert {name for name, active in found if not active} == set(PEERS)

    def test_warning_names_the_peer(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The log says who else counts."""
        monkeypatch.setattr(instrumenting, "_patches", lambda: ["a.peer"])
        with caplog.at_level(logging.WARNING):
            instrumenting.warn_of_others()
        assert "another LangChain instrumentation is active" in caplog.text
        assert "a.peer" in caplog.text


class TestAutoInstrumentation:
    """``opentelemetry-instrument python app.py``."""

    @pytest.mark.parametrize("enabled", [True, False])
    def test_a_program_without_any_handler(
        self, otlp_sink: OtlpSink, tmp_path: Path, *, enabled: bool
    ) -> None:
        """Its runs arrive at the collector; our own name, not that of the peers, turns it off."""
        loaded = metadata.entry_points(group="opentelemetry_instrumentor").names
        disabled = ",".join(name for name in loaded if name != "otel_journal" or not enabled)
        (tmp_path / "app.py").write_text(
            "from agent import QUESTION, answering\nanswering().invoke(QUESTION)\n"
        )
        variables = telemetry(
            otlp_sink,
            OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=disabled,
            OTEL_METRICS_EXPORTER="none",
            OTEL_LOGS_EXPORTER="none",
            OTEL_SERVICE_NAME="zero-code",
        )
        command = str(Path(sys.executable).with_name("opentelemetry-instrument"))
        ended = run_program(
            sys.executable, str(tmp_path / "app.py"), variables=variables, command=(command,)
        )
        assert ended.returncode == 0, ended.stderr
        expected = ONE_RUN if enabled else {}
        assert Counter(span.name for span in otlp_sink.spans) == expected
        assert {s.resource["service.name"] for s in otlp_sink.spans} <= {"zero-code"}
        assert "another LangChain" not in ended.stderr
