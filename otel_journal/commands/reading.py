"""What all commands share: which store to open, and reading it in pages."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from otel_journal.events import Event
    from otel_journal.store.protocol import Store

VARIABLE: Final = "OTEL_JOURNAL_STORE"
EXIT_FAILED: Final = 1
"""The command did its work, and what came out is not good; or it met an unexpected error."""
PAGE: Final = 500
"""Events read at once."""

store_option: Final = click.option(
    "--store",
    "url",
    envvar=VARIABLE,
    show_envvar=True,
    callback=lambda _context, _parameter, value: _given(value),
    metavar="URL",
    help="The store.",
)

json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; of lists, a line for each element."
)


def _given(value: str | None) -> str:
    if value:
        return value
    msg = f"no store: give --store URL or set {VARIABLE}"
    raise click.UsageError(msg)


@contextmanager
def opened(url: str, *, change: bool = False, make: bool = False) -> Iterator[Store]:
    """Open a store, and close it afterwards: to look into it, unless told otherwise.

    With `change` it can be written to, with `make` it is also made when it is missing.

    Raises:
        StoreError: the URL names no store, or one that cannot be opened.
    """
    from otel_journal.store import existing, open_store  # noqa: PLC0415 - --help stays fast

    writable = change or make or url == "memory:"  # which is empty, and nobody else's
    store = open_store(existing(url) if change else url, read_only=not writable)
    try:
        yield store
    finally:
        store.close()


def pages(read: Callable[[int, int], list[Event]], after: int = 0) -> Iterator[Event]:
    """Everything that ``read(after, limit)`` gives, page by page."""
    while page := read(after, PAGE):
        yield from page
        after = page[-1].seq


def events_of(store: Store, run_id: str, types: Collection[str] | None = None) -> list[Event]:
    """All events of a run, or those of some types."""
    return list(pages(lambda after, limit: store.events(run_id, types, after, limit)))
