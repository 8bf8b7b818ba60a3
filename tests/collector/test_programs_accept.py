"""The programs themselves check the files that are for them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from servers import alertmanager, otelcol

VALID: Final = (
    ("otelcol.yaml",),
    ("otelcol.yaml", "balanced.yaml"),
    ("otelcol-gateway.yaml",),
)


@pytest.mark.parametrize("configs", VALID, ids="+".join)
def test_the_collector_accepts(
    otelcol_program: Path, files: Path, configs: tuple[str, ...]
) -> None:
    """Every configuration is valid with nothing but its defaults."""
    assert otelcol.objections(otelcol_program, *(files / config for config in configs)) == ""


@pytest.mark.parametrize(
    ("config", "overlay"),
    [
        ("otelcol.yaml", "yaml:service::pipelines::traces::processors: [memory_limiter]"),
        (
            "otelcol-gateway.yaml",
            "yaml:service::pipelines::traces/measured::processors: [memory_limiter]",
        ),
    ],
)
def test_the_collector_accepts_the_way_to_let_content_pass(
    otelcol_program: Path, files: Path, config: str, overlay: str
) -> None:
    """What the README says to lay over a configuration makes a configuration."""
    assert f"--config {config} --config '{overlay}'" in (files / "README.md").read_text()
    assert otelcol.objections(otelcol_program, files / config, overlay) == ""


def test_the_collector_would_object(otelcol_program: Path, files: Path) -> None:
    """A processor that is not there is found: accepting means something."""
    overlay = "yaml:service::pipelines::traces::processors: [no_such_processor]"

    assert "no_such_processor" in otelcol.objections(
        otelcol_program, files / "otelcol.yaml", overlay
    )


def test_prometheus_accepts(promtool: Path, repository: Path, tmp_path: Path) -> None:
    """The configuration and the rule files that it names; a missing rule file is found."""
    shutil.copytree(repository / "collector", tmp_path / "collector")
    shutil.copytree(repository / "dashboards" / "rules", tmp_path / "dashboards" / "rules")
    command = [promtool, "check", "config", tmp_path / "collector" / "prometheus.yml"]

    checked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert checked.returncode == 0, checked.stderr
    assert "2 rule files found" in checked.stdout

    (tmp_path / "dashboards" / "rules" / "otel-journal.rules.yml").unlink()
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0  # noqa: S603


def test_alertmanager_accepts(
    server_program: Callable[[str], Path], files: Path, tmp_path: Path
) -> None:
    """The configuration is valid; a route to nobody is found."""
    amtool = server_program(alertmanager.AMTOOL)
    assert alertmanager.objections(amtool, files / "alertmanager.yml") == ""

    text = (files / "alertmanager.yml").read_text()
    broken = tmp_path / "broken.yml"
    broken.write_text(text.replace("receiver: team", "receiver: nobody"))
    assert "nobody" in alertmanager.objections(amtool, broken)
