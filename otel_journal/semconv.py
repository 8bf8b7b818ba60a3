"""Names of the GenAI semantic conventions, owned here.

The constants in ``opentelemetry.semconv`` are deprecated (semantic-conventions v1.42 moved
``gen_ai.*`` to ``open-telemetry/semantic-conventions-genai``) and lack the newer names, so this
module is the only place that spells them. The internal model is genai v0.1.0; `RENAMED_1_41`
says what the 1.41 generation calls the same thing.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

SCHEMA_VERSION: Final = "0.1"
Generation: TypeAlias = Literal["0.1", "1.41", "both"]
"""Which generation of names spans and metrics use."""

# Span attributes: gen_ai.* ------------------------------------------------------------------
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
OUTPUT_TYPE: Final = "gen_ai.output.type"
PROMPT_NAME: Final = "gen_ai.prompt.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_TOP_K: Final = "gen_ai.request.top_k"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
REQUEST_REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"
REQUEST_PREVIOUS_RESPONSE_ID: Final = "gen_ai.request.previous_response.id"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
USAGE_REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
RETRIEVAL_TOP_K: Final = "gen_ai.retrieval.top_k"
RETRIEVAL_QUERY: Final = "gen_ai.retrieval.query.text"
RETRIEVAL_DOCUMENTS: Final = "gen_ai.retrieval.documents"
OPENAI_API_TYPE: Final = "openai.api.type"
OPENAI_REQUEST_SERVICE_TIER: Final = "openai.request.service_tier"
OPENAI_RESPONSE_SERVICE_TIER: Final = "openai.response.service_tier"
OPENAI_SYSTEM_FINGERPRINT: Final = "openai.response.system_fingerprint"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

# Span attributes: our own -------------------------------------------------------------------
OUTCOME: Final = "otel_journal.outcome"
RUN_ID: Final = "otel_journal.run_id"
ATTEMPT: Final = "otel_journal.attempt"
CALL_ID: Final = "otel_journal.call_id"
CALLER: Final = "otel_journal.caller"
CACHE_HIT: Final = "otel_journal.cache_hit"
CLOSED_BY: Final = "otel_journal.closed_by"
PARENT_UNSEEN: Final = "otel_journal.parent_unseen"
LINK_RELATION: Final = "otel_journal.link.relation"
RUN_INPUT_TOKENS: Final = "otel_journal.usage.input_tokens"
RUN_OUTPUT_TOKENS: Final = "otel_journal.usage.output_tokens"
LANGCHAIN_RUN_ID: Final = "langchain.run_id"
RETRIEVER_NAME: Final = "langchain.retriever"
NODE: Final = "langgraph.node"
STEP: Final = "langgraph.step"
CHECKPOINT_NS: Final = "langgraph.checkpoint_ns"
TRIGGERS: Final = "langgraph.triggers"
PATH: Final = "langgraph.path"
INTERRUPTED: Final = "langgraph.interrupted"

RENAMED_1_41: Final[dict[str, str]] = {
    USAGE_CACHE_WRITE: "gen_ai.usage.cache_creation.input_tokens",
    RETRIEVAL_TOP_K: "gen_ai.request.top_k",
}
"""v0.1.0 attribute -> its name in the 1.41 generation (agent names on workflows: see `spans`)."""
WORKFLOW_NAME_1_41: Final = "gen_ai.workflow.name"

# Exceptions as log records (semconv: exceptions in spans are deprecated) ---------------------
EVENT_INFERENCE_EXCEPTION: Final = "gen_ai.client.inference.exception"
EVENT_TOOL_EXCEPTION: Final = "gen_ai.execute_tool.exception"
EVENT_INFERENCE_EXCEPTION_1_41: Final = "gen_ai.client.operation.exception"

# Histogram bounds ----------------------------------------------------------------------------
DURATION_BUCKETS: Final[tuple[float, ...]] = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
"""Seconds; model calls, tools, retrievals (semconv "D")."""
AGENT_BUCKETS: Final[tuple[float, ...]] = (
    0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6,
)  # fmt: skip
"""Seconds; `gen_ai.invoke_agent.duration` (semconv "A")."""
WORKFLOW_BUCKETS: Final[tuple[float, ...]] = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
"""Seconds; `gen_ai.invoke_workflow.duration` of the 1.41 generation (semconv "W")."""
TOKEN_BUCKETS: Final[tuple[float, ...]] = tuple(4**n for n in range(14))
"""Tokens; 1 to 67,108,864 (semconv "T")."""
CALL_BUCKETS: Final[tuple[float, ...]] = (1, 2, 4, 8, 16, 32, 64, 128)
"""Calls per agent invocation (semconv "N")."""

# Providers -----------------------------------------------------------------------------------
PROVIDERS: Final[dict[str, str]] = {
    "openai": "openai",
    "anthropic": "anthropic",
    "amazon_bedrock": "aws.bedrock",
    "bedrock": "aws.bedrock",
    "azure": "azure.ai.inference",
    "azure_ai": "azure.ai.inference",
    "azure_openai": "azure.ai.openai",
    "google_genai": "gcp.gemini",
    "google_vertexai": "gcp.vertex_ai",
    "vertexai": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "mistralai": "mistral_ai",
    "xai": "x_ai",
    "ibm": "ibm.watsonx.ai",
    "watsonx": "ibm.watsonx.ai",
    "moonshot": "moonshot_ai",
    "kimi": "moonshot_ai",
    "cohere": "cohere",
    "deepseek": "deepseek",
    "groq": "groq",
    "perplexity": "perplexity",
}
"""LangChain's ``ls_provider`` (lower-case) -> well-known `gen_ai.provider.name`."""


_LLM_TYPES: Final[tuple[tuple[str, str], ...]] = (
    ("azure-openai", "azure.ai.openai"),
    ("chat-google-generative-ai", "gcp.gemini"),
    ("amazon_bedrock", "aws.bedrock"),
)
"""``_llm_type`` prefix -> provider, where the type tells more than, or is all there is beside,
``ls_provider``."""


def provider_name(ls_provider: str | None, llm_type: str | None) -> str:
    """Map LangChain's provider hints to `gen_ai.provider.name`.

    ``ls_provider="azure"`` covers two products: only ``_llm_type`` tells Azure OpenAI apart.
    Unknown providers pass through in lower case; ``unknown`` when there is no hint at all.
    """
    kind = (llm_type or "").lower()
    hint = (ls_provider or "").lower()
    for prefix, provider in _LLM_TYPES:
        if kind.startswith(prefix) and hint in {"", "azure"}:
            return provider
    if not hint:
        hint = kind.removesuffix("-chat").removesuffix("_chat")
    return PROVIDERS.get(hint, hint) or "unknown"
