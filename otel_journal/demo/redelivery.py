"""A callback handler that misbehaves on purpose: it delivers twice, and usage late.

Retried deliveries, a handler registered in two places and providers that bill after the answer
all look like this to the journal.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from langchain_core.messages import AIMessage
from langgraph.callbacks import GraphCallbackHandler

from .agent import LATE_USAGE, REPORTER

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from langchain_core.outputs import LLMResult

    from otel_journal.handler import RunJournal

_TIMES: Final = 2
"""Deliveries of each start and end."""


def _twice(name: str) -> Callable[..., None]:
    """Return a hook that calls the hook `name` of the recorder twice."""

    def hook(self: Redelivery, *args: object, **kwargs: object) -> None:
        self.deliver(name, *args, **kwargs)

    return hook


def _once(name: str) -> Callable[..., None]:
    """Return a hook that passes on what it gets."""

    def hook(self: Redelivery, *args: object, **kwargs: object) -> None:
        getattr(self.recorder, name)(*args, **kwargs)

    return hook


class Redelivery(GraphCallbackHandler):
    """Forwards every callback to a `RunJournal`: starts and ends twice, chunks once."""

    run_inline = True

    def __init__(self, recorder: RunJournal) -> None:
        """Deliver to `recorder`."""
        self.repeats = 0
        """Deliveries that said nothing new."""
        self.late = 0
        """Deliveries that brought the usage an earlier one had lacked."""
        self.recorder = recorder
        """Where deliveries go."""
        self._held: list[tuple[LLMResult, UUID]] = []
        self._lock = threading.Lock()  # parallel tools call back from threads of their own

    on_chain_start = _twice("on_chain_start")
    on_chain_end = _twice("on_chain_end")
    on_chain_error = _twice("on_chain_error")
    on_chat_model_start = _twice("on_chat_model_start")
    on_llm_error = _twice("on_llm_error")
    on_tool_start = _twice("on_tool_start")
    on_tool_end = _twice("on_tool_end")
    on_tool_error = _twice("on_tool_error")
    on_interrupt = _twice("on_interrupt")
    on_resume = _twice("on_resume")
    on_llm_new_token = _once("on_llm_new_token")  # a chunk has nothing to know its repeat by

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: object) -> None:
        """Deliver an answer twice; add the usage it lacks at once, or keep it for later."""
        self.deliver("on_llm_end", response, run_id=run_id, **kwargs)
        model = _model_of(response)
        if model == REPORTER:
            with self._lock:
                self._held.append((_billed(response, model), run_id))
        elif model in LATE_USAGE:
            self._add_usage(_billed(response, model), run_id)

    def deliver(self, name: str, /, *args: object, **kwargs: object) -> None:
        """Call one hook of the recorder twice, with the same objects."""
        hook = getattr(self.recorder, name)
        for _ in range(_TIMES):
            hook(*args, **kwargs)
        with self._lock:
            self.repeats += _TIMES - 1

    def deliver_bills(self) -> None:
        """Deliver the usage that was kept; their runs may have ended long ago."""
        with self._lock:
            held, self._held = self._held, []
        for response, run_id in held:
            self._add_usage(response, run_id)

    def _add_usage(self, response: LLMResult, run_id: UUID) -> None:
        self.recorder.on_llm_end(response, run_id=run_id)
        with self._lock:
            self.late += 1


def _message_of(response: LLMResult) -> AIMessage:
    message = getattr(response.generations[0][0], "message", None)
    if not isinstance(message, AIMessage):
        msg = f"the demo's models answer with messages, not {type(message).__name__}"
        raise TypeError(msg)
    return message


def _model_of(response: LLMResult) -> str:
    return str(_message_of(response).response_metadata.get("model_name", ""))


def _billed(response: LLMResult, model: str) -> LLMResult:
    copy = response.model_copy(deep=True)
    _message_of(copy).usage_metadata = LATE_USAGE[model]
    return copy
