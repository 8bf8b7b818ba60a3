"""The first half of scenario 39: a program that is killed in its second node.

Run as ``python killed_process.py DATABASE``; it never returns.
"""

import os
import signal
import sqlite3
import sys
from contextlib import closing
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings


class Progress(TypedDict, total=False):
    """The last node that finished."""

    done: str


def build(connection: sqlite3.Connection, *, killed: bool) -> CompiledStateGraph:
    """Compile the graph over a database that survives the process."""

    def first(_: Progress) -> Progress:
        return {"done": "first"}

    def second(_: Progress) -> Progress:
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"done": "second"}

    graph = StateGraph(Progress)
    graph.add_node("first", first)
    graph.add_node("second", second)
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    return graph.compile(checkpointer=SqliteSaver(connection))


def _main(database: str) -> None:
    journal = Journal(Settings(), tracer_provider=TracerProvider(), registry=CollectorRegistry())
    config: Any = {
        "callbacks": [journal.handler()],
        "configurable": {"thread_id": "t1"},
    }
    with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
        build(connection, killed=True).invoke({"done": ""}, config, durability="sync")


if __name__ == "__main__":
    _main(sys.argv[1])
