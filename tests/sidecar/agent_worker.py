"""A process of an application that runs agents until it is killed. Arguments: journal URL, seed."""

import random
import sys
import time

from langchain.agents import create_agent
from langchain_core.tools import tool

from otel_journal import Journal, Settings
from otel_journal.testing import ScriptedModel, ai, tool_call

STORE, SEED = sys.argv[1], int(sys.argv[2])
_random = random.Random(SEED)  # noqa: S311 - a test's dice


@tool
def add(x: int, y: int) -> int:
    """Add two numbers, after some thinking."""
    time.sleep(_random.random() * 0.01)
    return x + y


def main() -> None:
    """Run agents, one after the other, for ever."""
    settings = Settings(store=STORE, export="sidecar")
    journal = Journal(settings)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for number in range(10**9):
        calls = [tool_call("add", {"x": 1, "y": n}, f"c{n}") for n in range(_random.randint(1, 3))]
        script = [ai("", *calls), ai("done")]
        agent = create_agent(ScriptedModel(script=script), [add], name=f"agent-{SEED % 2}")
        agent.invoke(
            {"messages": [("user", "add")]},
            {"callbacks": [journal.handler(thread_id=f"{SEED}-{number}")]},
        )


if __name__ == "__main__":
    main()
