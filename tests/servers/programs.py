"""Python programs and web servers in processes of their own, exporting to a receiver of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from servers.otlp_sink import OtlpSink
from servers.process import ServerProcess, free_port, listens

APPS: Final = Path(__file__).parents[1] / "integration" / "apps"
"""Where the programs lie; on the path of each."""

SPANS_OF_A_RUN: Final = ("answer", "chat scripted-1", "invoke_workflow adder")
"""What one run of ``apps/agent.py`` exports, sorted."""

TIMEOUT_S: Final = 30.0


def telemetry(sink: OtlpSink | str, protocol: str = "http/protobuf", **more: str) -> dict[str, str]:
    """Return the variables that export to a receiver (or an HTTP endpoint)."""
    if isinstance(sink, str):
        endpoint = sink
    else:
        endpoint = sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint
    return {
        "PYTHONPATH": str(APPS),
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        **more,
    }


def run_program(
    *arguments: str, variables: dict[str, str], command: tuple[str, ...] = (sys.executable,)
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end, in an environment free of other telemetry settings."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    return subprocess.run(  # noqa: S603 - our own programs
        [*command, *arguments],
        env={**inherited, **variables},
        cwd=APPS,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


class WebServer(ServerProcess):
    """A web server on loopback; `stop` sends SIGTERM."""

    def __init__(self, module: str, *options: str, variables: dict[str, str], folder: Path) -> None:
        """Run ``python -m MODULE OPTIONS``; ``{port}`` in an option is the port."""
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        assigned = [f"{name}={value}" for name, value in variables.items()]
        python = [sys.executable, "-m", module, *(o.format(port=port) for o in options)]
        super().__init__(["/usr/bin/env", *assigned, *python], folder)
        self.wait_ready(lambda: listens(port))
