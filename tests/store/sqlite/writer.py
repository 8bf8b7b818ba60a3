"""A process that appends batches of five to a journal and prints each one once it is written.

Arguments: the file, a name for its events, how many batches (0: until it is killed).
"""

from __future__ import annotations

import itertools
import sys

from otel_journal.events import Event
from otel_journal.store.sqlite import SqliteStore

BATCH = 5


def main(path: str, name: str, batches: int) -> None:
    """Append and acknowledge."""
    store = SqliteStore(path)
    for batch in itertools.count() if batches == 0 else range(batches):
        store.append(
            [
                Event(
                    event_id=f"{name}/{batch}/{index}",
                    run_id=name,
                    event_type="llm.ai.response",
                    category="message",
                    created_ns=batch,
                    thread_id="thread",
                    content="x" * 300,
                )
                for index in range(BATCH)
            ]
        )
        sys.stdout.write(f"{batch}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
