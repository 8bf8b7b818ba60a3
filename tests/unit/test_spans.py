"""The span projection, through a real SDK provider."""

from __future__ import annotations

import json
import logging
from typing import Any

import msgspec
import pytest
from opentelemetry import baggage
from opentelemetry.context import Context, attach, detach
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    ReadableSpan,
    Span,
    SpanLimits,
    SpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import NoOpTracerProvider, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace.span import TraceState

from otel_journal.errors import SettingsError
from otel_journal.events import CATALOGUE, Event, Failure, Link, SpanBlock
from otel_journal.spans import END_EVENTS, Spans, only_listens_to_ends

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
PARENT_ID = "00f067aa0ba902b7"
MESSAGE = "card 4111-1111"
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.request.temperature": 0.1,
    "gen_ai.request.stream": True,
    "gen_ai.response.finish_reasons": ["stop"],
    "otel_journal.outcome": "ok",
}


def block(**changes: Any) -> SpanBlock:
    """Return the block of an ended model call with changes."""
    chat = SpanBlock(
        op_id="op",
        kind="chat",
        name="chat gpt-4o",
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        parent_span_id=PARENT_ID,
        start_ns=1_000_000_001,
        end_ns=2_000_000_003,
        attributes=CHAT,
        outcome="ok",
    )
    return msgspec.structs.replace(chat, **changes)


def event(span: SpanBlock | None, event_type: str = "llm.end") -> Event:
    """Return an event that carries `span`."""
    return Event("id", "run", event_type, CATALOGUE[event_type], 5, span=span)


def failed(**changes: Any) -> SpanBlock:
    """Return a block that ended with an exception."""
    failure = Failure("ValueError", MESSAGE, 'File "a.py", line 3, in f')
    values = {"outcome": "error", "error_type": "ValueError", "failure": failure, **changes}
    return block(**values)


class Ends(SpanProcessor):
    """Keeps every span that ends, sampled or not."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self.seen: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep the span."""
        self.seen.append(span)


class OnStart(SpanProcessor):
    """Keeps what it sees at the start of each span."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self.seen: list[tuple[SpanContext, SpanContext | None, dict[str, Any]]] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """Look at the span and mark it."""
        self.seen.append((span.get_span_context(), span.parent, dict(span.attributes or {})))


class Marker(OnStart):
    """Adds an attribute, as baggage processors do."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """Mark the span."""
        span.set_attribute("tenant", "t1")


def exported(
    *blocks: SpanBlock,
    processor: SpanProcessor | None = None,
    generation: Any = "0.1",
    **options: Any,
) -> list[ReadableSpan]:
    """Return the spans that blocks become; with `processor` attached in front of the exporter."""
    exporter = InMemorySpanExporter()
    limits = options.pop("span_limits", None)
    provider = TracerProvider(
        sampler=ALWAYS_ON,
        resource=Resource({"service.name": "agent"}),
        shutdown_on_exit=False,
        span_limits=limits,
    )
    if processor is not None:
        provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans = Spans(provider, generation=generation, **options)
    spans.write([event(each) for each in blocks])
    return list(exporter.get_finished_spans())


def wire(spans: list[ReadableSpan]) -> str:
    """Return what the OTLP exporters would send."""
    return str(encode_spans(spans))


class TestSpan:
    """What one event becomes."""

    def test_carries_everything_the_event_says(self):
        """Ids, parent, times, name, kind, attributes, resource and scope come out unchanged."""
        (span,) = exported(block(trace_state="a=1,b=2"))
        assert json.loads(span.to_json()) == {
            "name": "chat gpt-4o",
            "context": {
                "trace_id": "0x" + TRACE_ID,
                "span_id": "0x" + SPAN_ID,
                "trace_state": '["{key=a, value=1}", "{key=b, value=2}"]'.replace('"', "'"),
            },
            "kind": "SpanKind.CLIENT",
            "parent_id": "0x" + PARENT_ID,
            "start_time": "1970-01-01T00:00:01.000000Z",
            "end_time": "1970-01-01T00:00:02.000000Z",
            "status": {"status_code": "UNSET"},
            "attributes": CHAT,
            "events": [],
            "links": [],
            "resource": {"attributes": {"service.name": "agent"}, "schema_url": ""},
        }
        assert (span.start_time, span.end_time) == (1_000_000_001, 2_000_000_003)
        assert span.context.trace_flags == TraceFlags.SAMPLED
        assert span.instrumentation_scope.name == "otel_journal"
        assert span.instrumentation_scope.version
        assert not span.instrumentation_scope.schema_url

    def test_a_root_has_no_parent(self):
        """A root without an ambient span starts its trace."""
        (span,) = exported(block(parent_span_id="", root=True))
        assert span.parent is None

    @pytest.mark.parametrize("remote", [True, False])
    def test_an_ambient_parent_is_remote(self, remote):
        """The parent context says whether it came from outside."""
        (span,) = exported(block(remote_parent=remote))
        assert (span.parent.span_id, span.parent.is_remote) == (int(PARENT_ID, 16), remote)
        assert span.parent.trace_id == span.context.trace_id

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [
            ("chat", SpanKind.CLIENT),
            ("completion", SpanKind.CLIENT),
            ("retrieval", SpanKind.INTERNAL),
            ("tool", SpanKind.INTERNAL),
            ("agent", SpanKind.INTERNAL),
            ("node", SpanKind.INTERNAL),
        ],
    )
    def test_only_model_calls_are_clients(self, kind, expected):
        """The span kind follows the operation kind."""
        assert exported(block(kind=kind))[0].kind is expected

    @pytest.mark.parametrize(
        "outcome", ["ok", "interrupted", "handoff", "cancelled", "abandoned", "unknown"]
    )
    def test_only_errors_set_the_status(self, outcome):
        """Every other outcome leaves the status UNSET."""
        assert exported(block(outcome=outcome))[0].status.status_code is StatusCode.UNSET

    def test_an_error_has_no_message_by_default(self):
        """Exception messages are content: nothing of them is in the span."""
        (span,) = exported(failed())
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None
        assert MESSAGE not in wire([span])
        assert span.events == ()

    def test_an_error_has_its_message_with_content_capture(self):
        """With capture on, the status description is the message."""
        assert exported(failed(), capture_content=True)[0].status.description == MESSAGE

    def test_an_error_passed_on_has_no_message(self):
        """An ancestor of the failed operation is ERROR without failure details."""
        (span,) = exported(block(outcome="error", failure=None), capture_content=True)
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)

    def test_links_say_why(self):
        """Each link carries its relation."""
        link = Link("0" * 31 + "7", "0" * 15 + "9", "resumes")
        (span,) = exported(block(links=(link,)))
        (found,) = span.links
        assert (found.context.trace_id, found.context.span_id) == (7, 9)
        assert dict(found.attributes) == {"otel_journal.link.relation": "resumes"}


class TestGenerations:
    """The names of the 1.41 generation."""

    @pytest.mark.parametrize(
        ("generation", "expected"),
        [
            ("0.1", {"gen_ai.agent.name"}),
            ("1.41", {"gen_ai.workflow.name"}),
            ("both", {"gen_ai.agent.name", "gen_ai.workflow.name"}),
        ],
    )
    def test_workflow_names(self, generation, expected):
        """A workflow's name has its own key in 1.41."""
        flow = block(kind="workflow", attributes={"gen_ai.agent.name": "w"})
        (span,) = exported(flow, generation=generation)
        assert dict(span.attributes) == dict.fromkeys(expected, "w")

    @pytest.mark.parametrize("generation", ["0.1", "1.41", "both"])
    def test_agents_keep_their_name(self, generation):
        """Only workflows are renamed."""
        (span,) = exported(
            block(kind="agent", attributes={"gen_ai.agent.name": "a"}), generation=generation
        )
        assert dict(span.attributes) == {"gen_ai.agent.name": "a"}

    @pytest.mark.parametrize(
        ("generation", "expected"),
        [
            ("0.1", {"gen_ai.usage.cache_write.input_tokens"}),
            ("1.41", {"gen_ai.usage.cache_creation.input_tokens"}),
            (
                "both",
                {
                    "gen_ai.usage.cache_write.input_tokens",
                    "gen_ai.usage.cache_creation.input_tokens",
                },
            ),
        ],
    )
    def test_renamed_attributes(self, generation, expected):
        """Renamed attributes appear under the name, or names, of the generation."""
        (span,) = exported(
            block(attributes={"gen_ai.usage.cache_write.input_tokens": 3}), generation=generation
        )
        assert dict(span.attributes) == dict.fromkeys(expected, 3)

    @pytest.mark.parametrize(
        ("generation", "kind"), [("1.41", SpanKind.CLIENT), ("both", SpanKind.INTERNAL)]
    )
    def test_retrieval_kind(self, generation, kind):
        """Retrievals were client spans in 1.41."""
        (span,) = exported(block(kind="retrieval", name="retrieval"), generation=generation)
        assert (span.name, span.kind) == ("retrieval", kind)


class TestWhichEvents:
    """Which events become spans."""

    @pytest.mark.parametrize("event_type", sorted(CATALOGUE))
    def test_only_ends(self, spans, tracer_provider, event_type):
        """End events become spans; starts and late usage are consumed without."""
        sink = Spans(tracer_provider)
        sink.write([event(block(), event_type)])
        assert len(spans.get_finished_spans()) == (event_type in END_EVENTS)
        assert sink.counts.exported == 1

    def test_events_without_a_span(self, spans, tracer_provider):
        """Feed rows are consumed."""
        sink = Spans(tracer_provider)
        sink.write([event(None, "llm.human.input")])
        assert (sink.counts.exported, spans.get_finished_spans()) == (1, ())

    def test_traces_that_are_not_recorded(self, tracer_provider):
        """A block of a trace that the sampler dropped reaches no processor."""
        ends = Ends()
        tracer_provider.add_span_processor(ends)
        sink = Spans(tracer_provider)
        sink.write([event(block(recording=False, sampled=False))])
        assert (sink.counts.exported, ends.seen) == (1, [])

    @pytest.mark.parametrize("first", [None, Marker()])
    def test_recorded_but_not_sampled(self, first):
        """Processors get recording spans, exporters only sampled ones."""
        ends, exporter = Ends(), InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        for processor in (first, ends, SimpleSpanProcessor(exporter)):
            if processor is not None:
                provider.add_span_processor(processor)
        Spans(provider).write([event(block(sampled=False))])
        assert [span.context.trace_flags for span in ends.seen] == [TraceFlags.DEFAULT]
        assert exporter.get_finished_spans() == ()


class TestBothWays:
    """A processor with its own `on_start` changes how spans are built, not what they are."""

    @pytest.mark.parametrize(
        "case",
        [
            block(),
            block(parent_span_id="", root=True),
            block(remote_parent=True, trace_state="a=1"),
            block(kind="workflow", attributes={"gen_ai.agent.name": "w"}),
            failed(),
            block(links=(Link("0" * 31 + "7", "0" * 15 + "9", "requested_by"),) * 3),
            block(attributes={}),
        ],
    )
    @pytest.mark.parametrize(
        "limits",
        [
            None,
            SpanLimits(max_attributes=2, max_links=2),
            SpanLimits(max_attribute_length=4),
            SpanLimits(max_span_attributes=0, max_link_attributes=0),
        ],
    )
    @pytest.mark.parametrize("generation", ["0.1", "both"])
    def test_give_the_same_span(self, case, limits, generation):
        """Direct and replayed spans are equal, as JSON and on the wire, under all limits."""
        options = {"generation": generation, "span_limits": limits, "capture_content": True}
        direct = exported(case, **options)
        replayed = exported(case, processor=OnStart(), **options)
        assert json.loads(direct[0].to_json()) == json.loads(replayed[0].to_json())
        assert wire(direct) == wire(replayed)

    def test_a_processor_sees_the_start(self):
        """It gets the event's ids, parent and attributes, and what it adds is exported."""
        looker = OnStart()
        exported(block(), processor=looker)
        ((context, parent, attributes),) = looker.seen
        assert (context.trace_id, context.span_id) == (int(TRACE_ID, 16), int(SPAN_ID, 16))
        assert parent.span_id == int(PARENT_ID, 16)
        assert attributes["gen_ai.request.model"] == "gpt-4o"
        (span,) = exported(block(), processor=Marker())
        assert span.attributes["tenant"] == "t1"

    def test_a_processor_added_later_sees_the_start(self, spans, tracer_provider):
        """The application may complete its provider after the first spans."""
        sink, late = Spans(tracer_provider), Marker()
        sink.write([event(block())])
        tracer_provider.add_span_processor(late)
        sink.write([event(block())])
        before, after = spans.get_finished_spans()
        assert "tenant" not in before.attributes
        assert after.attributes["tenant"] == "t1"

    def test_the_ambient_span_of_the_worker_is_no_parent(self, tracer_provider):
        """A root stays a root, whatever is current where it is built."""
        with tracer_provider.get_tracer("app").start_as_current_span("ambient"):
            (span,) = exported(block(parent_span_id=""), processor=OnStart())
        assert (span.parent, span.context.trace_id) == (None, int(TRACE_ID, 16))

    def test_concurrent_processor_chains_work(self):
        """The other composite processor of the SDK is used as it is."""
        exporter = InMemorySpanExporter()
        chain = ConcurrentMultiSpanProcessor(num_threads=1)
        chain.add_span_processor(SimpleSpanProcessor(exporter))
        provider = TracerProvider(active_span_processor=chain, shutdown_on_exit=False)
        Spans(provider).write([event(block())])
        assert len(exporter.get_finished_spans()) == 1

    def test_which_processors_need_starts(self):
        """Overridden start hooks count, on the class or on the object; the SDK's own do not."""

        class Ending(SpanProcessor):
            def _on_ending(self, span: Span) -> None: ...

        patched = SimpleSpanProcessor(InMemorySpanExporter())
        patched.on_start = lambda *_: None
        batch = BatchSpanProcessor(InMemorySpanExporter())
        batch.shutdown()
        assert all(
            only_listens_to_ends(processor)
            for processor in (SpanProcessor(), batch, SimpleSpanProcessor(InMemorySpanExporter()))
        )
        assert not any(only_listens_to_ends(p) for p in (OnStart(), Ending(), patched))

    def test_limits_cut_and_count(self):
        """The provider's limits hold, and what they drop is visible."""
        (span,) = exported(
            block(), span_limits=SpanLimits(max_attributes=2, max_attribute_length=2)
        )
        assert dict(span.attributes) == {
            "gen_ai.response.finish_reasons": ("st",),
            "otel_journal.outcome": "ok",
        }
        assert span.dropped_attributes == len(CHAT) - 2


class TestSampling:
    """The decision, once per trace."""

    def sink(self, sampler: Sampler) -> Spans:
        """Return a sink whose application samples with `sampler`."""
        return Spans(TracerProvider(sampler=sampler, shutdown_on_exit=False))

    def test_always_off(self, caplog):
        """Nothing is recorded, and nothing is said about it."""
        decision = self.sink(ALWAYS_OFF).sample(1, "invoke_agent a", "agent", {})
        assert decision == (False, False, {}, "")
        assert caplog.records == []

    def test_ratio_uses_the_trace_id(self):
        """A ratio sampler gets the trace's own id."""
        sink = self.sink(TraceIdRatioBased(0.5))
        assert sink.sample(1, "n", "agent", {}).sampled
        assert not sink.sample(2**64 - 1, "n", "agent", {}).sampled

    @pytest.mark.parametrize("sampled", [True, False])
    def test_the_parent_decides(self, sampled):
        """Parent-based samplers see the ambient span and its tracestate."""
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        parent = SpanContext(1, 2, True, flags, TraceState([("k", "v")]))  # noqa: FBT003
        other = ALWAYS_OFF if sampled else ALWAYS_ON
        decision = self.sink(ParentBased(other)).sample(1, "n", "agent", {}, parent)
        assert decision == (sampled, sampled, {}, "k=v")

    def test_the_sampler_sees_the_root(self, tracer_provider):
        """Name, span kind, attributes and baggage reach the sampler; its additions come back."""
        calls = []

        class Custom(Sampler):
            def should_sample(self, parent_context, trace_id, *root):
                name, kind, attributes, _ = root
                tenant = baggage.get_baggage("tenant", parent_context)
                calls.append((trace_id, name, kind, attributes, tenant))
                return SamplingResult(Decision.RECORD_ONLY, {**attributes, "rule": "r1"})

            def get_description(self):
                return "custom"

        sink = self.sink(Custom())
        token = attach(baggage.set_baggage("tenant", "t1"))
        try:
            with tracer_provider.get_tracer("app").start_as_current_span("ambient"):
                decision = sink.sample(9, "chat m", "chat", {"a": 1})
        finally:
            detach(token)
        assert calls == [(9, "chat m", SpanKind.CLIENT, {"a": 1}, "t1")]
        assert decision == (False, True, {"rule": "r1"}, "")

    def test_a_failing_sampler_is_reported_once_without_its_message(self, caplog):
        """The agent is not hurt and content does not reach the log."""

        class Broken(Sampler):
            def should_sample(self, *_args, **_kwargs):
                raise ValueError(MESSAGE)

            def get_description(self):
                return "broken"

        sink = self.sink(Broken())
        assert [sink.sample(1, "n", "agent", {}) for _ in range(2)] == [(True, True, {}, "")] * 2
        (record,) = caplog.records
        assert (record.levelno, MESSAGE in record.getMessage()) == (logging.WARNING, False)

    def test_without_a_provider_the_parent_decides(self):
        """Something else may export later what this process only journals."""
        parent = SpanContext(1, 2, True, TraceFlags(0))  # noqa: FBT003
        assert Spans().sample(1, "n", "agent", {}) == (True, True, {}, "")
        assert Spans().sample(1, "n", "agent", {}, parent) == (False, False, {}, "")


class TestExceptions:
    """Failures as log records."""

    @pytest.fixture
    def logs(self):
        """Provide an exporter of log records."""
        return InMemoryLogRecordExporter()

    @pytest.fixture
    def logger_provider(self, logs):
        """Provide the application's logger provider."""
        provider = LoggerProvider(shutdown_on_exit=False)
        provider.add_log_record_processor(SimpleLogRecordProcessor(logs))
        yield provider
        provider.shutdown()

    def test_one_record_in_the_context_of_its_span(self, tracer_provider, logs, logger_provider):
        """It has the span's ids and end time, the type and the stack, but no message."""
        Spans(tracer_provider, logger_provider=logger_provider).write([event(failed())])
        (data,) = logs.get_finished_logs()
        record = data.log_record
        assert (record.trace_id, record.span_id) == (int(TRACE_ID, 16), int(SPAN_ID, 16))
        assert record.trace_flags == TraceFlags.SAMPLED
        assert record.timestamp == 2_000_000_003
        assert (record.severity_number.value, record.severity_text) == (13, "WARN")
        assert record.event_name == "gen_ai.client.inference.exception"
        assert dict(record.attributes) == {
            "exception.type": "ValueError",
            "exception.stacktrace": 'File "a.py", line 3, in f',
        }
        assert record.body is None
        assert data.instrumentation_scope.name == "otel_journal"

    def test_the_message_with_content_capture(self, tracer_provider, logs, logger_provider):
        """With capture on, the record has the message."""
        Spans(tracer_provider, logger_provider=logger_provider, capture_content=True).write(
            [event(failed())]
        )
        (data,) = logs.get_finished_logs()
        assert data.log_record.attributes["exception.message"] == MESSAGE

    @pytest.mark.parametrize(
        ("generation", "kind", "expected"),
        [
            ("0.1", "completion", "gen_ai.client.inference.exception"),
            ("0.1", "tool", "gen_ai.execute_tool.exception"),
            ("0.1", "node", "exception"),
            ("1.41", "chat", "gen_ai.client.operation.exception"),
            ("1.41", "tool", "exception"),
            ("both", "chat", "gen_ai.client.inference.exception"),
        ],
    )
    def test_event_names(self, logs, logger_provider, generation, kind, expected):
        """The event name follows kind and generation; there is one record in any case."""
        Spans(logger_provider=logger_provider, generation=generation).write(
            [event(failed(kind=kind))]
        )
        (data,) = logs.get_finished_logs()
        assert data.log_record.event_name == expected

    def test_no_record_without_a_failure(self, tracer_provider, logs, logger_provider):
        """Errors passed on by ancestors are not written again."""
        Spans(tracer_provider, logger_provider=logger_provider).write(
            [event(block(outcome="error")), event(failed(), "llm.start")]
        )
        assert logs.get_finished_logs() == ()

    def test_failures_of_dropped_traces_are_written(self, tracer_provider, logs, logger_provider):
        """Log records do not depend on the sampling of traces."""
        sink = Spans(tracer_provider, logger_provider=logger_provider)
        sink.write([event(failed(recording=False, sampled=False))])
        assert len(logs.get_finished_logs()) == 1

    def test_the_global_provider_is_found_late(self, monkeypatch, logs, logger_provider):
        """Without one, failures go nowhere; once the application has set one, they go there."""
        sink = Spans()
        sink.write([event(failed())])
        monkeypatch.setattr(
            "otel_journal.exceptions_log.get_logger_provider", lambda: logger_provider
        )
        sink.write([event(failed())])
        assert len(logs.get_finished_logs()) == 1


class TestSink:
    """Accounting and the end of life, with the application's provider."""

    def test_a_closed_sink_counts_what_it_drops(self, spans, tracer_provider):
        """After close nothing is exported, and the application's provider still works."""
        sink = Spans(tracer_provider)
        assert sink.close(1.0)
        sink.write([event(block())])
        assert (sink.counts.exported, sink.counts.dropped["shutdown"]) == (0, 1)
        tracer_provider.get_tracer("app").start_span("after").end()
        assert [span.name for span in spans.get_finished_spans()] == ["after"]

    @pytest.mark.parametrize("handed_over", [True, False])
    def test_close_shuts_down_only_what_was_handed_over(self, handed_over):
        """Ownership of a given provider is explicit."""

        class Watch(SpanProcessor):
            stopped = False

            def shutdown(self) -> None:
                self.stopped = True

            def force_flush(self, timeout_millis: int = 30_000) -> bool:
                return timeout_millis > 0

        watch = Watch()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(watch)
        sink = Spans(provider, shutdown_provider=handed_over)
        sink.write([event(block())])
        assert sink.close(1.0)
        assert watch.stopped is handed_over

    def test_an_exception_of_a_processor_counts_nothing_as_exported(self):
        """The pipeline counts the batch; the sink must not count it too."""

        class Broken(SpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                raise ValueError(span.name)

        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(Broken())
        sink = Spans(provider)
        with pytest.raises(ValueError, match="chat gpt-4o"):
            sink.write([event(block())])
        assert sink.counts.exported == 0

    def test_flush_is_the_applications_answer(self):
        """A processor that cannot flush makes the flush fail."""

        class Stuck(SpanProcessor):
            def force_flush(self, timeout_millis: int = 30_000) -> bool:
                return timeout_millis > 1_000

        provider = TracerProvider(shutdown_on_exit=False)
        sink = Spans(provider)
        sink.write([event(block())])
        assert sink.flush(1.0)
        provider.add_span_processor(Stuck())
        assert not sink.flush(1.0)

    def test_a_provider_without_sdk_is_refused(self):
        """Only an SDK provider can be given our ids and times."""
        with pytest.raises(SettingsError, match="an SDK TracerProvider"):
            Spans(NoOpTracerProvider())
