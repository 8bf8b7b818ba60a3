"""A real server for the tests: uvicorn in a thread, on a port of loopback, over a SQLite file."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from langchain.agents import create_agent
from langchain_core.tools import tool
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry, Counter
from servers.process import wait_until
from typing_extensions import Self

from otel_journal import Journal, Settings, open_store
from otel_journal.errors import StoreError
from otel_journal.sidecar.web.access import Access, allowed_hosts
from otel_journal.sidecar.web.app import build_app
from otel_journal.sidecar.web.server import WebServer
from otel_journal.store.protocol import Store
from otel_journal.testing import ScriptedModel, ai, tool_call

PATIENCE_S = 30.0


class Condition:
    """The health of a sidecar, as a test sets it."""

    def __init__(self) -> None:
        """Be ready."""
        self.found: list[str] = []
        self.complete = True

    def problems(self) -> list[str]:
        """Return what the test says."""
        return self.found

    def metrics_ready(self) -> bool:
        """Return what the test says."""
        return self.complete


class Site:
    """The application, served."""

    def __init__(self, store: Store, access: Access, **options: Any) -> None:
        """Serve `store` until the end of a ``with`` block."""
        self.store: Store | None = store
        self.health = Condition()
        self.registry = CollectorRegistry()
        Counter("seen", "Things seen.", registry=self.registry).inc(3)
        self.app = build_app(
            store=self._open, health=self.health, registry=self.registry, access=access, **options
        )
        config = uvicorn.Config(self.app, log_level="warning", lifespan="on")
        self.server = WebServer(config, self.app.state.streams)
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.server.run, args=([self._socket],))

    def _open(self) -> Store:
        if self.store is None:
            msg = "journal file /secret/place: gone"
            raise StoreError(msg)
        return self.store

    def client(self, **options: Any) -> httpx.Client:
        """Return a client; close it."""
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Return the answer to one request."""
        with self.client() as client:
            return client.get(path, **options)

    def stop(self) -> bool:
        """Ask the server to end; return whether it did."""
        self.server.should_exit = True
        self._thread.join(PATIENCE_S)
        return not self._thread.is_alive()

    def __enter__(self) -> Self:
        """Start."""
        self._thread.start()
        assert wait_until(lambda: self.server.started, PATIENCE_S)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop."""
        assert self.stop()
        self._socket.close()


@tool
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


def agent() -> Any:
    """Return an agent that calls one tool twice at once."""
    calls = (tool_call("add", {"x": 1, "y": 2}, "c1"), tool_call("add", {"x": 3, "y": 4}, "c2"))
    return create_agent(ScriptedModel(script=[ai("", *calls), ai("3 and 7")]), [add])


Record = Callable[..., None]


def recorder(store: Store) -> Record:
    """Return a function that runs an agent and keeps its journal in `store`."""

    def record(thread_id: str, run_id: str) -> None:
        provider = TracerProvider(shutdown_on_exit=False)
        journal = Journal(
            Settings(), tracer_provider=provider, registry=CollectorRegistry(), store=store
        )
        handler = journal.handler(run_id=run_id, thread_id=thread_id)
        agent().invoke({"messages": [("user", "add")]}, {"callbacks": [handler]})
        assert journal.flush()
        assert journal.shutdown()

    return record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name the journal's file."""
    return tmp_path / "journal.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """Open the journal."""
    store = open_store(f"sqlite:///{path}")
    yield store
    store.close()


@pytest.fixture
def record(store: Store) -> Record:
    """Run an agent: ``record(thread_id, run_id)``."""
    return recorder(store)


@pytest.fixture
def serve(store: Store) -> Iterator[Callable[..., Site]]:
    """Serve the store: ``serve(token=..., **options of build_app)``."""
    with ExitStack() as running:

        def start(token: str | None = None, *, open_metrics: bool = False, **options: Any) -> Site:
            access = Access(token, allowed_hosts("127.0.0.1", ["journal.test"]), open_metrics)
            return running.enter_context(Site(store, access, **options))

        yield start


@pytest.fixture
def site(serve: Callable[..., Site]) -> Site:
    """Serve the store to everybody on this machine."""
    return serve()
