"""``otel-journal rules``: make Prometheus rules of budgets, objectives, limits and prices."""

from __future__ import annotations

from pathlib import Path

import click

from otel_journal.errors import SettingsError
from otel_journal.rule_settings import EXAMPLE, settings_group


@click.command()
@click.option(
    "--settings",
    "file",
    type=click.Path(dir_okay=False),
    help="TOML file with budgets, objectives, limits, prices and links.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    help="Where the rules go; default standard output.",
)
@click.option("--example", is_flag=True, help="Print a settings file to begin with.")
def rules(*, file: str | None, output: str | None, example: bool) -> int:
    """Make the settings group of the alert rules.

    The rules and boards in dashboards/ read the series that this group records. Put the file
    beside them, and reload Prometheus.
    """
    if example:
        click.echo(EXAMPLE, nl=False)
        return 0
    if file is None:
        msg = "give --settings FILE, or --example for one to begin with"
        raise click.UsageError(msg)
    group = settings_group(_text(file), file)
    if output is None:
        click.echo(group, nl=False)
    else:
        _write(Path(output), group)
    return 0


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        msg = f"settings file {file!r}: {reason}"
        raise SettingsError(msg) from error


def _write(path: Path, text: str) -> None:
    """Replace the file as a whole: a half-written one would stop Prometheus at its next reload."""
    beside = path.with_name(path.name + ".new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        msg = f"--output {str(path)!r}: {error.strerror}"
        raise SettingsError(msg) from error
