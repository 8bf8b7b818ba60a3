"""A real Prometheus that scrapes loopback targets, and promtool's verdicts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from servers.process import ServerProcess, free_port, wait_until

PROGRAM: Final = "prometheus"
PROMTOOL: Final = "promtool"
FIRST_SCRAPE_S: Final = 20.0
"""Patience for new data: a new server scrapes first after about 6 s, whatever the interval."""
REQUEST_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class Series:
    """One series of an instant query."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True)
class Exemplar:
    """One exemplar as Prometheus stored it."""

    series: Mapping[str, str]
    labels: Mapping[str, str]
    value: float


class Prometheus(ServerProcess):
    """One Prometheus with exemplar storage; data lives in `folder`."""

    def __init__(
        self, program: Path, folder: Path, *, targets: Sequence[str], rules: Sequence[Path] = ()
    ) -> None:
        """Start the server; `targets` are ``host:port`` with metrics at ``/metrics``."""
        config = folder / "prometheus.yml"
        config.write_text(json.dumps(_config(targets, rules)))  # JSON is YAML
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command: list[str | Path] = [
            *(program, "--config.file", config, "--storage.tsdb.path", folder / "data"),
            *("--web.listen-address", f"127.0.0.1:{port}"),
            *("--enable-feature", "exemplar-storage,native-histograms"),
        ]
        super().__init__(command, folder)
        self.wait_ready(self._ready)

    def query(self, expression: str) -> list[Series]:
        """Return the series of an instant query, evaluated now."""
        result = self._get("query", {"query": expression})["result"]
        return [Series(row["metric"], float(row["value"][1])) for row in result]

    def value(self, expression: str) -> float | None:
        """Return the only value of an instant query, None when there is no series."""
        series = self.query(expression)
        assert len(series) <= 1, f"{expression} has {len(series)} series"
        return series[0].value if series else None

    def wait_for_value(
        self, expression: str, expected: float, timeout: float = FIRST_SCRAPE_S
    ) -> float | None:
        """Poll until a query has the expected value; return the last one seen."""
        wait_until(lambda: self.value(expression) == expected, timeout)
        return self.value(expression)

    def wait_for_scrape(self, timeout: float = FIRST_SCRAPE_S) -> bool:
        """Wait for a scrape of every target that began after this call."""
        called = time.time()
        expression = "min(timestamp(up)) unless count(up == 0)"
        return wait_until(lambda: (self.value(expression) or 0.0) > called, timeout)

    def exemplars(self, expression: str, window: float = 600.0) -> list[Exemplar]:
        """Return the exemplars of a query's series in the last `window` seconds."""
        now = time.time()
        span = {"start": f"{now - window:.3f}", "end": f"{now + 1:.3f}"}
        return [
            Exemplar(row["seriesLabels"], exemplar["labels"], float(exemplar["value"]))
            for row in self._get("query_exemplars", {"query": expression, **span})
            for exemplar in row["exemplars"]
        ]

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=REQUEST_TIMEOUT_S).is_success
        except httpx.TransportError:
            return False

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        url = f"{self.url}/api/v1/{path}"
        response = httpx.get(url, params=parameters, timeout=REQUEST_TIMEOUT_S)
        answer = response.json()
        assert answer["status"] == "success", answer
        return answer["data"]


def check_metrics(promtool: Path, exposition: str) -> str:
    """Return what ``promtool check metrics`` objects to in an exposition text; empty when clean."""
    result = subprocess.run(  # noqa: S603 - our own command line
        [promtool, "check", "metrics"],
        input=exposition,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    objections = result.stdout + result.stderr
    assert objections or result.returncode == 0, f"promtool ended with {result.returncode}"
    return objections


def _config(targets: Sequence[str], rules: Sequence[Path]) -> dict[str, Any]:
    job = {"job_name": "journal", "static_configs": [{"targets": list(targets)}]}
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rule) for rule in rules],
        "scrape_configs": [job],
    }
