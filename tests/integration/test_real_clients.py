"""Clients of real providers over real HTTP: what their answers become, and what hangs below."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic.resources.messages import messages
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import BaseMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai.resources.chat.completions import completions
from openai.resources.responses import responses
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor as OpenLLMetryAnthropic
from opentelemetry.instrumentation.genai.anthropic import AnthropicInstrumentor as OfficialAnthropic
from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor as OfficialOpenAI
from opentelemetry.instrumentation.httpx import HTTPX2ClientInstrumentor, HTTPXClientInstrumentor
from opentelemetry.instrumentation.openai import OpenAIInstrumentor as OpenLLMetryOpenAI
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from pydantic import BaseModel
from servers.provider_stub import Cut, Provider, Refusal
from servers.provider_wire import Answer, Api, Call, Tokens

from otel_journal import Journal, RunJournal, Settings
from otel_journal.propagation import SUPPRESS_PROVIDERS

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

APIS: tuple[Api, ...] = ("chat", "responses", "messages")
WAYS = ("invoke", "stream", "ainvoke", "astream")
STREAMED = frozenset({"stream", "astream"})
PROVIDERS = {"chat": "openai", "responses": "openai", "messages": "anthropic"}
FINISHED = {"chat": ("stop",), "messages": ("end_turn",)}
TOKENS = Tokens(
    input=100, output=20, cache_read=40, cache_write_5m=5, cache_write_1h=7, reasoning=8
)
ADD = Call(id="call-1", name="add", arguments={"x": 1, "y": 2})
MODEL = "asked-1"
WRAPPED = (
    completions.Completions,
    completions.AsyncCompletions,
    responses.Responses,
    responses.AsyncResponses,
    messages.Messages,
    messages.AsyncMessages,
)
"""Classes whose methods instrumentations wrap."""


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


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
def provider() -> Iterator[Provider]:
    """Provide a model provider on loopback."""
    with Provider() as provider:
        yield provider


@pytest.fixture
def seen(journal: Journal, tracer_provider: TracerProvider, spans: InMemorySpanExporter) -> Any:
    """Provide a view on the exported spans, those of the HTTP clients included."""
    instrumentors = (HTTPXClientInstrumentor(), HTTPX2ClientInstrumentor())
    for instrumentor in instrumentors:
        instrumentor.instrument(tracer_provider=tracer_provider)
    yield Seen(journal, spans)
    for instrumentor in instrumentors:
        instrumentor.uninstrument()


class Seen:
    """The spans exported so far."""

    def __init__(self, journal: Journal, spans: InMemorySpanExporter) -> None:
        self.journal, self._spans = journal, spans
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

    def below(self, parent: ReadableSpan) -> list[str]:
        """Names of the children of a span."""
        identity = parent.context.span_id
        return [s.name for s in self.all() if s.parent and s.parent.span_id == identity]


def client(api: Api, provider: Provider, **options: Any) -> BaseChatModel:
    """Return LangChain's client of an API, pointed at the stub."""
    if api == "messages":
        return ChatAnthropic(
            model=MODEL, base_url=provider.url, api_key="k", max_tokens=64, **options
        )
    return ChatOpenAI(
        model=MODEL,
        base_url=f"{provider.url}/v1",
        api_key="k",
        use_responses_api=api == "responses",
        # Off by default for servers other than OpenAI's own.
        **{"stream_usage": True, **options},
    )


async def call(way: str, model: Any, config: Any, prompt: Any = "hi") -> list[Any]:
    """Call a model one of four ways; return what came."""
    if way == "invoke":
        return [model.invoke(prompt, config)]
    if way == "stream":
        return list(model.stream(prompt, config))
    if way == "ainvoke":
        return [await model.ainvoke(prompt, config)]
    return [chunk async for chunk in model.astream(prompt, config)]


def identity(span: ReadableSpan) -> tuple[str, str]:
    """Trace id and span id, as ``traceparent`` spells them."""
    return format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)


def assert_nothing_is_current() -> None:
    """Neither a span nor a mark that hides provider calls is in this context."""
    assert not trace.get_current_span().get_span_context().is_valid
    assert not otel_context.get_value(SUPPRESS_PROVIDERS)


def tokens(sample: Any, **labels: str) -> tuple[float, float]:
    """Input and output tokens that our own counter holds."""
    name = "otel_journal_tokens_total"
    return sample(name, type="input", **labels) or 0.0, sample(name, type="output", **labels) or 0.0


class TestCall:
    """One call of each API, each way."""

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("api", APIS)
    async def test_says_who_answered_and_what_it_cost(
        self, api: Api, way: str, provider: Provider, seen: Seen
    ) -> None:
        """Provider, models, finish reason and usage with its details stand on the chat span."""
        provider.say(Answer(tokens=TOKENS, model="served-2"))
        await call(way, client(api, provider), seen.config)
        span = seen.one(f"chat {MODEL}")
        expected: dict[str, object] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDERS[api],
            "gen_ai.request.model": MODEL,
            "gen_ai.response.model": "served-2",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.usage.cache_read.input_tokens": 40,
            "gen_ai.usage.reasoning.output_tokens": 8,
            "otel_journal.outcome": "ok",
        }
        if api in FINISHED:
            expected["gen_ai.response.finish_reasons"] = FINISHED[api]
        assert expected.items() <= dict(span.attributes).items()
        assert span.kind is SpanKind.CLIENT
        assert span.status.status_code is StatusCode.UNSET
        written = span.attributes.get("gen_ai.usage.cache_write.input_tokens")
        assert written == (12 if api == "messages" else None)

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("api", APIS)
    async def test_has_its_request_below_it(
        self, api: Api, way: str, provider: Provider, seen: Seen
    ) -> None:
        """The span of the HTTP request is the chat span's only child, and the server is told."""
        await call(way, client(api, provider), seen.config)
        span, request = seen.one(f"chat {MODEL}"), seen.one("POST")
        assert seen.below(span) == ["POST"]
        (received,) = provider.requests
        assert received.parent == identity(request)
        assert_nothing_is_current()

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("api", APIS)
    async def test_is_counted_once(
        self, api: Api, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """Counters and summary hold the tokens of the answer, once."""
        provider.say(Answer(tokens=TOKENS))
        await call(way, client(api, provider), seen.config)
        span = seen.one(f"chat {MODEL}")
        labels = {"gen_ai_provider_name": PROVIDERS[api], "gen_ai_request_model": MODEL}
        assert tokens(sample, **labels) == tokens(sample) == (100, 20)
        assert sample("gen_ai_client_inference_usage_input_tokens_total") == 100
        assert sample("gen_ai_client_inference_usage_output_tokens_total") == 20
        assert sample("gen_ai_client_inference_usage_cache_read_input_tokens_total") == 40
        assert sample("gen_ai_client_inference_usage_reasoning_output_tokens_total") == 8
        summary = seen.journal.summary(str(span.attributes["otel_journal.run_id"]))
        assert summary is not None
        assert (summary.input_tokens, summary.output_tokens) == (100, 20)
        assert (summary.llm_calls, summary.usage_missing) == (1, 0)

    @pytest.mark.parametrize("way", ["invoke", "stream"])
    @pytest.mark.parametrize("api", APIS)
    async def test_names_the_response(
        self, api: Api, way: str, provider: Provider, seen: Seen
    ) -> None:
        """The provider's response id is on the span wherever LangChain hands it on."""
        provider.say(Answer(id="answer-7"))
        await call(way, client(api, provider), seen.config)
        kept = way == "invoke" or api == "responses"  # other streams lose it inside LangChain
        found = seen.one(f"chat {MODEL}").attributes.get("gen_ai.response.id")
        assert found == ("answer-7" if kept else None)

    @pytest.mark.parametrize(
        "api",
        [
            "chat",
            "responses",
            "messages",
        ],
    )
    async def test_names_the_server(self, api: Api, provider: Provider, seen: Seen) -> None:
        """Address and port are those the client was constructed with."""
        await call("invoke", client(api, provider), seen.config)
        attributes = seen.one(f"chat {MODEL}").attributes
        assert attributes.get("server.address") == "127.0.0.1"
        assert attributes.get("server.port") == provider.port

    @pytest.mark.parametrize("way", ["invoke", "stream"])
    async def test_responses_say_why_they_ended(
        self, way: str, provider: Provider, seen: Seen
    ) -> None:
        """A completed response of the Responses API, which has no finish reason, stopped."""
        await call(way, client("responses", provider), seen.config)
        attributes = seen.one(f"chat {MODEL}").attributes
        assert attributes.get("gen_ai.response.finish_reasons") == ("stop",)

    @pytest.mark.parametrize("way", ["stream", "astream"])
    @pytest.mark.parametrize("api", APIS)
    async def test_times_the_first_chunk(self, api: Api, way: str, seen: Seen, sample: Any) -> None:
        """A streamed call tells when its first chunk came: after the wait, before the end."""
        with Provider(pause=0.01) as slow:
            slow.say(Answer(texts=("one two three four five six",)))
            await call(way, client(api, slow), seen.config)
        span = seen.one(f"chat {MODEL}")
        assert span.attributes["gen_ai.request.stream"] is True
        first = span.attributes["gen_ai.response.time_to_first_chunk"]
        assert 0.01 <= first <= (span.end_time - span.start_time) / 1e9 - 0.03
        name = "gen_ai_client_inference_time_to_first_chunk_seconds_count"
        assert sample(name) == 1

    async def test_carries_the_request_parameters(self, provider: Provider, seen: Seen) -> None:
        """Parameters of the request stand under their standard names."""
        model = client("chat", provider, temperature=0.5, max_tokens=9, seed=3, stop=["x"])
        await call("invoke", model, seen.config)
        expected = {
            "gen_ai.request.temperature": 0.5,
            "gen_ai.request.max_tokens": 9,
            "gen_ai.request.seed": 3,
            "gen_ai.request.stop_sequences": ("x",),
        }
        assert expected.items() <= dict(seen.one(f"chat {MODEL}").attributes).items()


class TestShapes:
    """Answers of other shapes than one text."""

    @pytest.mark.parametrize("way", ["invoke", "astream"])
    @pytest.mark.parametrize("api", APIS)
    async def test_agent_with_a_tool(
        self, api: Api, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """Two model calls and the tool call between them make one tree, each request in place."""
        provider.say(
            Answer(texts=("",), calls=(ADD,), tokens=TOKENS), Answer(tokens=Tokens(input=7))
        )
        agent = create_agent(client(api, provider), [add], name="boss")
        await call(way, agent, seen.config, {"messages": ["what is 1+2"]})
        chats = seen.named(f"chat {MODEL}")
        assert [seen.below(chat) for chat in chats] == [["POST"], ["POST"]]
        executed = seen.one("execute_tool add")
        assert executed.attributes["gen_ai.tool.call.id"] == "call-1"
        (link,) = executed.links
        assert link.context.span_id == chats[0].context.span_id
        assert len({span.context.trace_id for span in seen.all()}) == 1
        assert tokens(sample, gen_ai_agent_name="boss") == (107, 40)
        sent = provider.requests[1].json
        assert "call-1" in str(sent.get("messages") or sent["input"])

    @pytest.mark.parametrize("api", APIS)
    async def test_structured_output(self, api: Api, provider: Provider, seen: Seen) -> None:
        """A schema makes the span's output type json, whichever way the provider is asked."""
        text, calls = '{"name": "Ann", "age": 7}', ()
        if api == "messages":
            person = Call(id="c", name="Person", arguments={"name": "Ann", "age": 7})
            text, calls = "", (person,)
        provider.say(Answer(texts=(text,), calls=calls))
        model = client(api, provider).with_structured_output(Person)
        assert model.invoke("who", seen.config) == Person(name="Ann", age=7)
        span = seen.one(f"chat {MODEL}")
        assert span.attributes["gen_ai.output.type"] == "json"
        assert seen.below(span) == ["POST"]

    @pytest.mark.parametrize("way", ["invoke", "astream"])
    async def test_several_choices(
        self, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """Choices share one usage."""
        provider.say(Answer(texts=("yes", "no"), tokens=TOKENS))
        model = client("chat", provider, n=2)
        prompt: list[BaseMessage] = [SystemMessage("be brief")]
        await call(way, model, seen.config, prompt)
        attributes = seen.one(f"chat {MODEL}").attributes
        assert attributes["gen_ai.request.choice.count"] == 2
        if way == "invoke":  # LangChain merges streamed choices into one message
            assert attributes["gen_ai.response.finish_reasons"] == ("stop", "stop")
        assert attributes["gen_ai.usage.output_tokens"] == 20
        assert tokens(sample) == (100, 20)

    async def test_cache_writes_by_time_to_live(
        self, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """Anthropic's cache writes of five minutes and an hour add up, inside the input."""
        provider.say(Answer(tokens=TOKENS))
        message = client("messages", provider).invoke("hi", seen.config)
        details = message.usage_metadata["input_token_details"]
        assert (details["ephemeral_5m_input_tokens"], details["cache_creation"]) == (5, 0)
        attributes = seen.one(f"chat {MODEL}").attributes
        assert attributes["gen_ai.usage.input_tokens"] == 100
        assert attributes["gen_ai.usage.cache_write.input_tokens"] == 12
        assert sample("gen_ai_client_inference_usage_cache_write_input_tokens_total") == 12
        assert sample("otel_journal_token_details_total", detail="cache_write") == 12

    @pytest.mark.parametrize("way", ["stream", "astream"])
    async def test_stream_without_usage(
        self, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """A server that was not asked for usage reports none: missing, not zero."""
        await call(way, client("chat", provider, stream_usage=False), seen.config)
        span = seen.one(f"chat {MODEL}")
        assert "gen_ai.usage.input_tokens" not in span.attributes
        assert sample("otel_journal_usage_missing_total") == 1
        assert tokens(sample) == (0, 0)


class TestTrouble:
    """Requests that fail, and what saves them."""

    @pytest.mark.parametrize("way", ["invoke", "astream"])
    @pytest.mark.parametrize("api", APIS)
    async def test_client_retries_inside_one_call(
        self, api: Api, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """A refused request that the client repeats is one call that went well."""
        provider.say(Refusal(status=429, retry_after="0.05"), Answer(tokens=TOKENS))
        await call(way, client(api, provider), seen.config)
        span = seen.one(f"chat {MODEL}")
        assert seen.below(span) == ["POST", "POST"]
        assert span.status.status_code is StatusCode.UNSET
        assert span.end_time - span.start_time >= 0.05e9
        assert tokens(sample) == (100, 20)
        assert sample("otel_journal_llm_calls_total") == 1

    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("api", APIS)
    async def test_refused_call(
        self, api: Api, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """A call that stays refused is an error of the client's class, without usage."""
        provider.say(Refusal(status=429))
        with pytest.raises(Exception, match="slow down"):
            await call(way, client(api, provider, max_retries=0), seen.config)
        span = seen.one(f"chat {MODEL}")
        assert span.attributes["error.type"].endswith("RateLimitError")
        assert span.status.status_code is StatusCode.ERROR
        assert seen.below(span) == ["POST"]
        assert tokens(sample) == (0, 0)
        assert_nothing_is_current()

    @pytest.mark.parametrize("way", ["stream", "astream"])
    @pytest.mark.parametrize("api", APIS)
    async def test_cut_stream(self, api: Api, way: str, provider: Provider, seen: Seen) -> None:
        """A connection that breaks in mid-stream is an error of a call that had begun to answer."""
        after = {"chat": 3, "responses": 6, "messages": 4}[api]
        provider.say(Cut(answer=Answer(texts=("one two three four",)), after=after))
        with pytest.raises(Exception, match=r"(?i)closed|incomplete|connection"):
            await call(way, client(api, provider), seen.config)
        span = seen.one(f"chat {MODEL}")
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["otel_journal.outcome"] == "error"
        assert span.attributes["gen_ai.response.time_to_first_chunk"] > 0
        assert len(provider.requests) == 1
        assert_nothing_is_current()

    @pytest.mark.parametrize("way", WAYS)
    async def test_fallback_to_another_provider(
        self, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """Both models' calls are in one trace, each above its own request."""
        provider.say(Refusal(status=503), Answer(tokens=TOKENS))
        first = client("chat", provider, max_retries=0)
        model = first.with_fallbacks([client("messages", provider)])
        await call(way, model, seen.config)
        failed, answered = seen.named(f"chat {MODEL}")
        assert failed.attributes["gen_ai.provider.name"] == "openai"
        assert failed.status.status_code is StatusCode.ERROR
        assert answered.attributes["gen_ai.provider.name"] == "anthropic"
        assert answered.status.status_code is StatusCode.UNSET
        assert [seen.below(failed), seen.below(answered)] == [["POST"], ["POST"]]
        (root,) = [span for span in seen.all() if span.parent is None]
        assert seen.below(root) == [f"chat {MODEL}"] * 2
        assert tokens(sample) == (100, 20)
        assert len({span.context.trace_id for span in seen.all()}) == 1

    @pytest.mark.parametrize("api", APIS)
    async def test_reader_stops(self, api: Api, provider: Provider, seen: Seen) -> None:
        """A stream closed early is abandoned, not failed; nothing of it stays current."""
        provider.say(Answer(texts=("one two three four",)))
        stream = client(api, provider).stream("hi", seen.config)
        next(stream)
        stream.close()
        span = seen.one(f"chat {MODEL}")
        assert span.attributes["otel_journal.outcome"] == "abandoned"
        assert span.status.status_code is StatusCode.UNSET
        assert_nothing_is_current()


# OpenLLMetry declares pydantic models in the deprecated way.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestOtherInstrumentations:
    """Instrumentations of the provider clients are active beside us."""

    @pytest.fixture(autouse=True)
    def _restored_clients(self) -> Iterator[None]:
        """Restore what the packages wrap: their own undoing leaves wrappers behind."""
        before = {resource: dict(vars(resource)) for resource in WRAPPED}
        yield
        for resource, attributes in before.items():
            for name, value in attributes.items():
                if vars(resource)[name] is not value:
                    setattr(resource, name, value)

    @pytest.fixture
    def meter(self, _restored_clients: None) -> Iterator[MeterProvider]:
        """Provide the application's meters."""
        self.reader = InMemoryMetricReader()
        meter = MeterProvider([self.reader], shutdown_on_exit=False)
        yield meter
        meter.shutdown()

    @pytest.fixture(params=["openllmetry", "official"])
    def openai_instrumentation(
        self, request: pytest.FixtureRequest, meter: MeterProvider, tracer_provider: TracerProvider
    ) -> Iterator[str]:
        """Instrument OpenAI's client with one of two packages."""
        chosen = {"openllmetry": OpenLLMetryOpenAI, "official": OfficialOpenAI}[request.param]
        instrumentor = chosen()
        instrumentor.instrument(tracer_provider=tracer_provider, meter_provider=meter)
        yield request.param
        instrumentor.uninstrument()

    @pytest.fixture(params=["openllmetry", "official"])
    def anthropic_instrumentation(
        self, request: pytest.FixtureRequest, meter: MeterProvider, tracer_provider: TracerProvider
    ) -> Iterator[str]:
        """Instrument Anthropic's client with one of two packages."""
        chosen = {"openllmetry": OpenLLMetryAnthropic, "official": OfficialAnthropic}
        instrumentor = chosen[request.param]()
        instrumentor.instrument(tracer_provider=tracer_provider, meter_provider=meter)
        yield request.param
        instrumentor.uninstrument()

    def measured(self) -> set[str]:
        """Names of the GenAI metrics that have points."""
        data = self.reader.get_metrics_data()
        return {
            metric.name
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name.startswith("gen_ai")
        }

    @pytest.mark.usefixtures("openai_instrumentation")
    @pytest.mark.parametrize("way", WAYS)
    async def test_chat_completions_are_reported_once(
        self, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """Inside our chat span both packages are quiet; the HTTP instrumentation is not."""
        provider.say(Answer(tokens=TOKENS))
        await call(way, client("chat", provider), seen.config)
        assert sorted(span.name for span in seen.all()) == ["POST", f"chat {MODEL}"]
        assert self.measured() == set()
        assert tokens(sample) == (100, 20)

    @pytest.mark.usefixtures("openai_instrumentation")
    @pytest.mark.parametrize("way", WAYS)
    async def test_direct_calls_are_theirs(
        self, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """A call that the application makes itself, right after one of ours, is theirs alone."""
        await call(way, client("chat", provider), seen.config)
        before = len(seen.all())
        said: Any = [{"role": "user", "content": "hi"}]
        with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="k") as direct:
            direct.chat.completions.create(model="direct-1", messages=said)
        theirs = [span for span in seen.all()[before:] if span.name != "POST"]
        assert [span.attributes["gen_ai.request.model"] for span in theirs] == ["direct-1"]
        assert theirs[0].parent is None
        assert any("usage" in name for name in self.measured())
        assert tokens(sample) == (100, 20)

    @pytest.mark.usefixtures("openai_instrumentation")
    async def test_direct_call_inside_a_tool(self, provider: Provider, seen: Seen) -> None:
        """A call of the provider's own client inside a tool is theirs, below the tool."""

        @tool
        def ask() -> str:
            """Ask without LangChain."""
            said: Any = [{"role": "user", "content": "hi"}]
            with openai.OpenAI(base_url=f"{provider.url}/v1", api_key="k") as direct:
                answer = direct.chat.completions.create(model="direct-1", messages=said)
            return str(answer.choices[0].message.content)

        ask.invoke({}, seen.config)
        (theirs,) = seen.below(seen.one("execute_tool ask"))
        assert theirs != "POST"
        assert seen.below(seen.one(theirs)) == ["POST"]

    @pytest.mark.parametrize("way", WAYS)
    async def test_responses_have_a_second_span_with_openllmetry(
        self, way: str, openai_instrumentation: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """OpenLLMetry's spans of the Responses API know no key that leaves HTTP spans alone.

        They hang below ours and bear usage too; nobody counts it, ours is counted once. The
        official package is quiet.
        """
        provider.say(Answer(tokens=TOKENS))
        await call(way, client("responses", provider), seen.config)
        below = seen.below(seen.one(f"chat {MODEL}"))
        expected = (
            ["POST", "openai.response"] if openai_instrumentation == "openllmetry" else ["POST"]
        )
        assert sorted(below) == expected
        assert self.measured() == set()
        assert tokens(sample) == (100, 20)

    @pytest.mark.usefixtures("anthropic_instrumentation")
    @pytest.mark.parametrize("way", WAYS)
    async def test_anthropic_is_reported_once(
        self, way: str, provider: Provider, seen: Seen, sample: Any
    ) -> None:
        """OpenLLMetry's package for Anthropic is quiet inside our chat span too."""
        provider.say(Answer(tokens=TOKENS))
        await call(way, client("messages", provider), seen.config)
        assert sorted(span.name for span in seen.all()) == ["POST", f"chat {MODEL}"]
        assert self.measured() == set()
        assert tokens(sample) == (100, 20)

    def test_anthropics_own_spans_hang_below_ours(
        self, provider: Provider, seen: Seen, tracer_provider: TracerProvider, sample: Any
    ) -> None:
        """Anthropic's client makes spans itself: between ours and the request's, not counted."""
        model = client("messages", provider)
        own = anthropic.Anthropic(
            base_url=provider.url,
            api_key="k",
            open_telemetry={"tracer_provider": tracer_provider},
        )
        model.__dict__["_client"] = own  # LangChain keeps its client there
        provider.say(Answer(tokens=TOKENS))
        model.invoke("hi", seen.config)
        own.close()
        assert seen.below(seen.one(f"chat {MODEL}")) == ["anthropic.messages.create"]
        assert seen.below(seen.one("anthropic.messages.create")) == ["POST"]
        assert tokens(sample) == (100, 20)
