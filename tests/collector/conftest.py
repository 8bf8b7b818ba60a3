"""The configurations of ``collector/``, the servers that run them, and spans to send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from servers import jaeger as jaeger_server
from servers import otelcol as otelcol_server

REPOSITORY: Final = Path(__file__).parents[2]
SEND_TIMEOUT_S: Final = 20.0


@pytest.fixture(scope="session")
def repository() -> Path:
    """Provide the folder of everything."""
    return REPOSITORY


@pytest.fixture(scope="session")
def files() -> Path:
    """Provide the folder ``collector``."""
    return otelcol_server.FILES


@pytest.fixture(scope="session")
def otelcol_program(server_program: Callable[[str], Path]) -> Path:
    """Provide the path of the OpenTelemetry Collector."""
    return server_program(otelcol_server.PROGRAM)


@pytest.fixture
def otelcol(
    otelcol_program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., otelcol_server.Otelcol]]:
    """Provide a factory: ``otelcol("otelcol.yaml", export_to=URL, OTELCOL_X="...")``.

    With ``place=`` of an earlier one it takes that one's ports and queue over.
    """
    with ExitStack() as running:

        def start(
            *configs: str | Path,
            export_to: str,
            place: otelcol_server.Place | None = None,
            **variables: str,
        ) -> otelcol_server.Otelcol:
            place = place or otelcol_server.Place(tmp_path_factory.mktemp("otelcol"))
            return running.enter_context(
                otelcol_server.Otelcol(
                    otelcol_program,
                    place,
                    *(otelcol_server.FILES / config for config in configs),
                    variables={
                        "OTELCOL_EXPORT_ENDPOINT": export_to,
                        "OTELCOL_RETRY_INTERVAL": "1s",
                        **variables,
                    },
                )
            )

        yield start


@pytest.fixture
def jaeger(
    server_program: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., jaeger_server.Jaeger]]:
    """Provide a factory of Jaegers; with ``place=`` of an earlier one it has that one's data."""
    program = server_program(jaeger_server.PROGRAM)
    with ExitStack() as running:

        def start(place: jaeger_server.Place | None = None) -> jaeger_server.Jaeger:
            place = place or jaeger_server.Place(tmp_path_factory.mktemp("jaeger"))
            return running.enter_context(jaeger_server.Jaeger(program, place))

        yield start


class SpanMaker(IdGenerator):
    """Makes finished spans of one service, with ids that are the same in every run."""

    def __init__(self, service: str) -> None:
        """Begin at the first id."""
        self.service = service
        self._exporter = InMemorySpanExporter()
        self._numbers = count(1)
        self._provider = TracerProvider(
            resource=Resource({"service.name": service}),
            id_generator=self,
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self._provider.get_tracer("collector tests")

    def generate_trace_id(self) -> int:
        """Return the next trace id, far from the one before: samplers look at the low bits."""
        return (next(self._numbers) * 0x9E3779B97F4A7C15F39CC0605CEDC835) % 2**128 or 1

    def generate_span_id(self) -> int:
        """Return the next span id."""
        return next(self._numbers)

    def take(self) -> list[ReadableSpan]:
        """Return the spans that ended since the last call."""
        spans = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return spans


@pytest.fixture
def maker(request: pytest.FixtureRequest) -> SpanMaker:
    """Provide a maker of spans; its service is named after the test."""
    return SpanMaker(request.node.originalname)


def hex_of(span: ReadableSpan) -> str:
    """Return the trace id of a span, 32 hex digits."""
    return f"{span.context.trace_id:032x}"


def post(endpoint: str, spans: Iterable[ReadableSpan]) -> bool:
    """Send spans in one request over HTTP; return whether they were acknowledged."""
    body = encode_spans(list(spans)).SerializeToString()
    try:
        answer = httpx.post(
            f"{endpoint}/v1/traces",
            content=body,
            headers={"Content-Type": "application/x-protobuf"},
            timeout=SEND_TIMEOUT_S,
        )
    except httpx.TransportError:
        return False
    return answer.is_success


@pytest.fixture
def send() -> Callable[[str, Iterable[ReadableSpan]], Any]:
    """Provide `post`."""
    return post
