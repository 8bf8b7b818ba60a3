"""``otel-journal runs``: the newest runs and what they came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import msgspec

from otel_journal.events import Kind, Outcome
from otel_journal.run_view import fold_run

from . import terminal
from .reading import PAGE, events_of, json_option, opened, store_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from otel_journal.run_view import RunView
    from otel_journal.store.protocol import Store

_HEAD: Final = ("run", "start", "name", "outcome", "duration", "calls", "input", "output")
_NUMBERS: Final = ("duration", "calls", "input", "output")
_TYPES: Final = frozenset(
    {
        "run.start",
        "run.end",
        "run.error",
        "run.interrupted",
        "llm.end",
        "llm.error",
        "usage.amended",
    }
)
"""Events that decide what a line shows; the rest of a run need not be read."""


class RunRow(msgspec.Struct, frozen=True):
    """One run of the list."""

    run_id: str
    thread_id: str
    name: str
    kind: Kind | None
    outcome: Outcome | None
    """None while it runs."""
    start_ns: int
    end_ns: int
    model_calls: int
    input_tokens: int
    output_tokens: int


def newest_runs(store: Store, limit: int, thread_id: str | None = None) -> Iterator[RunRow]:
    """Yield the newest runs of a store, or of one thread; each run once, by its newest start."""
    seen: set[str] = set()
    before: int | None = None
    while len(seen) < limit and (page := store.runs(before, PAGE, thread_id)):
        for start in page:
            before = start.seq
            if start.run_id not in seen and len(seen) < limit:
                seen.add(start.run_id)
                yield _row(fold_run(events_of(store, start.run_id, _TYPES) or [start]))


def _row(view: RunView) -> RunRow:
    return RunRow(
        view.run_id,
        view.thread_id,
        view.name,
        view.kind,
        view.outcome,
        view.start_ns,
        view.end_ns,
        view.model_calls,
        view.input_tokens,
        view.output_tokens,
    )


def lines(rows: Iterable[RunRow]) -> list[str]:
    """Return the list as text."""
    cells = [
        (
            terminal.safe(row.run_id),
            terminal.moment(row.start_ns),
            terminal.safe(row.name),
            terminal.word_of(row.outcome),
            terminal.span_of(row.start_ns, row.end_ns),
            f"{row.model_calls:,}",
            f"{row.input_tokens:,}",
            f"{row.output_tokens:,}",
        )
        for row in rows
    ]
    return terminal.table(_HEAD, cells, right=_NUMBERS) if cells else ["No runs."]


@click.command()
@store_option
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, metavar="N",
              help="How many runs.")  # fmt: skip
@click.option("--thread", "thread_id", metavar="THREAD", help="Only runs of this thread.")
@json_option
def runs(*, url: str, limit: int, thread_id: str | None, as_json: bool) -> None:
    """List the newest runs of a store, with outcome, model calls and tokens."""
    with opened(url) as store:
        rows = newest_runs(store, limit, thread_id)
        if as_json:
            for row in rows:
                terminal.echo_json(row)
            return
        for line in lines(rows):
            terminal.echo(line)
