"""Spans and log records as plain values, decoded from OTLP requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass(frozen=True)
class ReceivedLink:
    """One link of a span (ids in lower-case hex)."""

    trace_id: str
    span_id: str
    attributes: dict[str, Any]


@dataclass(frozen=True)
class ReceivedSpan:
    """One span, decoded (ids in lower-case hex, an empty parent for a root)."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    kind: str
    """``INTERNAL``, ``CLIENT``, ..."""
    start_ns: int
    end_ns: int
    attributes: dict[str, Any]
    status: str
    """``UNSET``, ``OK`` or ``ERROR``."""
    status_message: str
    links: tuple[ReceivedLink, ...]
    trace_state: str
    resource: dict[str, Any]
    scope: str


@dataclass(frozen=True)
class ReceivedLog:
    """One log record, decoded."""

    event_name: str
    severity: int
    body: Any
    attributes: dict[str, Any]
    trace_id: str
    span_id: str
    resource: dict[str, Any]


def decoded_spans(request: trace_pb.ExportTraceServiceRequest) -> Iterator[ReceivedSpan]:
    """Yield the spans of a request, in its order."""
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield _decoded_span(span, resource, scope_spans.scope.name)


def _decoded_span(span: Span, resource: dict[str, Any], scope: str) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        kind=Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        start_ns=span.start_time_unix_nano,
        end_ns=span.end_time_unix_nano,
        attributes=_attributes(span.attributes),
        status=Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        status_message=span.status.message,
        links=tuple(
            ReceivedLink(link.trace_id.hex(), link.span_id.hex(), _attributes(link.attributes))
            for link in span.links
        ),
        trace_state=span.trace_state,
        resource=resource,
        scope=scope,
    )


def decoded_logs(request: logs_pb.ExportLogsServiceRequest) -> Iterator[ReceivedLog]:
    """Yield the log records of a request, in its order."""
    for resource_logs in request.resource_logs:
        resource = _attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                yield ReceivedLog(
                    event_name=record.event_name,
                    severity=record.severity_number,
                    body=_value(record.body),
                    attributes=_attributes(record.attributes),
                    trace_id=record.trace_id.hex(),
                    span_id=record.span_id.hex(),
                    resource=resource,
                )


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return _attributes(value.kvlist_value.values)
        case kind:
            return getattr(value, kind)
