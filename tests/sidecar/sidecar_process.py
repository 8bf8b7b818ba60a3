"""A real sidecar in a process of its own, and journals for it to read."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool
from prometheus_client import CollectorRegistry
from servers.process import free_port, wait_until
from typing_extensions import Self

from otel_journal import Journal, Settings, open_store
from otel_journal.testing import ScriptedModel, ai, tool_call

SPANS_PER_RUN = 7
"""Of `record`'s agent: itself, three nodes, two model calls, a tool call."""


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def record(path: Path, runs: int = 1, **settings: Any) -> None:
    """Run an agent, with a journal that a sidecar exports."""
    store = open_store(f"sqlite:///{path}")
    given = Settings(**{"export": "sidecar", **settings})
    with Journal(given, store=store, registry=CollectorRegistry()) as journal:
        for number in range(runs):
            script = [ai("", tool_call("add", {"x": 1, "y": 2}, "c1")), ai("3")]
            create_agent(ScriptedModel(script=script), [add], name="adder").invoke(
                {"messages": [("user", "add")]},
                {"callbacks": [journal.handler(thread_id=f"t{number}")]},
            )
        assert journal.flush()
    store.close()


class SidecarProcess:
    """One `otel-journal sidecar`; a context manager that kills it in the end."""

    def __init__(self, *arguments: str | Path, **environ: str) -> None:
        """Start it with these arguments, on a free port unless they name one."""
        self.port = free_port()
        listen = [] if "--once" in arguments else ["--listen", f"127.0.0.1:{self.port}"]
        clean = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "otel_journal", "sidecar", *listen, *arguments],
            env=clean | environ,
            stderr=subprocess.PIPE,
            text=True,
        )

    def get(self, path: str) -> str:
        """Return the body behind a path.

        Raises:
            OSError: it does not answer, or not with 200.
        """
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            body: bytes = answer.read()
        return body.decode()

    def answers(self, path: str, timeout: float = 30.0) -> bool:
        """Wait until a path is answered with 200."""

        def try_it() -> bool:
            try:
                self.get(path)
            except OSError:
                return False
            return True

        return wait_until(try_it, timeout)

    def ended(self, timeout: float = 40.0) -> tuple[int, str]:
        """Wait for the end; return the exit code and what was logged."""
        _, log = self.process.communicate(timeout=timeout)
        return self.process.returncode, log

    def terminated(self) -> tuple[int, str]:
        """Send SIGTERM, and wait for the end as `ended`."""
        self.process.terminate()
        return self.ended()

    def __enter__(self) -> Self:
        """Return the running process."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.communicate()
