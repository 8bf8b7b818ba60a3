"""The bytes of spans, beside those of the SDK's exporter for the same blocks."""

import math
import struct
from collections.abc import Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import hypothesis.strategies as st
import msgspec
import pytest
from golden.scenarios import SCENARIOS, Way  # conftest puts tests/ on the path
from google.protobuf.message import Message
from hypothesis import example, given
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, open_store, semconv
from otel_journal.errors import SettingsError
from otel_journal.events import Failure, Link, SpanBlock
from otel_journal.exceptions_log import Shape
from otel_journal.provider import SCOPE, scope_version
from otel_journal.sidecar.otlp import encoding, truncation, wire
from otel_journal.sidecar.otlp.encoding import SpanEncoder
from otel_journal.spans import END_EVENTS, SdkTracer, direct_emit

PLAIN = Shape("0.1", capture_content=False)
TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
INT64_MAX = (1 << 63) - 1


class Sdk:
    """The SDK's way: a span built from the block, and its OTLP exporter's encoding."""

    def __init__(self, shape: Shape = PLAIN, resource: Mapping[str, Any] | None = None) -> None:
        """Build spans with `shape`, under the limits that the environment has now."""
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(
            resource=Resource(resource or {"service.name": "x"}), shutdown_on_exit=False
        )
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        tracer = provider.get_tracer(SCOPE, scope_version())
        self._emit = direct_emit(SdkTracer(tracer), shape)

    def request(self, *blocks: SpanBlock) -> ExportTraceServiceRequest:
        """Return the request for blocks; the processor takes sampled ones only."""
        self._kept.clear()
        for block in blocks:
            self._emit(block)
        return encode_spans(self._kept.get_finished_spans())

    def span(self, block: SpanBlock) -> ProtoSpan:
        """Return the span of one block."""
        return self.request(block).resource_spans[0].scope_spans[0].spans[0]


def fields(message: Message) -> dict[str, str]:
    """Return what is set in a message, as text: in messages, nan is unlike itself."""
    return {field.name: str(value) for field, value in message.ListFields()}


def assert_same(ours: bytes, theirs: Message) -> None:
    """Compare field by field, then to the last bit."""
    parsed = type(theirs).FromString(ours)
    assert fields(parsed) == fields(theirs)
    assert parsed.SerializeToString(deterministic=True) == theirs.SerializeToString(
        deterministic=True
    )


def block(attributes: Mapping[str, Any] | None = None, **changes: Any) -> SpanBlock:
    """Return a block of a chat call."""
    whole: dict[str, Any] = {
        "op_id": "op",
        "kind": "chat",
        "name": "chat gpt-4o",
        "trace_id": TRACE,
        "span_id": SPAN,
        "parent_span_id": PARENT,
        "start_ns": 1_700_000_000_000_000_000,
        "end_ns": 1_700_000_001_000_000_000,
        "outcome": "ok",
        "attributes": dict(attributes or {}),
    }
    return SpanBlock(**(whole | changes))


def shown(of: SpanBlock, shape: Shape = PLAIN) -> dict[str, AnyValue]:
    """Return the attributes in our encoding of a block."""
    span = ProtoSpan.FromString(SpanEncoder(shape).span(of))
    return {pair.key: pair.value for pair in span.attributes}


def ids(digits: int) -> st.SearchStrategy[str]:
    """Return ids of so many hexadecimal digits."""
    return st.integers(0, 16**digits - 1).map(lambda number: f"{number:0{digits}x}")


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=300),
    st.integers(-(1 << 63), INT64_MAX),
    st.integers(0, 20_000),
    st.floats(),
    st.binary(max_size=8),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=4),
    st.lists(SCALARS, max_size=4).map(tuple),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=6,
    ),
)
NAMES = st.one_of(
    st.sampled_from([
        semconv.OUTCOME, semconv.ERROR_TYPE, semconv.AGENT_NAME, semconv.RETRIEVAL_TOP_K,
        semconv.USAGE_CACHE_WRITE, semconv.USAGE_INPUT_TOKENS, semconv.RUN_ID,
    ]),
    st.text(max_size=200),
)  # fmt: skip
STATES = st.one_of(
    st.just(""),
    st.lists(
        st.from_regex(r"[a-z][a-z0-9]{0,3}=[!-+\--<>-~]{1,4}", fullmatch=True), max_size=3
    ).map(",".join),
    st.text(max_size=10),
)
LINKS = st.builds(
    Link, ids(32), ids(16), st.sampled_from(["resumes", "previous_attempt", "requested_by"])
)
BLOCKS = st.builds(
    SpanBlock,
    op_id=st.just("op"),
    kind=st.sampled_from(
        ["agent", "workflow", "chain", "node", "chat", "completion", "tool", "retrieval"]
    ),
    name=st.text(max_size=200),
    trace_id=ids(32),
    span_id=ids(16),
    start_ns=st.integers(0, (1 << 64) - 1),
    end_ns=st.integers(0, (1 << 64) - 1),
    attributes=st.dictionaries(NAMES, VALUES, max_size=6),
    parent_span_id=st.just("") | ids(16),
    remote_parent=st.booleans(),
    trace_state=STATES,
    outcome=st.sampled_from(["ok", "error", "interrupted"]),
    links=st.lists(LINKS, max_size=3).map(tuple),
    failure=st.none() | st.builds(Failure, st.text(), st.text(), st.text()),
)
SHAPES = [
    pytest.param(Shape(generation, capture_content=content, keep=keep), id=f"{generation}-{label}")
    for generation in ("0.1", "1.41", "both")
    for label, content, keep in [
        ("plain", False, ()),
        ("content", True, ()),
        ("few", True, ("gen_ai.usage.*", semconv.AGENT_NAME)),
    ]
]


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_any_block_is_encoded_as_by_the_sdk(shape: Shape, data: st.DataObject) -> None:
    """Ids, flags, state, name, kind, times, attributes, links and status, in every shape."""
    sdk, encoder = Sdk(shape), SpanEncoder(shape)
    drawn = data.draw(BLOCKS)
    assert_same(encoder.span(drawn), sdk.span(drawn))
    assert_same(encoder.span(drawn), sdk.span(drawn))  # now from memory


@pytest.mark.parametrize(
    "value",
    ["", "é" * 63 + "x", "x" * 200_000, 0, 127, 128, 16_383, 16_384, -1, INT64_MAX, -INT64_MAX - 1,
     True, False, 0.0, -0.0, math.inf, math.nan, None, [], [[]], [""], ["a", 1, None], {}, {"": 1},
     b"", b"\xff"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["n", "", "n" * 126, "n" * 129, "ö" * 20_000])
def test_values_at_the_edges_are_encoded_as_by_the_sdk(name: str, value: Any) -> None:
    """Lengths where a varint grows or memory ends, and values that are easily taken for absent."""
    for alike in (value, 1, True, 1.0, "1"):  # equal values of other types share no memory
        edge = block({name: alike})
        assert_same(SpanEncoder(PLAIN).span(edge), Sdk().span(edge))


@pytest.mark.parametrize(
    "changes",
    [
        {"parent_span_id": "", "remote_parent": True},
        {"remote_parent": True},
        {"trace_id": "0" * 32, "span_id": "0" * 16},
        {"trace_id": TRACE.upper()},
        {"trace_id": "abc", "span_id": "1", "parent_span_id": "2"},
        {
            "trace_id": f"  {TRACE[2:]}",
            "span_id": f"  {SPAN[2:]}",
            "parent_span_id": f"  {SPAN[2:]}",
        },
        {"end_ns": 0},
        {"trace_state": "a=1, b=2,broken,=,c="},
        {"trace_state": "broken"},
        {"outcome": "error", "failure": Failure("E", "")},
        {"outcome": "error"},
        {"kind": "something new"},
    ],
)
def test_odd_fields_are_encoded_as_by_the_sdk(changes: dict[str, Any]) -> None:
    """A root's flags, short ids, invalid states, a failure without message, a later kind."""
    odd = block(**changes)
    assert_same(SpanEncoder(PLAIN).span(odd), Sdk().span(odd))


class Colour(str, Enum):
    """A text that is not of the type `str`."""

    RED = "red"


class Level(IntEnum):
    """A number that is not of the type `int`."""

    HIGH = 3


@pytest.mark.parametrize("value", [Colour.RED, Level.HIGH, MappingProxyType({"a": [1]}), range(3)])
def test_relatives_of_the_usual_types_are_encoded_as_by_the_sdk(value: Any) -> None:
    """In an application's memory store values are what callers gave."""
    odd = block({"odd": value, "list": [value]})
    assert_same(SpanEncoder(PLAIN).span(odd), Sdk().span(odd))


LIMITS = [
    {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "2"},
    {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "0"},
    {"OTEL_ATTRIBUTE_COUNT_LIMIT": "1"},
    {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "3"},
    {"OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "0"},
    {"OTEL_SPAN_LINK_COUNT_LIMIT": "1"},
    {"OTEL_SPAN_LINK_COUNT_LIMIT": "0"},
    {"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT": "0"},
]


@pytest.mark.parametrize("environment", LIMITS, ids=lambda found: next(iter(found)))
def test_limits_of_the_environment_cut_as_in_the_sdk(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest attributes and links go, long values are cut, and what went is counted."""
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    big = block(
        {"a": "long text", "b": ["long text", 1], "c": {"d": "long text"}, "e": 12_345, "": 1},
        links=(Link(TRACE, SPAN, "resumes"), Link(TRACE, PARENT, "requested_by")),
    )
    assert_same(SpanEncoder(PLAIN).span(big), Sdk().span(big))


def test_more_attributes_than_the_default_limit_are_counted_as_in_the_sdk() -> None:
    """128 attributes stay without any setting."""
    many = block({f"name {number}": number for number in range(140)})
    ours = SpanEncoder(PLAIN).span(many)
    assert_same(ours, Sdk().span(many))
    assert ProtoSpan.FromString(ours).dropped_attributes_count == 12


def test_a_limit_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the one that the application gives for the variable."""
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "many")
    with pytest.raises(SettingsError, match=r"OTEL_SPAN_LINK_COUNT_LIMIT .* many"):
        SpanEncoder(PLAIN)


# What the SDK loses -------------------------------------------------------------------------


def test_lone_surrogates_are_replaced_everywhere() -> None:
    """The SDK refuses the whole span for one in its name, and leaves out such an attribute."""
    bad, good = "a\ud800b", "a\ufffdb"
    odd = block({bad: bad, "list": [bad]}, name=bad, outcome="error", failure=Failure("E", bad))
    span = ProtoSpan.FromString(SpanEncoder(Shape("0.1", capture_content=True)).span(odd))
    first, second = span.attributes
    assert (span.name, span.status.message) == (good, good)
    assert (first.key, first.value.string_value) == (good, good)
    assert second.value.array_value.values[0].string_value == good


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (INT64_MAX + 1, str(INT64_MAX + 1)),
        (-INT64_MAX - 2, str(-INT64_MAX - 2)),
        (1 << 40_000, "0x1" + "0" * 10_000),
    ],
    ids=["above", "below", "far above"],
)
def test_integers_beyond_64_bits_become_text(number: int, text: str) -> None:
    """The SDK leaves them out. Python writes no decimal text of more than 4,300 digits."""
    found = shown(block({"n": number, "list": [number]}))
    assert found["n"].string_value == text
    assert found["list"].array_value.values[0].string_value == text


def test_times_beyond_64_bits_are_clamped() -> None:
    """A clock before 1970 or a damaged row still gives a span."""
    span = ProtoSpan.FromString(SpanEncoder(PLAIN).span(block(start_ns=-1, end_ns=1 << 70)))
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (0, (1 << 64) - 1)


@pytest.mark.parametrize("bad", ["x" * 32, " " * 32, f" {TRACE[1:]}", "1" * 40, "-1", "", "\ud800"])
def test_ids_that_are_none_are_sent_empty(bad: str) -> None:
    """Receivers refuse such a span, which makes it a dead letter; it never stops the export."""
    odd = block(trace_id=bad, span_id=bad, parent_span_id=bad, links=(Link(bad, bad, "resumes"),))
    span = ProtoSpan.FromString(SpanEncoder(PLAIN).span(odd))
    link = span.links[0]
    found = {span.trace_id, span.span_id, span.parent_span_id, link.trace_id, link.span_id}
    assert all(len(item) in {0, 8, 16} for item in found)
    assert b"" in found


def nested(depth: int, kind: type) -> Any:
    """Return containers within one another."""
    value: Any = "core"
    for _ in range(depth):
        value = [value] if kind is list else {"k": value}
    return value


@pytest.mark.parametrize("kind", [list, dict])
def test_nesting_up_to_the_limit_is_as_in_the_sdk_and_readable(kind: type) -> None:
    """Readers of protobuf stop at 100 levels, those of the request around it included."""
    deep = block({"deep": nested(wire.DEEPEST, kind)})
    body = SpanEncoder(PLAIN).span(deep)
    assert_same(body, Sdk().span(deep))
    whole = ExportTraceServiceRequest.FromString(encoding.request([(b"", [body])]))
    assert "core" in str(whole)


@pytest.mark.parametrize("longest", ["", "5"], ids=["free", "limited"])
@pytest.mark.parametrize("kind", [list, dict])
def test_what_is_nested_deeper_is_left_out(
    kind: type, longest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attribute alone, whatever its depth, a value that holds itself included."""
    if longest:
        monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", longest)
    endless: list[Any] = []
    endless.append(endless)
    found = shown(
        block(
            {
                "deep": nested(wire.DEEPEST + 1, kind),
                "deepest": nested(5_000, kind),
                "endless": endless,
                "flat": 1,
            }
        )
    )
    assert list(found) == ["flat"]


ODD = st.one_of(
    st.text(st.characters(), max_size=20),  # surrogates included
    st.integers(),
    st.floats(),
    st.sets(st.integers(), max_size=2),
    st.just(object()),
    st.binary(max_size=5).map(bytearray),
    st.complex_numbers(),
)
JUNK = st.recursive(
    ODD,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.integers() | st.text(st.characters()), inner, max_size=3),
    ),
    max_leaves=8,
)


@given(
    odd=st.builds(
        SpanBlock,
        op_id=st.just(""),
        kind=st.text(max_size=3),
        name=st.text(st.characters()),
        trace_id=st.text(st.characters(), max_size=40),
        span_id=st.text(st.characters(), max_size=20),
        start_ns=st.integers(),
        end_ns=st.integers(),
        attributes=st.dictionaries(st.text(st.characters()), JUNK, max_size=5),
        parent_span_id=st.text(st.characters(), max_size=20),
        trace_state=st.text(st.characters(), max_size=20),
        outcome=st.sampled_from(["ok", "error", "?"]),
        links=st.lists(
            st.builds(Link, st.text(max_size=3), st.text(max_size=3), st.text(max_size=3)),
            max_size=2,
        ).map(tuple),
        failure=st.none() | st.builds(Failure, st.text(st.characters()), st.text(st.characters())),
    ),
    limits=st.sampled_from([None, "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"]),
)
def test_nothing_raises(odd: SpanBlock, limits: str | None) -> None:
    """Whatever a damaged row holds, bytes come out that a receiver can read."""
    with pytest.MonkeyPatch.context() as patched:
        if limits is not None:
            patched.setenv(limits, "2")
        encoder = SpanEncoder(Shape("both", capture_content=True))
    span = ProtoSpan.FromString(encoder.span(odd))
    assert len(span.attributes) <= len(odd.attributes) + 3


# Requests and resources ---------------------------------------------------------------------


@given(
    attributes=st.dictionaries(
        st.text(min_size=1), st.one_of(SCALARS, st.lists(st.text(), max_size=3)), max_size=5
    )
)
def test_a_resource_is_encoded_as_by_the_sdk(attributes: dict[str, Any]) -> None:
    """Values may be lists."""
    theirs = Sdk(resource={**attributes, "last": "x"}).request(block()).resource_spans[0].resource
    assert_same(encoding.resource({**attributes, "last": "x"}), theirs)


def test_a_request_groups_spans_by_resource_under_our_scope() -> None:
    """Equal resources become one group, in the order of their first span."""
    encoder = SpanEncoder(PLAIN)
    spans = [encoder.span(block(name=name)) for name in "abcd"]
    one, two = (encoding.resource({"service.name": name}) for name in ("one", "two"))
    body = encoding.request([(two, spans[:1]), (one, spans[1:2]), (two, spans[2:]), (one, [])])
    request = ExportTraceServiceRequest.FromString(body)
    found = [
        (group.resource.attributes[0].value.string_value, [span.name for span in scoped.spans])
        for group in request.resource_spans
        for scoped in group.scope_spans
    ]
    assert found == [("two", ["a", "c", "d"]), ("one", ["b"])]
    scopes = [scoped.scope for group in request.resource_spans for scoped in group.scope_spans]
    assert {(scope.name, scope.version) for scope in scopes} == {(SCOPE, scope_version())}


def test_a_request_of_nothing_is_empty() -> None:
    """As the SDK's."""
    assert encoding.request([]) == encoding.request([(encoding.resource({"a": 1}), [])]) == b""


class Recorded(NamedTuple):
    """What one scenario left: as the journal exported it, and as its store has it."""

    exported: ExportTraceServiceRequest
    blocks: list[SpanBlock]
    resource: dict[str, Any]


def recorded(number: str, way: Way, settings: dict[str, Any]) -> Recorded:
    """Run a real graph whose journal exports inline and keeps its events."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    scenario, store = SCENARIOS[number], open_store("memory:")
    journal = Journal(
        Settings(grace=scenario.grace, **settings),
        tracer_provider=provider,
        registry=CollectorRegistry(),
        store=store,
    )
    try:
        caller = scenario.run(way, journal.handler)
    finally:
        assert journal.shutdown(10.0)
    exported = encode_spans(exporter.get_finished_spans())
    events = store.read(0, 10_000)
    for generator in caller.kept:
        generator.close()
    provider.shutdown()
    store.close()
    # As a sidecar gets it: read from text.
    ends = [event.span for event in events if event.event_type in END_EVENTS]
    blocks = [msgspec.json.decode(msgspec.json.encode(end), type=SpanBlock) for end in ends]
    return Recorded(exported, blocks, dict(provider.resource.attributes))


RUNS: list[tuple[str, Way, dict[str, Any]]] = [
    ("01", "sync", {}),
    ("05", "async", {"capture_content": True}),
    ("12", "sync", {"semconv": "both"}),
    ("15", "async", {"semconv": "1.41"}),
    ("22", "sync", {"capture_content": True}),
]


@pytest.mark.parametrize(("number", "way", "settings"), RUNS)
def test_a_real_run_is_exported_alike_inline_and_from_the_store(
    number: str, way: Way, settings: dict[str, Any]
) -> None:
    """The whole request of a sidecar equals that of the application's exporter."""
    run = recorded(number, way, settings)
    shape = Shape(
        settings.get("semconv", "0.1"), capture_content=settings.get("capture_content", False)
    )
    encoder = SpanEncoder(shape)
    bodies = [encoder.span(end) for end in run.blocks]
    ours = ExportTraceServiceRequest.FromString(
        encoding.request([(encoding.resource(run.resource), bodies)])
    )
    for request in (ours, run.exported):
        request.resource_spans[0].scope_spans[0].spans.sort(key=lambda span: span.span_id)
    assert len(run.blocks) > 1
    assert str(ours) == str(run.exported)


# Memory --------------------------------------------------------------------------------------


def test_what_is_remembered_is_bounded() -> None:
    """Texts, lengths, names and trace states that never come again push one another out."""
    encoder = SpanEncoder(PLAIN)
    for number in range(wire.TEXTS_KEPT + 10):
        encoder.span(
            block(
                {f"name {number}": f"text {number}", f"{number} " * 99: number},
                name=f"chat {number}",
                trace_state=f"a={number}",
            )
        )
    assert wire._short_text.cache_info().currsize == wire.TEXTS_KEPT
    assert wire._head.cache_info().currsize == wire.HEADS_KEPT
    assert encoding._name_field.cache_info().currsize == encoding.NAMES_KEPT
    assert encoding._state_field.cache_info().currsize == encoding.STATES_KEPT


def test_long_names_and_values_are_not_remembered() -> None:
    """A megabyte in a name or a text is gone with its block."""
    for cache in (wire._short_text, wire._head, encoding._name_field):
        cache.cache_clear()
    SpanEncoder(PLAIN).span(block({"n" * 1_000: "v", "n": "v" * 1_000}, name="n" * 1_000))
    assert wire._short_text.cache_info().currsize == 0
    assert wire._head.cache_info().currsize == 1  # a name of ours and a length
    assert encoding._name_field.cache_info().currsize == 0


# Cutting -------------------------------------------------------------------------------------

WIDEST = Shape("both", capture_content=True)


def size(of: SpanBlock, shape: Shape = WIDEST) -> int:
    """Return the bytes of a span."""
    return len(SpanEncoder(shape).span(of))


def test_a_block_that_fits_is_not_cut() -> None:
    """It is the same object, without a mark."""
    fitting = block({"a": "x" * 1_000})
    assert encoding.truncated(fitting, 3_000) is fitting


def test_the_longest_values_are_cut_and_the_block_is_marked() -> None:
    """Short values, ids, times and links stay whole, and the room is used."""
    big = block(
        {"model": "gpt-4o", "text": "é" * 50_000, "list": ["x" * 30_000, "y" * 30_000], "n": 7},
        links=(Link(TRACE, SPAN, "resumes"),),
    )
    cut = encoding.truncated(big, 20_000)
    assert 19_900 < size(cut) < 20_000
    assert cut.attributes["model"] == "gpt-4o"
    assert cut.attributes["n"] == 7
    assert cut.attributes["text"] == "é" * len(cut.attributes["text"])
    assert [set(item) for item in cut.attributes["list"]] == [{"x"}]
    assert cut.attributes[truncation.TRUNCATED] is True
    assert cut.links == big.links
    assert (cut.trace_id, cut.span_id, cut.start_ns) == (big.trace_id, big.span_id, big.start_ns)


def test_a_list_keeps_the_items_that_fit() -> None:
    """Order stays, and a text at the end of the room is cut."""
    cut = encoding.truncated(block({"list": [1, "a", *["x" * 900] * 9]}), 3_000)
    found = cut.attributes["list"]
    assert found[:5] == [1, "a", "x" * 900, "x" * 900, "x" * 900]
    assert 0 < len(found[5]) < 900
    assert len(found) == 6


def test_too_many_attributes_leave_the_essential_ones() -> None:
    """How it ended and what it belongs to; not a thousand empty texts."""
    many = {f"name {number}": "text" for number in range(10_000)}
    cut = encoding.truncated(block({**many, semconv.OUTCOME: "error"}, outcome="error"), 4_096)
    assert cut.attributes == {semconv.OUTCOME: "error", truncation.TRUNCATED: True}


@given(
    big=BLOCKS,
    limit=st.integers(truncation.SMALLEST_LIMIT, 5_000),
    texts=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4),
    times=st.integers(1, 20_000),
)
@example(
    big=block(
        dict.fromkeys(truncation.ESSENTIAL, "x" * 9_999),
        name="n" * 9_999,
        trace_state=",".join(f"a{number}=" + "x" * 200 for number in range(30)),
        links=(Link(TRACE, SPAN, "resumes"),) * 999,
        outcome="error",
        failure=Failure("E", "m" * 9_999),
    ),
    limit=truncation.SMALLEST_LIMIT,
    texts=["\N{GRINNING FACE}"],
    times=9_999,
)
def test_any_block_is_cut_below_the_limit(
    big: SpanBlock, limit: int, texts: list[str], times: int
) -> None:
    """In every shape; what is not cut is what was there, in any script."""
    more = {f"text {number}": text * times for number, text in enumerate(texts)}
    whole = msgspec.structs.replace(big, attributes={**big.attributes, **more})
    cut = encoding.truncated(whole, limit)
    assert max(size(cut, shape.values[0]) for shape in SHAPES) < limit
    if size(whole) >= limit:
        assert cut.attributes.pop(truncation.TRUNCATED) is True
    for name, value in cut.attributes.items():
        if isinstance(value, str):
            assert whole.attributes[name].startswith(value)


@pytest.mark.parametrize(
    "value",
    [nested(50, list), {"k": "x" * 9_999}, 1 << 40_000, b"x" * 9_999, {1, 2}, [{1}, "x"]],
    ids=["deep", "mapping", "number", "bytes", "set", "set in a list"],
)
def test_values_that_cannot_be_cut_are_left_out(value: Any) -> None:
    """Mappings, huge numbers, bytes and what has no place in OTLP anyway."""
    cut = encoding.truncated(block({"odd": value, "text": "x" * 9_999}), 3_000)
    assert list(cut.attributes) == ["text", truncation.TRUNCATED]
    assert size(cut) < 3_000


def test_a_limit_without_room_is_refused() -> None:
    """The message names the value and what is allowed."""
    with pytest.raises(ValueError, match=r"limit=100 is not allowed; allowed: 2048 bytes or more"):
        encoding.truncated(block(), 100)


def test_numbers_beside_long_texts_stay() -> None:
    """Leaving a number out wins nothing."""
    numbers = {"int": -1, "float": struct.unpack("<d", b"12345678")[0], "bool": False}
    cut = encoding.truncated(block({**numbers, "text": "x" * 99_999}), 2_048)
    assert {name: cut.attributes[name] for name in numbers} == numbers
