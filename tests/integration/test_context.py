"""What is current inside an operation, between operations, and after them: over real HTTP.

The requests are made by httpx under its real OpenTelemetry instrumentation. The server keeps the
``traceparent`` headers, so every test also sees what the called service sees.
"""

# ruff: noqa: ARG001, ARG002 - nodes, tools and models get values they need not read

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, Any
from uuid import uuid4

import anyio
import httpx
import httpx2
import pytest
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from opentelemetry import context as otel_context
from opentelemetry import propagate, trace
from opentelemetry.instrumentation.httpx import HTTPX2ClientInstrumentor, HTTPXClientInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import format_span_id, format_trace_id
from prometheus_client import CollectorRegistry
from pydantic import PrivateAttr
from servers.provider_stub import Provider

from otel_journal import Journal, RunJournal, Settings
from otel_journal.propagation import SUPPRESS_PROVIDERS, carry_context, patch_thread_pools
from otel_journal.testing import ScriptedModel, ai, tool_call

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

CALLS = (tool_call("fetch", {"q": "a"}, "c1"), tool_call("fetch", {"q": "b"}, "c2"))
"""Two calls of one tool at once."""
QUESTION = {"messages": [HumanMessage("q")]}
USAGE: Any = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
LONG_S = 30.0
"""What is cancelled would last that long."""


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    """Let no span that another test left current be around this one, nor ours around others."""
    token = otel_context.attach(otel_context.Context())
    yield
    otel_context.detach(token)


@pytest.fixture
def settings() -> Settings:
    """Provide settings that close what is left open soon."""
    return Settings(grace=0.05, linger=0.0)


@pytest.fixture
def site() -> Iterator[Provider]:
    """Provide a web server."""
    with Provider() as site:
        yield site


@pytest.fixture
def web(site: Provider, tracer_provider: TracerProvider) -> Iterator[Web]:
    """Provide instrumented HTTP clients that talk to the server."""
    instrumentors = (HTTPXClientInstrumentor(), HTTPX2ClientInstrumentor())
    for instrumentor in instrumentors:
        instrumentor.instrument(tracer_provider=tracer_provider)
    with httpx.Client(base_url=site.url) as client:
        yield Web(client, httpx.AsyncClient(base_url=site.url), site)
    for instrumentor in instrumentors:
        instrumentor.uninstrument()


class Web:
    """Requests to the server, and what was above them."""

    def __init__(self, client: httpx.Client, other: httpx.AsyncClient, site: Provider) -> None:
        self._client, self._async, self._site = client, other, site

    def get(self, path: str) -> str:
        """Request a path."""
        return self._client.get(path).text

    async def aget(self, path: str) -> str:
        """Request a path without blocking the loop."""
        return (await self._async.get(path)).text

    def traceparents(self) -> dict[str, tuple[str, str]]:
        """Path -> trace id and span id that the server was told."""
        return {request.path: request.parent for request in self._site.requests}


class Seen:
    """What was exported: the journal's spans and those of the HTTP clients."""

    def __init__(self, journal: Journal, spans: InMemorySpanExporter, web: Web) -> None:
        self.journal, self._spans, self._web = journal, spans, web
        self.config: Any = {"callbacks": [RunJournal(journal)]}

    def all(self) -> tuple[ReadableSpan, ...]:
        """Every span, after what was recorded has been exported."""
        assert self.journal.flush()
        return self._spans.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Spans of a name in the order of their ends."""
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only span of a name."""
        (span,) = self.named(name)
        return span

    def above(self, path: str) -> ReadableSpan | None:
        """The span above the request of a path; None when that began a trace of its own.

        The server was told the request's own span, which is where its spans hang.
        """
        by_id = {identity(span): span for span in self.all()}
        request = by_id[self._web.traceparents()[path]]
        assert request.name == "GET"
        if request.parent is None:
            return None
        return by_id[
            format_trace_id(request.parent.trace_id), format_span_id(request.parent.span_id)
        ]

    def parents(self) -> dict[str, str]:
        """Path -> name of the operation above its request, "" for none."""
        above = {path: self.above(path) for path in self._web.traceparents()}
        return {path: span.name if span else "" for path, span in above.items()}

    def roots(self) -> list[ReadableSpan]:
        """Spans without a parent, without those of requests."""
        return [span for span in self.all() if span.parent is None and span.name != "GET"]


@pytest.fixture
def seen(journal: Journal, spans: InMemorySpanExporter, web: Web) -> Seen:
    """Provide a view on what the journal exported."""
    return Seen(journal, spans, web)


class Asking(BaseChatModel):
    """A model that asks the server before each answer."""

    web: Any
    path: str = "/model"
    numbered: bool = False
    pause: float = 0.0
    error: Any = None
    _asked: int = PrivateAttr(default=0)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "asking-chat"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": "asking-1"}

    def _next_path(self) -> str:
        with self._lock:
            self._asked += 1
            return f"{self.path}/{self._asked}" if self.numbered else self.path

    def _answer(self) -> ChatResult:
        if self.error is not None:
            raise self.error
        message = AIMessage("a b c", usage_metadata=USAGE)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        self.web.get(self._next_path())
        return self._answer()

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        await self.web.aget(self._next_path())
        await asyncio.sleep(self.pause)
        return self._answer()

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        self.web.get(self._next_path())
        self._answer()
        yield from _chunks()

    async def _astream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ChatGenerationChunk]:
        await self.web.aget(self._next_path())
        self._answer()
        for chunk in _chunks():
            await asyncio.sleep(self.pause)
            yield chunk


def _chunks() -> list[ChatGenerationChunk]:
    words = [ChatGenerationChunk(message=AIMessageChunk(content=word)) for word in "abc"]
    last = AIMessageChunk(content="", usage_metadata=USAGE, chunk_position="last")
    return [*words, ChatGenerationChunk(message=last)]


def identity(span: ReadableSpan) -> tuple[str, str]:
    """Trace id and span id, as ``traceparent`` spells them."""
    return format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)


def assert_nothing_is_current() -> None:
    """Neither a span nor a mark that hides provider calls is in this context."""
    assert not trace.get_current_span().get_span_context().is_valid
    assert not otel_context.get_value(SUPPRESS_PROVIDERS)


def graph(*nodes: tuple[str, Any], **options: Any) -> CompiledStateGraph:
    """Compile a graph that runs the nodes one after the other."""
    builder = StateGraph(MessagesState)
    previous = START
    for name, body in nodes:
        builder.add_node(name, body)
        builder.add_edge(previous, name)
        previous = name
    builder.add_edge(previous, END)
    return builder.compile(**options)


def web_tool(web: Web) -> Any:
    """A tool that requests a path of its call's id."""

    @tool
    def fetch(q: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Fetch."""
        return web.get(f"/tool/{call_id}")

    return fetch


def async_web_tool(web: Web) -> Any:
    """The same without blocking."""

    @tool
    async def fetch(q: str, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Fetch."""
        return await web.aget(f"/tool/{call_id}")

    return fetch


def sync_graph(web: Web) -> CompiledStateGraph:
    """A node, a model in a node, and two calls of a tool at once; each makes its request."""
    model = Asking(web=web)

    def gather(state: MessagesState) -> Any:
        web.get("/node")
        return {}

    def think(state: MessagesState) -> Any:
        model.invoke("q")
        web.get("/after-model")
        return {"messages": [ai("", *CALLS)]}

    return graph(("gather", gather), ("think", think), ("tools", ToolNode([web_tool(web)])))


def async_graph(web: Web) -> CompiledStateGraph:
    """The same without blocking."""
    model = Asking(web=web)

    async def gather(state: MessagesState) -> Any:
        await web.aget("/node")
        return {}

    async def think(state: MessagesState) -> Any:
        await model.ainvoke("q")
        await web.aget("/after-model")
        return {"messages": [ai("", *CALLS)]}

    tools = ToolNode([async_web_tool(web)])
    return graph(("gather", gather), ("think", think), ("tools", tools))


async def call(way: str, runnable: Any, value: Any, config: Any) -> None:
    """Call a runnable one of six ways and consume what it streams."""
    method, _, mode = way.partition(":")
    options = {"stream_mode": mode} if mode else {}
    if method == "invoke":
        runnable.invoke(value, config)
    elif method == "stream":
        list(runnable.stream(value, config, **options))
    elif method == "ainvoke":
        await runnable.ainvoke(value, config)
    else:
        async for _ in runnable.astream(value, config, **options):
            pass


class TestInside:
    """Requests made in an operation are children of that operation."""

    @pytest.mark.parametrize(
        ("build", "way"),
        [
            (sync_graph, "invoke"),
            (sync_graph, "stream"),
            (sync_graph, "stream:messages"),
            (sync_graph, "ainvoke"),
            (sync_graph, "astream"),
            (async_graph, "ainvoke"),
            (async_graph, "astream"),
            (async_graph, "astream:messages"),
        ],
    )
    async def test_node_model_and_tool(
        self, build: Callable[[Web], CompiledStateGraph], way: str, seen: Seen, web: Web
    ) -> None:
        """Each request hangs below what made it, parallel calls of one tool included."""
        await call(way, build(web), QUESTION, seen.config)
        assert seen.parents() == {
            "/node": "gather",
            "/model": "chat asking-1",
            "/after-model": "think",
            "/tool/c1": "execute_tool fetch",
            "/tool/c2": "execute_tool fetch",
        }
        for call_id in ("c1", "c2"):
            above = seen.above(f"/tool/{call_id}")
            assert above is not None
            assert above.attributes["gen_ai.tool.call.id"] == call_id
        assert len({span.context.trace_id for span in seen.all()}) == 1
        assert_nothing_is_current()

    @pytest.mark.parametrize(("made", "way"), [(web_tool, "ainvoke"), (async_web_tool, "astream")])
    async def test_agent(self, made: Callable[[Web], Any], way: str, seen: Seen, web: Web) -> None:
        """An agent's parallel calls of one tool, sync ones under ainvoke too, stay apart."""
        model = ScriptedModel(script=[ai("", *CALLS), ai("done")])
        await call(way, create_agent(model, [made(web)], name="boss"), QUESTION, seen.config)
        found = {path: seen.above(path) for path in ("/tool/c1", "/tool/c2")}
        calls = {p: s.attributes["gen_ai.tool.call.id"] for p, s in found.items() if s is not None}
        assert calls == {"/tool/c1": "c1", "/tool/c2": "c2"}
        assert_nothing_is_current()

    def test_server_is_told_the_operation_itself(self, seen: Seen, site: Provider) -> None:
        """Without an instrumented client, an injected header names the operation's span."""
        plain = httpx2.Client(base_url=site.url)

        @tool
        def fetch() -> str:
            """Fetch."""
            headers: dict[str, str] = {}
            propagate.inject(headers)
            return plain.get("/plain", headers=headers).text

        HTTPX2ClientInstrumentor().uninstrument_client(plain)
        fetch.invoke({}, seen.config)
        plain.close()
        (request,) = site.received("/plain")
        assert request.parent == identity(seen.one("execute_tool fetch"))

    def test_vendors_state_travels_on(self, seen: Seen, web: Web, site: Provider) -> None:
        """What the caller's tracestate says reaches the services that tools call."""
        caller = {
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate": "vendor=1",
        }
        token = otel_context.attach(propagate.extract(caller))
        sync_graph(web).invoke(QUESTION, seen.config)
        otel_context.detach(token)
        assert {r.headers.get("tracestate") for r in site.requests} == {"vendor=1"}

    def test_spans_of_the_application(
        self, seen: Seen, web: Web, tracer_provider: TracerProvider
    ) -> None:
        """A span that a tool opens stands between the tool and its request."""
        tracer = tracer_provider.get_tracer("app")

        @tool
        def fetch() -> str:
            """Fetch."""
            with tracer.start_as_current_span("mine"):
                web.get("/in")
            return web.get("/out")

        fetch.invoke({}, seen.config)
        assert seen.parents() == {"/in": "mine", "/out": "execute_tool fetch"}
        parent = seen.one("mine").parent
        assert parent is not None
        assert parent.span_id == seen.one("execute_tool fetch").context.span_id

    @pytest.mark.parametrize("way", ["invoke", "astream"])
    async def test_subgraphs(self, way: str, seen: Seen, web: Web) -> None:
        """A subgraph's node is above its requests, whether it is a node or called by one."""

        def inner(path: str) -> CompiledStateGraph:
            def leaf(state: MessagesState) -> Any:
                web.get(path)
                return {}

            return graph((f"leaf-of-{path[1:]}", leaf))

        called = inner("/called")

        def calls(state: MessagesState) -> Any:
            called.invoke(QUESTION)
            web.get("/back")
            return {}

        outer = graph(("sub", inner("/node")), ("calls", calls))
        await call(way, outer, QUESTION, seen.config)
        expected = {"/node": "leaf-of-node", "/called": "leaf-of-called", "/back": "calls"}
        assert seen.parents() == expected

    @pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
    async def test_fallback_at_top_level(self, way: str, seen: Seen, web: Web) -> None:
        """The model that fails and the one that answers are each above their request."""
        failing = Asking(web=web, path="/first", error=ConnectionError("down"))
        chain = failing.with_fallbacks([Asking(web=web, path="/second")])
        await call(way, chain, "q", seen.config)
        failed, answered = seen.named("chat asking-1")
        assert seen.above("/first") == failed
        assert seen.above("/second") == answered
        assert len(seen.roots()) == 1
        web.get("/after")
        assert seen.parents()["/after"] == ""
        assert_nothing_is_current()
        assert seen.journal.propagation.ambient() is None

    async def test_retries(self, seen: Seen, web: Web) -> None:
        """Each attempt of a retried model call is above its own request."""
        flaky = Asking(web=web, numbered=True, error=ConnectionError("down"))
        retried = flaky.with_retry(stop_after_attempt=3, wait_exponential_jitter=False)
        with pytest.raises(ConnectionError):
            retried.invoke("q", seen.config)
        numbers = {path: seen.above(path) for path in ("/model/1", "/model/2", "/model/3")}
        attempts = [s.attributes.get("otel_journal.attempt", 1) for s in numbers.values() if s]
        assert attempts == [1, 2, 3]

    def test_model_that_delegates(self, seen: Seen, web: Web) -> None:
        """A model that asks another is above what it requests afterwards."""
        inner = Asking(web=web, path="/inner")

        class Router(Asking):
            """A model in front of another."""

            def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
                inner.invoke("q")
                return super()._generate()

        router = Router(web=web, path="/outer")
        graph(("node", lambda _: {"messages": [router.invoke("q")]})).invoke(QUESTION, seen.config)
        first, second = seen.named("chat asking-1")
        assert seen.above("/inner") == first
        assert seen.above("/outer") == second

    async def test_sync_model_under_ainvoke(self, seen: Seen, web: Web) -> None:
        """A model without async code, which LangChain runs in a thread, is above its request."""

        class Blocking(BaseChatModel):
            """A model that only blocks."""

            @property
            def _llm_type(self) -> str:
                return "blocking-chat"

            def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
                web.get("/model")
                return ChatResult(generations=[ChatGeneration(message=AIMessage("a"))])

        await Blocking().ainvoke("q", seen.config)
        assert seen.parents() == {"/model": "chat"}
        assert_nothing_is_current()

    async def test_full_executor_does_not_slow_the_run(self, seen: Seen, web: Web) -> None:
        """Callbacks do not need asyncio's default executor, which the application may fill."""
        loop, free = asyncio.get_running_loop(), threading.Event()
        pool = ThreadPoolExecutor(1)
        loop.set_default_executor(pool)
        blocked = loop.run_in_executor(None, free.wait, LONG_S)
        try:
            with anyio.fail_after(5):
                await async_graph(web).ainvoke(QUESTION, seen.config)
        finally:
            free.set()
            await blocked
        assert seen.parents()["/node"] == "gather"

    def test_switched_off(
        self, tracer_provider: TracerProvider, spans: InMemorySpanExporter, web: Web
    ) -> None:
        """Without propagation requests begin traces of their own, and nothing is suppressed."""
        settings = Settings(propagate=False)
        with Journal(
            settings, tracer_provider=tracer_provider, registry=CollectorRegistry()
        ) as journal:
            off = Seen(journal, spans, web)
            sync_graph(web).invoke(QUESTION, off.config)
            assert set(off.parents().values()) == {""}


class TestManyAtOnce:
    """Runs and calls side by side."""

    @pytest.mark.parametrize("build", [sync_graph, async_graph])
    async def test_twenty_runs(
        self,
        build: Callable[[Web], CompiledStateGraph],
        seen: Seen,
        web: Web,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """Twenty runs in one loop are twenty traces, each with its own requests."""

        async def node(state: MessagesState, config: RunnableConfig) -> Any:
            await asyncio.sleep(0.001)
            await web.aget(f"/{config['metadata']['number']}")
            return {}

        def blocking(state: MessagesState, config: RunnableConfig) -> Any:
            web.get(f"/{config['metadata']['number']}")
            return {}

        numbered = graph(("n", blocking if build is sync_graph else node))
        ids = [uuid4() for _ in range(20)]
        configs = [
            {**seen.config, "run_id": run_id, "metadata": {"number": number}}
            for number, run_id in enumerate(ids)
        ]
        await asyncio.gather(*(numbered.ainvoke(QUESTION, config) for config in configs))
        assert len(seen.roots()) == 20
        for number, run_id in enumerate(ids):
            (root,) = [
                s for s in seen.roots() if s.attributes["otel_journal.run_id"] == str(run_id)
            ]
            above = seen.above(f"/{number}")
            assert above is not None
            assert above.parent is not None
            assert above.parent.span_id == root.context.span_id
        assert not caplog.records
        assert_nothing_is_current()

    @pytest.mark.parametrize("way", ["batch", "abatch", "batch_as_completed"])
    async def test_batch(self, way: str, seen: Seen, web: Web) -> None:
        """The inputs of a batch are calls of their own, none inside another."""
        model = Asking(web=web, numbered=True)
        if way == "abatch":
            await model.abatch(["q"] * 4, seen.config)
        elif way == "batch":
            model.batch(["q"] * 4, seen.config)
        else:
            list(model.batch_as_completed(["q"] * 4, seen.config))
        above = [seen.above(f"/model/{number}") for number in (1, 2, 3, 4)]
        assert len({span.context.trace_id for span in above if span is not None}) == 4
        assert len(seen.roots()) == 4
        assert_nothing_is_current()

    def test_batch_of_a_sequence(self, seen: Seen, web: Web) -> None:
        """A batch of chains leaves nothing current, in this thread as in the pool's."""
        chain = RunnableLambda(lambda x: x) | Asking(web=web, numbered=True)
        chain.batch(["q"] * 3, seen.config)
        assert len(seen.roots()) == 3
        assert_nothing_is_current()

    def test_interleaved_graph_streams(self, seen: Seen, web: Web) -> None:
        """Between the steps of two streams the reader is in neither of them."""
        compiled = sync_graph(web)
        one = compiled.stream(QUESTION, seen.config)
        two = compiled.stream(QUESTION, seen.config)
        for number, stream in enumerate((one, two, two, one)):
            next(stream)
            assert_nothing_is_current()
            web.get(f"/reader/{number}")
        list(one)
        list(two)
        assert [seen.parents()[f"/reader/{number}"] for number in range(4)] == [""] * 4
        assert len(seen.roots()) == 2
        assert trace.get_current_span() is trace.INVALID_SPAN

    @pytest.mark.parametrize("order", ["AABB", "ABAB", "ABBA"])
    def test_interleaved_model_streams(self, order: str, seen: Seen, web: Web) -> None:
        """Two streamed calls that begin and end in any order do not become each other's parent."""
        model = Asking(web=web, numbered=True)
        streams: dict[str, Any] = {}
        for name in order:
            if name not in streams:
                streams[name] = model.stream("q", seen.config)
                next(streams[name])
            else:
                list(streams[name])
            assert_nothing_is_current()
            web.get(f"/reader/{len(streams)}")
        assert len(seen.roots()) == 2
        assert {seen.parents()[f"/reader/{number}"] for number in (1, 2)} == {""}
        assert seen.above("/model/1") != seen.above("/model/2")
        assert trace.get_current_span() is trace.INVALID_SPAN

    @pytest.mark.parametrize("switched_on", [True, False])
    def test_interleaved_streams_with_fallbacks(
        self,
        switched_on: bool,  # noqa: FBT001
        tracer_provider: TracerProvider,
        spans: InMemorySpanExporter,
        web: Web,
    ) -> None:
        """Runs begun between the chunks of a chain with fallbacks are runs of their own."""
        settings = Settings(propagate=switched_on)
        with Journal(
            settings, tracer_provider=tracer_provider, registry=CollectorRegistry()
        ) as journal:
            seen = Seen(journal, spans, web)
            failing = Asking(web=web, numbered=True, error=ConnectionError("down"))
            chain = failing.with_fallbacks([Asking(web=web, path="/second", numbered=True)])
            one, two = (chain.stream("q", seen.config) for _ in range(2))
            next(one)
            next(two)
            Asking(web=web, path="/between").invoke("q", seen.config)
            list(one)
            list(two)
            assert sorted(root.name for root in seen.roots()) == [
                "chat asking-1",
                "invoke_workflow",
                "invoke_workflow",
            ]

    async def test_interleaved_async_streams(self, seen: Seen, web: Web) -> None:
        """The same for async streams read by one task."""
        model = Asking(web=web, numbered=True)
        one, two = (model.astream("q", seen.config) for _ in range(2))
        for number, stream in enumerate((one, two, one, two)):
            await anext(stream)
            assert_nothing_is_current()
            await web.aget(f"/reader/{number}")
        for stream in (one, two):
            async for _ in stream:
                pass
        assert {seen.parents()[f"/reader/{number}"] for number in range(4)} == {""}
        assert len(seen.roots()) == 2
        assert_nothing_is_current()

    def test_reader_inside_a_node(self, seen: Seen, web: Web) -> None:
        """A node that reads a model's stream is above what it requests between the chunks."""
        model = Asking(web=web)

        def node(state: MessagesState) -> Any:
            for number, _ in enumerate(model.stream("q")):
                web.get(f"/chunk/{number}")
            return {}

        graph(("reader", node)).invoke(QUESTION, seen.config)
        parents = seen.parents()
        assert parents.pop("/model") == "chat asking-1"
        assert set(parents.values()) == {"reader"}


class TestAfterwards:
    """Nothing of a run stays current, however it ended."""

    @pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
    async def test_span_around_the_run(
        self, way: str, seen: Seen, web: Web, tracer_provider: TracerProvider
    ) -> None:
        """A run begun under a span of the application leaves that span current."""
        tracer = tracer_provider.get_tracer("app")
        with tracer.start_as_current_span("request") as around:
            await call(way, Asking(web=web), "q", seen.config)
            now = trace.get_current_span().get_span_context()
            assert now == around.get_span_context()
            await web.aget("/after")
        assert seen.parents()["/after"] == "request"
        assert seen.one("chat asking-1").context.trace_id == around.get_span_context().trace_id

    def test_stream_dropped(self, seen: Seen, web: Web) -> None:
        """A stream that the garbage collector closes leaves nothing current."""
        streams = [sync_graph(web).stream(QUESTION, seen.config) for _ in range(2)]
        streams += [Asking(web=web).stream("q", seen.config) for _ in range(2)]
        for stream in streams:
            next(stream)
        del stream
        streams.clear()
        gc.collect()
        assert_nothing_is_current()
        web.get("/after")
        assert seen.parents()["/after"] == ""

    def test_stream_closed_elsewhere(self, seen: Seen, web: Web) -> None:
        """A stream that another thread closes leaves nothing current in either."""
        stream = Asking(web=web).stream("q", seen.config)
        next(stream)
        current: list[bool] = []

        def close() -> None:
            stream.close()
            current.append(trace.get_current_span().get_span_context().is_valid)

        thread = threading.Thread(target=close)
        thread.start()
        thread.join()
        assert current == [False]
        assert_nothing_is_current()

    async def test_async_stream_closed_early(self, seen: Seen, web: Web) -> None:
        """Closing an async stream early leaves nothing current."""
        for runnable, value in ((async_graph(web), QUESTION), (Asking(web=web), "q")):
            stream = runnable.astream(value, seen.config)
            await anext(stream)
            await stream.aclose()
            assert_nothing_is_current()
        await web.aget("/after")
        assert seen.parents()["/after"] == ""

    @pytest.mark.parametrize("what", ["tool", "model", "node"])
    async def test_cancelled_task(self, what: str, seen: Seen, web: Web) -> None:
        """A cancelled task leaves nothing current in the task that cancelled it."""
        running = asyncio.Event()

        async def hang(state: MessagesState) -> Any:
            await web.aget("/before")
            running.set()
            await asyncio.sleep(LONG_S)

        @tool
        async def fetch() -> str:
            """Fetch."""
            return str(await hang(MessagesState(messages=[])))

        class Slow(Asking):
            """A model that does not answer."""

            async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
                await hang(MessagesState(messages=[]))
                return self._answer()

        runnable: Any = {"tool": fetch, "model": Slow(web=web), "node": graph(("hang", hang))}[what]
        task = asyncio.ensure_future(
            runnable.ainvoke(
                QUESTION if what == "node" else {} if what == "tool" else "q", seen.config
            )
        )
        await running.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert_nothing_is_current()
        await web.aget("/after")
        assert seen.above("/after") is None

    async def test_marks_do_not_outlive_a_call(self, seen: Seen, web: Web) -> None:
        """After ainvoke, whose end callback runs in another task, provider calls are reported."""
        model = Asking(web=web)
        for _ in range(3):
            await model.ainvoke("q", seen.config)
            assert_nothing_is_current()

    async def test_contexts_do_not_pile_up(self, seen: Seen, web: Web) -> None:
        """A task that asks again and again keeps at most the last call's leavings."""
        model = Asking(web=web)
        for _ in range(5):
            await model.ainvoke("q", seen.config)
        left: Any = trace.get_current_span()
        assert trace.get_current_span(left.around) is trace.INVALID_SPAN

    @pytest.mark.parametrize("where", ["alone", "node"])
    async def test_time_runs_out(self, where: str, seen: Seen, web: Web) -> None:
        """A cancelled model call, which LangChain never ends, is over for the task that made it.

        That is so at once: while the timeout is handled, in the next call, and afterwards.
        """
        config = None if where == "node" else seen.config  # a node's own is inherited

        async def impatient(state: Any) -> Any:
            slow, quick = Asking(web=web, pause=LONG_S), Asking(web=web, path="/next")
            try:
                with anyio.fail_after(0.1):
                    await slow.ainvoke("q", config)
            except TimeoutError:
                await web.aget("/handling")
            await quick.ainvoke("q", config)
            await web.aget("/after")
            return {}

        if where == "node":
            await graph(("impatient", impatient)).ainvoke(QUESTION, seen.config)
        else:
            await impatient(None)
            assert_nothing_is_current()
        assert seen.journal.shutdown()  # a root that never ended is open until then
        expected = "impatient" if where == "node" else ""
        assert seen.parents() == {
            "/model": "chat asking-1",
            "/handling": expected,
            "/next": "chat asking-1",
            "/after": expected,
        }

    @pytest.mark.parametrize("fails", ["tool", "model", "node"])
    @pytest.mark.parametrize("way", ["invoke", "ainvoke"])
    async def test_failure(self, fails: str, way: str, seen: Seen, web: Web) -> None:
        """A failure leaves nothing current."""

        def boom(state: MessagesState) -> Any:
            msg = "boom"
            raise ValueError(msg)

        @tool
        def bad() -> str:
            """Fail."""
            return str(boom(MessagesState(messages=[])))

        failing: dict[str, tuple[Any, Any]] = {
            "tool": (bad, {}),
            "model": (Asking(web=web, error=ValueError("boom")), "q"),
            "node": (graph(("boom", boom)), QUESTION),
        }
        runnable, value = failing[fails]
        with pytest.raises(ValueError, match="boom"):
            await call(way, runnable, value, seen.config)
        assert_nothing_is_current()

    def test_consecutive_runs(self, seen: Seen, web: Web) -> None:
        """Runs in one context are traces of their own."""
        compiled = sync_graph(web)
        for _ in range(3):
            compiled.invoke(QUESTION, seen.config)
            assert trace.get_current_span() is trace.INVALID_SPAN
        assert len({span.context.trace_id for span in seen.roots()}) == 3

    async def test_task_that_outlives_its_node(self, seen: Seen, web: Web) -> None:
        """What a node leaves running goes on under what was around the run, not under the dead."""
        go, tasks = asyncio.Event(), []

        async def late() -> None:
            await go.wait()
            await web.aget("/late")

        async def node(state: MessagesState) -> Any:
            tasks.append(asyncio.ensure_future(late()))
            return {}

        await graph(("node", node)).ainvoke(QUESTION, seen.config)
        assert seen.journal.flush()
        go.set()
        await asyncio.gather(*tasks)
        assert seen.parents() == {"/late": ""}

    def test_span_can_be_shown(self, seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
        """The current span can be logged, open or ended."""
        kept: list[Any] = []

        @tool
        def show() -> str:
            """Show."""
            kept.append(trace.get_current_span())
            return repr(kept[0])

        assert "ended=False" in show.invoke({}, seen.config)
        assert "ended=True" in repr(kept[0])
        logging.getLogger(__name__).warning("%r", kept[0])


class TestThreadPools:
    """Plain threads start from an empty context; two ways to give them the run's."""

    @staticmethod
    def fan_out(web: Web, config: Any, bind: Callable[[Any], Any]) -> Any:
        """Return a tool that asks a model in the threads of a plain pool."""
        model = Asking(web=web, numbered=True)

        @tool
        def fan(q: str) -> int:
            """Fan out."""
            work = bind(lambda _: model.invoke("q", config))
            with ThreadPoolExecutor(2) as pool:
                return len(list(pool.map(work, range(2))))

        return fan

    @staticmethod
    def assert_below_the_tool(seen: Seen, sample: Any) -> None:
        """The model calls are the tool's, with their requests, and their tokens the agent's."""
        chats = seen.named("chat asking-1")
        executed = seen.one("execute_tool fan").context.span_id
        assert [chat.parent and chat.parent.span_id for chat in chats] == [executed] * 2
        assert {seen.parents()[f"/model/{n}"] for n in (1, 2)} == {"chat asking-1"}
        assert len(seen.roots()) == 1
        assert sample("otel_journal_tokens_total", type="input", gen_ai_agent_name="boss") == 28

    @staticmethod
    def agent(fan: Any) -> Any:
        """Return an agent that calls the tool once."""
        asks = ai("", tool_call("fan", {"q": "x"}, "f1"))
        return create_agent(ScriptedModel(script=[asks, ai("done")]), [fan], name="boss")

    def test_carried(self, seen: Seen, web: Web, sample: Any) -> None:
        """`carry_context` makes the calls children of the tool, even with the run's own config."""
        fan = self.fan_out(web, seen.config, carry_context)
        self.agent(fan).invoke(QUESTION, seen.config)
        self.assert_below_the_tool(seen, sample)

    def test_patched(self, seen: Seen, web: Web, sample: Any) -> None:
        """`patch_thread_pools` does so without any change to the code."""
        undo = patch_thread_pools()
        try:
            fan = self.fan_out(web, seen.config, lambda work: work)
            self.agent(fan).invoke(QUESTION, seen.config)
        finally:
            undo()
        self.assert_below_the_tool(seen, sample)

    def test_neither(self, seen: Seen, web: Web) -> None:
        """Without either, the calls cannot know their tool and are roots of their own."""
        fan = self.fan_out(web, seen.config, lambda work: work)
        self.agent(fan).invoke(QUESTION, seen.config)
        assert len(seen.roots()) == 3

    def test_thread_with_the_runs_callbacks(self, seen: Seen, web: Web) -> None:
        """A carried thread has LangChain's configuration too: no config need be passed."""
        model = Asking(web=web)

        @tool
        def spawn() -> str:
            """Ask in a thread."""
            thread = threading.Thread(target=carry_context(lambda: model.invoke("q")))
            thread.start()
            thread.join()
            return "done"

        spawn.invoke({}, seen.config)
        chat = seen.one("chat asking-1")
        assert chat.parent is not None
        assert chat.parent.span_id == seen.one("execute_tool spawn").context.span_id

    def test_function_is_passed_through(self) -> None:
        """A carried function has its name, arguments, result and exceptions."""

        def divide(x: int, *, by: int) -> float:
            """Divide."""
            return x / by

        carried = carry_context(divide)
        assert (carried.__name__, carried.__doc__) == ("divide", "Divide.")
        assert carried(6, by=3) == 2
        with pytest.raises(ZeroDivisionError):
            carried(6, by=0)

    def test_calls_do_not_share_a_context(self) -> None:
        """One carried function may run in several threads at once."""
        barrier = threading.Barrier(2, timeout=5)
        key = otel_context.create_key("mine")

        def work(number: int) -> object:
            otel_context.attach(otel_context.set_value(key, number))
            barrier.wait()
            return otel_context.get_value(key)

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(carry_context(work), range(2))) == [0, 1]
        assert otel_context.get_value(key) is None

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_patches_are_undone_in_any_order(self, order: Sequence[int]) -> None:
        """Each of two patches can be undone first; then the pool is what it was."""
        before = ThreadPoolExecutor.submit
        undos = [patch_thread_pools(), patch_thread_pools()]
        for number in order:
            undos[number]()
            undos[number]()  # harmless
        assert not self.carries()
        if order == (1, 0):
            assert ThreadPoolExecutor.submit is before
        ThreadPoolExecutor.submit = before  # type: ignore[method-assign]

    def test_patch_below_anothers_patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Undone below somebody else's patch, ours only passes calls on."""
        before = ThreadPoolExecutor.submit
        undo = patch_thread_pools()
        ours: Any = ThreadPoolExecutor.submit

        def theirs(pool: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            return ours(pool, *args, **kwargs)

        monkeypatch.setattr(ThreadPoolExecutor, "submit", theirs)
        assert self.carries()
        undo()
        assert ThreadPoolExecutor.submit is theirs
        assert not self.carries()
        monkeypatch.setattr(ThreadPoolExecutor, "submit", before)

    @staticmethod
    def carries() -> bool:
        """Whether a plain pool's thread sees this thread's context."""
        key = otel_context.create_key("mine")
        token = otel_context.attach(otel_context.set_value(key, 1))
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(otel_context.get_value, key).result()
        otel_context.detach(token)
        return found == 1


class _Dropping(Sampler):
    """Drops what has no parent and is a run of ours."""

    def should_sample(self, parent_context: Any, trace_id: int, name: str, **more: Any) -> Any:
        """Drop runs, keep the rest."""
        ratio = 1.0 if name == "GET" else 0.0
        return TraceIdRatioBased(ratio).should_sample(parent_context, trace_id, name, **more)

    def get_description(self) -> str:
        """Name it."""
        return "dropping"


class TestDroppedTraces:
    """A sampler dropped the run."""

    @pytest.fixture
    def tracer_provider(self, spans: InMemorySpanExporter) -> Iterator[TracerProvider]:
        """Provide an application whose sampler drops runs but not requests."""
        provider = TracerProvider(sampler=ParentBased(_Dropping()), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(spans))
        yield provider
        provider.shutdown()

    def test_calls_in_threads_keep_their_agent(self, seen: Seen, web: Web, sample: Any) -> None:
        """Counters do not depend on sampling: the calls of a pool are still the agent's."""
        model = Asking(web=web)

        @tool
        def fan(q: str) -> str:
            """Fan out."""
            web.get("/first")  # asks what is current
            work = carry_context(lambda: model.invoke("q", seen.config))
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(work).result().text

        TestThreadPools.agent(fan).invoke(QUESTION, seen.config)
        assert seen.journal.flush()
        assert sample("otel_journal_tokens_total", type="input", gen_ai_agent_name="boss") == 21

    def test_requests_are_dropped_with_it(self, seen: Seen, web: Web) -> None:
        """A request inside a dropped run is part of it, not a trace of its own."""
        sync_graph(web).invoke(QUESTION, seen.config)
        assert [s.name for s in seen.all()] == []


class TestHandlerInTheModel:
    """The handler hangs on a model, so the runs around it are never seen."""

    @pytest.mark.parametrize("way", ["invoke", "ainvoke"])
    async def test_calls_are_grouped_by_conversation(self, way: str, seen: Seen, web: Web) -> None:
        """Each call is a root that names its conversation and says that its parent is unknown."""
        model = Asking(web=web, numbered=True, callbacks=seen.config["callbacks"])

        async def anode(state: MessagesState) -> Any:
            await model.ainvoke("q")
            return {}

        def node(state: MessagesState) -> Any:
            model.invoke("q")
            return {}

        body = anode if way == "ainvoke" else node
        config = {"configurable": {"thread_id": "T"}}
        await call(way, graph(("one", body), ("two", body)), QUESTION, config)
        roots = seen.roots()
        assert [root.attributes["gen_ai.conversation.id"] for root in roots] == ["T", "T"]
        assert all(root.attributes["otel_journal.parent_unseen"] for root in roots)
        assert {seen.parents()[f"/model/{n}"] for n in (1, 2)} == {"chat asking-1"}

    def test_span_around_the_graph_groups_them(
        self, seen: Seen, web: Web, tracer_provider: TracerProvider
    ) -> None:
        """Under a span of the application the calls are one trace."""
        model = Asking(web=web, numbered=True, callbacks=seen.config["callbacks"])
        compiled = graph(("one", lambda _: {"messages": [model.invoke("q")]}))
        with tracer_provider.get_tracer("app").start_as_current_span("request"):
            compiled.invoke(QUESTION)
            compiled.invoke(QUESTION)
        assert len({span.context.trace_id for span in seen.all()}) == 1
