"""``otel-journal tail THREAD``: the last messages of a thread, and those that follow."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from otel_journal.run_view import message_of

from . import terminal
from .reading import PAGE, json_option, opened, pages, store_option
from .show import message_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_journal.events import Event
    from otel_journal.store.protocol import Store

POLL_S: Final = 0.5
"""Seconds between two looks at the store."""


class Tail:
    """A reader of one thread's feed that neither loses nor repeats a message."""

    def __init__(self, store: Store, thread_id: str) -> None:
        """Stand at the beginning of the feed of `thread_id`."""
        self._store = store
        self._thread_id = thread_id
        self._after = 0
        self._seen = -1

    def last(self, count: int) -> list[Event]:
        """The last `count` messages; `new` goes on behind them."""
        found = self._last(count)
        newest = found or self._last(1)
        self._after = newest[-1].seq if newest else 0
        return found

    def _last(self, count: int) -> list[Event]:
        """Page backwards: a store need not give more than a page at once."""
        found: list[Event] = []
        before = None
        while len(found) < count:
            wanted = min(PAGE, count - len(found))
            page = self._store.messages(self._thread_id, before=before, limit=wanted)
            if not page:
                break
            found[:0] = page
            before = page[0].seq
        return found

    def new(self) -> Iterator[Event]:
        """Yield what came since; asks for the feed only when the store has grown."""
        mark = self._store.watermark()
        if mark == self._seen:
            return
        for event in pages(self._read, self._after):
            self._after = event.seq
            yield event
        self._seen = mark

    def _read(self, after: int, limit: int) -> list[Event]:
        return self._store.messages(self._thread_id, after=after, limit=limit)


def follow(tail: Tail, show: Callable[[Event], None], wait: Callable[[float], object]) -> None:
    """Show what comes, until `wait` (seconds) raises."""
    while True:
        for event in tail.new():
            show(event)
        wait(POLL_S)


def _show(event: Event) -> None:
    for line in message_lines(message_of(event)):
        terminal.echo(line)


def _show_json(event: Event) -> None:
    terminal.echo_json(message_of(event))


@click.command()
@click.argument("thread_id", metavar="THREAD")
@store_option
@click.option("-n", "--lines", "count", type=click.IntRange(min=0), default=10, show_default=True,
              metavar="N", help="How many of the last messages.")  # fmt: skip
@click.option("-f", "--follow", "following", is_flag=True, help="Go on until Ctrl-C.")
@json_option
def tail(*, thread_id: str, url: str, count: int, following: bool, as_json: bool) -> None:
    """Print the last messages of a thread."""
    show = _show_json if as_json else _show
    with opened(url) as store:
        reader = Tail(store, thread_id)
        try:
            for event in reader.last(count):
                show(event)
            if following:
                follow(reader, show, time.sleep)
        except KeyboardInterrupt:
            click.echo(err=True)
