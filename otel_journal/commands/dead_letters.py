"""``otel-journal dead-letters``: spans that no collector took, to look at, send again or drop."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from otel_journal.errors import SidecarError

from . import terminal
from .reading import PAGE, json_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_journal.sidecar.state import State, StoredDeadLetter

VARIABLE: Final = "OTEL_JOURNAL_SIDECAR_STATE"

_HEAD: Final = ("id", "given up", "reason", "span", "trace", "detail")
_DETAIL_SHOWN: Final = 60
"""Characters of a collector's answer in a table; ``--json`` has all of it."""

_state_option: Final = click.option(
    "--state",
    "path",
    envvar=VARIABLE,
    show_envvar=True,
    required=True,
    metavar="PATH",
    help="The sidecar's state file; no sidecar may work with it now.",
)
_ids: Final = click.argument("ids", nargs=-1, type=click.IntRange(min=1), metavar="[ID]...")
_all: Final = click.option("--all", "every", is_flag=True, help="All of them.")


@contextmanager
def opened(path: str) -> Iterator[State]:
    """Open a state file that is there, and close it afterwards.

    Raises:
        SidecarError: a sidecar works with it, there is none, or it cannot be opened.
    """
    from otel_journal.sidecar.state import State  # noqa: PLC0415 - --help stays fast

    state = State(path, make=False)
    try:
        yield state
    finally:
        state.close()


def letters_of(state: State) -> Iterator[StoredDeadLetter]:
    """Yield all dead letters, oldest first."""
    after = 0
    while page := state.dead_letters(after, PAGE):
        yield from page
        after = page[-1].id


def lines(letters: Iterable[StoredDeadLetter]) -> list[str]:
    """Return the list as text."""
    rows = [_row(letter) for letter in letters]
    return terminal.table(_HEAD, rows, right=("id",)) if rows else ["No dead letters."]


def _row(letter: StoredDeadLetter) -> tuple[str, ...]:
    span = letter.event.span
    detail = " ".join(letter.detail.split())
    if len(detail) > _DETAIL_SHOWN:
        detail = detail[: _DETAIL_SHOWN - 3] + "..."
    return (
        str(letter.id),
        terminal.moment(letter.at_ns),
        terminal.safe(letter.reason),
        terminal.safe(span.name if span else letter.event.event_type),
        terminal.safe(span.trace_id if span else ""),
        terminal.safe(detail),
    )


@contextmanager
def chosen(path: str, ids: Sequence[int], *, every: bool) -> Iterator[tuple[State, list[int]]]:
    """Open a state file, and say which of its dead letters are meant.

    Raises:
        click.UsageError: neither ids nor `every` are given, or both.
        SidecarError: one of them is not there, or the file cannot be opened.
    """
    if every == bool(ids):
        msg = "give one of ID... and --all"
        raise click.UsageError(msg)
    with opened(path) as state:
        there = [letter.id for letter in letters_of(state)]
        if missing := sorted(set(ids).difference(there)):
            told = ", ".join(map(str, missing))
            msg = f"state file {state.path}: it has no dead letter {told}; nothing is done"
            raise SidecarError(msg)
        yield state, there if every else list(ids)


def _tell(count: int, done: str, *, as_json: bool) -> None:
    if as_json:
        terminal.echo_json({"dead_letters": count})
        return
    terminal.echo(f"{count:,} dead letters {done}.")


@click.group("dead-letters")
def dead_letters() -> None:
    """Look at spans that no collector took, send them again, or drop them.

    The sidecar must not run meanwhile: it keeps its state file to itself.
    """


@dead_letters.command("list")
@_state_option
@json_option
def list_(*, path: str, as_json: bool) -> None:
    """List dead letters, oldest first; with --json the whole events, content included."""
    with opened(path) as state:
        if as_json:
            for letter in letters_of(state):
                terminal.echo_json(letter._asdict())
            return
        for line in lines(letters_of(state)):
            terminal.echo(line)


@dead_letters.command()
@_state_option
@_ids
@_all
@json_option
def retry(*, path: str, ids: tuple[int, ...], every: bool, as_json: bool) -> None:
    """Let the next sidecar send dead letters again."""
    with chosen(path, ids, every=every) as (state, wanted):
        count = state.retry_dead_letters(wanted)
    _tell(count, "will be sent again by the next sidecar", as_json=as_json)


@dead_letters.command()
@_state_option
@_ids
@_all
@json_option
def drop(*, path: str, ids: tuple[int, ...], every: bool, as_json: bool) -> None:
    """Delete dead letters, for good."""
    with chosen(path, ids, every=every) as (state, wanted):
        count = state.drop_dead_letters(wanted)
    _tell(count, "dropped", as_json=as_json)
