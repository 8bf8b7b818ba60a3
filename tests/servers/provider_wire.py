"""The wire formats of model providers: one `Answer`, spelled as each API would send it.

Three APIs, each as one JSON body and as server-sent events: OpenAI Chat Completions, OpenAI
Responses, Anthropic Messages. Field names and order of events are those of the public references.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

CREATED: Final = 1_700_000_000
"""Unix seconds at which everything was made."""

Api = Literal["chat", "responses", "messages"]
Event = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Usage of one answer, as totals that include their details."""

    input: int = 100
    output: int = 20
    cache_read: int = 0
    cache_write_5m: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0

    @property
    def cache_write(self) -> int:
        """Cache writes of both times to live."""
        return self.cache_write_5m + self.cache_write_1h


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call in an answer."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a model says; `texts` are its choices, all but the first only for Chat Completions."""

    texts: Sequence[str] = ("hello there",)
    calls: Sequence[Call] = ()
    tokens: Tokens = field(default_factory=Tokens)
    model: str = "served-1"
    id: str = "answer-1"


def body(api: Api, answer: Answer) -> Event:
    """Return an answer as one JSON object."""
    return {"chat": _chat, "responses": _response, "messages": _message}[api](answer)


def events(api: Api, answer: Answer, request: Mapping[str, Any]) -> Iterator[Event | str]:
    """Yield an answer as the payloads of server-sent events; a text is sent as it is."""
    if api == "chat":
        yield from _chat_events(answer, request)
    elif api == "responses":
        yield from _numbered(_response_events(answer))
    else:
        yield from _message_events(answer)


# OpenAI Chat Completions ---------------------------------------------------------------------


def _chat_frame(answer: Answer, kind: str) -> dict[str, Any]:
    return {
        "id": answer.id,
        "object": kind,
        "created": CREATED,
        "model": answer.model,
        "service_tier": "default",
        "system_fingerprint": "fp_1",
    }


def _chat(answer: Answer) -> Event:
    choices = []
    for index, text in enumerate(answer.texts):
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [_function(call) for call in answer.calls]
        choices.append(
            {
                "index": index,
                "message": message,
                "logprobs": None,
                "finish_reason": _chat_reason(answer),
            }
        )
    frame = _chat_frame(answer, "chat.completion")
    return {**frame, "choices": choices, "usage": _chat_usage(answer.tokens)}


def _chat_reason(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _function(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": json.dumps(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _chat_usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": tokens.reasoning,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _chat_events(answer: Answer, request: Mapping[str, Any]) -> Iterator[Event | str]:
    frame = _chat_frame(answer, "chat.completion.chunk")
    wants_usage = (request.get("stream_options") or {}).get("include_usage")

    def chunk(index: int, delta: dict[str, Any], reason: str | None = None) -> Event:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**frame, "choices": [choice], **({"usage": None} if wants_usage else {})}

    for index, text in enumerate(answer.texts):
        yield chunk(index, {"role": "assistant", "content": "", "refusal": None})
        for word in _words(text):
            yield chunk(index, {"content": word})
        for number, call in enumerate(answer.calls):
            yield chunk(index, {"tool_calls": [{"index": number, **_function(call)}]})
        yield chunk(index, {}, _chat_reason(answer))
    if wants_usage:
        yield {**frame, "choices": [], "usage": _chat_usage(answer.tokens)}
    yield "[DONE]"


def _words(text: str) -> list[str]:
    *first, last = text.split(" ")
    return [*(f"{word} " for word in first), last]


# OpenAI Responses ----------------------------------------------------------------------------


def _response(answer: Answer, status: str = "completed") -> dict[str, Any]:
    done = status == "completed"
    return {
        "id": answer.id,
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": answer.model,
        "output": _output(answer) if done else [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "service_tier": "default",
        "usage": _response_usage(answer.tokens) if done else None,
    }


def _output(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.tokens.reasoning:
        items.append({"type": "reasoning", "id": "rs_1", "summary": []})
    if text := answer.texts[0]:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        items.append(
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [part],
            }
        )
    items.extend(
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }
        for call in answer.calls
    )
    return items


def _response_usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": 0},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }


def _response_events(answer: Answer) -> Iterator[dict[str, Any]]:
    started = _response(answer, "in_progress")
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    for index, item in enumerate(_output(answer)):
        at = {"output_index": index, "item_id": item["id"]}
        begun = {**item, **({"content": []} if item["type"] == "message" else {})}
        if item["type"] == "function_call":
            begun["arguments"] = ""
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if item["type"] == "message":
            yield from _text_events(item, at)
        elif item["type"] == "function_call":
            arguments = item["arguments"]
            delta = {**at, "delta": arguments}
            yield {"type": "response.function_call_arguments.delta", **delta}
            done = {**at, "arguments": arguments, "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **done}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": _response(answer)}


def _text_events(item: Mapping[str, Any], at: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    (part,) = item["content"]
    at = {**at, "content_index": 0}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for word in _words(part["text"]):
        yield {"type": "response.output_text.delta", **at, "delta": word, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}


def _numbered(sent: Iterator[dict[str, Any]]) -> Iterator[Event]:
    for number, event in enumerate(sent):
        yield {**event, "sequence_number": number}


# Anthropic Messages --------------------------------------------------------------------------


def _message(answer: Answer) -> Event:
    text = answer.texts[0]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text, "citations": None}] * bool(text)
    blocks += [_tool_use(call, call.arguments) for call in answer.calls]
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": blocks,
        "stop_reason": _message_reason(answer),
        "stop_sequence": None,
        "usage": _message_usage(answer.tokens, answer.tokens.output),
    }


def _message_reason(answer: Answer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _tool_use(call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": dict(arguments)}


def _message_usage(tokens: Tokens, output: int) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input - tokens.cache_read - tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_write,
        "cache_creation": {
            "ephemeral_5m_input_tokens": tokens.cache_write_5m,
            "ephemeral_1h_input_tokens": tokens.cache_write_1h,
        },
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": tokens.reasoning},
        "service_tier": "standard",
    }


def _message_events(answer: Answer) -> Iterator[Event]:
    started = {
        **_message(answer),
        "content": [],
        "stop_reason": None,
        "usage": _message_usage(answer.tokens, 1),
    }
    yield {"type": "message_start", "message": started}
    index = 0
    if text := answer.texts[0]:
        yield from _block(index, {"type": "text", "text": ""}, _text_deltas(text))
        index += 1
    for number, call in enumerate(answer.calls, start=index):
        arguments = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        yield from _block(number, _tool_use(call, {}), [arguments])
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": _message_reason(answer), "stop_sequence": None},
        "usage": _message_delta_usage(answer.tokens),
    }
    yield {"type": "message_stop"}


def _message_delta_usage(tokens: Tokens) -> dict[str, Any]:
    """Return the cumulative counts of the last event: no split of the cache writes."""
    whole = _message_usage(tokens, tokens.output)
    return {name: whole[name] for name in whole if name not in {"cache_creation", "service_tier"}}


def _text_deltas(text: str) -> list[dict[str, Any]]:
    return [{"type": "text_delta", "text": word} for word in _words(text)]


def _block(index: int, start: Event, deltas: Sequence[Event]) -> Iterator[Event]:
    yield {"type": "content_block_start", "index": index, "content_block": start}
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
