"""``otel-journal import-checkpoint``: bring threads older than the journal into its feed."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import click
import msgspec

from otel_journal.checkpoint_import import import_events, unix_ns
from otel_journal.errors import EventError, StoreError

from . import terminal
from .reading import EXIT_FAILED, json_option, opened, store_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langgraph.checkpoint.sqlite import SqliteSaver

    from otel_journal.events import Event
    from otel_journal.store.protocol import Store

Status: TypeAlias = Literal["imported", "skipped", "failed"]

_NOT_EMPTY: Final = "has messages already"
_THREADS: Final = (
    "SELECT thread_id FROM checkpoints WHERE checkpoint_ns = ''"
    " GROUP BY thread_id ORDER BY min(checkpoint_id)"
)
"""Oldest first, for the ids of checkpoints begin with their time."""


class CheckpointError(StoreError):
    """A thread has no checkpoint that can be read."""


class Imported(msgspec.Struct, frozen=True):
    """What came of one thread."""

    thread_id: str
    status: Status
    messages: int = 0
    """Events written."""
    turns: int = 0
    reason: str = ""
    """Why nothing was written."""


@contextmanager
def checkpoints_in(path: str) -> Iterator[SqliteSaver]:
    """Open the file of a LangGraph SQLite checkpointer, for reading only.

    Raises:
        StoreError: there is no such file, it holds no checkpoints, or
            langgraph-checkpoint-sqlite is not installed.
    """
    try:
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer  # noqa: PLC0415
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 - not a dependency
    except ImportError as error:
        msg = "import-checkpoint needs its reader: pip install langgraph-checkpoint-sqlite"
        raise StoreError(msg) from error
    address = f"{Path(path).resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as connection:
            connection.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchall()
            # Strict: only well-known types are built, whoever wrote the file.
            saver = SqliteSaver(connection, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
            saver.is_setup = True  # its setup would write
            yield saver
    except sqlite3.Error as error:
        msg = f"checkpoints {path!r} cannot be read: {error}"
        raise StoreError(msg) from error


def threads_in(saver: SqliteSaver) -> list[str]:
    """Return the threads that have checkpoints, oldest first."""
    return [row[0] for row in saver.conn.execute(_THREADS)]


def import_thread(store: Store, saver: SqliteSaver, thread_id: str) -> Imported:
    """Write the history of a thread's newest checkpoint, unless its feed has messages already.

    Whether it has is asked before the write, but ids are those of `import_events`: of imports at
    the same time, one writes.

    Raises:
        StoreError: the store cannot take anything now.
    """
    if store.count_messages(thread_id):
        return Imported(thread_id, "skipped", reason=_NOT_EMPTY)
    try:
        events = _history(saver, thread_id)
        written = store.append(events)
    except (EventError, CheckpointError) as error:
        return Imported(thread_id, "failed", reason=str(error))
    if not written:
        reason = _NOT_EMPTY if events else "no messages in its checkpoint"
        return Imported(thread_id, "skipped", reason=reason)
    return Imported(thread_id, "imported", len(written), len({e.run_id for e in written}))


def _history(saver: SqliteSaver, thread_id: str) -> list[Event]:
    """Return the events that a thread's newest checkpoint makes.

    Raises:
        CheckpointError: there is none, or it cannot be read.
    """
    try:
        found = saver.get_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
        if found is not None:
            messages = found.checkpoint["channel_values"].get("messages")
            created_ns = unix_ns(found.checkpoint["ts"])
    except (ValueError, TypeError, LookupError, AttributeError, NotImplementedError) as error:
        # What serialisers raise on damage, and on types or ciphers they do not know.
        msg = f"its checkpoint cannot be read: {type(error).__name__}: {error}"
        raise CheckpointError(msg) from error
    if found is None:
        msg = "no checkpoint"
        raise CheckpointError(msg)
    return import_events(thread_id, messages, created_ns) if isinstance(messages, list) else []


def _line(row: Imported) -> str:
    thread = terminal.safe(row.thread_id)
    if row.status == "imported":
        return f"{thread}: {row.messages:,} messages in {row.turns:,} turns imported."
    return f"{thread}: {row.status}: {terminal.safe(row.reason)}"


def _tell(row: Imported, *, as_json: bool) -> None:
    if as_json:
        terminal.echo_json(row)
    elif row.status == "failed":
        click.echo(_line(row), err=True)
    else:
        terminal.echo(_line(row))


@click.command("import-checkpoint")
@store_option
@click.option("--checkpoints", "path", required=True, metavar="PATH",
              help="SQLite file of a LangGraph checkpointer.")  # fmt: skip
@click.option("--thread", "thread_ids", multiple=True, metavar="THREAD",
              help="Only this thread; may be repeated. Default: all.")  # fmt: skip
@json_option
def import_checkpoint(*, url: str, path: str, thread_ids: Sequence[str], as_json: bool) -> int:
    """Import message histories from a LangGraph checkpointer.

    Of each thread the newest checkpoint; a thread that has messages in the store is skipped.
    Redaction hooks are not applied.
    """
    good = True
    with checkpoints_in(path) as saver:
        chosen = list(dict.fromkeys(thread_ids)) or threads_in(saver)
        with opened(url, make=True) as store:
            for thread_id in chosen:
                row = import_thread(store, saver, thread_id)
                good = good and row.status != "failed"
                _tell(row, as_json=as_json)
    if not chosen and not as_json:
        terminal.echo("No threads.")
    return 0 if good else EXIT_FAILED
