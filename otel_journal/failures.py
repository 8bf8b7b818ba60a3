"""What an exception says about the operation it ended: outcome, type, and where it happened."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from langgraph import errors as graph_errors

from .foreign import MAX_TYPE_NAME, attribute, guarded, text

if TYPE_CHECKING:
    from types import TracebackType

    from .events import Outcome

_MAX_FRAMES: Final = 32
"""Innermost frames kept of a stack: the place of the fault, not the host's plumbing."""

_SHORT: Final = 200
_FEW: Final = 10
"""Characters and number of arguments that Python may make a text of."""

_PLAIN_STR: Final = (BaseException.__str__, KeyError.__str__)
"""Texts that are made of the arguments of an exception alone."""


def _known(*names: str) -> tuple[type[BaseException], ...]:
    """Exception classes that older releases of LangGraph lack."""
    found = (getattr(graph_errors, name, None) for name in names)
    return tuple(cls for cls in found if isinstance(cls, type))


_CANCELLED: Final[tuple[type[BaseException], ...]] = (
    asyncio.CancelledError,
    KeyboardInterrupt,
    *_known("NodeCancelledError"),
)
_TIMEOUT: Final[tuple[type[BaseException], ...]] = (
    TimeoutError,
    asyncio.TimeoutError,
    *_known("NodeTimeoutError"),
)


def outcome_of(error: BaseException) -> Outcome:
    """Outcome by the class of the exception (design 5); timeouts see `is_timeout`."""
    if isinstance(error, graph_errors.GraphBubbleUp):
        return "handoff" if isinstance(error, graph_errors.ParentCommand) else "interrupted"
    if isinstance(error, _CANCELLED):
        return "cancelled"
    return "abandoned" if isinstance(error, GeneratorExit) else "error"


def is_timeout(error: BaseException) -> bool:
    """True for a timeout: an error of a call, but a cancellation of the graph or node around."""
    return isinstance(error, _TIMEOUT)


def type_name(cls: type) -> str:
    """``error.type``: the qualified class name, of bounded length; builtins stand bare."""
    module, name = text(attribute(cls, "__module__")), text(attribute(cls, "__qualname__"))
    return name[:MAX_TYPE_NAME] if module == "builtins" else f"{module}.{name}"[:MAX_TYPE_NAME]


def text_of(error: object) -> object:
    """What an exception (or a text in its place) says: text, else a value to be bounded as JSON.

    The text that Python makes of arguments has the ``repr`` of each, however long. Long ones and
    objects are therefore returned as they are. An own ``__str__`` is called, and may raise.
    """
    if not isinstance(error, BaseException) or type(error).__str__ not in _PLAIN_STR:
        return guarded(str, error)
    arguments: tuple[object, ...] = error.args
    if len(arguments) == 1 and isinstance(arguments[0], str):
        only = text(arguments[0])
        return (
            only
            if len(only) > _SHORT or type(error).__str__ is BaseException.__str__
            else str(error)
        )
    if len(arguments) <= _FEW and all(_is_short(argument) for argument in arguments):
        return guarded(str, error)
    return arguments[0] if len(arguments) == 1 else arguments


def _is_short(value: object) -> bool:
    return (
        value is None
        or type(value) in (bool, int, float)
        or (type(value) is str and len(value) <= _SHORT)
    )


def describe(error: BaseException) -> str:
    """An exception of ours for the log: type and place, without a message that may hold content."""
    return f"{type_name(type(error))}\n{stack(error.__traceback__)}"


def stack(traceback: TracebackType | None) -> str:
    """File, line and function of the innermost frames; no source text, which would need I/O."""
    innermost: deque[TracebackType] = deque(maxlen=_MAX_FRAMES)
    while traceback is not None:
        innermost.append(traceback)
        traceback = traceback.tb_next
    return "\n".join(map(_place, innermost))


def _place(traceback: TracebackType) -> str:
    code = traceback.tb_frame.f_code
    return f"{code.co_filename}:{traceback.tb_lineno} in {code.co_name}"
