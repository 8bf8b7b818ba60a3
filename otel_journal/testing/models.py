"""A scripted chat model, for tests and demos that must not need a provider.

`ScriptedModel` behaves like a real LangChain chat model towards callbacks: it has a provider and
a model name, reports usage and a finish reason, streams word by word with the usage in a last,
empty chunk, and takes tools. What it answers is a script written with `ai` and `tool_call`:

    model = ScriptedModel(script=[ai("", tool_call("add", {"x": 1, "y": 2}, "c1")), ai("3")])
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall
from langchain_core.messages.ai import UsageMetadata  # noqa: TC002 - pydantic reads it
from langchain_core.messages.tool import tool_call as _langchain_tool_call
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr, SkipValidation

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.language_models.base import LangSmithParams
    from langchain_core.messages.tool import ToolCallChunk
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

Step: TypeAlias = AIMessage | BaseException | Callable[[list[BaseMessage]], AIMessage]
"""One answer: a message, an exception to raise, or a function of the messages received."""

DEFAULT_USAGE: Final = cast(  # mypy for Python 3.10 does not know `NotRequired` of typing
    "UsageMetadata", {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
)
"""Usage of an answer that brings none of its own."""

CHUNKS_BEFORE_FAILURE: Final = 2
"""Chunks that still arrive when a stream is cut: enough for a partial answer."""


def tool_call(name: str, args: dict[str, Any], call_id: str | None = None) -> ToolCall:
    """Return a tool call as models put it in a message; without an id some models do so too."""
    return _langchain_tool_call(name=name, args=args, id=call_id)


def ai(text: str = "", *calls: ToolCall, usage: UsageMetadata | None = None) -> AIMessage:
    """Return an answer with text, tool calls, or both.

    Args:
        text: The content.
        *calls: Tool calls the model asks for.
        usage: Tokens of this answer; default: those of the model that speaks it.
    """
    return AIMessage(content=text, tool_calls=list(calls), usage_metadata=usage)


class ScriptedModel(BaseChatModel):
    """A chat model that answers from a script, one step per call.

    Calls from several threads or tasks take the steps in the order in which they come. After the
    last step the script stays there: a one-step script answers every call alike.
    """

    script: Annotated[Sequence[Step], SkipValidation]
    """The answers, in order; not empty."""
    usage: UsageMetadata | None = DEFAULT_USAGE
    """Tokens of answers that bring none; None: like a provider that reports no usage."""
    delay: float = 0.0
    """Seconds before an answer, and before each chunk of a streamed one."""
    fail_midstream: BaseException | None = None
    """Raised in place of the rest of a streamed answer."""
    model_name: str = "scripted-1"
    """The model, as request and as response model."""
    provider: str = "scripted"
    """LangChain's ``ls_provider``; LangChain's model type is ``{provider}-chat``."""

    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)
    _next: int = PrivateAttr(default=0)

    @property
    def _llm_type(self) -> str:
        return f"{self.provider}-chat"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: object) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = self.provider
        return params

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: object,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Send the tools with every request, as a provider would get them; the script decides."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - the script decides where to stop
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 - core reports for us
        **kwargs: object,  # noqa: ARG002
    ) -> ChatResult:
        time.sleep(self.delay)
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: object,  # noqa: ARG002
    ) -> ChatResult:
        await asyncio.sleep(self.delay)
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: object,  # noqa: ARG002
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            time.sleep(self.delay)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: object,  # noqa: ARG002
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._chunks(messages):
            await asyncio.sleep(self.delay)
            yield chunk

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        with self._lock:
            step = self.script[min(self._next, len(self.script) - 1)]
            self._next += 1
        if isinstance(step, BaseException):
            raise step
        message = step if isinstance(step, AIMessage) else step(messages)
        metadata = {
            "model_name": self.model_name,
            "finish_reason": "tool_calls" if message.tool_calls else "stop",
        }
        return message.model_copy(
            deep=True,  # LangChain writes ids and metadata into the messages it gets
            update={
                "usage_metadata": message.usage_metadata or self.usage,
                "response_metadata": {**metadata, **message.response_metadata},
            },
        )

    def _chunks(self, messages: list[BaseMessage]) -> Iterator[ChatGenerationChunk]:
        message = self._answer(messages)
        *words, last = message.text.split(" ")
        parts = [AIMessageChunk(content=f"{word} ") for word in words]
        parts.append(AIMessageChunk(content=last, tool_call_chunks=_call_chunks(message)))
        parts.append(
            AIMessageChunk(
                content="",
                usage_metadata=message.usage_metadata,
                response_metadata=message.response_metadata,
                chunk_position="last",
            )
        )
        for position, part in enumerate(parts):
            if self.fail_midstream is not None and position == CHUNKS_BEFORE_FAILURE:
                raise self.fail_midstream
            yield ChatGenerationChunk(message=part)


def _call_chunks(message: AIMessage) -> list[ToolCallChunk]:
    return [
        tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index
        )
        for index, call in enumerate(message.tool_calls)
    ]
