"""Runs agents for ever; a tool says which call it is. Arguments: journal URL, sync or async."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool

from otel_journal import Journal, Settings
from otel_journal.testing import ScriptedModel, ai, tool_call

STORE, WAY = sys.argv[1:]


@tool
def say(x: int) -> str:
    """Say a number: the callback that tells of this call has returned by now."""
    sys.stdout.write(f"{x}\n")
    sys.stdout.flush()
    return "said"


def agent(number: int) -> Any:
    """Return an agent that calls the tool once."""
    script = [ai("", tool_call("say", {"x": number}, f"call-{number}")), ai("done")]
    return create_agent(ScriptedModel(script=script), [say])


def main() -> None:
    """Run for ever."""
    journal = Journal(Settings(store=STORE, durability="sync", linger=5.0))
    for number in count():
        config = {"callbacks": [journal.handler(thread_id=f"t{number}")]}
        if WAY == "async":
            asyncio.run(agent(number).ainvoke({"messages": [("user", "go")]}, config))
        else:
            agent(number).invoke({"messages": [("user", "go")]}, config)


if __name__ == "__main__":
    main()
