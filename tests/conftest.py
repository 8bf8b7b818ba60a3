"""Fixtures shared by all tests: a clean environment, an observed journal, real servers.

Servers are found in the folder that `.ci/servers` fills, else on PATH. A missing one skips the
tests that need it; with ``CI=true`` it fails them, so that CI can never pass by skipping.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

# In importlib mode pytest leaves sys.path alone; `servers` is ours and lies beside this file.
sys.path.insert(0, str(Path(__file__).parent))

from servers import prometheus
from servers import rotel as rotel_server
from servers.otlp_sink import OtlpSink
from servers.process import find_program

if TYPE_CHECKING:
    from otel_journal import Journal, Settings


class Sample(Protocol):
    """Reads the registry: see the fixture `sample`."""

    def __call__(self, name: str, /, **labels: str) -> float | None:
        """Return the sum of a metric's samples with these labels, None when there is none."""


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop the settings of whoever runs the tests, ours and the SDK's."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):  # OTEL_JOURNAL_* too
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _clean_context() -> Iterator[None]:
    """Start every test outside any span: operations left open on purpose stay current."""
    token = otel_context.attach(otel_context.Context())
    yield
    otel_context.detach(token)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """Holds the spans that the journal exported, in order: ``spans.get_finished_spans()``."""
    return InMemorySpanExporter()


@pytest.fixture
def tracer_provider(spans: InMemorySpanExporter) -> Iterator[TracerProvider]:
    """Provide the application's own provider, exporting to `spans`."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    yield provider
    provider.shutdown()


@pytest.fixture
def registry() -> CollectorRegistry:
    """Provide a Prometheus registry of the test's own."""
    return CollectorRegistry()


@pytest.fixture
def settings() -> Settings:
    """Provide the settings of `journal`: the defaults. A test module may override this fixture."""
    from otel_journal import Settings  # noqa: PLC0415 - tests of the parts run without it

    return Settings()


@pytest.fixture
def journal(
    settings: Settings, tracer_provider: TracerProvider, registry: CollectorRegistry
) -> Iterator[Journal]:
    """Provide a journal that exports to `spans` and `registry`; shut down after the test."""
    from otel_journal import Journal  # noqa: PLC0415 - tests of the parts run without it

    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        yield journal


@pytest.fixture
def sample(registry: CollectorRegistry) -> Sample:
    """Read `registry`: ``sample("otel_journal_tokens_total", type="input")``.

    Sums over the labels that are not given. None, not 0, when no sample has the given ones.
    """

    def read(name: str, /, **labels: str) -> float | None:
        values = [
            found.value
            for family in registry.collect()
            for found in family.samples
            if found.name == name and labels.items() <= found.labels.items()
        ]
        return sum(values) if values else None

    return read


@pytest.fixture
def otlp_sink() -> Iterator[OtlpSink]:
    """Provide an OTLP receiver (HTTP and gRPC) that keeps what arrives."""
    with OtlpSink() as sink:
        yield sink


@pytest.fixture(scope="session")
def server_program() -> Callable[[str], Path]:
    """Provide a finder of server programs that skips, or under CI fails, when one is missing."""

    def find(name: str) -> Path:
        if (path := find_program(name)) is not None:
            return path
        message = f"{name} not found; run .ci/servers"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)

    return find


@pytest.fixture(scope="session")
def promtool(server_program: Callable[[str], Path]) -> Path:
    """Provide the path of promtool."""
    return server_program(prometheus.PROMTOOL)


@pytest.fixture(scope="session")
def prometheus_server(
    server_program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., prometheus.Prometheus]]:
    """Provide a factory: ``prometheus_server(targets=["127.0.0.1:PORT"], rules=[...])``.

    Each call starts a server of its own; close it with ``with`` or leave it to the session's end.
    """
    program = server_program(prometheus.PROGRAM)
    with ExitStack() as running:

        def start(**options: object) -> prometheus.Prometheus:
            folder = tmp_path_factory.mktemp("prometheus")
            return running.enter_context(prometheus.Prometheus(program, folder, **options))

        yield start


@pytest.fixture(scope="session")
def rotel(
    server_program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., rotel_server.Rotel]]:
    """Provide a factory: ``rotel(forward_to=sink.grpc_endpoint)``, a real OTLP collector.

    Each call starts an agent of its own; close it with ``with`` or leave it to the session's end.
    """
    program = server_program(rotel_server.PROGRAM)
    with ExitStack() as running:

        def start(**options: str) -> rotel_server.Rotel:
            folder = tmp_path_factory.mktemp("rotel")
            return running.enter_context(rotel_server.Rotel(program, folder, **options))

        yield start
