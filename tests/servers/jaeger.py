"""A real Jaeger that keeps traces on disk, read back by its query API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from servers.process import ServerProcess, free_port, listens, wait_until

PROGRAM: Final = "jaeger"
REQUEST_TIMEOUT_S: Final = 10.0

_KINDS: Final = {"1": "INTERNAL", "2": "SERVER", "3": "CLIENT", "4": "PRODUCER", "5": "CONSUMER"}
_STATUSES: Final = {"0": "UNSET", "1": "OK", "2": "ERROR"}


@dataclass(frozen=True)
class StoredLink:
    """One link of a stored span."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class StoredSpan:
    """One span as Jaeger has it; ids in hex, times in nanoseconds."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    kind: str
    start_ns: int
    end_ns: int
    status: str
    message: str
    """Message of the status."""
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    """Name and attributes of each."""
    links: tuple[StoredLink, ...]
    resource: Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """Where one Jaeger listens and keeps its data; started again, it has the same."""

    folder: Path
    grpc_port: int = field(default_factory=free_port)
    query_port: int = field(default_factory=free_port)
    query_grpc_port: int = field(default_factory=free_port)

    @property
    def grpc_endpoint(self) -> str:
        """OTLP over gRPC."""
        return f"http://127.0.0.1:{self.grpc_port}"


class Jaeger(ServerProcess):
    """One Jaeger with a store on disk."""

    def __init__(self, program: Path, place: Place) -> None:
        """Start the server and wait until it answers queries."""
        self.place = place
        self.url = f"http://127.0.0.1:{place.query_port}"
        config = place.folder / "jaeger.yaml"
        config.write_text(json.dumps(_config(place)))  # JSON is YAML
        super().__init__([program, "--config", config], place.folder)
        self.wait_ready(self._ready, timeout=40.0)

    def services(self) -> set[str]:
        """Return the names of the services that have spans."""
        return set(self._get("services")["data"] or ())

    def trace_ids(self, service: str, limit: int = 5_000) -> set[str]:
        """Return the ids of the traces of a service, 32 hex digits each."""
        found = self._get("traces", service=service, limit=str(limit), lookback="1h")["data"]
        return {trace["traceID"].zfill(32) for trace in found or ()}

    def trace(self, trace_id: str) -> list[StoredSpan]:
        """Return the spans of one trace; empty when it is not there."""
        url = f"{self.url}/api/v3/traces/{trace_id}"
        response = httpx.get(url, timeout=REQUEST_TIMEOUT_S)
        return list(_spans(response.json()["result"])) if response.is_success else []

    def spans(self, trace_ids: Iterable[str]) -> dict[str, StoredSpan]:
        """Return the spans of some traces: span id -> span; each is there once."""
        found = [span for trace_id in trace_ids for span in self.trace(trace_id)]
        by_id = {span.span_id: span for span in found}
        assert len(by_id) == len(found), "a span is there twice"
        return by_id

    def wait_for_traces(self, service: str, count: int, timeout: float = 30.0) -> set[str]:
        """Wait until at least `count` traces of a service are there; return their ids."""
        wait_until(lambda: len(self.trace_ids(service)) >= count, timeout)
        return self.trace_ids(service)

    def _ready(self) -> bool:
        if not (listens(self.place.grpc_port) and listens(self.place.query_port)):
            return False
        try:
            return isinstance(self.services(), set)
        except (httpx.TransportError, ValueError):
            return False

    def _get(self, path: str, **parameters: str) -> Any:
        url = f"{self.url}/api/{path}"
        return httpx.get(url, params=parameters, timeout=REQUEST_TIMEOUT_S).json()


def _config(place: Place) -> dict[str, Any]:
    data = {"keys": str(place.folder / "keys"), "values": str(place.folder / "values")}
    return {
        "extensions": {
            "jaeger_storage": {
                "backends": {"disk": {"badger": {"directories": data, "ephemeral": False}}}
            },
            "jaeger_query": {
                "storage": {"traces": "disk"},
                "enable_tracing": False,  # of itself, to nobody: it would wait for that at its end
                "http": {"endpoint": f"127.0.0.1:{place.query_port}"},
                "grpc": {"endpoint": f"127.0.0.1:{place.query_grpc_port}"},
            },
        },
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": place.grpc_endpoint[7:]}}}},
        # No batch processor: what is acknowledged is stored.
        "exporters": {"jaeger_storage_exporter": {"trace_storage": "disk"}},
        "service": {
            "extensions": ["jaeger_storage", "jaeger_query"],
            "pipelines": {
                "traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}
            },
            "telemetry": {"metrics": {"level": "none"}},
        },
    }


def _spans(result: Mapping[str, Any]) -> Iterator[StoredSpan]:
    for of_resource in result.get("resourceSpans", ()):
        resource = _attributes(of_resource.get("resource", {}))
        for of_scope in of_resource["scopeSpans"]:
            for span in of_scope["spans"]:
                yield _span(span, resource)


def _span(span: Mapping[str, Any], resource: Mapping[str, Any]) -> StoredSpan:
    status = span.get("status", {})
    links = (
        StoredLink(link["traceId"], link["spanId"], _attributes(link))
        for link in span.get("links", ())
    )
    return StoredSpan(
        name=span["name"],
        trace_id=span["traceId"],
        span_id=span["spanId"],
        parent_span_id=span.get("parentSpanId", ""),
        kind=_KINDS[str(span["kind"])],
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        status=_STATUSES[str(status.get("code", 0))],
        message=status.get("message", ""),
        attributes=_attributes(span),
        events=tuple((event["name"], _attributes(event)) for event in span.get("events", ())),
        links=tuple(links),
        resource=resource,
    )


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in holder.get("attributes", ())}


def _value(value: Mapping[str, Any]) -> Any:
    (kind, content), *_ = value.items()
    if kind == "intValue":
        return int(content)  # JSON has it as a text
    if kind == "arrayValue":
        return [_value(one) for one in content.get("values", ())]
    return content
