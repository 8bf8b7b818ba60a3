"""Real web servers that are told to end: every request of before has arrived at the receiver."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from prometheus_client import CollectorRegistry
from servers.otlp_sink import OtlpSink
from servers.programs import SPANS_OF_A_RUN, WebServer, telemetry
from starlette.applications import Starlette
from starlette.testclient import TestClient

from otel_journal import Journal, RunJournal, Settings, process_life
from otel_journal.asgi import lifespan
from otel_journal.model_hooks import process_journal

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

REQUESTS: Final = 20
UVICORN: Final = ("--port", "{port}", "--log-level", "warning")
GUNICORN: Final = ("-b", "127.0.0.1:{port}", "--log-level", "warning")

SERVERS: Final = {
    "uvicorn": ("uvicorn", "web:asgi", *UVICORN),
    "uvicorn, 2 workers": ("uvicorn", "web:asgi", "--workers", "2", *UVICORN),
    "gunicorn, uvicorn worker": (
        *("gunicorn", "web:asgi", "-k", "uvicorn_worker.UvicornWorker", *GUNICORN),
    ),
    "gunicorn sync, preloaded": ("gunicorn", "web:wsgi", "-w", "2", "--preload", *GUNICORN),
    "gunicorn threads": ("gunicorn", "web:wsgi", "-w", "1", "--threads", "4", *GUNICORN),
}
"""Servers that must lose nothing at SIGTERM; the WSGI ones without any help."""


def served(server: tuple[str, ...], sink: OtlpSink, folder: Path) -> None:
    """Send requests to a server, and SIGTERM 0.3 s after the last answer."""
    module, *options = server
    variables = telemetry(sink)
    with (
        WebServer(module, *options, variables=variables, folder=folder) as running,
        ThreadPoolExecutor(4) as pool,
        httpx.Client(timeout=10.0) as client,
    ):
        answers = pool.map(lambda _: client.get(f"{running.url}/").status_code, range(REQUESTS))
        assert Counter(answers) == {200: REQUESTS}
        time.sleep(0.3)


class TestSigterm:
    """20 requests, then SIGTERM."""

    @pytest.mark.parametrize("server", SERVERS)
    def test_every_request_arrives_once(
        self, server: str, otlp_sink: OtlpSink, tmp_path: Path
    ) -> None:
        """All spans of all requests are delivered before the server is gone, none twice."""
        served(SERVERS[server], otlp_sink, tmp_path)
        arrived = otlp_sink.spans  # at once: the server has ended
        assert Counter(s.name for s in arrived) == dict.fromkeys(SPANS_OF_A_RUN, REQUESTS)
        assert len({s.trace_id for s in arrived}) == REQUESTS
        assert len({s.span_id for s in arrived}) == len(arrived)

    def test_uvicorn_without_the_lifespan_loses_them(
        self, otlp_sink: OtlpSink, tmp_path: Path
    ) -> None:
        """Why the lifespan exists: uvicorn ends by the signal, and no exit function runs."""
        served(("uvicorn", "web:bare", *UVICORN), otlp_sink, tmp_path)
        assert len(otlp_sink.spans) < REQUESTS * len(SPANS_OF_A_RUN)


class _Ending:
    """A journal that takes its time to end."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.exits = 0

    def forked(self) -> None:
        """Do nothing."""

    def exit(self) -> None:
        """Block, as a flush does."""
        time.sleep(self.seconds)
        self.exits += 1
        process_life.forget(self)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the journals of this process from the tests, and theirs from it."""
    monkeypatch.setattr(process_life, "_living", type(process_life._living)())


@pytest.mark.usefixtures("alone")
class TestLifespan:
    """The helper itself."""

    def test_state_and_order(self) -> None:
        """The application's lifespan runs inside ours, and its state reaches the requests."""
        ending = _Ending()
        seen: list[Any] = []

        @asynccontextmanager
        async def mine(app: Starlette) -> AsyncIterator[dict[str, int]]:
            seen.append(app)
            yield {"answer": 42}
            seen.append(ending.exits)

        process_life.register(ending)
        app = Starlette(lifespan=lifespan(mine))
        with TestClient(app) as client:
            assert client.app_state == {"answer": 42}
            assert ending.exits == 0
        assert seen == [app, 0]
        assert ending.exits == 1

    def test_journals_end_although_the_application_fails(self) -> None:
        """An exception of the application's lifespan goes up, after everything was delivered."""
        ending = _Ending()
        process_life.register(ending)

        @asynccontextmanager
        async def broken(_: Any) -> AsyncIterator[None]:
            yield
            msg = "in the application"
            raise RuntimeError(msg)

        with (
            pytest.raises(RuntimeError, match="in the application"),
            TestClient(Starlette(lifespan=lifespan(broken))),
        ):
            pass
        assert ending.exits == 1

    async def test_the_event_loop_goes_on(self) -> None:
        """Shutting down blocks a thread of its own, even when the loop's executor is full."""
        ending = _Ending(0.2)
        process_life.register(ending)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        blocked = loop.run_in_executor(None, time.sleep, 0.5)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        began = time.monotonic()
        async with lifespan()(None):
            pass
        assert 0.2 <= time.monotonic() - began < 0.4
        assert ticks >= 5
        ticking.cancel()
        await blocked

    def test_one_journal(self, registry: CollectorRegistry) -> None:
        """With a journal given, only that one ends."""
        other = _Ending()
        process_life.register(other)
        journal = Journal(Settings(spans="none"), registry=registry)
        with TestClient(Starlette(lifespan=lifespan(journal=journal))):
            assert journal in process_life.living()
        assert process_life.living() == [other]

    def test_the_process_wide_journal_is_made_anew(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A second lifespan in one process, as in tests of applications, records again."""
        monkeypatch.setenv("OTEL_JOURNAL_METRICS", "false")
        process_journal.cache_clear()
        journals: list[Journal] = []
        for _ in range(2):
            with TestClient(Starlette(lifespan=lifespan())):
                journals.append(RunJournal().journal)
                assert process_life.living() == journals[-1:]
            assert process_life.living() == []
        assert journals[0] is not journals[1]
        process_journal.cache_clear()

    def test_without_asyncio(self) -> None:
        """Under another event loop journals end in place."""
        ending = _Ending()
        process_life.register(ending)
        around = lifespan()(None)
        for step in (around.__aenter__(), around.__aexit__(None, None, None)):
            with pytest.raises(StopIteration):
                step.send(None)  # type: ignore[attr-defined]
        assert ending.exits == 1
