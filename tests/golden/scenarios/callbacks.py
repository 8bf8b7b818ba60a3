"""How handlers get in, and who stands beside them: duplicates, strangers that raise."""

# ruff: noqa: ARG001, ARG002 - nodes and callbacks get more than they need

from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler

from .graphs import INPUT, State, a, line, model_that_says
from .registry import Caller, scenario


@scenario("22")
def same_handler_twice(call: Caller) -> None:
    """One handler given twice, in several places, and two handlers of one journal."""
    handler = call.handler()
    model = model_that_says("hi", callbacks=[handler])
    call.invoke(model, "q", {"callbacks": [handler]})
    call.invoke(model_that_says("hi"), "q", {"callbacks": [handler, handler]})

    def n(state: State) -> State:
        model.invoke("q")
        return {}

    graph = line(n).with_config(callbacks=[handler])
    call.invoke(graph, INPUT, {"callbacks": [handler]})
    call.invoke(model_that_says("hi", callbacks=[call.handler()]), "q")


@scenario("22b")
def handler_only_in_the_model(call: Caller) -> None:
    """The model knows the handler, the graph does not: the parent was never seen."""
    model = model_that_says("hi", callbacks=[call.handler()])

    def n(state: State) -> State:
        model.invoke("q")
        return {}

    call.invoke(line(n), INPUT, {})


class _Breaking(BaseCallbackHandler):
    """Somebody else's handler, which raises in one of its methods."""

    run_inline = True  # in async runs LangChain calls inline handlers first, in order: as in sync

    def __init__(self, method: str, *, raise_error: bool) -> None:
        self.method = method
        self.raise_error = raise_error

    def _break_in(self, method: str) -> None:
        if method == self.method:
            msg = f"handler broke in {method}"
            raise ValueError(msg)

    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        """Break when told to."""
        self._break_in("on_chain_start")

    def on_chain_end(self, *args: Any, **kwargs: Any) -> None:
        """Break when told to."""
        self._break_in("on_chain_end")


@scenario("26")
def stranger_raises(call: Caller) -> None:
    """Exceptions of another handler: swallowed, or, if it insists, fatal to the run.

    Handlers after the fatal one never see the start; those before it never see an end.
    """
    for method in ("on_chain_start", "on_chain_end"):
        stranger = _Breaking(method, raise_error=False)
        call.invoke(line(a), INPUT, {"callbacks": [stranger, call.handler()]})
    fatal_start = _Breaking("on_chain_start", raise_error=True)
    for callbacks in ([fatal_start, call.handler()], [call.handler(), fatal_start]):
        with pytest.raises(ValueError, match="on_chain_start"):
            call.invoke(line(a), INPUT, {"callbacks": callbacks})
    fatal_end = _Breaking("on_chain_end", raise_error=True)
    with pytest.raises(ValueError, match="on_chain_end"):
        call.invoke(line(a), INPUT, {"callbacks": [fatal_end, call.handler()]})


class _Stopping(BaseCallbackHandler):
    def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        """Stop the process."""
        msg = "base"
        raise SystemExit(msg)


@scenario("26b", way="sync")
def stranger_stops_the_process(call: Caller) -> None:
    """Another handler raises SystemExit, which nobody swallows: our run never ends."""
    with pytest.raises(SystemExit):
        call.invoke(line(a), INPUT, {"callbacks": [call.handler(), _Stopping()]})


class _AsyncStranger(AsyncCallbackHandler):
    async def on_chain_start(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, in a loop."""

    async def on_chain_end(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing, in a loop."""


@scenario("37")
def async_stranger(call: Caller) -> None:
    """An async handler stands beside ours; in sync runs it gets a new event loop per event."""
    call.invoke(line(a), INPUT, {"callbacks": [_AsyncStranger(), call.handler()]})
