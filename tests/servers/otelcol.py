"""A real OpenTelemetry Collector that runs the configurations of ``collector/``."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx
from servers.process import ServerProcess, free_port, listens

PROGRAM: Final = "otelcol"
FILES: Final = Path(__file__).parents[2] / "collector"
"""The configurations a user gets."""

REQUEST_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class Place:
    """Where one collector listens and keeps its queue; a collector started again has the same."""

    folder: Path
    grpc_port: int = field(default_factory=free_port)
    http_port: int = field(default_factory=free_port)
    health_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)

    @property
    def grpc_endpoint(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` must be for the protocol ``grpc``."""
        return f"http://127.0.0.1:{self.grpc_port}"

    @property
    def http_endpoint(self) -> str:
        """What ``OTEL_EXPORTER_OTLP_ENDPOINT`` must be for the protocol ``http/protobuf``."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def variables(self) -> dict[str, str]:
        """What the configurations read from the environment to be here."""
        return {
            "OTELCOL_GRPC": f"127.0.0.1:{self.grpc_port}",
            "OTELCOL_HTTP": f"127.0.0.1:{self.http_port}",
            "OTELCOL_HEALTH": f"127.0.0.1:{self.health_port}",
            "OTELCOL_METRICS_HOST": "127.0.0.1",
            "OTELCOL_METRICS_PORT": str(self.metrics_port),
            "OTELCOL_STORAGE": str(self.folder / "queue"),
        }


class Otelcol(ServerProcess):
    """One collector; several configurations are laid over each other in order."""

    def __init__(
        self, program: Path, place: Place, *configs: Path | str, variables: Mapping[str, str]
    ) -> None:
        """Start the collector and wait until it takes spans; `variables` beat those of `place`."""
        self.place = place
        assigned = [f"{name}={value}" for name, value in {**place.variables, **variables}.items()]
        super().__init__(["/usr/bin/env", *assigned, program, *_options(configs)], place.folder)
        self.wait_ready(self._ready, timeout=40.0)

    def metrics(self) -> str:
        """Return what the collector tells about itself."""
        url = f"http://127.0.0.1:{self.place.metrics_port}/metrics"
        return httpx.get(url, timeout=REQUEST_TIMEOUT_S).text

    def _ready(self) -> bool:
        try:
            url = f"http://127.0.0.1:{self.place.health_port}/"
            healthy = httpx.get(url, timeout=REQUEST_TIMEOUT_S).is_success
        except httpx.TransportError:
            return False
        return healthy and listens(self.place.grpc_port) and listens(self.place.http_port)


def objections(program: Path, *configs: Path | str) -> str:
    """Return what ``otelcol validate`` says; empty when it accepts the configurations."""
    checked = subprocess.run(  # noqa: S603 - our own command line
        [program, "validate", *_options(configs)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60.0,
    )
    return checked.stdout + checked.stderr if checked.returncode else ""


def _options(configs: tuple[Path | str, ...]) -> list[str]:
    return [option for config in configs for option in ("--config", str(config))]
