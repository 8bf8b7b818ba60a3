"""A real OpenTelemetry collector (rotel) between the journal and a receiver of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from servers.process import ServerProcess, free_port, listens

PROGRAM: Final = "rotel-agent"


class Rotel(ServerProcess):
    """One rotel agent: OTLP in over gRPC and HTTP, OTLP out to one endpoint."""

    def __init__(self, program: Path, folder: Path, *, forward_to: str) -> None:
        """Start the agent, forwarding over gRPC to `forward_to` (``http://127.0.0.1:PORT``)."""
        grpc_port, http_port = free_port(), free_port()
        self.grpc_endpoint = f"http://127.0.0.1:{grpc_port}"
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` must be for the protocol ``grpc``."""
        self.http_endpoint = f"http://127.0.0.1:{http_port}"
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` must be for the protocol ``http/protobuf``."""
        command: list[str | Path] = [
            *(program, "start", "--exporter", "otlp", "--otlp-exporter-endpoint", forward_to),
            *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}"),
            *("--otlp-http-endpoint", f"127.0.0.1:{http_port}"),
            *("--pid-file", folder / "rotel.pid", "--log-file", folder / "rotel.log"),
        ]
        super().__init__(command, folder)
        self.wait_ready(lambda: listens(grpc_port) and listens(http_port))
