"""Encoded spans to send to a sink, and what may be asked about those that arrived."""

from __future__ import annotations

from collections.abc import Iterable

from servers.otlp_records import ReceivedSpan

from otel_journal.events import Event, SpanBlock
from otel_journal.exceptions_log import Shape
from otel_journal.sidecar.otlp import encoding
from otel_journal.sidecar.otlp.delivery import Outgoing

ENCODER = encoding.SpanEncoder(Shape("0.1", capture_content=True))
RESOURCE = encoding.resource({"service.name": "shop"})


def outgoing(number: int, *, name: str = "", size: int = 0, resource: bytes = RESOURCE) -> Outgoing:
    """Return span number `number`, with an attribute of `size` characters."""
    block = SpanBlock(
        op_id=f"op-{number}",
        kind="chat",
        name=name or f"span {number}",
        trace_id=f"{number + 1:032x}",
        span_id=f"{number + 1:016x}",
        start_ns=1_000 + number,
        end_ns=2_000 + number,
        outcome="ok",
        attributes={"text": "x" * size} if size else {},
    )
    event = Event(f"op-{number}/1/end", "run", "llm.end", "trace", number, span=block)
    return Outgoing(event, resource, ENCODER.span(block))


def body(*spans: Outgoing) -> bytes:
    """Return the body of one request with these spans."""
    return encoding.request((span.resource, [span.data]) for span in spans)


def names(spans: Iterable[Outgoing]) -> list[str]:
    """Return the names of spans to send."""
    return [span.event.span.name for span in spans if span.event.span]


def arrived_once(received: Iterable[ReceivedSpan]) -> list[str]:
    """Return the names of the spans that arrived, in order of their first arrival.

    A repeat has to be the same span in every detail.
    """
    first: dict[str, ReceivedSpan] = {}
    for span in received:
        assert first.setdefault(span.span_id, span) == span
    return [span.name for span in first.values()]
