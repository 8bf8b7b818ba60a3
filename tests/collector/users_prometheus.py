"""A Prometheus that runs the shipped configuration, at the addresses of a test."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from servers.process import ServerProcess, free_port
from servers.prometheus import Prometheus

REPOSITORY: Final = Path(__file__).parents[2]
_INTERVAL: Final = re.compile(r"(scrape|evaluation)_interval: \d+s")
_WAITS: Final = re.compile(r"^(\s+for:) \w+$", re.MULTILINE)


class UsersPrometheus(Prometheus):
    """A server with ``prometheus.yml`` and its rules, laid out as in the repository."""

    def __init__(
        self, program: Path, folder: Path, *, targets: Mapping[str, Sequence[str]]
    ) -> None:
        """Start the server; `targets` are the addresses by file of ``targets/``, without ending.

        In a hurry: it looks every second, and alerts do not wait before they fire.
        """
        collector = folder / "collector"
        shutil.copytree(REPOSITORY / "collector", collector)
        rules = folder / "dashboards" / "rules"
        shutil.copytree(REPOSITORY / "dashboards" / "rules", rules)
        for path in rules.glob("*.rules.yml"):
            path.write_text(_WAITS.sub(r"\1 0s", path.read_text()))
        config = collector / "prometheus.yml"
        config.write_text(_INTERVAL.sub(r"\1_interval: 1s", config.read_text()))
        for path in (collector / "targets").iterdir():
            addresses = list(targets.get(path.stem, ()))
            path.write_text(json.dumps([{"targets": addresses}]))  # JSON is YAML
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command: list[str | Path] = [
            *(program, "--config.file", config, "--storage.tsdb.path", folder / "data"),
            *("--web.listen-address", f"127.0.0.1:{port}", "--web.enable-remote-write-receiver"),
            *("--enable-feature", "exemplar-storage"),
        ]
        ServerProcess.__init__(self, command, folder)
        self.wait_ready(self._ready)
