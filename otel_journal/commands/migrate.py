"""``otel-journal migrate``: bring the tables of a store up to this release."""

from __future__ import annotations

import click

from . import terminal
from .reading import EXIT_FAILED, json_option, opened, store_option


@click.command()
@store_option
@click.option("--check", "only_check", is_flag=True,
              help="Change nothing; the exit code is 1 when there is something to do.")  # fmt: skip
@json_option
def migrate(*, url: str, only_check: bool, as_json: bool) -> int:
    """Bring the tables of a store up to this release.

    Whatever opens a store for writing does this by itself. Run it before, when the account that
    writes may not change tables, or when readers are updated first.
    """
    from otel_journal.store.opening import schema_at  # noqa: PLC0415 - --help stays fast
    from otel_journal.store.rows import SCHEMA  # noqa: PLC0415 - as above

    before = after = schema_at(url)
    if not only_check:
        with opened(url, change=True):
            after = schema_at(url)
    if as_json:
        terminal.echo_json({"before": before, "after": after, "needed": SCHEMA})
    elif after != SCHEMA:
        terminal.echo(f"schema {after}, this release needs {SCHEMA}: run otel-journal migrate")
    elif before != after:
        terminal.echo(f"schema {before} is now {after}")
    else:
        terminal.echo(f"schema {after}, nothing to do")
    return 0 if after == SCHEMA else EXIT_FAILED
