"""A process that commits changes to a state file and prints the number of each once it is written.

Arguments: the file, and where to die by SIGKILL: ``statement:N`` before the N-th statement of a
commit, ``commit`` in the middle of COMMIT, ``written`` right after it, or ``never``.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from otel_journal.events import Event, SpanBlock
from otel_journal.sidecar.otlp.delivery import DeadLetter
from otel_journal.sidecar.state import Change, Cursor, OperationKey, Process, State

EPOCH = "epoch"
PADDING = "x" * 20_000
"""Makes totals span several pages."""


def start(number: int) -> Event:
    """Make a start event."""
    return _event(number, "start", "node.start")


def end(number: int) -> Event:
    """Make an end event."""
    return _event(number, "end", "node.end")


def _event(number: int, phase: str, event_type: str) -> Event:
    block = SpanBlock(
        f"op-{number}", "node", "node", "0" * 32, f"{number:016x}", number + 1, {"n": number}
    )
    event_id = f"op-{number}/1/{phase}"
    return Event(event_id, "run", event_type, "trace", number + 1, span=block, process="process")


def change(number: int) -> Change:
    """Make the n-th change: it touches every part, and all of them tell its number."""
    return Change(
        projection="counters",
        cursor=Cursor(EPOCH, number),
        totals={"number": number, "padding": PADDING},
        opened=[start(number)],
        ended=[OperationKey(f"op-{number - 1}", f"{number - 1:016x}")],
        processes=[Process("process", {"service.name": "s"}, number)],
        made=[end(number)],
        made_sent=[f"op-{number - 1}/1/end"],
        dead_letters=[DeadLetter(end(number), "refused", str(number))],
        counted={"changes": 1},
    )


def die() -> None:
    """Die as by the kernel's hand: nothing is flushed or closed."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(state: State, where: str) -> None:
    """Prepare the death."""
    connection = state._connection
    if where.startswith("statement:"):
        connection.set_exec_trace(_countdown(int(where.partition(":")[2])))
    elif where == "commit":
        connection.set_commit_hook(die)
    elif where == "written":
        connection.set_wal_hook(lambda *_: die())


def _countdown(statements: int) -> Callable[..., bool]:
    left = iter(range(statements, 0, -1))

    def traced(*_: object) -> bool:
        if next(left) == 1:
            die()
        return True

    return traced


def main(path: str, where: str) -> None:
    """Commit and acknowledge."""
    state = State(path)
    found = state.cursor("counters")
    number = found.seq if found else 0
    arm(state, where)
    while True:
        number += 1
        state.commit(change(number))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
