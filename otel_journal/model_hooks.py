"""The callbacks of model calls, and what all callbacks share: boundary and surroundings."""

from __future__ import annotations

import functools
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from langgraph.callbacks import GraphCallbackHandler

from . import notes
from .journal import Journal
from .notes import Where
from .observations import Ended
from .request_parameters import constructor_endpoint, copied_parameters
from .streaming import MAX_READINGS, ChunkSource, StreamClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatGenerationChunk, GenerationChunk, LLMResult

Hook = TypeVar("Hook", bound="Callable[..., None]")

NOTHING: Final[dict[str, Any]] = {}
_DELTA: Final = "content-block-delta"


def never_raises(hook: Hook) -> Hook:
    """The boundary to the agent: failures of ours are counted and logged once, never raised."""

    @functools.wraps(hook)
    def guarded(self: ModelHooks, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the boundary towards the agent
            self.journal.handler_failed(hook.__name__, error)

    return cast("Hook", guarded)


@functools.lru_cache(maxsize=1)
def process_journal() -> Journal:
    """The journal behind `RunJournal()`: made on first use from the environment."""
    return Journal()


class ModelHooks(GraphCallbackHandler):
    """Says what models do to the recorder of a journal."""

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> None:
        """Record into `journal` (default: the process-wide one), optionally under fixed ids."""
        self.journal = process_journal() if journal is None else journal
        self.run_id = str(run_id) if run_id else ""
        self.thread_id = str(thread_id) if thread_id else ""
        recorder, ledger = self.journal.recorder, self.journal.ledger
        self._note, self._record = recorder.note, recorder.record
        self._capture = self.journal.capture
        self._is_open, self._wants_human = ledger.is_open, ledger.wants_human
        self._streams = ledger.streams
        self._context = self.journal.propagation

    def _where(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        tags: list[str] | None,
        metadata: dict[str, Any] | None,
    ) -> Where:
        around = None
        if parent_run_id is None or not self._is_open(parent_run_id.int):
            around = self._context.ambient()
        return Where(
            run_id,
            parent_run_id,
            tuple(tags) if tags else (),
            dict(metadata) if metadata else NOTHING,
            perf_counter_ns(),
            around,
            self.run_id,
            self.thread_id,
        )

    # Models ----------------------------------------------------------------------------------

    @never_raises
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A chat model is called."""
        where = self._where(run_id, parent_run_id, tags, metadata)
        prompt: Sequence[object] = messages[0] if messages else ()
        self._model_start(notes.CHAT, serialized, prompt, where, kwargs)

    @never_raises
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A text completion model is called."""
        where = self._where(run_id, parent_run_id, tags, metadata)
        self._model_start(notes.COMPLETION, serialized, prompts or (), where, kwargs)

    def _model_start(
        self,
        operation: str,
        serialized: dict[str, Any] | None,
        prompt: Sequence[object],
        where: Where,
        kwargs: dict[str, Any],
    ) -> None:
        given = kwargs.get("invocation_params") or NOTHING
        human = attributes = None
        capture = self._capture
        if capture.payload:
            attributes = capture.prompt(prompt, given)
            parent = where.parent_run_id
            if operation == notes.CHAT and (parent is None or self._wants_human(parent.int)):
                human = capture.human(prompt)
        endpoint = constructor_endpoint(serialized) if serialized else None
        structured = "ls_structured_output_format" in (kwargs.get("options") or NOTHING)
        parameters = copied_parameters(given)
        arguments = (where, operation, parameters, structured, endpoint, human, attributes)
        self._note(notes.model_started, arguments, where.at)
        self._context.enter(where.run_id.int, model=True)

    @never_raises
    def on_llm_end(
        self,
        response: LLMResult,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """A model answered."""
        at = perf_counter_ns()
        self._note(notes.model_ended, (run_id, at, self._capture.answer(response)), at)
        self._context.leave(run_id.int)

    @never_raises
    def on_llm_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """A model call ended with an exception; what had arrived comes as ``response``."""
        response = kwargs.get("response")
        self._fail(run_id, "llm", error, response)

    def _fail(self, run_id: UUID, kind: str, error: BaseException, response: object = None) -> None:
        at = perf_counter_ns()
        ended = self._capture.failed(run_id, at, kind, error, response)
        unread = Ended(run_id.int, at, kind, "error", error_type=type(error).__name__)
        self._record(ended or unread)
        self._context.leave(run_id.int)

    def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """A chunk was streamed; the empty one that only carries usage is none.

        Called for every token, so it has the boundary of `never_raises` in place.
        """
        try:
            if token or not _closes_the_stream(chunk):
                clock = self._streams.get(run_id.int)
                if clock is None:
                    self._first_chunk(run_id, "token", chunk)
                elif clock.source == "token" and (clock.latest is not chunk or chunk is None):
                    clock.latest = chunk
                    clock.readings.append(perf_counter_ns())
                    if len(clock.readings) > MAX_READINGS:
                        clock.fold()
        except Exception as error:  # noqa: BLE001 - as in `never_raises`
            self.journal.handler_failed("on_llm_new_token", error)

    @never_raises
    def on_stream_event(
        self,
        event: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """A protocol event was streamed (v3); only content counts as a chunk."""
        if isinstance(event, dict) and event.get("event") == _DELTA:
            clock = self._streams.get(run_id.int)
            if clock is None:
                self._first_chunk(run_id, "event", event)
            elif clock.source == "event" and clock.latest is not event:
                clock.latest = event
                clock.readings.append(perf_counter_ns())
                if len(clock.readings) > MAX_READINGS:
                    clock.fold()

    def _first_chunk(self, run_id: UUID, source: ChunkSource, chunk: object) -> None:
        self._streams.remember(run_id.int, StreamClock(source, perf_counter_ns(), chunk))
        self._context.first_chunk(run_id.int)


def _closes_the_stream(chunk: object) -> bool:
    message = getattr(chunk, "message", None)
    if message is None:
        return False
    last = getattr(message, "chunk_position", None) == "last"
    return last and not getattr(message, "tool_call_chunks", None)
