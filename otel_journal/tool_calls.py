"""Tool calls reported by hand, for adapters that run tools without LangChain.

They become ordinary observations: same events, spans and counters as those from callbacks.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from . import failures, ids
from . import semconv as sc
from .events import MAX_ID
from .observations import Annotated, Ended, Started

if TYPE_CHECKING:
    from .capture import Capture
    from .recorder import Recorder

MAX_PENDING: Final = 10_000
"""Calls that may be pending at once; beyond it the oldest can no longer be found by name."""


class ToolCalls:
    """Pairs completions with starts: by call id, else the oldest pending call of that name."""

    def __init__(self, recorder: Recorder, capture: Capture) -> None:
        self._recorder = recorder
        self._capture = capture
        self._lock = threading.Lock()
        self._pending: OrderedDict[tuple[str, str], str] = OrderedDict()
        """(run id, call id) -> tool name, in order of starts."""

    def started(self, run_id: str, name: str, arguments: object, call_id: object) -> str:
        """Open a call; return its id."""
        call = call_id if isinstance(call_id, str) and call_id else ids.new_call_id()
        _check(call)
        operation = ids.manual_op_id(run_id, call)
        if not self._recorder.knows(operation):
            with self._lock:
                self._pending.setdefault((run_id, call), name)
                if len(self._pending) > MAX_PENDING:
                    self._pending.popitem(last=False)
        root = self._recorder.root_key(run_id)
        attributes: dict[str, Any] = {
            sc.OPERATION_NAME: "execute_tool",
            sc.TOOL_NAME: name,
            sc.TOOL_TYPE: "function",
            sc.CALL_ID: call,
        }
        if call_id == call:
            attributes[sc.TOOL_CALL_ID] = call
        attributes |= self._capture.attribute(sc.TOOL_CALL_ARGUMENTS, arguments) or {}
        self._recorder.record(
            Started(
                key=operation.int,
                op_id=str(operation),
                parent_key=root,
                at=perf_counter_ns(),
                kind="tool",
                name=f"execute_tool {name}",
                attributes=attributes,
                call_id=call if call_id == call else "",
                content=self._capture.tool_call_content(call, name, arguments=arguments),
                run_id=run_id,
            )
        )
        return call

    def completed(
        self, run_id: str, name: str, call_id: object, *, result: object, error: object
    ) -> None:
        """Close a call, or keep an orphan completion."""
        given = call_id if isinstance(call_id, str) and call_id else None
        if given is not None:
            _check(given)
        with self._lock:
            call = given or self._oldest(run_id, name)
            if call is not None:
                self._pending.pop((run_id, call), None)
        operation = ids.manual_op_id(run_id, call) if call is not None else None
        if operation is None or not self._recorder.knows(operation):
            self._orphan(run_id, name, call, result=result, error=error)
            return
        self._recorder.record(self._ended(operation.int, result=result, error=error))

    def _oldest(self, run_id: str, name: str) -> str | None:
        for (run, call), started_name in self._pending.items():
            if run == run_id and started_name == name:
                return call
        return None

    def _ended(self, key: int, *, result: object, error: object) -> Ended:
        at = perf_counter_ns()
        if error is None:
            attributes = self._capture.attribute(sc.TOOL_CALL_RESULT, result) or {}
            content = (
                {"result": self._capture.fed(result, "tool.result")} if self._capture.feed else None
            )
            return Ended(key, at, "tool", attributes=attributes, messages=1, content=content)
        raised = isinstance(error, BaseException)
        outcome = failures.outcome_of(error) if isinstance(error, BaseException) else "error"
        return Ended(
            key,
            at,
            "tool",
            outcome,
            error_type=failures.type_name(type(error)) if raised else "tool_error",
            error_identity=id(error),
            error_message=self._capture.error_text(error),
            content=self._capture.error_content(error),
        )

    def _orphan(
        self, run_id: str, name: str, call: str | None, *, result: object, error: object
    ) -> None:
        call = call or ids.new_call_id()
        content = self._capture.tool_call_content(call, name, result=result, error=error)
        self._recorder.record(
            Annotated(
                key=None,
                run_id=run_id,
                at=perf_counter_ns(),
                event_type="tool_call.completed",
                identity=f"{ids.manual_op_id(run_id, call)}/0/orphan",
                content=content,
                metadata={"orphan": True},
            )
        )


def _check(call: str) -> None:
    if len(call) > MAX_ID:
        msg = f"call_id of {len(call)} characters is not allowed; allowed: 1 to {MAX_ID}"
        raise ValueError(msg)
