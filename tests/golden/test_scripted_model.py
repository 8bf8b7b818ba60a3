"""`otel_journal.testing`: the model that all scenarios, the demo and users' tests speak through."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.tools import tool

from otel_journal.testing import CHUNKS_BEFORE_FAILURE, DEFAULT_USAGE, ScriptedModel, ai, tool_call

CALL = tool_call("add", {"x": 1}, "c1")


def _merged(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    return sum(chunks[1:], start=chunks[0])


def test_script_is_spoken_in_order_and_stays_at_its_end() -> None:
    """Messages are answered, exceptions raised, functions called; the last step repeats."""

    def count(messages: list[BaseMessage]) -> object:
        return ai(f"got {len(messages)}")

    model = ScriptedModel(script=[ai("one"), ValueError("two"), count])
    assert model.invoke("q").text == "one"
    with pytest.raises(ValueError, match="two"):
        model.invoke("q")
    assert [model.invoke("q").text for _ in range(2)] == ["got 1", "got 1"]


def test_every_step_is_taken_once_by_concurrent_calls() -> None:
    """No two threads get the same step."""
    model = ScriptedModel(script=[ai(str(n)) for n in range(50)])
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: model.invoke("q").text, range(50)))
    assert sorted(answers, key=int) == [str(n) for n in range(50)]


def test_script_is_not_changed_by_its_reader() -> None:
    """An answer is a deep copy: LangChain writes ids into it, agents edit its tool calls."""
    message = ai("", CALL)
    answer = ScriptedModel(script=[message]).invoke("q")
    answer.tool_calls.clear()
    assert (answer.id is None, message.id, message.tool_calls) == (False, None, [CALL])


@pytest.mark.parametrize("way", ["sync", "async"])
def test_streamed_answer_equals_the_whole_one(way: str) -> None:
    """Chunks add up to text, tool calls, metadata and usage; only the last, empty one has usage."""
    model = ScriptedModel(script=[ai("one two three", CALL)])
    whole = model.invoke("q")

    async def collect() -> list[AIMessageChunk]:
        return [chunk async for chunk in model.astream("q")]

    chunks = list(model.stream("q")) if way == "sync" else asyncio.run(collect())
    assert [chunk.text for chunk in chunks] == ["one ", "two ", "three", ""]
    assert [bool(chunk.usage_metadata) for chunk in chunks] == [False, False, False, True]
    merged = _merged(chunks)
    assert merged.text == whole.text
    assert merged.tool_calls == whole.tool_calls == [CALL]
    assert merged.usage_metadata == whole.usage_metadata == DEFAULT_USAGE
    assert merged.response_metadata == whole.response_metadata


def test_async_answer_equals_the_sync_one() -> None:
    """`ainvoke` takes the next step like `invoke`."""
    model = ScriptedModel(script=[ai("one"), ai("two")])
    assert (model.invoke("q").text, asyncio.run(model.ainvoke("q")).text) == ("one", "two")


def test_usage_is_the_answers_own_or_the_models_or_none() -> None:
    """A message's usage wins over the model's; None leaves an answer without."""
    own = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    speaking = ScriptedModel(script=[ai("a", usage=own), ai("b")], usage=None)
    assert [speaking.invoke("q").usage_metadata for _ in range(2)] == [own, None]


def test_stream_is_cut_after_a_partial_answer() -> None:
    """`fail_midstream` is raised in place of the rest of the chunks."""
    model = ScriptedModel(script=[ai("a b c d")], fail_midstream=ConnectionError("cut"))
    stream = model.stream("q")
    assert [next(stream).text for _ in range(CHUNKS_BEFORE_FAILURE)] == ["a ", "b "]
    with pytest.raises(ConnectionError, match="cut"):
        next(stream)


def test_finish_reason_tells_tool_calls_from_text() -> None:
    """Response metadata has the model's name and why it stopped, as providers report it."""
    model = ScriptedModel(script=[ai("", CALL), ai("done")], model_name="gpt-4o")
    found = [model.invoke("q").response_metadata for _ in range(2)]
    assert found == [
        {"model_name": "gpt-4o", "finish_reason": "tool_calls"},
        {"model_name": "gpt-4o", "finish_reason": "stop"},
    ]


def test_tools_and_provider_reach_callbacks_as_from_a_real_model() -> None:
    """Bound tools are sent in the provider's format; provider and model type are LangChain's."""

    @tool
    def add(x: int) -> int:
        """Add."""
        return x

    model = ScriptedModel(script=[ai("x")], provider="openai", model_name="gpt-4o")
    bound = model.bind_tools([add], tool_choice="any")
    assert bound.kwargs["tools"][0]["function"]["name"] == "add"
    assert bound.kwargs["tool_choice"] == "any"
    assert model._llm_type == "openai-chat"
    parameters = model._get_ls_params()
    assert (parameters["ls_provider"], parameters["ls_model_name"]) == ("openai", "gpt-4o")
