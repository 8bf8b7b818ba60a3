"""``otel-journal prune``: delete the oldest events of a store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import click

from . import terminal
from .reading import json_option, opened, pages, store_option

if TYPE_CHECKING:
    from otel_journal.store.protocol import Store


class Extent(NamedTuple):
    """Oldest events of a store."""

    up_to: int
    """Highest `seq` of them."""
    events: int
    """How many there are."""


def extent_up_to(store: Store, up_to: int) -> Extent:
    """Events with ``seq <= up_to``."""
    count = 0
    for event in pages(store.read):
        if event.seq > up_to:
            break
        count += 1
    return Extent(up_to, count)


def extent_before(store: Store, before_ns: int) -> Extent:
    """Events from the first on, up to where one is not older than `before_ns` (Unix time)."""
    up_to = count = 0
    for event in pages(store.read):
        if event.created_ns >= before_ns:
            break
        up_to, count = event.seq, count + 1
    return Extent(up_to, count)


def _age(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return terminal.duration_ns(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@store_option
@click.option("--up-to", type=click.IntRange(min=1), metavar="SEQ",
              help="Delete events up to this number.")  # fmt: skip
@click.option("--older-than", callback=_age, metavar="DURATION",
              help="Delete events older than, for example, 30d or 12h.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Count, and delete nothing.")
@json_option
def prune(
    *, url: str, up_to: int | None, older_than: int | None, dry_run: bool, as_json: bool
) -> None:
    """Delete the oldest events of a store, for good."""
    if (up_to is None) == (older_than is None):
        msg = "give one of --up-to SEQ and --older-than DURATION"
        raise click.UsageError(msg)
    with opened(url, change=not dry_run) as store:
        if older_than is not None:
            extent = extent_before(store, time.time_ns() - older_than)
        elif dry_run:
            extent = extent_up_to(store, up_to or 0)
        else:
            extent = Extent(up_to or 0, 0)
        deleted = extent.events if dry_run else store.prune(extent.up_to)
    if as_json:
        terminal.echo_json({"up_to": extent.up_to, "events": deleted, "dry_run": dry_run})
        return
    told = "would be deleted" if dry_run else "deleted"
    terminal.echo(f"{deleted:,} events up to {extent.up_to} {told}.")
