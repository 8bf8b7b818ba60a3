"""Live payloads of LangChain -> values that no longer change.

The only modules that know LangChain's objects are this one, `handler` and `failures`. What is
live is read or serialised here, in the callback, because it changes afterwards (callbacks.md
23): messages, responses, tool results, exceptions. Names, ids and parameters are only copied;
`notes` turns them into observations later.
"""

from __future__ import annotations

import functools
from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from . import failures, messages, shapes
from . import semconv as sc
from .foreign import attribute, elements, mapping, text
from .notes import Answer
from .observations import Annotated, Ended, Human, Interrupted, Resumed
from .payload import both, encode, plain, shorten
from .summary import MAX_SUMMARY_TEXT
from .usage import read_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from langchain_core.outputs import LLMResult
    from langgraph.callbacks import GraphInterruptEvent, GraphResumeEvent

    from .events import Usage
    from .payload import Place, Redact

Attributes = dict[str, Any] | None

_ANNOTATION: Final = "annotation:"
_MAX_NAME: Final = 32 - len(_ANNOTATION)
_NOTHING: Final[dict[str, Any]] = {}
_LOST: Final = object()
"""Stands for a payload whose redaction failed: it is not recorded."""

_HUMAN_WITHIN: Final = 1_000
"""Newest messages of a prompt among which the human turn is looked for."""

_PLACES: Final[dict[str, Place]] = {
    sc.INPUT_MESSAGES: "input",
    sc.OUTPUT_MESSAGES: "output",
    sc.TOOL_CALL_ARGUMENTS: "tool.arguments",
    sc.TOOL_CALL_RESULT: "tool.result",
    "arguments": "tool.arguments",
    "result": "tool.result",
}
"""Attributes, and fields of calls reported by hand -> what a redaction hook is told."""

Read = TypeVar("Read", bound="Callable[..., Any]")


def _readable(read: Read) -> Read:
    """Let a payload that cannot be read cost its content, not the span: return None instead.

    Payloads are foreign code (properties, proxies, lazy mappings) and may raise anything.
    """

    @functools.wraps(read)
    def survives(self: Capture, *args: Any, **kwargs: Any) -> Any:
        try:
            return read(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the boundary towards payloads
            self.on_unreadable(read.__name__, error)
            return None

    return cast("Read", survives)


class Capture:
    """Reads payloads as far as somebody wants them.

    `content` puts messages, arguments and results on span attributes; `feed` makes message rows
    for a store. With both off, no payload is looked at beyond names, numbers and ids.
    """

    def __init__(  # noqa: PLR0913 - switches and two observers
        self,
        *,
        content: bool = False,
        feed: bool = False,
        limit: int = 32_768,
        message_finish_reasons: bool = False,
        redact: Redact | None = None,
        on_truncated: Callable[[], None] = lambda: None,
        on_unreadable: Callable[[str, BaseException], None] = lambda _read, _error: None,
    ) -> None:
        """`limit` is the longest payload in characters.

        `redact` sees every payload first. `on_truncated` counts payloads cut to the limit,
        `on_unreadable` hears of those that raise, and of a `redact` that does.
        """
        self.on_unreadable = on_unreadable
        self.content = content
        self.feed = feed
        self.payload = content or feed
        """True when somebody wants more than names, numbers and ids."""
        self._limit = limit
        self._message_finish_reasons = message_finish_reasons
        self._on_truncated = on_truncated
        self._redact = redact

    # Payloads at the start -------------------------------------------------------------------

    @_readable
    def state(self, name: str, state: object) -> Attributes:
        """Messages of a graph's input or output as the content attribute `name`."""
        found = shapes.state_messages(state) if self.content else None
        return self._messages(name, found) if found is not None else None

    @_readable
    def prompt(self, prompt: Sequence[object], parameters: Mapping[str, Any]) -> Attributes:
        """Messages and tool definitions of a model call as content attributes."""
        if not self.content:
            return None
        found = self._messages(sc.INPUT_MESSAGES, prompt)
        for name in ("tools", "functions"):
            if tools := elements(parameters.get(name), shapes.MAX_ELEMENTS):
                found[sc.TOOL_DEFINITIONS] = self._encoded(messages.tool_definitions(tools))
                break
        return found

    @_readable
    def human(self, prompt: Sequence[object]) -> Human | None:
        """The newest human message of a prompt, for the feed."""
        for message in islice(reversed(prompt), _HUMAN_WITHIN) if self.feed else ():
            if messages.is_human(message):
                row = self._plain("input", messages.dump(message))
                said = shapes.row_text(row)[:MAX_SUMMARY_TEXT]
                return Human(messages.message_id(message) or "", said, row)
        return None

    @_readable
    def attribute(self, name: str, value: object) -> Attributes:
        """One content attribute of a tool call, JSON."""
        if not self.content:
            return None
        value = self._redacted(_PLACES[name], value)
        return {name: self._encoded(value)} if value is not _LOST else None

    @_readable
    def query(self, query: object) -> Attributes:
        """Text of a retrieval as a content attribute."""
        shown = self._text("query", query) if self.content else ""
        return {sc.RETRIEVAL_QUERY: shown} if shown else None

    @_readable
    def fed(self, value: object, place: Place = "state") -> Any:
        """A bounded copy for a store; None without one."""
        return self._plain(place, value) if self.feed else None

    # Ends ------------------------------------------------------------------------------------

    @_readable
    def answer(self, response: LLMResult) -> Answer | None:
        """Read a model's response."""
        generations = shapes.generations_of(response)
        llm_output = mapping(response.llm_output) or _NOTHING
        attributes: dict[str, Any] = {}
        usage: Usage | None = None
        cached = False
        asked: list[str] = []
        reasons: list[str] = []
        for index, generation in enumerate(generations):
            message = attribute(generation, "message")
            metadata = mapping(attribute(message, "response_metadata")) or _NOTHING
            if usage is None or not usage.positive:
                reading = read_usage(
                    attribute(message, "usage_metadata"),
                    llm_output,
                    metadata,
                    attribute(generation, "generation_info"),
                )
                usage = reading.usage if reading.usage is not None else usage
                cached = cached or reading.cached
            if (reason := messages.finish_reason(generation)) is not None:
                reasons.append(shapes.identifier(reason))
            asked += shapes.asked_calls(message)
            if index == 0:
                shapes.describe_response(attributes, llm_output, metadata)
        if reasons:
            attributes[sc.RESPONSE_FINISH_REASONS] = tuple(reasons)
        answer = Answer(attributes, usage, cached, tuple(asked), len(generations))
        if not self.payload:
            return answer
        return self._answer_with_payload(answer, generations, reasons) or answer

    @_readable
    def _answer_with_payload(
        self, answer: Answer, generations: Sequence[object], reasons: list[str]
    ) -> Answer | None:
        rows: tuple[Any, ...] = ()
        said = ""
        if self.content:
            told = reasons if self._message_finish_reasons else ()
            made = shapes.output_messages(generations, told, limit=self._limit)
            if (output := self._redacted("output", made)) is not _LOST:
                answer.attributes[sc.OUTPUT_MESSAGES] = self._encoded(output)
        if self.feed:
            rows = tuple(self._plain("output", shapes.dump_generation(g)) for g in generations)
            if rows and not answer.asked:
                said = shapes.row_text(rows[0])[:MAX_SUMMARY_TEXT]
        return msgspec.structs.replace(answer, text=said, rows=rows)

    @_readable
    def tool_ended(self, run_id: UUID, at: int, output: object) -> Ended | None:
        """Read what a tool returned: text, any value, a ToolMessage, or a Command."""
        results = shapes.tool_messages(output)
        failed = any(attribute(message, "status") == "error" for message in results)
        attributes = content = None
        rows: tuple[Any, ...] = ()
        if self.payload:
            result = attribute(results[0], "content") if len(results) == 1 else output
            kept, shown = self._both("tool.result", result)
            attributes = {sc.TOOL_CALL_RESULT: shown} if self.content and shown else None
            if self.feed:
                content = {"result": kept}
                rows = tuple(self._plain("tool.result", messages.dump(m)) for m in results)
                rows = rows or ({"type": "tool", "content": kept},)
        return Ended(
            run_id.int,
            at,
            "tool",
            "error" if failed else "ok",
            attributes or _NOTHING,
            error_type="tool_error" if failed else "",
            rows=rows,
            messages=len(results) or 1,
            content=content,
        )

    @_readable
    def retrieval_ended(self, run_id: UUID, at: int, documents: object) -> Ended | None:
        """Read what a retriever returned."""
        if not self.content:
            return Ended(run_id.int, at, "retrieval")
        found = self._redacted("documents", shapes.document_references(documents))
        attributes = {sc.RETRIEVAL_DOCUMENTS: self._encoded(found)} if found is not _LOST else {}
        return Ended(run_id.int, at, "retrieval", attributes=attributes)

    @_readable
    def failed(
        self, run_id: UUID, at: int, kind: str, error: BaseException, response: Any = None
    ) -> Ended | None:
        """Read an exception that ended an operation, and what had arrived of a response."""
        outcome = failures.outcome_of(error)
        answer = None
        if attribute(response, "generations"):
            answer = self.answer(response)
        told = self.error_text(error)
        return Ended(
            run_id.int,
            at,
            kind,
            outcome,
            answer.attributes if answer is not None else _NOTHING,
            error_type=failures.type_name(type(error)),
            error_identity=id(error),
            timeout=failures.is_timeout(error),
            error_message=told if outcome == "error" else "",
            stacktrace=failures.stack(error.__traceback__) if outcome == "error" else "",
            usage=answer.usage if answer is not None else None,
            cached=answer.cached if answer is not None else False,
            content={"error": told} if self.feed else None,
        )

    # Other facts -----------------------------------------------------------------------------

    @_readable
    def interrupted(self, event: GraphInterruptEvent, at: int) -> Interrupted | None:
        """A graph paused; None for an event without a run."""
        if event.run_id is None:
            return None
        payload = None
        if self.feed:
            values = [{"id": i.id, "value": i.value} for i in event.interrupts]
            payload = {"status": event.status, "interrupts": self._plain("interrupt", values)}
        return Interrupted(event.run_id.int, at, str(event.checkpoint_id), payload)

    @staticmethod
    def resumed(event: GraphResumeEvent, at: int) -> Resumed | None:
        """A graph went on; None for an event without a run."""
        if event.run_id is None:
            return None
        return Resumed(event.run_id.int, at, str(event.checkpoint_id))

    def custom_event(self, run_id: UUID, name: str, data: object, n: int) -> Annotated:
        """A custom event of the application, the n-th of its operation (LangChain has no id)."""
        return Annotated(
            run_id.int,
            str(run_id),
            perf_counter_ns(),
            f"{_ANNOTATION}{text(name)[:_MAX_NAME] or 'unnamed'}",
            f"{run_id}/custom/{n}",
            self.fed(data, "custom"),
        )

    def tool_call_content(self, call_id: str, name: str, **facts: object) -> Any:
        """Content of a `tool_call.*` event reported by hand; None without a store."""
        if not self.feed:
            return None
        if facts.get("error") is not None:
            facts["error"] = self.error_text(facts["error"])
        told = {k: v if k == "error" else self.fed(v, _PLACES[k]) for k, v in facts.items()}
        return {"call_id": call_id, "name": name, **told}

    def error_content(self, error: object) -> Any:
        """Content of a failed completion; None without a store."""
        return {"error": self.error_text(error)} if self.feed else None

    def error_text(self, error: object) -> str:
        """Text of an exception or message, empty while nobody may see it."""
        return self._text("error", failures.text_of(error)) if self.payload else ""

    # Redaction and bounds --------------------------------------------------------------------

    def _redacted(self, place: Place, value: object) -> object:
        """What may be recorded of a payload; `_LOST` when the hook that should say so fails."""
        if self._redact is None:
            return value
        try:
            return self._redact(place, value)
        except Exception as error:  # noqa: BLE001 - the hook is the application's
            self.on_unreadable("redact", error)
            return _LOST

    def _messages(self, name: str, found: Sequence[object]) -> dict[str, Any]:
        shown, left_out = shapes.input_messages(found, limit=self._limit)
        redacted = self._redacted(_PLACES[name], shown)
        if redacted is _LOST:
            return {}
        return {name: self._encoded(redacted, left_out)}

    def _both(self, place: Place, value: object) -> tuple[Any, str]:
        """A redacted, bounded copy of a payload, and its JSON; empty when it is lost."""
        value = self._redacted(place, value)
        if value is _LOST:
            return None, ""
        kept, encoded = both(value, limit=self._limit)
        if encoded.truncated:
            self._on_truncated()
        return kept, encoded.text

    def _encoded(self, value: object, more: int = 0) -> str:
        encoded = encode(value, limit=self._limit, more=more)
        if encoded.truncated:
            self._on_truncated()
        return encoded.text

    def _plain(self, place: Place, value: object) -> Any:
        """A redacted, bounded copy of a payload."""
        value = self._redacted(place, value)
        bounded, truncated = plain(None if value is _LOST else value, limit=self._limit)
        if truncated:
            self._on_truncated()
        return bounded

    def _text(self, place: Place, value: object) -> str:
        """A redacted, bounded text; of what is no text its JSON; empty when it is lost."""
        value = self._redacted(place, value)
        if value is _LOST or value is None:
            return ""
        if not isinstance(value, str):
            return self._encoded(value)
        shown, truncated = shorten(text(value), limit=self._limit)
        if truncated:
            self._on_truncated()
        return shown
