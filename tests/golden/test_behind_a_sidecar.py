"""Every scenario again, through a journal file and a sidecar: the same spans, to the nanosecond."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link
from servers.otlp_records import ReceivedSpan
from servers.otlp_sink import OtlpSink

from otel_journal import open_store
from otel_journal.events import Event
from otel_journal.sidecar.configuration import read
from otel_journal.sidecar.service import Sidecar

from .recording import record_stored
from .scenarios import SCENARIOS

NUMBERS = sorted(SCENARIOS, key=lambda number: SCENARIOS[number].slug)

Comparable = dict[str, Any]


@pytest.fixture(scope="module")
def inline() -> dict[str, tuple[ReadableSpan, ...]]:
    """Provide what each scenario exported from its own process."""
    return {}


@pytest.fixture(scope="module")
def behind(
    inline: dict[str, tuple[ReadableSpan, ...]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, ReceivedSpan]:
    """Provide what a collector got from a sidecar over the journals of all scenarios.

    A process that exports itself is left alone by the sidecar: so each journal is copied, and
    says in the copy that a sidecar exports.
    """
    folder = tmp_path_factory.mktemp("behind")
    copy = open_store(f"sqlite:///{folder}/all.db")
    for number in NUMBERS:
        inline[number], events = record_stored(number, folder / f"{number}.db")
        copy.append([_of_a_sidecar(event) for event in events])
    copy.close()
    with OtlpSink() as sink:
        _export(folder / "all.db", sink)
        spans = sink.spans
    assert len({span.span_id for span in spans}) == len(spans), "a span was sent twice"
    return {span.span_id: span for span in spans}


def _of_a_sidecar(event: Event) -> Event:
    if event.event_type != "process.beat":
        return event
    return replace(event, metadata={**event.metadata, "export": "sidecar"})


def _export(journal: Path, sink: OtlpSink) -> None:
    own = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    configuration = read(
        {
            **own,
            "OTEL_JOURNAL_STORE": f"sqlite:///{journal}",
            "OTEL_JOURNAL_SIDECAR_LISTEN": "",
            "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http_endpoint,
        },
        given={"listen": ""},
    )
    sidecar = Sidecar(configuration)
    sidecar.finish()
    assert sidecar.run(drain_timeout=60.0)


def _sent_inline(span: ReadableSpan) -> Comparable:
    context = span.context
    return {
        "name": span.name,
        "trace_id": f"{context.trace_id:032x}",
        "span_id": f"{context.span_id:016x}",
        "parent_span_id": f"{span.parent.span_id:016x}" if span.parent else "",
        "kind": span.kind.name,
        "start_ns": span.start_time,
        "end_ns": span.end_time,
        "attributes": _lists(span.attributes or {}),
        "status": span.status.status_code.name,
        "links": [_link(link) for link in span.links],
        "trace_state": context.trace_state.to_header(),
        "resource": _lists(span.resource.attributes),
        "scope": span.instrumentation_scope.name if span.instrumentation_scope else "",
    }


def _link(link: Link) -> Comparable:
    return {
        "trace_id": f"{link.context.trace_id:032x}",
        "span_id": f"{link.context.span_id:016x}",
        "attributes": dict(link.attributes or {}),
    }


def _lists(attributes: Any) -> dict[str, Any]:
    """OTLP knows no tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in attributes.items()
    }


def _received(span: ReceivedSpan) -> Comparable:
    links = [vars(link) for link in span.links]
    return {name: getattr(span, name) for name in _FIELDS} | {"links": links}


_FIELDS = (
    "name", "trace_id", "span_id", "parent_span_id", "kind", "start_ns", "end_ns", "attributes",
    "status", "trace_state", "resource", "scope",
)  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: SCENARIOS[number].slug)
def test_a_sidecar_sends_what_the_process_would_have_sent(
    behind: dict[str, ReceivedSpan],
    inline: dict[str, tuple[ReadableSpan, ...]],
    number: str,
) -> None:
    """Ids, names, times, attributes, links, status, resource: nothing differs, nothing lacks."""
    for span in inline[number]:
        expected = _sent_inline(span)
        assert _received(behind[expected["span_id"]]) == expected


def test_a_sidecar_sends_nothing_else(
    behind: dict[str, ReceivedSpan], inline: dict[str, tuple[ReadableSpan, ...]]
) -> None:
    """No span is made up."""
    sent = {f"{span.context.span_id:016x}" for spans in inline.values() for span in spans}

    assert set(behind) == sent
    assert len(sent) >= 300
