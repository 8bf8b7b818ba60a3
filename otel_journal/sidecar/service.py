"""One sidecar from start to stop: what it opens, the threads that work, and how it ends."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import uvicorn
from prometheus_client import CollectorRegistry

from otel_journal.errors import SidecarError, StoreError
from otel_journal.exceptions_log import Shape
from otel_journal.metrics import MetricsFold
from otel_journal.settings import attribute_names
from otel_journal.store import open_store

from .books import Books
from .exposition import SidecarCollector
from .otlp.counts import ExportCounts
from .otlp.delivery import Delivery
from .otlp.encoding import SpanEncoder
from .otlp.endpoint import endpoint_from_env
from .otlp.transport import connect
from .pages.routes import page_routes
from .readings import Readings
from .relay import Relay
from .shard import Shard
from .state import State
from .web.access import Access, allowed_hosts, check_listen
from .web.app import build_app
from .web.server import WebServer
from .workers import AGAIN_S, Worker

if TYPE_CHECKING:
    from otel_journal.store import Store

    from .configuration import Configuration
    from .otlp.transport import Transport

CLOSE_S: Final = 5.0
"""Longest wait for a thread that was told to halt: a request in flight, a commit."""

_logger: Final = logging.getLogger("otel_journal")


class Sidecar:
    """Reads a journal, counts and sends what is in it, and shows it.

    Nothing is opened before `run`, and nothing of the journal is touched before all settings
    are known to be good.
    """

    def __init__(self, configuration: Configuration) -> None:
        """Check what can be checked without opening anything.

        Raises:
            SettingsError: the OTLP endpoint is not allowed.
            SidecarError: the address to listen on is not allowed.
        """
        settings = configuration.sidecar
        self.configuration = configuration
        self._endpoint = endpoint_from_env(configuration.otlp)
        self._shard: Shard | None = Shard.parse(settings.shard) if settings.shard else None
        if settings.address is not None:
            host = settings.address[0]
            check_listen(host, settings.token, allow_public=settings.allow_public)
        self._finish = threading.Event()
        self._halt = threading.Event()
        self._counts = ExportCounts()
        self.readings = Readings(settings.store, self._counts)
        self.url = ""
        """Where HTTP is served, once it is."""

    @property
    def finishing(self) -> bool:
        """True once `finish` or `halt` was called."""
        return self._finish.is_set()

    def finish(self) -> None:
        """Send and count what is there, then end; safe in a signal handler.

        Before `run` it asks for one reading of the journal, for cron.
        """
        self._finish.set()

    def halt(self) -> None:
        """End without another request or commit."""
        self._finish.set()
        self._halt.set()

    def run(self, *, drain_timeout: float | None) -> bool:
        """Work until `finish`, then up to `drain_timeout` seconds more (None: as long as it takes).

        Returns:
            True when everything that was in the journal was counted and delivered.

        Raises:
            SidecarError: the state file cannot be used, or the address cannot be listened on.
        """
        with ExitStack() as closing:
            state = State(self.configuration.sidecar.state_path)
            closing.callback(state.close)
            collector = SidecarCollector(self._fold(), self.readings.stats)
            registry = CollectorRegistry()
            registry.register(collector)
            self._serve(registry, closing)
            store = self._store(closing)
            if store is None:
                return False
            return self._work(store, state, collector, drain_timeout)

    def _work(
        self, store: Store, state: State, collector: SidecarCollector, drain_timeout: float | None
    ) -> bool:
        books = Books(
            store,
            state,
            collector,
            dead_after=self.configuration.sidecar.dead_after,
            once=self.finishing,
            shard=self._shard,
        )
        transport = connect(self._endpoint)
        relay = self._relay(store, state, transport)
        workers = [
            Worker("counting", books.step, finish=self._finish, halt=self._halt),
            Worker("sending", relay.step, finish=self._finish, halt=self._halt),
        ]
        self.readings.watch(store, state, books, relay, workers)
        for worker in workers:
            worker.start()
        self._finish.wait()
        self._drain(workers, drain_timeout)
        transport.close()  # ends a request that is under way
        for worker in workers:
            worker.join(CLOSE_S)
        with suppress(SidecarError):  # said already, if the file is lost; counted again, if not
            books.close()
        complete = all(worker.finished for worker in workers)
        if not complete:
            left = relay.follower.lag()
            _logger.warning("not everything was sent: %d events wait for the next start", left)
        return complete

    def _relay(self, store: Store, state: State, transport: Transport) -> Relay:
        settings = self.configuration.sidecar
        encoder = SpanEncoder(self._shape())
        delivery = Delivery(
            transport,
            encoder,
            counts=self._counts,
            stop=self._halt,
            max_bytes=settings.max_request_bytes,
            max_spans=settings.max_request_spans,
        )
        return Relay(store, state, delivery, encoder, shard=self._shard)

    def _drain(self, workers: list[Worker], timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        for worker in workers:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            while not worker.join(left if left is not None else AGAIN_S):
                if left is not None or self._halt.is_set():
                    break
        self._halt.set()

    def _fold(self) -> MetricsFold:
        shared = self.configuration.shared
        return MetricsFold(shared.semconv, shared.max_label_values)

    def _shape(self) -> Shape:
        shared = self.configuration.shared
        return Shape(
            shared.semconv,
            capture_content=shared.capture_content,
            keep=attribute_names(shared.span_attributes),
        )

    def _store(self, closing: ExitStack) -> Store | None:
        """Open the journal, when it is there; None when the sidecar is to end before."""
        store = self._opened()
        while store is None and not self._finish.wait(AGAIN_S):
            store = self._opened()
        if store is not None:
            closing.callback(store.close)
        return store

    def _opened(self) -> Store | None:
        try:
            return open_store(self.configuration.sidecar.store, read_only=True)
        except StoreError as error:
            self.readings.waiting(str(error))
            return None

    def _serve(self, registry: CollectorRegistry, closing: ExitStack) -> None:
        settings = self.configuration.sidecar
        if settings.address is None:
            return
        host, _ = settings.address
        listening = _listen(*settings.address)
        closing.callback(listening.close)
        app = build_app(
            store=self.readings.store,
            health=self.readings,
            registry=registry,
            access=Access(
                settings.token or None,
                hosts=allowed_hosts(host),
                open_metrics=settings.open_metrics,
            ),
            trace_url=settings.trace_url,
            pages=page_routes(
                store=self.readings.store, health=self.readings, trace_url=settings.trace_url
            ),
        )
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on")
        server = WebServer(config, app.state.streams)
        thread = threading.Thread(
            target=server.run, args=([listening],), name="otel-journal-http", daemon=True
        )
        thread.start()
        port = listening.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        _logger.info("serving %s/ and %s/metrics", self.url, self.url)

        def end() -> None:
            server.should_exit = True
            thread.join(CLOSE_S)

        closing.callback(end)


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        SidecarError: the address is in use, not ours, or not known.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        msg = f"cannot listen on {host}:{port}: {error.strerror or error}"
        raise SidecarError(msg) from error
