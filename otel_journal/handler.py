"""`RunJournal`: the LangChain callback handler. One hook says one thing to the recorder.

A synchronous handler that runs inline: LangChain would send any other kind through a thread pool,
at 60 times the price and in no order (callbacks.md 4). Parameter names are those of
`BaseCallbackHandler`, because LangChain passes some of them by keyword.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from . import notes, propagation
from . import semconv as sc
from .custom_events import CustomEvents
from .foreign import identifier
from .model_hooks import NOTHING, ModelHooks, never_raises
from .observations import Ended

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from langchain_core.documents import Document
    from langgraph.callbacks import GraphInterruptEvent, GraphResumeEvent

    from .journal import Journal

_FALLBACKS: Final = "RunnableWithFallbacks"


class RunJournal(ModelHooks):
    """Records LangChain and LangGraph callbacks into a `Journal`.

    ``graph.invoke(inputs, config={"callbacks": [RunJournal()]})`` uses the process-wide journal,
    configured from the environment. One handler serves many runs, threads and event loops.
    """

    run_inline = True
    raise_error = False
    ignore_retry = True

    def __init__(
        self,
        journal: Journal | None = None,
        *,
        run_id: str | None = None,
        thread_id: str | None = None,
    ) -> None:
        """Record into `journal` (default: the process-wide one), optionally under fixed ids."""
        super().__init__(journal, run_id=run_id, thread_id=thread_id)
        self._custom = CustomEvents()
        self._off = self.journal.settings.disabled

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Ignore hooks of a later LangChain: a handler without them would be logged each time."""
        if name.startswith("on_"):
            return _ignored
        raise AttributeError(name)

    def __copy__(self) -> RunJournal:
        """A copy records into the same journal."""
        return RunJournal(self.journal, run_id=self.run_id, thread_id=self.thread_id)

    def __deepcopy__(self, memo: dict[int, Any]) -> RunJournal:
        """A deep copy records into the same journal: frameworks copy configurations."""
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as configuration: the other process uses its own process-wide journal."""
        return _unpickled, (self.run_id, self.thread_id)

    # LangChain asks these before it calls a hook; tools are gated by ignore_agent.
    ignore_chain = ignore_llm = ignore_chat_model = ignore_agent = ignore_retriever = property(
        lambda self: self._off
    )
    ignore_custom_event = property(lambda self: self._off)

    # Chains ----------------------------------------------------------------------------------

    @never_raises
    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A graph, node or other runnable begins."""
        name = kwargs.get("name") or (serialized or NOTHING).get("name") or ""
        where = self._where(run_id, parent_run_id, tags, metadata)
        content = attributes = None
        if parent_run_id is None:
            capture = self._capture
            attributes = capture.state(sc.INPUT_MESSAGES, inputs)
            content = {"chain": name} if capture.feed else None
            if name == _FALLBACKS:
                propagation.enter_fallbacks(run_id.int)
        self._note(notes.chain_started, (where, name, content, attributes), where.at)
        if name == where.metadata.get("langgraph_node"):
            self._context.enter(run_id.int)

    @never_raises
    def on_chain_end(
        self,
        outputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A graph, node or other runnable ended."""
        at = perf_counter_ns()
        if parent_run_id is not None:
            self._note(notes.chain_ended, (run_id, at), at)
            self._context.leave(run_id.int)
            self._custom.forget(run_id)
            return
        attributes = self._capture.state(sc.OUTPUT_MESSAGES, outputs)
        self._note(notes.chain_ended, (run_id, at, self._capture.fed(outputs), attributes), at)
        self._custom.forget(run_id)
        propagation.leave_fallbacks(run_id.int)

    @never_raises
    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A graph, node or other runnable ended with an exception."""
        self._fail(run_id, "node", error)
        if parent_run_id is None:
            propagation.leave_fallbacks(run_id.int)

    # Tools -----------------------------------------------------------------------------------

    @never_raises
    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool is called."""
        where = self._where(run_id, parent_run_id, tags, metadata)
        described = serialized or NOTHING
        content = attributes = None
        if self._capture.payload:
            given = input_str if inputs is None else inputs
            content = self._capture.fed(given, "tool.arguments")
            attributes = self._capture.attribute(sc.TOOL_CALL_ARGUMENTS, given)
        arguments = (
            where,
            identifier(described.get("name") or "unknown"),
            identifier(described.get("description") or "", notes.MAX_DESCRIPTION),
            identifier(kwargs.get("tool_call_id") or ""),
            content,
            attributes,
        )
        self._note(notes.tool_started, arguments, where.at)
        self._context.enter(run_id.int)

    @never_raises
    def on_tool_end(
        self,
        output: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool returned."""
        at = perf_counter_ns()
        ended = self._capture.tool_ended(run_id, at, output)
        self._record(ended or Ended(run_id.int, at, "tool"))
        self._context.leave(run_id.int)

    @never_raises
    def on_tool_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool ended with an exception."""
        self._fail(run_id, "tool", error)

    # Retrievers ------------------------------------------------------------------------------

    @never_raises
    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever is called."""
        where = self._where(run_id, parent_run_id, tags, metadata)
        self._note(notes.retrieval_started, (where, self._capture.query(query)), where.at)

    @never_raises
    def on_retriever_end(
        self,
        documents: Sequence[Document],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever returned."""
        at = perf_counter_ns()
        ended = self._capture.retrieval_ended(run_id, at, documents)
        self._record(ended or Ended(run_id.int, at, "retrieval"))

    @never_raises
    def on_retriever_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever ended with an exception."""
        self._fail(run_id, "retrieval", error)

    # Graph life and custom events ------------------------------------------------------------

    @never_raises
    def on_interrupt(self, event: GraphInterruptEvent) -> None:
        """A graph paused, for a human or at a breakpoint."""
        if not self._off and (seen := self._capture.interrupted(event, perf_counter_ns())):
            self._record(seen)

    @never_raises
    def on_resume(self, event: GraphResumeEvent) -> None:
        """A graph goes on from a checkpoint."""
        if not self._off and (seen := self._capture.resumed(event, perf_counter_ns())):
            self._record(seen)

    @never_raises
    def on_custom_event(
        self,
        name: str,
        data: Any,
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """The application dispatched an event of its own."""
        n = self._custom.number(run_id, name, data)
        self._record(self._capture.custom_event(run_id, name, data, n))


def _ignored(*_args: object, **_kwargs: object) -> None:
    """Do nothing."""


def _unpickled(run_id: str, thread_id: str) -> RunJournal:
    return RunJournal(run_id=run_id, thread_id=thread_id)
