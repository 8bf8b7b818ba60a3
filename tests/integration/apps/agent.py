"""An agent of three operations, and programs that run it and end in some way.

Run as ``python agent.py WAY``; spans go where ``OTEL_*`` says, from the process-wide journal.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

from langgraph.graph import START, MessagesState, StateGraph

from otel_journal import RunJournal
from otel_journal.testing import ScriptedModel, ai

QUESTION: Final = {"messages": [("human", "1 + 2?")]}


def _model() -> ScriptedModel:
    return ScriptedModel(script=[ai("It is 3.")])


def answering() -> Any:
    """Compile a graph with one node that calls a model: three spans a run."""
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [_model().invoke(state["messages"])]})
    graph.add_edge(START, "answer")
    return graph.compile(name="adder")


def waiting(during: Callable[[], object]) -> Any:
    """Compile a graph whose only node does something else than calling a model."""

    def work(_: MessagesState) -> dict[str, Any]:
        during()
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    return graph.compile(name="worker")


def ask(_: object = None) -> None:
    """Run the agent once, with a handler of the process-wide journal."""
    answering().invoke(QUESTION, {"callbacks": [RunJournal()]})


def _returns() -> None:
    ask()


def _thread() -> None:
    thread = threading.Thread(target=lambda: (time.sleep(0.2), ask()))
    thread.start()


def _sigterm_handled() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ask()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


def _open_run() -> None:
    """End the program in the middle of a run."""
    waiting(lambda: sys.exit(0)).invoke({"messages": []}, {"callbacks": [RunJournal()]})


def _never_closed() -> None:
    """Leave a stream unread: the run never ends."""
    stream = answering().stream(QUESTION, {"callbacks": [RunJournal()]})
    next(stream)
    _never_closed.stream = stream  # type: ignore[attr-defined]


def _os_exit() -> None:
    ask()
    os._exit(0)


def _unreachable() -> None:
    """Ask a journal whose collector is away; print what flush says, and when the program ends."""
    ask()
    print(RunJournal().journal.flush(timeout=0.2), time.monotonic(), flush=True)  # noqa: T201


def _sigkill() -> None:
    ask()
    os.kill(os.getpid(), signal.SIGKILL)


def _os_exit_flushed() -> None:
    handler = RunJournal()
    answering().invoke(QUESTION, {"callbacks": [handler]})
    assert handler.journal.flush()
    os._exit(0)


def _fork_exits() -> None:
    if os.fork() == 0:
        ask()
        sys.exit(0)
    assert os.wait()[1] == 0


def _fork_after_use() -> None:
    """Both processes use the journal and the connection that existed before the fork."""
    ask()
    assert RunJournal().journal.flush()
    _fork_exits()
    ask()


def _fork_in_a_run() -> None:
    """Fork inside a node: the child runs an agent of its own below it, the parent goes on."""
    waiting(_fork_exits).invoke({"messages": []}, {"callbacks": [RunJournal()]})


def _multiprocessing(method: str) -> Callable[[], None]:
    def run() -> None:
        context = multiprocessing.get_context(method)
        ask()
        assert RunJournal().journal.flush()
        child = context.Process(target=ask)
        child.start()
        child.join()
        assert child.exitcode == 0

    return run


def _process_pool() -> None:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        list(pool.map(ask, range(4)))


WAYS: Final = {
    "returns": _returns,
    "thread": _thread,
    "sigterm_handled": _sigterm_handled,
    "open_run": _open_run,
    "never_closed": _never_closed,
    "os_exit": _os_exit,
    "os_exit_flushed": _os_exit_flushed,
    "sigkill": _sigkill,
    "unreachable": _unreachable,
    "fork_after_use": _fork_after_use,
    "fork_in_a_run": _fork_in_a_run,
    "mp_fork": _multiprocessing("fork"),
    "mp_spawn": _multiprocessing("spawn"),
    "process_pool": _process_pool,
}
"""How a program may end."""

if __name__ == "__main__":
    WAYS[sys.argv[1]]()
