"""Forks while another thread records and the worker exports: ``python forks.py COUNT``.

Callbacks are called directly and spans go to standard output, one ``pid span_id name`` a line, so
that no locks but the journal's are in play. Prints ``done RECORDED BAD DELIVERED`` at the end:
runs of the parent, children that failed or were stuck, and whether the parent's flush succeeded.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from uuid import uuid4

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from otel_journal import Journal, Settings

CHILD_LIMIT_S = 5


class Lines(SpanProcessor):
    """Writes spans to standard output, one short write each: atomic on a pipe."""

    def on_end(self, span: ReadableSpan) -> None:
        """Write one line."""
        line = f"{os.getpid()} {span.context.span_id:016x} {span.name}\n"
        os.write(1, line.encode())


provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(Lines())
# Without metrics: the collector's lock has a test of its own.
journal = Journal(Settings(metrics=False, linger=0.001), tracer_provider=provider)
handler = journal.handler()


def record(name: str) -> None:
    """Record a run with one chat call that leaves a moment for others in between."""
    root, call = uuid4(), uuid4()
    handler.on_chain_start(None, {}, run_id=root, name=name)
    handler.on_chat_model_start({}, [[]], run_id=call, parent_run_id=root)
    time.sleep(0.0005)
    handler.on_llm_error(ValueError(), run_id=call)
    handler.on_chain_end({}, run_id=root)


def main(forks: int) -> None:
    """Fork in the middle of work."""
    over = threading.Event()
    recorded = bad = 0

    def work() -> None:
        nonlocal recorded
        while not over.is_set():
            record("parent")
            recorded += 1

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(forks):
        child = os.fork()
        if child == 0:
            signal.alarm(CHILD_LIMIT_S)  # ends a child that is stuck
            record("child")
            os._exit(not journal.shutdown())
        bad += os.waitpid(child, 0)[1] != 0
    over.set()
    thread.join()
    delivered = journal.flush()
    os.write(1, f"done {recorded} {bad} {delivered}\n".encode())


main(int(sys.argv[1]))
