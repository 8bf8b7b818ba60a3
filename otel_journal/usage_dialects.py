"""The dialects in which providers report token usage: tables, no code.

Providers differ in the *names* of their counts, in *where* LangChain leaves them, and in whether
cached or reasoning tokens are inside the totals or beside them. `usage` looks all three up here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

TTL_SPLIT: Final = "cache_write_by_ttl"
"""Scratch name: cache writes split by time to live, which add up to `cache_write`."""

INPUT_DETAILS: Final[dict[str, str]] = {
    "cache_read": "cache_read",
    "cached_tokens": "cache_read",
    "cache_read_tokens": "cache_read",
    "cache_read_input_tokens": "cache_read",
    # langchain-openai prefixes the detail with the service tier that served the call.
    "priority_cache_read": "cache_read",
    "flex_cache_read": "cache_read",
    "cache_write": "cache_write",
    "cache_creation": "cache_write",
    "cache_write_tokens": "cache_write",
    "cache_creation_tokens": "cache_write",
    "cache_creation_input_tokens": "cache_write",
    "ephemeral_5m_input_tokens": TTL_SPLIT,
    "ephemeral_1h_input_tokens": TTL_SPLIT,
    "audio": "audio_input",
    "audio_tokens": "audio_input",
    "text": "text_input",
    "text_tokens": "text_input",
    "image": "image_input",
    "image_tokens": "image_input",
    "video": "video_input",
    "video_tokens": "video_input",
    "audio_cache_read": "audio_cache_read",
    "cache_read_audio": "audio_cache_read",
    "text_cache_read": "text_cache_read",
    "cache_read_text": "text_cache_read",
    "image_cache_read": "image_cache_read",
    "cache_read_image": "image_cache_read",
}
"""Keys of nested input details -> the bounded set; an unknown key is `OTHER_INPUT`."""
OUTPUT_DETAILS: Final[dict[str, str]] = {
    "reasoning": "reasoning",
    "reasoning_tokens": "reasoning",
    "priority_reasoning": "reasoning",
    "flex_reasoning": "reasoning",
    "audio": "audio_output",
    "audio_tokens": "audio_output",
    "text": "text_output",
    "text_tokens": "text_output",
    "image": "image_output",
    "image_tokens": "image_output",
    "video": "video_output",
    "video_tokens": "video_output",
}
"""Keys of nested output details -> the bounded set; an unknown key is `OTHER_OUTPUT`."""
OTHER_INPUT: Final = "other_input"
"""Input details nobody has named yet, and tool-use prompts."""
OTHER_OUTPUT: Final = "other_output"
"""Output details nobody has named yet, such as rejected predictions."""

DETAIL_KEYS: Final[tuple[str, ...]] = tuple(
    sorted(
        {*INPUT_DETAILS.values(), *OUTPUT_DETAILS.values(), OTHER_INPUT, OTHER_OUTPUT} - {TTL_SPLIT}
    )
)
"""Every key `Usage.details` can have; a bounded set, so it may become a metric label."""


class Dialect(NamedTuple):
    """How one family of providers spells its usage."""

    input: tuple[str, ...]
    """Names of the input count; the first present one is read."""
    output: tuple[str, ...]
    total: str
    input_details: tuple[str, ...] = ()
    """Names of nested mappings whose keys are in `INPUT_DETAILS`."""
    output_details: tuple[str, ...] = ()
    flat: Mapping[str, str] = {}
    """Details that stand beside the totals: field -> detail key."""
    beside_input: tuple[str, ...] = ()
    """Details the provider leaves *out* of its input count; added, so that input is a total."""
    beside_output: tuple[str, ...] = ()
    only_with: tuple[str, ...] = ()
    """The dialect applies only when one of these fields is there; empty: always."""


LANGCHAIN: Final = Dialect(
    input=("input_tokens",),
    output=("output_tokens",),
    total="total_tokens",
    input_details=("input_token_details",),
    output_details=("output_token_details",),
)
"""`AIMessage.usage_metadata`: input is already the sum of all kinds, nothing is ever added."""

DIALECTS: Final[tuple[Dialect, ...]] = (
    # Anthropic Messages API: input_tokens excludes what the cache read or wrote.
    Dialect(
        input=("input_tokens",),
        output=("output_tokens",),
        total="total_tokens",
        input_details=("cache_creation",),
        flat={
            "cache_read_input_tokens": "cache_read",
            "cache_creation_input_tokens": "cache_write",
        },
        beside_input=("cache_read", "cache_write"),
        only_with=("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation"),
    ),
    # OpenAI Responses API, LangChain's own shape, DashScope, Cohere: input is the total.
    Dialect(
        input=("input_tokens",),
        output=("output_tokens",),
        total="total_tokens",
        input_details=("input_tokens_details", "input_token_details"),
        output_details=("output_tokens_details", "output_token_details"),
    ),
    # OpenAI Chat Completions and everything compatible: Azure, Mistral, Groq, vLLM, LiteLLM
    # (flat cache_*), DeepSeek (prompt_cache_hit_tokens), Moonshot (cached_tokens).
    Dialect(
        input=("prompt_tokens",),
        output=("completion_tokens",),
        total="total_tokens",
        input_details=("prompt_tokens_details",),
        output_details=("completion_tokens_details",),
        flat={
            "prompt_cache_hit_tokens": "cache_read",
            "cached_tokens": "cache_read",
            "cache_read_input_tokens": "cache_read",
            "cache_creation_input_tokens": "cache_write",
            "cache_write_input_tokens": "cache_write",
            "reasoning_tokens": "reasoning",
        },
    ),
    # Gemini: thoughts and tool-use prompts stand beside the other counts, the cache inside.
    Dialect(
        input=("prompt_token_count",),
        output=("candidates_token_count", "generation_token_count"),
        total="total_token_count",
        flat={
            "cached_content_token_count": "cache_read",
            "thoughts_token_count": "reasoning",
            "tool_use_prompt_token_count": OTHER_INPUT,
        },
        beside_input=(OTHER_INPUT,),
        beside_output=("reasoning",),
    ),
    Dialect(
        input=("promptTokenCount",),
        output=("candidatesTokenCount",),
        total="totalTokenCount",
        flat={
            "cachedContentTokenCount": "cache_read",
            "thoughtsTokenCount": "reasoning",
            "toolUsePromptTokenCount": OTHER_INPUT,
        },
        beside_input=(OTHER_INPUT,),
        beside_output=("reasoning",),
    ),
    # Bedrock Converse: as Anthropic, inputTokens excludes the cache.
    Dialect(
        input=("inputTokens",),
        output=("outputTokens",),
        total="totalTokens",
        flat={"cacheReadInputTokens": "cache_read", "cacheWriteInputTokens": "cache_write"},
        beside_input=("cache_read", "cache_write"),
    ),
    # Bedrock InvokeModel: the invocation metrics of the last chunk.
    Dialect(
        input=("inputTokenCount",),
        output=("outputTokenCount",),
        total="totalTokenCount",
        flat={
            "cacheReadInputTokenCount": "cache_read",
            "cacheWriteInputTokenCount": "cache_write",
        },
        beside_input=("cache_read", "cache_write"),
    ),
    # Ollama, in response_metadata or generation_info itself.
    Dialect(input=("prompt_eval_count",), output=("eval_count",), total=""),
    # watsonx.ai
    Dialect(input=("input_token_count",), output=("generated_token_count",), total=""),
)
"""Raw usage dialects, most specific first; the first one with a count is taken."""

COUNT_FIELDS: Final = frozenset(
    name for dialect in DIALECTS for name in (*dialect.input, *dialect.output, dialect.total)
)
"""A mapping without any of these says nothing about tokens."""

PLACES: Final[tuple[str, ...]] = (
    "token_usage",
    "usage",
    "usage_metadata",
    "usageMetadata",
    "tokenUsage",
    "token_count",
    "amazon-bedrock-invocationMetrics",
)
"""Where usage stands inside llm_output, response_metadata and generation_info, in this order;
after them the mapping itself is read (Ollama, Databricks)."""
