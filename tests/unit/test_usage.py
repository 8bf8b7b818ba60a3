"""Token usage: one row per provider dialect, and whatever else may stand in its place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult

from otel_journal.events import Usage
from otel_journal.usage import MAX_TOKENS, read_usage
from otel_journal.usage_dialects import DETAIL_KEYS


def usage(inputs: int, outputs: int, **details: int) -> Usage:
    """Write an expected usage in one line."""
    return Usage(inputs, outputs, details)


STANDARD = {
    "plain": (
        {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120},
        usage(100, 20),
    ),
    "openai through langchain": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "total_tokens": 120,
            "input_token_details": {"audio": 0, "cache_read": 40},
            "output_token_details": {"audio": 0, "reasoning": 8},
        },
        usage(100, 20, cache_read=40, reasoning=8),
    ),
    "openai priority tier": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "total_tokens": 120,
            "input_token_details": {"priority_cache_read": 40, "priority": 60},
            "output_token_details": {"priority_reasoning": 8, "priority": 12},
        },
        usage(100, 20, cache_read=40, other_input=60, reasoning=8, other_output=12),
    ),
    "anthropic through langchain: the cache is already inside": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "total_tokens": 120,
            "input_token_details": {"cache_read": 40, "cache_creation": 30},
        },
        usage(100, 20, cache_read=40, cache_write=30),
    ),
    "anthropic with the split by time to live: cache_creation zeroed": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "input_token_details": {
                "cache_creation": 0,
                "ephemeral_5m_input_tokens": 20,
                "ephemeral_1h_input_tokens": 10,
            },
        },
        usage(100, 20, cache_write=30),
    ),
    "the split and the sum together count once": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "input_token_details": {
                "cache_creation": 30,
                "ephemeral_5m_input_tokens": 20,
                "ephemeral_1h_input_tokens": 10,
            },
        },
        usage(100, 20, cache_write=30),
    ),
    "all modalities": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "input_token_details": {
                "text": 50,
                "image": 30,
                "audio": 15,
                "video": 5,
                "audio_cache_read": 7,
            },
            "output_token_details": {"text": 12, "image": 6, "audio": 2},
        },
        usage(
            100,
            20,
            text_input=50,
            image_input=30,
            audio_input=15,
            video_input=5,
            audio_cache_read=7,
            text_output=12,
            image_output=6,
            audio_output=2,
        ),
    ),
    "unknown details add up in one bounded key": (
        {
            "input_tokens": 9,
            "output_tokens": 5,
            "input_token_details": {"lunar": 2, "solar": 3, 7: 1},
            "output_token_details": {"predicted": 1},
        },
        usage(9, 5, other_input=6, other_output=1),
    ),
    "two spellings of one detail are one count": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "input_token_details": {"cache_read": 40, "cache_read_tokens": 30},
            "output_token_details": {"reasoning": 3, "reasoning_tokens": 8},
        },
        usage(100, 20, cache_read=40, reasoning=8),
    ),
    "only input is known": ({"input_tokens": 7}, usage(7, 0)),
    "total alone is input": ({"total_tokens": 30}, usage(30, 0)),
    "total beside zeros is input": (
        {"input_tokens": 0, "output_tokens": 0, "total_tokens": 30},
        usage(30, 0),
    ),
    "total fills a missing input": ({"output_tokens": 10, "total_tokens": 30}, usage(20, 10)),
    "total fills a missing output": ({"input_tokens": 10, "total_tokens": 30}, usage(10, 20)),
    "a total that disagrees changes nothing": (
        {"input_tokens": 10, "output_tokens": 5, "total_tokens": 999},
        usage(10, 5),
    ),
    "zero is not missing": (
        {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0},
        usage(0, 0),
    ),
}

OPENAI_CHAT = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 40, "audio_tokens": 3},
    "completion_tokens_details": {
        "reasoning_tokens": 8,
        "audio_tokens": 2,
        "accepted_prediction_tokens": 1,
        "rejected_prediction_tokens": 4,
    },
}
RAW = {
    "openai chat completions": (
        OPENAI_CHAT,
        usage(
            100,
            20,
            cache_read=40,
            audio_input=3,
            reasoning=8,
            audio_output=2,
            other_output=5,
        ),
    ),
    "openai responses": (
        {
            "input_tokens": 100,
            "output_tokens": 20,
            "total_tokens": 120,
            "input_tokens_details": {"cached_tokens": 40},
            "output_tokens_details": {"reasoning_tokens": 8},
        },
        usage(100, 20, cache_read=40, reasoning=8),
    ),
    "anthropic: the cache stands beside the input": (
        {
            "input_tokens": 30,
            "output_tokens": 20,
            "cache_read_input_tokens": 40,
            "cache_creation_input_tokens": 30,
            "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 10},
            "service_tier": "standard",
        },
        usage(100, 20, cache_read=40, cache_write=30),
    ),
    "anthropic without cache": (
        {"input_tokens": 30, "output_tokens": 20, "cache_read_input_tokens": None},
        usage(30, 20),
    ),
    "gemini": (
        {
            "prompt_token_count": 100,
            "candidates_token_count": 20,
            "thoughts_token_count": 8,
            "cached_content_token_count": 40,
            "tool_use_prompt_token_count": 5,
            "total_token_count": 133,
        },
        usage(105, 28, cache_read=40, reasoning=8, other_input=5),
    ),
    "gemini in camel case": (
        {
            "promptTokenCount": 100,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 8,
            "cachedContentTokenCount": 40,
            "totalTokenCount": 128,
        },
        usage(100, 28, cache_read=40, reasoning=8),
    ),
    "bedrock converse: the cache stands beside the input": (
        {
            "inputTokens": 30,
            "outputTokens": 20,
            "totalTokens": 120,
            "cacheReadInputTokens": 40,
            "cacheWriteInputTokens": 30,
        },
        usage(100, 20, cache_read=40, cache_write=30),
    ),
    "bedrock invocation metrics": (
        {"inputTokenCount": 30, "outputTokenCount": 20, "invocationLatency": 900},
        usage(30, 20),
    ),
    "mistral": (
        {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        usage(100, 20),
    ),
    "deepseek": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "prompt_cache_hit_tokens": 40,
            "prompt_cache_miss_tokens": 60,
        },
        usage(100, 20, cache_read=40),
    ),
    "litellm repeats the cache flat and nested": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "cache_read_input_tokens": 40,
            "cache_creation_input_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 40},
        },
        usage(100, 20, cache_read=40, cache_write=30),
    ),
    "ollama": ({"prompt_eval_count": 100, "eval_count": 20, "eval_duration": 5}, usage(100, 20)),
    "watsonx": ({"input_token_count": 100, "generated_token_count": 20}, usage(100, 20)),
    "llama on bedrock": (
        {"prompt_token_count": 100, "generation_token_count": 20},
        usage(100, 20),
    ),
}


class TestDialects:
    """Exact numbers of every known shape."""

    @pytest.mark.parametrize(("metadata", "expected"), STANDARD.values(), ids=STANDARD.keys())
    def test_usage_metadata(self, metadata: dict[str, Any], expected: Usage) -> None:
        """LangChain's own usage_metadata is read as it stands."""
        assert read_usage(metadata).usage == expected

    @pytest.mark.parametrize(("raw", "expected"), RAW.values(), ids=RAW.keys())
    def test_raw_usage(self, raw: dict[str, Any], expected: Usage) -> None:
        """Raw provider usage means the same wherever LangChain leaves it."""
        assert read_usage(None, {"token_usage": raw}).usage == expected
        assert read_usage(None, {"usage": raw, "model": "m"}).usage == expected
        assert read_usage(None, None, {"token_usage": raw}).usage == expected
        assert read_usage(None, None, {"model": "m", **raw}).usage == expected
        assert read_usage(None, None, None, {"usage_metadata": raw}).usage == expected
        assert read_usage(None, None, None, raw).usage == expected

    def test_details_are_bounded(self) -> None:
        """Every detail key any row gives is in the published, bounded set."""
        for raw, expected in [*STANDARD.values(), *RAW.values()]:
            assert set(expected.details) <= set(DETAIL_KEYS), raw

    def test_total_only_in_raw_usage(self) -> None:
        """A raw total without a split is input."""
        assert read_usage(None, {"token_usage": {"total_tokens": 30}}).usage == usage(30, 0)


class TestPrecedence:
    """Which place wins."""

    def test_usage_metadata_first(self) -> None:
        """usage_metadata wins over llm_output, which some providers fill with the last chunk."""
        found = read_usage(
            {"input_tokens": 400, "output_tokens": 58},
            {"token_usage": {"prompt_tokens": 1, "completion_tokens": 2}},
        )
        assert found.usage == usage(400, 58)

    def test_llm_output_before_response_metadata(self) -> None:
        """llm_output wins over response_metadata, that over generation_info."""
        first, second, third = (
            {"usage": {"prompt_tokens": n, "completion_tokens": 1}} for n in (1, 2, 3)
        )
        assert read_usage(None, first, second, third).usage == usage(1, 1)
        assert read_usage(None, None, second, third).usage == usage(2, 1)
        assert read_usage(None, {"model_name": "m"}, {"id": "x"}, third).usage == usage(3, 1)

    def test_positive_before_zero(self) -> None:
        """Zeros, which integrations write when they do not know, do not hide real counts."""
        found = read_usage({"input_tokens": 0, "output_tokens": 0}, {"usage": OPENAI_CHAT})
        assert found.usage is not None
        assert found.usage.input_tokens == 100

    def test_zero_somewhere_is_zero(self) -> None:
        """Zeros in the only place that reports are zero, not missing."""
        assert read_usage(None, None, {"usage": {"prompt_tokens": 0}}).usage == usage(0, 0)


class TestMissing:
    """Absent is not zero."""

    @pytest.mark.parametrize(
        "metadata",
        [None, {}, {"input_tokens": None}, {"cost": 3}, [], "12", 12, {"input_tokens": []}],
    )
    def test_nothing_recognised(self, metadata: object) -> None:
        """Without a recognised number there is no usage."""
        assert read_usage(metadata, metadata, metadata, metadata).usage is None
        assert read_usage({"input_token_details": metadata}).usage is None

    def test_flattened_results(self) -> None:
        """LLMResult.flatten() leaves usage on the first prompt; the others are not missing."""
        result = LLMResult(
            generations=[[Generation(text="a")], [Generation(text="b")]],
            llm_output={"token_usage": {"prompt_tokens": 10, "completion_tokens": 4}},
        )
        first, second = result.flatten()
        assert read_usage(None, first.llm_output).usage == usage(10, 4)
        assert read_usage(None, second.llm_output).usage == usage(0, 0)

    def test_flattened_result_with_usage_of_its_own(self) -> None:
        """A prompt whose own generation reports usage keeps it."""
        found = read_usage(None, {"token_usage": {}}, None, {"prompt_eval_count": 3})
        assert found.usage == usage(3, 0)

    def test_several_generations_share_one_usage(self) -> None:
        """With n > 1 the generations repeat one usage, and any of them gives it."""
        metadata = {"input_tokens": 100, "output_tokens": 60, "total_tokens": 160}
        result = ChatResult(
            generations=[
                ChatGeneration(message=AIMessage("a", usage_metadata=metadata)),
                ChatGeneration(message=AIMessage("b", usage_metadata=metadata)),
            ]
        )
        read = {str(read_usage(g.message.usage_metadata)) for g in result.generations}
        assert len(read) == 1
        assert read_usage(result.generations[0].message.usage_metadata).usage == usage(100, 60)


def _explode(*_: object) -> Any:
    msg = "do not touch"
    raise RuntimeError(msg)


class Exploding:
    """An object whose every method raises, reading an attribute included."""

    __getattribute__ = __eq__ = __bool__ = __int__ = __float__ = __index__ = _explode
    __hash__ = object.__hash__


class RaisingMapping(Mapping[str, object]):
    """A mapping that cannot be read."""

    __getitem__ = __iter__ = __len__ = _explode


class RaisingDict(dict[str, object]):
    """A dict whose own methods raise."""

    get = __getitem__ = __iter__ = items = _explode


class TestValues:
    """What counts as a number."""

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (12, 12),
            (12.9, 12),
            ("12", 12),
            (" 12 ", 12),
            ("12.0", 12),
            (-5, 0),
            ("-5", 0),
            (MAX_TOKENS, MAX_TOKENS),
        ],
    )
    def test_coerced(self, value: object, expected: int) -> None:
        """Integers, floats and numeric text are counts; negative ones are 0."""
        assert read_usage({"input_tokens": value, "output_tokens": 1}).usage == usage(expected, 1)

    @pytest.mark.parametrize(
        "value",
        [
            math.nan,
            math.inf,
            -math.inf,
            "nan",
            "inf",
            "many",
            "",
            "9" * 10_000,
            "0" * 30 + "5",
            10**400,
            MAX_TOKENS + 1,
            True,
            None,
            [12],
            {"tokens": 12},
            b"12",
            12j,
        ],
    )
    def test_garbage_is_ignored(self, value: object) -> None:
        """Anything else is ignored, in counts, in totals and in details."""
        assert read_usage({"input_tokens": value, "output_tokens": 1}).usage == usage(0, 1)
        assert read_usage({"input_tokens": value, "total_tokens": value}).usage is None
        details = {"cache_read": value, "audio": 2}
        found = read_usage({"input_tokens": 9, "output_tokens": 1, "input_token_details": details})
        assert found.usage == usage(9, 1, audio_input=2)
        assert read_usage(None, {"token_usage": {"prompt_tokens": value}}).usage is None

    @pytest.mark.parametrize("kind", [Exploding, RaisingMapping, RaisingDict, object])
    def test_objects_that_raise(self, kind: type) -> None:
        """Objects whose methods raise are nothing, wherever they stand."""
        value = kind()
        assert read_usage(value, value, value, value).usage is None
        inside = {"token_usage": value, "total_cost": value, "input_token_details": value}
        assert read_usage(inside, inside, inside, inside).usage is None
        details = {"cache_read": value}
        assert read_usage({"input_tokens": value, "input_token_details": details}).usage is None
        metadata = {"input_tokens": 1, "output_tokens": 2, "input_token_details": value}
        assert read_usage(metadata).usage == usage(1, 2)

    def test_dict_subclass_is_read_without_its_methods(self) -> None:
        """A dict subclass counts by what it holds."""
        assert read_usage(RaisingDict(input_tokens=3, output_tokens=4)).usage == usage(3, 4)

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text()
            | st.binary()
            | st.builds(object),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "token_usage",
                            "usage",
                            "input_tokens",
                            "prompt_tokens",
                            "total_tokens",
                            "total_cost",
                            "input_token_details",
                            "cache_creation",
                            "cache_read_input_tokens",
                            "prompt_tokens_details",
                            "thoughts_token_count",
                        ]
                    )
                    | st.text(max_size=3)
                    | st.integers(),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=12,
        ),
    )
    def test_junk_never_raises(self, junk: object) -> None:
        """Arbitrary nested junk gives a usage of sane counts, or none."""
        for reading in (read_usage(junk), read_usage(None, junk, junk, junk)):
            if reading.usage is not None:
                counts = [
                    reading.usage.input_tokens,
                    reading.usage.output_tokens,
                    *reading.usage.details.values(),
                ]
                assert all(type(count) is int and 0 <= count < 2**53 for count in counts)
                assert all(count > 0 for count in reading.usage.details.values())
                assert set(reading.usage.details) <= set(DETAIL_KEYS)

    def test_source_is_not_kept(self) -> None:
        """Changing the provider's object afterwards does not change the usage."""
        details = {"cache_read": 40}
        metadata = {"input_tokens": 9, "output_tokens": 1, "input_token_details": details}
        found = read_usage(metadata).usage
        details["cache_read"] = 99
        metadata["input_tokens"] = 99
        assert found == usage(9, 1, cache_read=40)


class CountingModel(BaseChatModel):
    """A chat model that reports the same usage at every real call."""

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        metadata = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
        message = AIMessage(f"echo {messages[-1].content}", usage_metadata=metadata)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Readings(BaseCallbackHandler):
    """Reads the usage of every response, as the capture does."""

    def __init__(self, found: list[tuple[Usage | None, bool]]) -> None:
        """Append to `found`."""
        self.found = found

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        """Read one response."""
        message = response.generations[0][0].message
        reading = read_usage(message.usage_metadata, response.llm_output)
        self.found.append((reading.usage, reading.cached))


class TestCache:
    """LangChain's LLM cache."""

    def test_hit_is_not_billed(self) -> None:
        """The second, cached call has no usage and is marked."""
        model = CountingModel(cache=InMemoryCache())
        found: list[tuple[Usage | None, bool]] = []
        for _ in range(2):
            model.invoke("hi", config={"callbacks": [Readings(found)]})
        assert found == [(usage(100, 20), False), (None, True)]

    @pytest.mark.parametrize(
        ("cost", "cached"), [(0, True), (0.0, True), (0.02, False), (False, False), ("0", False)]
    )
    def test_only_a_cost_of_exactly_zero(self, cost: object, *, cached: bool) -> None:
        """Only the zero that langchain-core writes is a hit."""
        metadata = {"input_tokens": 1, "output_tokens": 1, "total_cost": cost}
        assert read_usage(metadata).cached is cached
