# ruff: noqa: INP001 - a program
"""An agent without a model to pay for: one run every few seconds, some of them fail."""

from __future__ import annotations

import itertools
import sys
import time
from contextlib import suppress
from typing import Any

from langgraph.graph import START, MessagesState, StateGraph

from otel_journal import RunJournal
from otel_journal.testing import ScriptedModel, ai

PAUSE_S = 5.0
FAILS_EVERY = 5
USAGE = {"input_tokens": 1_200, "output_tokens": 80, "total_tokens": 1_280}


def answer(state: MessagesState) -> dict[str, Any]:
    """Ask the scripted model, which sometimes cannot be reached."""
    last = str(state["messages"][-1].content)
    fails = int(last) % FAILS_EVERY == 0
    script = [ConnectionError("no answer")] if fails else [ai("It is well.", usage=USAGE)]
    return {"messages": [ScriptedModel(script=script).invoke(state["messages"])]}


def main(runs: int) -> None:
    """Run the agent so often; 0: for ever."""
    graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
    agent = graph.compile(name="example")
    for number in range(1, runs + 1) if runs else itertools.count(1):
        with suppress(ConnectionError):
            agent.invoke({"messages": [("human", str(number))]}, {"callbacks": [RunJournal()]})
        time.sleep(0 if runs else PAUSE_S)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
