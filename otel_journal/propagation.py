"""The OpenTelemetry context around operations: what they began in, and what begins inside them.

HTTP and DB spans made inside a node, tool or model call become children of that operation,
because a span of ours is current there. No token is kept and nothing is detached: start and end
may run in different contexts (LangChain awaits ``on_llm_end`` in a task of its own). Whatever of
ours is still current somewhere after its operation ended answers with what was there before it,
so a stale reference heals itself.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import weakref
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry import context as otel_context
from opentelemetry import trace

from .observations import Ambient

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from opentelemetry.context import Context

R = TypeVar("R")

SUPPRESS_PROVIDERS: Final = "suppress_language_model_instrumentation"
"""Context key by which OpenLLMetry's instrumentations of provider clients know that somebody
above them reports the call. HTTP instrumentations do not look at it."""

_UTIL_GENAI: Final = "opentelemetry.util.genai.invocation"
"""OpenTelemetry's own instrumentations of provider clients are quiet inside another inference,
which they know by an `InferenceData` of this module under its `CLIENT_INFERENCE_CONTEXT_KEY`."""

_MODELS: Final = "langchain_core.language_models"
"""Every model call has a frame of this package on the stack of the task that made it."""


class _Fallbacks:
    """A RunnableWithFallbacks without a parent; all copies of its context share this."""

    __slots__ = ("key", "over")

    def __init__(self, key: int) -> None:
        self.key = key
        self.over = False


_fallbacks: Final[ContextVar[_Fallbacks | None]] = ContextVar(
    "otel_journal_fallbacks", default=None
)
"""The RunnableWithFallbacks that runs in this context without a parent.

LangChain hands its children the parent of the chain instead of the chain itself (#36072); at
the top level that is None, and the children would look like roots of their own.
"""


def enter_fallbacks(key: int) -> None:
    """Let operations without a parent in this context belong to the fallback chain `key`."""
    _fallbacks.set(_Fallbacks(key))


def leave_fallbacks(key: int) -> None:
    """Undo `enter_fallbacks` in every copy of the context that entered."""
    entered = _fallbacks.get()
    if entered is not None and entered.key == key:
        entered.over = True


def span_context_of(ambient: Ambient) -> trace.SpanContext | None:
    """The OpenTelemetry form of a span context; None when there is none."""
    if not ambient.trace_id:
        return None
    return trace.SpanContext(
        int(ambient.trace_id, 16),
        int(ambient.span_id, 16),
        is_remote=ambient.remote,
        trace_flags=trace.TraceFlags(int(ambient.sampled)),
        trace_state=trace.TraceState.from_header([ambient.trace_state]),
    )


class OperationSpan(trace.NonRecordingSpan):
    """Stands for an open operation in the context of the code that it runs."""

    model = False
    ended = False
    task: weakref.ref[asyncio.Task[Any]] | None = None
    """The task that made a model call."""

    def __init__(self, scope: Propagation, key: int, around: Context) -> None:
        """`around` is the context at the start of operation `key`."""
        self.scope = scope
        self.key = key
        self.around = around

    @property
    def over(self) -> bool:
        """True once the operation has ended, as far as this context can know.

        LangChain never ends a model call that was cancelled (callbacks.md, fact 6). But when the
        task that made the call does anything outside of LangChain's models, the call is over.
        """
        if not self.ended and self.task is not None:
            task = self.task()
            self.ended = task is None or (task is _current_task() and not _inside_a_model())
        return self.ended

    def get_span_context(self) -> trace.SpanContext:
        """The operation's own context while it is open, later that of what was around it."""
        span: trace.Span = self
        while type(span) is OperationSpan:
            own = None if span.over else span.scope.span_context(span.key)
            if own is not None:
                return own
            span = trace.get_current_span(span.around)
        return span.get_span_context()

    def __repr__(self) -> str:
        """Without the context, which must be asked for."""
        return f"OperationSpan({self.key:032x}, ended={self.ended})"


class _Reported:
    """Says that a model call is reported, while it is open; later what was said around it.

    A true value to OpenLLMetry; to util-genai an `InferenceData` of which it keeps nothing.
    """

    __slots__ = ("_span",)

    capture_content = upload_completion = False

    def __init__(self, span: OperationSpan) -> None:
        self._span = span

    def __bool__(self) -> bool:
        return not self._span.over or bool(self._span.around.get(SUPPRESS_PROVIDERS))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What `isinstance` asks: the only way to stop being one when the call has ended."""
        util = None if self._span.over else sys.modules.get(_UTIL_GENAI)
        return getattr(util, "InferenceData", _Reported)

    def merge(self, *_: object, **__: object) -> None:
        """Take what an instrumentation below us found out: LangChain tells us itself."""


_put: Final = dict.__setitem__


def _mark(inside: Context, span: OperationSpan) -> None:
    """Tell instrumentations of provider clients that the model call `span` is reported."""
    span.model = True
    if (task := _current_task()) is not None:
        span.task = weakref.ref(task)
    reported = _Reported(span)
    _put(inside, SUPPRESS_PROVIDERS, reported)
    if (util := sys.modules.get(_UTIL_GENAI)) is not None:
        _put(inside, getattr(util, "CLIENT_INFERENCE_CONTEXT_KEY", SUPPRESS_PROVIDERS), reported)


def _current_task() -> asyncio.Task[Any] | None:
    loop = asyncio._get_running_loop()  # noqa: SLF001 - the public one raises where none runs
    return None if loop is None else asyncio.current_task(loop)


def _inside_a_model() -> bool:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - nothing else tells
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_MODELS):
            return True
        frame = frame.f_back
    return False


class Propagation:
    """Makes the operations of one journal current, and tells what is."""

    def __init__(
        self,
        span_context: Callable[[int], trace.SpanContext | None],
        *,
        limit: int,
        enabled: bool = True,
    ) -> None:
        """`span_context` answers for open operations whose spans will be exported, else None."""
        self.span_context = span_context
        self._enabled = enabled
        self._limit = limit
        self._current: OrderedDict[int, OperationSpan] = OrderedDict()

    def enter(self, key: int, *, model: bool = False) -> None:
        """Let an operation that begins be current from here on."""
        if not self._enabled or key in self._current:
            return  # a repeated start must not nest
        around = otel_context.get_current()
        span = around.get(_SPAN_KEY)
        while type(span) is OperationSpan and span.over:
            around = span.around
            span = around.get(_SPAN_KEY)
        self._current[key] = mine = OperationSpan(self, key, around)
        if len(self._current) > self._limit:
            self._give_up(self._current.popitem(last=False)[1])
        inside = otel_context.Context(around)  # immutable to others, not yet to us
        _put(inside, _SPAN_KEY, mine)
        if model:
            _mark(inside, mine)
        otel_context.attach(inside)

    @staticmethod
    def _give_up(span: OperationSpan) -> None:
        """Forget the oldest span, and what it hides that was given up before: chains stay short."""
        span.ended = True
        below = span.around.get(_SPAN_KEY)
        while type(below) is OperationSpan and below.ended:
            span.around = below.around
            below = span.around.get(_SPAN_KEY)

    def leave(self, key: int) -> None:
        """Undo `enter` where it was done, or let it undo itself elsewhere."""
        span = self._current.pop(key, None)
        if span is not None:
            span.ended = True
            self.restore(span)

    def first_chunk(self, key: int) -> None:
        """A model streams: the consumer's code between the chunks is not inside the call.

        Nor is it inside a chain with fallbacks, which falls back no more after a first chunk.
        """
        if (entered := _fallbacks.get()) is not None:
            entered.over = True
        span = self._current.get(key)
        if span is not None:
            self.restore(span)

    @staticmethod
    def restore(span: OperationSpan) -> None:
        """Make current what was around a span, if it still is the current one."""
        current = otel_context.get_current().get(_SPAN_KEY)
        while current is not span:
            if type(current) is not OperationSpan or not current.over:
                return
            current = current.around.get(_SPAN_KEY)
        otel_context.attach(span.around)

    def ambient(self) -> Ambient | None:
        """The span around an operation that has no parent of its own; None when there is none."""
        entered = _fallbacks.get()
        key = None if entered is None or entered.over else entered.key
        span = trace.get_current_span()
        while type(span) is OperationSpan and (span.model or span.over):
            # Models call no runnables: one that seems to was cancelled and never ended.
            span = trace.get_current_span(span.around)
        if type(span) is OperationSpan and span.scope is self:
            # The ledger will know it; asking for its ids now would cost the agent a drain. If it
            # has been closed by then, what is around all of ours is the parent.
            key = span.key
            while type(span) is OperationSpan and span.scope is self:
                span = trace.get_current_span(span.around)
        context = span.get_span_context()
        if not context.is_valid:
            return None if key is None else Ambient("", "", sampled=False, remote=False, op_key=key)
        return Ambient(
            trace_id=trace.format_trace_id(context.trace_id),
            span_id=trace.format_span_id(context.span_id),
            sampled=bool(context.trace_flags & trace.TraceFlags.SAMPLED),
            remote=context.is_remote,
            trace_state=context.trace_state.to_header() if context.trace_state else "",
            op_key=key,
        )


def carry_context(function: Callable[..., R]) -> Callable[..., R]:
    """Bind a function to the current context, for threads and pools that start from an empty one.

    Model calls, HTTP spans and LangChain's own configuration then belong to the operation that
    made the thread: ``pool.map(carry_context(work), items)``. Every call gets a copy of its own.
    """
    context = copy_context()

    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> R:  # noqa: ANN401 - passed on
        return context.copy().run(function, *args, **kwargs)

    return inside


def patch_thread_pools() -> Callable[[], None]:
    """Let every `ThreadPoolExecutor` of the process carry contexts; returns how to undo it.

    Opt-in, because it changes a class of the standard library for the whole process. Undoing
    works in any order, also below somebody else's patch: ours then only passes calls on.
    """
    submit: Any = ThreadPoolExecutor.submit
    active = True

    @functools.wraps(submit)
    def carrying(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        carried = carry_context(function) if active else function
        return submit(pool, carried, *args, **kwargs)

    def undo() -> None:
        nonlocal active
        active = False
        if ThreadPoolExecutor.submit is carrying:
            setattr(ThreadPoolExecutor, "submit", submit)  # noqa: B010 - typed as a method

    setattr(ThreadPoolExecutor, "submit", carrying)  # noqa: B010 - typed as a method
    return undo


def _span_key() -> str:
    """The key under which OpenTelemetry keeps the current span; it has no public name."""
    marked = trace.set_span_in_context(trace.INVALID_SPAN, otel_context.Context())
    return next(iter(marked))


_SPAN_KEY: Final = _span_key()
