"""LangChain messages as semantic-convention JSON, as feed rows and as text."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.tools import tool

from otel_journal import messages
from otel_journal.content_blocks import MAX_BLOCKS
from otel_journal.payload import encode

PNG = "iVBORw0KGgo="
MODALITIES = {"image", "video", "audio", "document"}

PART_SHAPES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    # type: (required, optional), a type or the allowed values
    "text": ({"content": str}, {}),
    "reasoning": ({"content": str}, {}),
    "tool_call": ({"name": str}, {"id": str, "arguments": object}),
    "tool_call_response": ({"response": object}, {"id": str}),
    "blob": ({"modality": MODALITIES, "content": str}, {"mime_type": str}),
    "uri": ({"modality": MODALITIES, "uri": str}, {"mime_type": str}),
    "file": ({"modality": MODALITIES, "file_id": str}, {"mime_type": str}),
}
"""The JSON schemas of gen-ai-input-messages.json, as far as they say something."""


def check(converted: list[dict[str, Any]], *, finish_reason: bool = False) -> None:
    """Validate messages against the schema; optional texts are absent, never null or empty."""
    for message in converted:
        keys = {"role", "parts"} | ({"finish_reason"} if finish_reason else set())
        assert keys <= set(message) <= keys | {"name"}
        assert isinstance(message["role"], str)
        assert message["role"]
        for part in message["parts"]:
            required, optional = PART_SHAPES[part["type"]]
            assert set(required) <= set(part) - {"type"} <= set(required) | set(optional)
            for key, shape in {**required, **optional}.items():
                if key not in part:
                    continue
                if isinstance(shape, set):
                    assert part[key] in shape
                else:
                    assert isinstance(part[key], shape)
                    assert part[key] or shape is object


def parts(message: object) -> list[dict[str, Any]]:
    """Convert one message, check the shape, return its parts."""
    converted = messages.input_messages([message])
    check(converted)
    (single,) = converted
    return single["parts"]


def text(content: str) -> dict[str, str]:
    """Write a text part in one line."""
    return {"type": "text", "content": content}


class TestRoles:
    """Who said it."""

    @pytest.mark.parametrize(
        ("message", "role"),
        [
            (HumanMessage("x"), "user"),
            (HumanMessageChunk(content="x"), "user"),
            (AIMessage("x"), "assistant"),
            (AIMessageChunk(content="x"), "assistant"),
            (SystemMessage("x"), "system"),
            (ToolMessage("x", tool_call_id="1"), "tool"),
            (FunctionMessage("x", name="f"), "tool"),
            (ChatMessage("x", role="moderator"), "moderator"),
            (ChatMessage("x", role="human"), "user"),
            (RemoveMessage(id="1"), "remove"),
            ({"role": "user", "content": "x"}, "user"),
            ({"type": "ai", "content": "x"}, "assistant"),
            ({"role": "developer", "content": "x"}, "developer"),
        ],
    )
    def test_role(self, message: object, role: str) -> None:
        """LangChain's types become semantic-convention roles; roles of their own stay."""
        (converted,) = messages.input_messages([message])
        assert converted["role"] == role

    def test_name_is_kept(self) -> None:
        """A name is kept, no name is absent."""
        named, unnamed = messages.input_messages([HumanMessage("x", name="Ann"), HumanMessage("x")])
        assert named == {"role": "user", "parts": [text("x")], "name": "Ann"}
        assert unnamed == {"role": "user", "parts": [text("x")]}

    def test_predicates(self) -> None:
        """Human and tool messages are recognised, mappings and chunks too."""
        human = [HumanMessage("x"), HumanMessageChunk(content="x"), {"role": "user"}]
        tools = [ToolMessage("x", tool_call_id="1"), {"type": "tool"}, {"role": "tool"}]
        others = [AIMessage("x"), SystemMessage("x"), object(), None, "human", {}]
        assert [messages.is_human(m) for m in human + tools + others] == [True] * 3 + [False] * 9
        assert [messages.is_tool_message(m) for m in tools + human + others] == (
            [True] * 3 + [False] * 9
        )

    def test_message_id(self) -> None:
        """The id is the message's, or None."""
        assert messages.message_id(AIMessage("x", id="m1")) == "m1"
        assert messages.message_id({"id": "m2"}) == "m2"
        assert [messages.message_id(m) for m in (AIMessage("x"), {"id": 3}, None, 3)] == [None] * 4


BLOCKS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "text": ({"type": "text", "text": "a"}, [text("a")]),
    "bare text": ("a", [text("a")]),
    "empty text": ({"type": "text", "text": ""}, []),
    "openai responses text": ({"type": "output_text", "text": "a"}, [text("a")]),
    "openai refusal": ({"type": "refusal", "refusal": "no"}, [text("no")]),
    "bedrock text without type": ({"text": "a"}, [text("a")]),
    "openai image url": (
        {"type": "image_url", "image_url": {"url": "https://x/a.png", "detail": "low"}},
        [{"type": "uri", "modality": "image", "uri": "https://x/a.png"}],
    ),
    "openai image as data url": (
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG}],
    ),
    "image url as text": (
        {"type": "image_url", "image_url": f"data:image/png;base64,{PNG}"},
        [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG}],
    ),
    "openai responses image": (
        {"type": "input_image", "file_id": "file-1"},
        [{"type": "file", "modality": "image", "file_id": "file-1"}],
    ),
    "data url that is not base64": (
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg"}},
        [],
    ),
    "openai audio": (
        {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
        [{"type": "blob", "modality": "audio", "mime_type": "audio/wav", "content": "UklG"}],
    ),
    "openai file id": (
        {"type": "file", "file": {"file_id": "file-1"}},
        [{"type": "file", "modality": "document", "file_id": "file-1"}],
    ),
    "openai file data": (
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"},
        },
        [
            {
                "type": "blob",
                "modality": "document",
                "mime_type": "application/pdf",
                "content": "JVBE",
            }
        ],
    ),
    "openai file data that is an image": (
        {"type": "input_file", "file_data": f"data:image/png;base64,{PNG}"},
        [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG}],
    ),
    "anthropic image": (
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PNG},
        },
        [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG}],
    ),
    "anthropic image url": (
        {"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
        [{"type": "uri", "modality": "image", "uri": "https://x/a.png"}],
    ),
    "anthropic document": (
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
        },
        [
            {
                "type": "blob",
                "modality": "document",
                "mime_type": "application/pdf",
                "content": "JVBE",
            }
        ],
    ),
    "anthropic document as text": (
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "plain"},
        },
        [text("plain")],
    ),
    "anthropic document file": (
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
        [{"type": "file", "modality": "document", "file_id": "file-1"}],
    ),
    "anthropic thinking": (
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        [{"type": "reasoning", "content": "hm"}],
    ),
    "anthropic redacted thinking": ({"type": "redacted_thinking", "data": "x"}, []),
    "anthropic tool result": (
        {"type": "tool_result", "tool_use_id": "1", "content": "42"},
        [{"type": "tool_call_response", "response": "42", "id": "1"}],
    ),
    "openai reasoning summary": (
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        [{"type": "reasoning", "content": "hm"}],
    ),
    "bedrock reasoning": (
        {"type": "reasoning_content", "reasoning_content": {"text": "hm", "signature": "s"}},
        [{"type": "reasoning", "content": "hm"}],
    ),
    "standard reasoning": (
        {"type": "reasoning", "reasoning": "hm"},
        [{"type": "reasoning", "content": "hm"}],
    ),
    "standard image": (
        {"type": "image", "base64": PNG, "mime_type": "image/png"},
        [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG}],
    ),
    "standard video url": (
        {"type": "video", "url": "https://x/a.mp4"},
        [{"type": "uri", "modality": "video", "uri": "https://x/a.mp4"}],
    ),
    "standard audio file": (
        {"type": "audio", "file_id": "file-1", "mime_type": "audio/mpeg"},
        [
            {
                "type": "file",
                "modality": "audio",
                "mime_type": "audio/mpeg",
                "file_id": "file-1",
            }
        ],
    ),
    "standard file": (
        {"type": "file", "base64": "JVBE", "mime_type": "application/pdf"},
        [
            {
                "type": "blob",
                "modality": "document",
                "mime_type": "application/pdf",
                "content": "JVBE",
            }
        ],
    ),
    "standard plain text": (
        {"type": "text-plain", "text": "a", "mime_type": "text/plain"},
        [text("a")],
    ),
    "old standard image": (
        {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
        [{"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG}],
    ),
    "old standard id": (
        {"type": "file", "source_type": "id", "id": "file-1"},
        [{"type": "file", "modality": "document", "file_id": "file-1"}],
    ),
    "gemini media": (
        {"type": "media", "mime_type": "video/mp4", "file_uri": "gs://b/a.mp4"},
        [
            {
                "type": "uri",
                "modality": "video",
                "mime_type": "video/mp4",
                "uri": "gs://b/a.mp4",
            }
        ],
    ),
    "wrapped": ({"type": "non_standard", "value": {"type": "thinking", "thinking": "hm"}}, [
        {"type": "reasoning", "content": "hm"}
    ]),
    "unknown": ({"type": "server_tool_use", "name": "web", "input": {}}, []),
    "cache point": ({"cachePoint": {"type": "default"}}, []),
    "image bytes": ({"type": "image", "image": {"format": "png", "source": {"bytes": b"x"}}}, []),
}  # fmt: skip


class TestParts:
    """What was said."""

    @pytest.mark.parametrize(("block", "expected"), BLOCKS.values(), ids=BLOCKS.keys())
    def test_block(self, block: Any, expected: list[dict[str, Any]]) -> None:
        """A block of any provider becomes the part of its meaning, or nothing."""
        assert parts(HumanMessage([block])) == expected
        assert parts(HumanMessage(["before", block, "after"])) == [
            text("before"),
            *expected,
            text("after"),
        ]

    def test_tool_calls(self) -> None:
        """Tool calls are parts after the content, with parsed arguments."""
        message = AIMessage(
            "let me see",
            tool_calls=[
                {"name": "add", "args": {"a": 1}, "id": "call_1"},
                {"name": "now", "args": {}, "id": None},
            ],
            invalid_tool_calls=[{"name": "sub", "args": "{broken", "id": "call_2", "error": "x"}],
        )
        assert parts(message) == [
            text("let me see"),
            {"type": "tool_call", "name": "add", "arguments": {"a": 1}, "id": "call_1"},
            {"type": "tool_call", "name": "now", "arguments": {}},
            {"type": "tool_call", "name": "sub", "arguments": "{broken", "id": "call_2"},
        ]

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
            {"type": "tool_call", "id": "t1", "name": "add", "args": {"a": 1}},
            {
                "type": "function_call",
                "call_id": "t1",
                "id": "fc",
                "name": "add",
                "arguments": "{}",
            },
        ],
    )
    def test_tool_call_blocks_are_not_repeated(self, block: dict[str, Any]) -> None:
        """A call that stands in the content and in tool_calls is one part."""
        calls = [{"name": "add", "args": {"a": 1}, "id": "t1"}]
        message = AIMessage([{"type": "text", "text": "a"}, block], tool_calls=calls)
        call = {"type": "tool_call", "name": "add", "arguments": {"a": 1}, "id": "t1"}
        assert parts(message) == [text("a"), call]

    @pytest.mark.parametrize(
        "block",
        [
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
            {"type": "function_call", "call_id": "t1", "id": "fc", "name": "add"}
            | {"arguments": {"a": 1}},
        ],
    )
    def test_tool_call_blocks_alone(self, block: dict[str, Any]) -> None:
        """A call that stands only in the content is a part, under the id its result refers to."""
        call = {"type": "tool_call", "name": "add", "arguments": {"a": 1}, "id": "t1"}
        assert parts({"role": "assistant", "content": [block]}) == [call]

    def test_openai_mappings(self) -> None:
        """Messages and tool calls in OpenAI's own form are read."""
        function = {"name": "add", "arguments": '{"a": 1}'}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"type": "function", "id": "t1", "function": function}],
        }
        assert parts(message) == [
            {"type": "tool_call", "name": "add", "arguments": '{"a": 1}', "id": "t1"}
        ]

    def test_legacy_function_call(self) -> None:
        """The form before tool calls is read when there are none."""
        kwargs = {"function_call": {"name": "add", "arguments": "{}"}}
        assert parts(AIMessage("", additional_kwargs=kwargs)) == [
            {"type": "tool_call", "name": "add", "arguments": "{}"}
        ]

    def test_reasoning_beside_the_content(self) -> None:
        """Reasoning that DeepSeek and others put beside the content comes first."""
        message = AIMessage("4", additional_kwargs={"reasoning_content": "2+2"})
        assert parts(message) == [{"type": "reasoning", "content": "2+2"}, text("4")]

    @pytest.mark.parametrize("content", ["42", "", [{"type": "text", "text": "42"}]])
    def test_tool_result(self, content: Any) -> None:
        """A tool message is one response with the content as it is."""
        message = ToolMessage(content, tool_call_id="call_1", name="add")
        assert messages.input_messages([message]) == [
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "response": content, "id": "call_1"}],
                "name": "add",
            }
        ]

    def test_nothing_is_changed(self) -> None:
        """Converting and dumping leaves the messages as they were."""
        calls = [{"name": "add", "args": {"a": 1}, "id": "t1"}]
        blocks = [block for block, _ in BLOCKS.values()]
        before = [AIMessage(blocks, tool_calls=calls), HumanMessage("x")]
        after = copy.deepcopy(before)
        messages.input_messages(after)
        messages.output_messages([ChatGeneration(message=after[0])])
        for message in after:
            messages.dump(message)
        assert after == before


class TestOutput:
    """What the model answered."""

    def test_chat_generations(self) -> None:
        """Every generation is one assistant message, without a finish reason by default."""
        generations = [ChatGeneration(message=AIMessage(t)) for t in ("a", "b")]
        converted = messages.output_messages(generations)
        check(converted)
        assert converted == [
            {"role": "assistant", "parts": [text("a")]},
            {"role": "assistant", "parts": [text("b")]},
        ]

    def test_completion(self) -> None:
        """A generation without a message is its text."""
        assert messages.output_messages([Generation(text="a")]) == [
            {"role": "assistant", "parts": [text("a")]}
        ]

    def test_finish_reasons(self) -> None:
        """Given finish reasons stand on the messages, in order."""
        generations = [Generation(text="a"), ChatGeneration(message=AIMessage("b"))]
        converted = messages.output_messages(generations, finish_reasons=["stop", "length"])
        check(converted, finish_reason=True)
        assert [message["finish_reason"] for message in converted] == ["stop", "length"]
        (_, second) = messages.output_messages(generations, finish_reasons=["stop"])
        assert "finish_reason" not in second

    @pytest.mark.parametrize(
        ("info", "metadata", "expected"),
        [
            ({"finish_reason": "stop", "done_reason": "b"}, {"finish_reason": "c"}, "stop"),
            ({"done_reason": "load"}, {"finish_reason": "c"}, "load"),
            ({}, {"finish_reason": "tool_calls", "stop_reason": "d"}, "tool_calls"),
            (None, {"stopReason": "end_turn", "stop_reason": "d"}, "end_turn"),
            (None, {"stop_reason": "tool_use", "done_reason": "e"}, "tool_use"),
            (None, {"done_reason": "stop"}, "stop"),
            ({"finish_reason": None}, {"finish_reason": ""}, None),
            ({"finish_reason": 1}, {}, None),
            (None, {}, None),
        ],
    )
    def test_finish_reason(
        self, info: dict[str, Any] | None, metadata: dict[str, Any], expected: str | None
    ) -> None:
        """The finish reason is the provider's word, from the first place that has one."""
        message = AIMessage("a", response_metadata=metadata)
        generation = ChatGeneration(message=message, generation_info=info)
        assert messages.finish_reason(generation) == expected

    def test_finish_reason_of_a_completion(self) -> None:
        """A completion has only generation_info."""
        generation = Generation(text="a", generation_info={"finish_reason": "length"})
        assert messages.finish_reason(generation) == "length"
        assert messages.finish_reason(Generation(text="a")) is None


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FULL = {"type": "function", "name": "add", "description": "Add.", "parameters": SCHEMA}


class TestToolDefinitions:
    """What the model was offered."""

    @pytest.mark.parametrize(
        "offered",
        [
            {
                "type": "function",
                "function": {"name": "add", "description": "Add.", "parameters": SCHEMA},
            },
            {"type": "function", "name": "add", "description": "Add.", "parameters": SCHEMA},
            {"name": "add", "description": "Add.", "input_schema": SCHEMA},
            {"type": "custom", "name": "add", "description": "Add.", "input_schema": SCHEMA},
            {
                "toolSpec": {
                    "name": "add",
                    "description": "Add.",
                    "inputSchema": {"json": SCHEMA},
                }
            },
            {
                "function_declarations": [
                    {"name": "add", "description": "Add.", "parameters": SCHEMA}
                ]
            },
        ],
        ids=["openai", "responses", "anthropic", "anthropic custom", "bedrock", "gemini"],
    )
    def test_formats(self, offered: dict[str, Any]) -> None:
        """Every provider's format gives type and name; the rest only on request."""
        assert messages.tool_definitions([offered]) == [{"type": "function", "name": "add"}]
        assert messages.tool_definitions([offered], full=True) == [FULL]

    def test_tool_objects(self) -> None:
        """LangChain's own tools are read as well."""
        assert messages.tool_definitions([add]) == [{"type": "function", "name": "add"}]

    def test_provider_tools(self) -> None:
        """Tools that the provider runs keep their type, which is their name if they have none."""
        assert messages.tool_definitions(
            [{"type": "web_search_20250305", "name": "web"}, {"type": "code_interpreter"}]
        ) == [
            {"type": "web_search_20250305", "name": "web"},
            {"type": "code_interpreter", "name": "code_interpreter"},
        ]

    @pytest.mark.parametrize("tools", [None, [], "add", 3, {"name": "add"}, [None, {}, 3, "x"]])
    def test_nothing_offered(self, tools: object) -> None:
        """What is no list of tools gives none."""
        assert messages.tool_definitions(tools) == []


class TestDump:
    """What the feed keeps."""

    def test_ai_message(self) -> None:
        """A dump has the fields the message has, values as they are."""
        calls = [{"name": "add", "args": {"a": 1}, "id": "t1", "type": "tool_call"}]
        metadata = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        message = AIMessage(
            "a",
            id="m1",
            tool_calls=calls,
            usage_metadata=metadata,
            response_metadata={"model_name": "m"},
            additional_kwargs={"k": 1},
        )
        assert messages.dump(message) == {
            "type": "ai",
            "content": "a",
            "id": "m1",
            "tool_calls": calls,
            "invalid_tool_calls": [],
            "additional_kwargs": {"k": 1},
            "response_metadata": {"model_name": "m"},
            "usage_metadata": metadata,
        }

    def test_tool_message(self) -> None:
        """A tool message has its call id and status, but not the artifact."""
        message = ToolMessage("x", tool_call_id="t1", name="add", status="error", artifact=[1])
        dumped = messages.dump(message)
        assert dumped["tool_call_id"] == "t1"
        assert dumped["status"] == "error"
        assert dumped["name"] == "add"
        assert "artifact" not in dumped

    def test_mapping(self) -> None:
        """A message given as a mapping is dumped alike."""
        assert messages.dump({"type": "human", "content": "x", "z": 1}) == {
            "type": "human",
            "content": "x",
        }


class TestText:
    """What a reader sees first."""

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("text", "text"),
            ("", ""),
            (None, ""),
            (7, ""),
            (["a", {"type": "text", "text": "b"}, {"content": "c"}], "abc"),
            (["a", {"content": [{"text": "b"}, "c"]}, "d"], "abcd"),
            ([{"type": "image", "url": "u"}, 3, None, "a"], "a"),
            ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}], "a"),
            ({"text": "a", "content": "b"}, "a"),
            ({"content": "b"}, "b"),
            ({"content": ["b", "c"]}, "bc"),
            ({}, ""),
            (AIMessage("a"), "a"),
            (AIMessage([{"type": "text", "text": "a"}, "b"]), "ab"),
            (Generation(text="a"), "a"),
            (object(), ""),
        ],
    )
    def test_rule(self, content: object, expected: str) -> None:
        """Text, joined blocks, text or content of a mapping, text of an object, else nothing."""
        found = messages.text_of(content)
        assert found == expected
        assert type(found) is str

    def test_cyclic_content(self) -> None:
        """Content that contains itself ends."""
        cycle: list[Any] = ["a"]
        cycle.append({"content": cycle})
        assert messages.text_of(cycle).startswith("a")

    def test_shared_content(self) -> None:
        """Content that repeats itself without end is read up to a number of blocks."""
        shared = [{"content": ["a"] * 9_000}] * 9_000
        assert 0 < len(messages.text_of(shared)) <= MAX_BLOCKS


class Odd:
    """A message whose attributes raise, save for those in `given`."""

    def __init__(self, **given: object) -> None:
        """Remember what may be read."""
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> object:
        """Raise something that getattr does not swallow."""
        raise ZeroDivisionError(name)


def _use_everything(thing: Any) -> None:
    check(messages.input_messages([thing]))
    check(messages.output_messages([thing, Odd(message=thing)]))
    for use in (messages.input_messages, messages.output_messages):
        use(thing)
    uses: list[Callable[[object], object]] = [
        messages.tool_definitions,
        messages.dump,
        messages.text_of,
        messages.is_human,
        messages.is_tool_message,
        messages.message_id,
        messages.finish_reason,
    ]
    for single in uses:
        encode([single(thing), single([thing])], limit=1_000)
    messages.tool_definitions([thing], full=True)


class TestOddObjects:
    """Nothing raises."""

    @pytest.mark.parametrize(
        "thing",
        [
            None,
            3,
            "text",
            [],
            {},
            Odd(),
            Odd(type="ai", content=Odd(), tool_calls=Odd(), additional_kwargs=Odd()),
            Odd(type="ai", content=[Odd(), {"type": Odd()}, {"type": "image", "source": Odd()}]),
            Odd(type="ai", content="x", tool_calls=[Odd(), None, {"name": Odd()}, 3]),
            Odd(type="tool", content=Odd(), tool_call_id=Odd(), name=Odd(), id=Odd()),
            Odd(type=["human"], role={}, message=3, generation_info=3, response_metadata=[]),
            Odd(function=Odd(), name="x", type="function", parameters=3),
        ],
        ids=lambda thing: type(thing).__name__,
    )
    def test_never_raises(self, thing: object) -> None:
        """Odd objects and raising attributes give less, not an error."""
        _use_everything(thing)

    @given(
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5) | st.binary(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "type",
                            "role",
                            "content",
                            "text",
                            "tool_calls",
                            "name",
                            "id",
                            "source",
                            "file",
                            "image_url",
                            "url",
                            "data",
                            "base64",
                            "function",
                            "value",
                            "function_declarations",
                            "additional_kwargs",
                        ]
                    ),
                    inner
                    | st.sampled_from(["ai", "human", "tool", "text", "image", "file"])
                    | st.sampled_from(["image_url", "tool_use", "non_standard", "tool_result"])
                    | st.just("data:image/png;base64,AA"),
                    max_size=6,
                )
            ),
            max_leaves=20,
        )
    )
    def test_junk_keeps_the_shape(self, junk: object) -> None:
        """Whatever stands in a message, what comes out has the conventions' shape."""
        _use_everything(junk)

    def test_real_messages_fit_the_shape(self) -> None:
        """A whole conversation validates."""
        conversation: list[BaseMessage] = [
            SystemMessage("be brief"),
            HumanMessage(["look", {"type": "image", "url": "https://x/a.png"}]),
            AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1, "b": 2}, "id": "t1"}]),
            ToolMessage("3", tool_call_id="t1"),
            AIMessage("3"),
        ]
        converted = messages.input_messages(conversation)
        check(converted)
        assert [message["role"] for message in converted] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
