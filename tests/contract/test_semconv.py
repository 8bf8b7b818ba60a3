"""Names, buckets and providers of the GenAI conventions, written out: v0.1.0 and 1.41.

The constants of ``opentelemetry.semconv`` are deprecated for ``gen_ai.*``; the journal owns its
own, and this table is what they are held to.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, semconv

ATTRIBUTES = {
    "OPERATION_NAME": "gen_ai.operation.name",
    "PROVIDER_NAME": "gen_ai.provider.name",
    "AGENT_NAME": "gen_ai.agent.name",
    "AGENT_DESCRIPTION": "gen_ai.agent.description",
    "CONVERSATION_ID": "gen_ai.conversation.id",
    "OUTPUT_TYPE": "gen_ai.output.type",
    "PROMPT_NAME": "gen_ai.prompt.name",
    "REQUEST_MODEL": "gen_ai.request.model",
    "REQUEST_CHOICE_COUNT": "gen_ai.request.choice.count",
    "REQUEST_SEED": "gen_ai.request.seed",
    "REQUEST_STREAM": "gen_ai.request.stream",
    "REQUEST_TOP_K": "gen_ai.request.top_k",
    "REQUEST_TOP_P": "gen_ai.request.top_p",
    "REQUEST_TEMPERATURE": "gen_ai.request.temperature",
    "REQUEST_FREQUENCY_PENALTY": "gen_ai.request.frequency_penalty",
    "REQUEST_PRESENCE_PENALTY": "gen_ai.request.presence_penalty",
    "REQUEST_MAX_TOKENS": "gen_ai.request.max_tokens",
    "REQUEST_STOP_SEQUENCES": "gen_ai.request.stop_sequences",
    "REQUEST_REASONING_LEVEL": "gen_ai.request.reasoning.level",
    "REQUEST_PREVIOUS_RESPONSE_ID": "gen_ai.request.previous_response.id",
    "RESPONSE_ID": "gen_ai.response.id",
    "RESPONSE_MODEL": "gen_ai.response.model",
    "RESPONSE_FINISH_REASONS": "gen_ai.response.finish_reasons",
    "RESPONSE_TIME_TO_FIRST_CHUNK": "gen_ai.response.time_to_first_chunk",
    "USAGE_INPUT_TOKENS": "gen_ai.usage.input_tokens",
    "USAGE_OUTPUT_TOKENS": "gen_ai.usage.output_tokens",
    "USAGE_CACHE_READ": "gen_ai.usage.cache_read.input_tokens",
    "USAGE_CACHE_WRITE": "gen_ai.usage.cache_write.input_tokens",
    "USAGE_REASONING": "gen_ai.usage.reasoning.output_tokens",
    "INPUT_MESSAGES": "gen_ai.input.messages",
    "OUTPUT_MESSAGES": "gen_ai.output.messages",
    "TOOL_DEFINITIONS": "gen_ai.tool.definitions",
    "TOOL_NAME": "gen_ai.tool.name",
    "TOOL_TYPE": "gen_ai.tool.type",
    "TOOL_DESCRIPTION": "gen_ai.tool.description",
    "TOOL_CALL_ID": "gen_ai.tool.call.id",
    "TOOL_CALL_ARGUMENTS": "gen_ai.tool.call.arguments",
    "TOOL_CALL_RESULT": "gen_ai.tool.call.result",
    "RETRIEVAL_TOP_K": "gen_ai.retrieval.top_k",
    "RETRIEVAL_QUERY": "gen_ai.retrieval.query.text",
    "RETRIEVAL_DOCUMENTS": "gen_ai.retrieval.documents",
    "OPENAI_API_TYPE": "openai.api.type",
    "OPENAI_REQUEST_SERVICE_TIER": "openai.request.service_tier",
    "OPENAI_RESPONSE_SERVICE_TIER": "openai.response.service_tier",
    "OPENAI_SYSTEM_FINGERPRINT": "openai.response.system_fingerprint",
    "SERVER_ADDRESS": "server.address",
    "SERVER_PORT": "server.port",
    "ERROR_TYPE": "error.type",
    "EXCEPTION_TYPE": "exception.type",
    "EXCEPTION_MESSAGE": "exception.message",
    "EXCEPTION_STACKTRACE": "exception.stacktrace",
    "OUTCOME": "otel_journal.outcome",
    "RUN_ID": "otel_journal.run_id",
    "ATTEMPT": "otel_journal.attempt",
    "CALL_ID": "otel_journal.call_id",
    "CALLER": "otel_journal.caller",
    "CACHE_HIT": "otel_journal.cache_hit",
    "CLOSED_BY": "otel_journal.closed_by",
    "PARENT_UNSEEN": "otel_journal.parent_unseen",
    "LINK_RELATION": "otel_journal.link.relation",
    "RUN_INPUT_TOKENS": "otel_journal.usage.input_tokens",
    "RUN_OUTPUT_TOKENS": "otel_journal.usage.output_tokens",
    "LANGCHAIN_RUN_ID": "langchain.run_id",
    "RETRIEVER_NAME": "langchain.retriever",
    "NODE": "langgraph.node",
    "STEP": "langgraph.step",
    "CHECKPOINT_NS": "langgraph.checkpoint_ns",
    "TRIGGERS": "langgraph.triggers",
    "PATH": "langgraph.path",
    "INTERRUPTED": "langgraph.interrupted",
    "WORKFLOW_NAME_1_41": "gen_ai.workflow.name",
    "EVENT_INFERENCE_EXCEPTION": "gen_ai.client.inference.exception",
    "EVENT_TOOL_EXCEPTION": "gen_ai.execute_tool.exception",
    "EVENT_INFERENCE_EXCEPTION_1_41": "gen_ai.client.operation.exception",
}
"""Our constant -> the literal name."""

NEVER = re.compile(
    r"gen_ai\.(system$|prompt$|completion$|prompt\.\d|openai\.|usage\.(prompt|completion)_tokens"
    r"|agent\.id|node\.|invocation\.|workflow\.duration)|^llm\."
)
"""Names of older generations and proposals, which must not be emitted."""

COUNTERS_0_1 = {
    f"gen_ai_client_inference_usage_{kind}_tokens"
    for kind in ("input", "output", "cache_read_input", "cache_write_input", "reasoning_output")
}
HISTOGRAMS_0_1 = {
    "gen_ai_client_inference_duration_seconds",
    "gen_ai_client_inference_time_to_first_chunk_seconds",
    "gen_ai_client_inference_time_per_output_chunk_seconds",
    "gen_ai_client_inference_operation_input_tokens",
    "gen_ai_client_inference_operation_output_tokens",
}
HISTOGRAMS_1_41 = {
    "gen_ai_client_operation_duration_seconds",
    "gen_ai_client_operation_time_to_first_chunk_seconds",
    "gen_ai_client_operation_time_per_output_chunk_seconds",
    "gen_ai_client_token_usage",
    "gen_ai_invoke_workflow_duration_seconds",
}
HISTOGRAMS_OF_ALL = {
    "gen_ai_invoke_agent_duration_seconds",
    "gen_ai_invoke_agent_inference_calls",
    "gen_ai_invoke_agent_tool_calls",
    "gen_ai_execute_tool_duration_seconds",
    "gen_ai_retrieval_duration_seconds",
}
G = {
    "gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model",
    "gen_ai_response_model", "server_address", "server_port",
}  # fmt: skip
LABELS = {
    "gen_ai_client_inference_duration_seconds": G | {"error_type"},
    "gen_ai_client_operation_duration_seconds": G | {"error_type"},
    "gen_ai_client_inference_usage_input_tokens": G | {"gen_ai_token_modality"},
    "gen_ai_client_inference_operation_input_tokens": G,
    "gen_ai_client_token_usage": G | {"gen_ai_token_type"},
    "gen_ai_execute_tool_duration_seconds": {
        "gen_ai_tool_name", "gen_ai_tool_type", "gen_ai_agent_name", "error_type",
    },
    "gen_ai_invoke_agent_inference_calls": {"gen_ai_agent_name"},
    "gen_ai_invoke_workflow_duration_seconds": {"gen_ai_workflow_name", "error_type"},
}  # fmt: skip
"""Label names of official series, so that foreign boards fit."""


@pytest.mark.parametrize("constant", ATTRIBUTES)
def test_attribute_name(constant: str) -> None:
    """A constant is the name the conventions give."""
    assert getattr(semconv, constant) == ATTRIBUTES[constant]


def test_table_is_complete() -> None:
    """Every name that the module spells is in the table above."""
    spelt = {
        name: value
        for name, value in vars(semconv).items()
        if name.isupper() and isinstance(value, str) and name != "SCHEMA_VERSION"
    }

    assert spelt == ATTRIBUTES


def test_own_names_have_our_prefix() -> None:
    """Nothing of ours pretends to be a convention."""
    theirs = ("gen_ai.", "openai.", "server.", "error.", "exception.")
    ours = [name for name in ATTRIBUTES.values() if not name.startswith(theirs)]

    assert ours
    assert all(n.startswith(("otel_journal.", "langchain.", "langgraph.")) for n in ours)


def test_renames_of_1_41() -> None:
    """What the older generation calls the same thing."""
    assert semconv.RENAMED_1_41 == {
        "gen_ai.usage.cache_write.input_tokens": "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.retrieval.top_k": "gen_ai.request.top_k",
    }


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        (
            "DURATION_BUCKETS",
            (
                0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96,
                81.92,
            ),
        ),
        (
            "AGENT_BUCKETS",
            (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6),
        ),
        ("WORKFLOW_BUCKETS", (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)),
        (
            "TOKEN_BUCKETS",
            (
                1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216,
                67108864,
            ),
        ),
        ("CALL_BUCKETS", (1, 2, 4, 8, 16, 32, 64, 128)),
    ],
)  # fmt: skip
def test_bucket_bounds(constant: str, expected: tuple[float, ...]) -> None:
    """Bounds are those of the conventions."""
    assert getattr(semconv, constant) == expected


@pytest.mark.parametrize(
    ("ls_provider", "llm_type", "expected"),
    [
        ("openai", "openai-chat", "openai"),
        ("azure", "azure-openai-chat", "azure.ai.openai"),
        ("azure", "azure_ai", "azure.ai.inference"),
        ("azure_ai", None, "azure.ai.inference"),
        (None, "azure-openai-chat", "azure.ai.openai"),
        ("anthropic", "anthropic-chat", "anthropic"),
        (None, "anthropic-chat", "anthropic"),
        ("amazon_bedrock", "amazon_bedrock_converse_chat", "aws.bedrock"),
        (None, "amazon_bedrock_chat", "aws.bedrock"),
        ("google_genai", "chat-google-generative-ai", "gcp.gemini"),
        ("google_vertexai", "vertexai", "gcp.vertex_ai"),
        (None, "vertexai", "gcp.vertex_ai"),
        ("mistral", "mistralai-chat", "mistral_ai"),
        ("mistralai", None, "mistral_ai"),
        (None, "mistralai-chat", "mistral_ai"),
        ("groq", None, "groq"),
        ("deepseek", None, "deepseek"),
        ("cohere", None, "cohere"),
        ("perplexity", None, "perplexity"),
        ("xai", "xai-chat", "x_ai"),
        (None, "xai-chat", "x_ai"),
        ("ibm", None, "ibm.watsonx.ai"),
        ("watsonx", None, "ibm.watsonx.ai"),
        ("moonshot", None, "moonshot_ai"),
        ("ollama", "chat-ollama", "ollama"),
        ("NVIDIA", None, "nvidia"),
        ("OpenAI", None, "openai"),
        ("genericfakechatmodel", None, "genericfakechatmodel"),
        (None, None, "unknown"),
        ("", "", "unknown"),
        (None, "chat-google-generative-ai", "gcp.gemini"),
        (None, "amazon_bedrock_converse_chat", "aws.bedrock"),
    ],
)
def test_provider(ls_provider: str | None, llm_type: str | None, expected: str) -> None:
    """LangChain's hints become the well-known provider, never LangChain itself."""
    assert semconv.provider_name(ls_provider, llm_type) == expected


# Emitted ------------------------------------------------------------------------------------


def _drive(journal: Journal) -> None:
    """One of each: a workflow with an agent's worth of calls."""
    handler = journal.handler(thread_id="t")
    root, chat, used, found = (uuid4() for _ in range(4))
    below: Any = {"parent_run_id": root}
    handler.on_chain_start(None, {}, run_id=root, name="flow")
    handler.on_chat_model_start(
        {},
        [[HumanMessage("q")]],
        run_id=chat,
        metadata={"ls_provider": "openai", "ls_model_name": "m"},
        **below,
    )
    for _ in range(3):
        handler.on_llm_new_token("x", run_id=chat, **below)
    usage: Any = {
        "input_tokens": 10,
        "output_tokens": 5,
        "total_tokens": 15,
        "input_token_details": {"cache_read": 4, "cache_creation": 2},
        "output_token_details": {"reasoning": 3},
    }
    answer = AIMessage("a", usage_metadata=usage, response_metadata={"model_name": "m-1"})
    handler.on_llm_end(LLMResult(generations=[[ChatGeneration(message=answer)]]), run_id=chat)
    handler.on_tool_start({"name": "look"}, "", run_id=used, tool_call_id="c1", **below)
    handler.on_tool_error(LookupError("no"), run_id=used, **below)
    handler.on_retriever_start({}, "q", run_id=found, **below)
    handler.on_retriever_end([Document("d")], run_id=found, **below)
    handler.on_chain_end({}, run_id=root)
    assert journal.flush()


@pytest.fixture(params=["0.1", "1.41", "both"])
def generation(request: pytest.FixtureRequest) -> Any:
    """Provide each generation of names."""
    return request.param


@pytest.fixture
def emitted(
    generation: Any,
    tracer_provider: TracerProvider,
    registry: CollectorRegistry,
    spans: InMemorySpanExporter,
) -> dict[str, ReadableSpan]:
    """Provide the spans of a run in this generation, by name; series are in `registry`."""
    settings = Settings(semconv=generation)
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        _drive(journal)
        _families.clear()
        _families.update({f.name: f for f in registry.collect()})
    return {span.name: span for span in spans.get_finished_spans()}


_families: dict[str, Any] = {}
"""What the last run exposed: the journal takes its series back when it shuts down."""


def test_span_names_and_kinds(emitted: dict[str, ReadableSpan]) -> None:
    """Names and kinds are exact: dashboards and samplers match them."""
    assert {name: span.kind for name, span in emitted.items()} == {
        "invoke_workflow flow": SpanKind.INTERNAL,
        "chat m": SpanKind.CLIENT,
        "execute_tool look": SpanKind.INTERNAL,
        "retrieval": emitted["retrieval"].kind,
    }


def test_kind_of_retrieval(emitted: dict[str, ReadableSpan], generation: str) -> None:
    """A retrieval is internal since v0.1.0, and a client call before."""
    expected = SpanKind.CLIENT if generation == "1.41" else SpanKind.INTERNAL

    assert emitted["retrieval"].kind is expected


def test_nothing_old_or_proposed_is_emitted(emitted: dict[str, ReadableSpan]) -> None:
    """No name of an older generation, of a proposal, or of a prefix that is not ours."""
    for span in emitted.values():
        for name in span.attributes or {}:
            assert not NEVER.search(name), name
            assert name in ATTRIBUTES.values() or name in semconv.RENAMED_1_41.values(), name


def test_operation_names(emitted: dict[str, ReadableSpan]) -> None:
    """`gen_ai.operation.name` is the well-known value."""
    found = {n: (s.attributes or {})["gen_ai.operation.name"] for n, s in emitted.items()}

    assert found == {
        "invoke_workflow flow": "invoke_workflow",
        "chat m": "chat",
        "execute_tool look": "execute_tool",
        "retrieval": "retrieval",
    }


def test_renamed_attributes(emitted: dict[str, ReadableSpan], generation: str) -> None:
    """The five renamed attributes follow the setting; `both` has both names."""
    chat = emitted["chat m"].attributes or {}
    root = emitted["invoke_workflow flow"].attributes or {}
    new, old = generation in {"0.1", "both"}, generation in {"1.41", "both"}

    assert ("gen_ai.usage.cache_write.input_tokens" in chat) is new
    assert ("gen_ai.usage.cache_creation.input_tokens" in chat) is old
    assert ("gen_ai.agent.name" in root) is new
    assert ("gen_ai.workflow.name" in root) is old


def test_required_attributes(emitted: dict[str, ReadableSpan]) -> None:
    """What the conventions require is there, with the right type."""
    chat = dict(emitted["chat m"].attributes or {})
    used = dict(emitted["execute_tool look"].attributes or {})

    assert chat["gen_ai.provider.name"] == "openai"
    assert chat["gen_ai.request.model"] == "m"
    assert chat["gen_ai.response.model"] == "m-1"
    assert chat["gen_ai.request.stream"] is True
    assert isinstance(chat["gen_ai.response.time_to_first_chunk"], float)
    assert chat["gen_ai.usage.input_tokens"] == 10
    assert chat["gen_ai.usage.reasoning.output_tokens"] == 3
    assert "gen_ai.response.id" not in chat
    assert used["gen_ai.tool.name"] == "look"
    assert used["gen_ai.tool.type"] == "function"
    assert used["gen_ai.tool.call.id"] == "c1"
    assert used["error.type"] == "LookupError"


def test_series_of_the_generation(emitted: dict[str, ReadableSpan], generation: str) -> None:
    """Exactly the series of the generation are exposed, `both` has all."""
    assert emitted
    new, old = generation in {"0.1", "both"}, generation in {"1.41", "both"}
    official = {name for name in _families if name.startswith("gen_ai_")}
    expected = set(HISTOGRAMS_OF_ALL)
    expected |= COUNTERS_0_1 | HISTOGRAMS_0_1 if new else set()
    expected |= HISTOGRAMS_1_41 if old else set()

    assert official == expected


def test_labels_of_official_series(emitted: dict[str, ReadableSpan]) -> None:
    """Official series have exactly the labels of the conventions."""
    assert emitted
    for name, labels in LABELS.items():
        if name not in _families or not _families[name].samples:
            continue  # of the other generation, or of agents, which this run has none of
        found = {frozenset(s.labels) - {"le"} for s in _families[name].samples}
        assert found == {frozenset(labels)}, name


def test_error_type_is_the_same_on_span_and_series(emitted: dict[str, ReadableSpan]) -> None:
    """A failed tool has one error type, whoever asks."""
    (failed,) = {
        s.labels["error_type"]
        for s in _families["gen_ai_execute_tool_duration_seconds"].samples
        if s.name.endswith("_count") and s.value
    }

    assert failed == (emitted["execute_tool look"].attributes or {})["error.type"]


def test_response_id_is_never_langchains(journal: Journal, spans: InMemorySpanExporter) -> None:
    """A message id made by LangChain (``lc_run--``) is no response id of the provider."""
    handler, call = journal.handler(), uuid4()
    answer = AIMessage("a", id=f"lc_run--{call}")
    handler.on_chat_model_start({}, [[HumanMessage("q")]], run_id=call)
    handler.on_llm_end(LLMResult(generations=[[ChatGeneration(message=answer)]]), run_id=call)
    assert journal.flush()
    (span,) = spans.get_finished_spans()

    assert "gen_ai.response.id" not in (span.attributes or {})
