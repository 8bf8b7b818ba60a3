"""A sidecar's two projections, until the store is read or until it dies.

Arguments: path of the journal, path of the state, URL of the collector, and where to die: after
so many seconds (``0.3``), or ``commit:2``, between the delivery and the commit of the 2nd batch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

from otel_journal.errors import SidecarError
from otel_journal.exceptions_log import Shape
from otel_journal.exposition import JournalCollector
from otel_journal.metrics import MetricsFold
from otel_journal.sidecar.books import Books
from otel_journal.sidecar.otlp.counts import ExportCounts
from otel_journal.sidecar.otlp.delivery import DeadLetter, Delivery, Outgoing
from otel_journal.sidecar.otlp.encoding import SpanEncoder
from otel_journal.sidecar.otlp.endpoint import endpoint_from_env
from otel_journal.sidecar.otlp.transport import connect
from otel_journal.sidecar.relay import Relay
from otel_journal.sidecar.state import State
from otel_journal.store.sqlite import SqliteStore

BATCH: Final = 40
"""Small, so that a death has many places to happen at."""


class DyingDelivery(Delivery):
    """Delivers, and dies before anybody can commit what it delivered."""

    batches = 0
    """Deliveries before the deadly one; 0: none is."""

    def deliver(self, spans: Sequence[Outgoing]) -> list[DeadLetter] | None:
        """Deliver; the last batch kills the process."""
        dead = super().deliver(spans)
        self.batches -= 1
        if not self.batches:
            os.kill(os.getpid(), signal.SIGKILL)
        return dead


def kill_after(seconds: float) -> None:
    """Die at any instruction."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()


def main(journal: str, state_path: str, url: str, death: str) -> None:
    """Relay and count everything; print the durable counters and the totals."""
    place, _, number = death.partition(":")
    state = State(state_path)
    store = SqliteStore(journal)
    transport = connect(endpoint_from_env({"OTEL_EXPORTER_OTLP_ENDPOINT": url}))
    encoder = SpanEncoder(Shape("0.1", capture_content=False))
    stop = threading.Event()
    delivery = DyingDelivery(transport, encoder, counts=ExportCounts(), stop=stop)
    if place == "commit":
        delivery.batches = int(number)
    elif place:
        kill_after(float(place))
    relay = Relay(store, state, delivery, encoder)
    books = Books(store, state, JournalCollector(MetricsFold()))
    idle = 0
    while idle < 2:  # once each
        relayed, counted = relay.step(BATCH), books.step(BATCH)
        books.commit()
        idle = 0 if relayed or counted else idle + 1
        time.sleep(0.002)
    books.close()
    json.dump({"totals": state.totals(), "counters": state.counters()}, sys.stdout)
    transport.close()
    store.close()
    state.close()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except SidecarError as error:
        sys.exit(str(error))
