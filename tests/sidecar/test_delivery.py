"""Delivery against a real collector that fails in every way of the fault list (rows 11 to 20)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from email.utils import formatdate
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers.certificates import self_signed
from servers.otlp_sink import Answer, OtlpSink
from servers.otlp_spans import ENCODER, RESOURCE, arrived_once, names, outgoing
from servers.process import wait_until

from otel_journal.sidecar.otlp import encoding
from otel_journal.sidecar.otlp.counts import RESULTS, SECONDS_BOUNDS, ExportCounts, ExportSnapshot
from otel_journal.sidecar.otlp.delivery import DeadLetter, Delivery, Outgoing, Waits
from otel_journal.sidecar.otlp.endpoint import endpoint_from_env
from otel_journal.sidecar.otlp.transport import Transport, connect

PROTOCOLS = ("http/protobuf", "grpc")
SHORT = Waits(first_s=0.01, longest_s=0.02, held_s=0.01)
"""Waits that a test can sit out."""


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    """Every fault is tried over both protocols."""
    return str(request.param)


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """The collector."""
    with OtlpSink() as running:
        yield running


class Sender:
    """A delivery with its parts, towards one sink."""

    def __init__(self, sink: OtlpSink, protocol: str, **options: Any) -> None:
        url = sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint
        variables = {"PROTOCOL": protocol, "ENDPOINT": url, **options.pop("variables", {})}
        endpoint = endpoint_from_env(
            {f"OTEL_EXPORTER_OTLP_{name}": text for name, text in variables.items()}
        )
        self.counts, self.stop = ExportCounts(), threading.Event()
        self.transport: Transport = connect(endpoint)
        options = {"waits": SHORT, **options}
        self.delivery = Delivery(
            self.transport, ENCODER, counts=self.counts, stop=self.stop, **options
        )

    @property
    def values(self) -> ExportSnapshot:
        """The counts now."""
        return self.counts.snapshot()

    def deliver(self, *spans: Outgoing) -> list[DeadLetter] | None:
        """Deliver the spans."""
        return self.delivery.deliver(spans)

    def close(self) -> None:
        """Close the connection."""
        self.transport.close()


@pytest.fixture
def sender(sink: OtlpSink, protocol: str) -> Iterator[Sender]:
    """A delivery to the sink."""
    with closing(Sender(sink, protocol)) as made:
        yield made


class InBackground:
    """One delivery that runs in a thread of its own."""

    def __init__(self, sender: Sender, *spans: Outgoing) -> None:
        self.result: list[list[DeadLetter] | None] = []
        self._thread = threading.Thread(target=lambda: self.result.append(sender.deliver(*spans)))
        self._thread.start()

    def ends(self, timeout: float = 20.0) -> bool:
        """Return whether it ends in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()


def _spans(count: int) -> list[Outgoing]:
    return [outgoing(number) for number in range(count)]


def _dead(letters: list[DeadLetter] | None) -> list[str]:
    assert letters is not None
    return [letter.event.span.name for letter in letters if letter.event.span]


def test_all_arrive_in_order_in_bounded_requests(sink: OtlpSink, protocol: str) -> None:
    """Requests stay below both limits from the start; spans keep their resource."""
    other = encoding.resource({"service.name": "other"})
    spans = [outgoing(n, size=300, resource=other if n % 2 else RESOURCE) for n in range(50)]
    with closing(Sender(sink, protocol, max_bytes=4_000, max_spans=7)) as sender:
        assert sender.deliver(*spans) == []
        assert sender.values.sent == 50
        requests = sender.values.requests["ok"]
    assert sorted(arrived_once(sink.spans)) == sorted(names(spans))
    assert {s.resource["service.name"] for s in sink.spans if int(s.name[5:]) % 2} == {"other"}
    assert max(request.items for request in sink.requests) <= 7
    assert requests == len(sink.requests) >= 50 / 7
    if protocol != "grpc":
        assert max(int(r.headers["content-length"]) for r in sink.requests) <= 4_000


def test_nothing_to_send(sender: Sender, sink: OtlpSink) -> None:
    """No spans, no request."""
    assert sender.deliver() == []
    assert not sink.requests


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 599])
def test_statuses_that_pass_are_retried(sender: Sender, sink: OtlpSink, status: int) -> None:
    """Rows 11, 13, 14: however often, until it works; nothing is lost or repeated."""
    sink.script(*[Answer(status=status)] * 12)
    assert sender.deliver(*_spans(3)) == []
    assert [span.name for span in sink.spans] == ["span 0", "span 1", "span 2"]
    assert sender.values.requests["retry"] == 12
    assert sender.values.requests["ok"] == 1


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DATA_LOSS,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    ],
)
def test_codes_that_pass_are_retried(sink: OtlpSink, code: grpc.StatusCode) -> None:
    """The same over gRPC, with the pause the server asks for or without."""
    sink.script(Answer(code=code), Answer(code=code, retry_info=0.01))
    with closing(Sender(sink, "grpc")) as sender:
        assert sender.deliver(*_spans(2)) == []
        assert sender.values.requests["retry"] == 2
    assert arrived_once(sink.spans) == ["span 0", "span 1"]
    assert len(sink.spans) == 2


def test_collector_away_and_back(protocol: str) -> None:
    """Row 11: nobody listens for a while; all arrives in order once somebody does."""
    with OtlpSink() as gone:
        sender = Sender(gone, protocol, max_spans=2)
        ports = gone.http_port, gone.grpc_port
    spans = _spans(9)
    with closing(sender):
        background = InBackground(sender, *spans)
        assert wait_until(lambda: sender.values.requests["retry"] > 3, 20.0)
        assert sender.values.retrying_since > 0
        with OtlpSink(ports=ports) as back:
            assert background.ends()
            assert arrived_once(back.spans) == names(spans)
        assert background.result == [[]]
        assert sender.values.retrying_since == 0.0


def test_collector_hangs(sink: OtlpSink, protocol: str) -> None:
    """Row 12: each request ends by its timeout, and no threads pile up."""
    hangs = Answer(delay=60.0)
    sink.script(hangs)
    with closing(Sender(sink, protocol, variables={"TIMEOUT": "0.2"})) as sender:
        sender.deliver(*_spans(1))
        threads = threading.active_count()
        sink.script(hangs, hangs)
        assert sender.deliver(*_spans(1)) == []
        # The sink's own handlers hang, one for each request; the sender starts none.
        assert threading.active_count() <= threads + 2
        assert sender.values.requests["retry"] == 3
        assert "timeout" in sender.values.last_error


def test_reset_and_lost_reply(sender: Sender, sink: OtlpSink) -> None:
    """Rows 11 and 19: cut connections; what was accepted before the cut comes twice, the same."""
    sink.script(Answer(reset=True), Answer(reset=True, keep=True), Answer(status=503, keep=True))
    spans = _spans(3)
    assert sender.deliver(*spans) == []
    assert arrived_once(sink.spans) == names(spans)
    assert len(sink.spans) == 9
    assert sender.values.sent == 3


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_honoured(sink: OtlpSink, as_date: bool) -> None:  # noqa: FBT001
    """Row 13: the next request comes no earlier than the server asked for."""
    asked = formatdate(time.time() + 3, usegmt=True) if as_date else 2
    sink.script(Answer(status=503, retry_after=asked))
    with closing(Sender(sink, "http/protobuf")) as sender:
        started = time.monotonic()
        assert sender.deliver(*_spans(1)) == []
        assert time.monotonic() - started >= 1.9  # a date has whole seconds
    assert len(sink.requests) == 2


def test_retry_info_is_honoured(sink: OtlpSink) -> None:
    """Row 13 over gRPC."""
    sink.script(Answer(code=grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info=1.5))
    with closing(Sender(sink, "grpc")) as sender:
        started = time.monotonic()
        assert sender.deliver(*_spans(1)) == []
        assert time.monotonic() - started >= 1.4


def test_one_bad_span(sender: Sender, sink: OtlpSink) -> None:
    """Row 15: exactly it becomes a dead letter, with the server's words; the rest arrives."""
    sink.refused_names = frozenset({"span 3"})
    spans = _spans(10)
    (letter,) = sender.deliver(*spans) or ()
    assert (letter.event, letter.reason) == (spans[3].event, "refused")
    assert letter.detail.endswith(": cannot take span 3")
    assert arrived_once(sink.spans) == [name for name in names(spans) if name != "span 3"]
    values = sender.values
    assert (values.sent, values.dead_letters) == (9, {"refused": 1, "too_large": 0})
    assert values.requests["dead_letter"] == 1
    assert values.requests["split"] == 4  # of 10, 5, 3 and 2 spans
    assert "cannot take" not in values.last_error


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    count=st.integers(1, 24),
    poison=st.sets(st.integers(0, 23)),
    giants=st.sets(st.integers(0, 23)),
    max_spans=st.integers(1, 30),
)
def test_any_poison_and_any_giants(
    protocol: str, count: int, poison: set[int], giants: set[int], max_spans: int
) -> None:
    """Exactly the poison spans are dead letters; all others arrive once, in order, giants cut."""
    if protocol == "grpc":  # whose server in Python takes up to a second to refuse one by size
        giants = set()
    spans = [outgoing(n, size=20_000 if n in giants else 0) for n in range(count)]
    bad = [name for n, name in enumerate(names(spans)) if n in poison]
    with (
        OtlpSink(max_bytes=8_000) as sink,
        closing(Sender(sink, protocol, max_spans=max_spans, cut_bytes=4_000)) as sender,
    ):
        sink.refused_names = frozenset(bad)
        assert _dead(sender.deliver(*spans)) == bad
        good = [name for name in names(spans) if name not in bad]
        assert [span.name for span in sink.spans] == good
        cut = {s.name for s in sink.spans if s.attributes.get("otel_journal.truncated")}
        assert cut == {f"span {n}" for n in giants} & set(good)
        assert sender.values.sent == len(good)
        assert sender.values.dead_letters["refused"] == len(bad)


def test_a_giant_is_cut_before_it_is_sent(sender: Sender, sink: OtlpSink) -> None:
    """Row 16: 70 MB never go out; the span arrives, cut and marked, and its neighbours whole."""
    spans = [outgoing(1), outgoing(2, size=70_000_000), outgoing(3)]
    assert sender.deliver(*spans) == []
    assert arrived_once(sink.spans) == ["span 1", "span 2", "span 3"]
    giant = sink.spans[1]
    assert giant.attributes["otel_journal.truncated"] is True
    assert 3_000_000 < len(giant.attributes["text"]) < 4_000_000
    assert not any(
        s.attributes.get("otel_journal.truncated") for s in (sink.spans[0], sink.spans[2])
    )
    assert all(request.answer.accepts for request in sink.requests)


def test_too_large_for_this_server(protocol: str) -> None:
    """Row 16: split first; a single span is cut once; what is too large even then is set aside."""
    with (
        OtlpSink(max_bytes=3_000) as sink,
        closing(Sender(sink, protocol, cut_bytes=2_500)) as sender,
    ):
        assert sender.deliver(*(outgoing(n, size=900) for n in range(8))) == []
        assert not any("otel_journal.truncated" in span.attributes for span in sink.spans)
        assert sender.deliver(outgoing(8, size=9_000)) == []
        assert len(sink.spans[-1].attributes["text"]) < 2_500
        assert len(arrived_once(sink.spans)) == len(sink.spans) == 9
    with (
        OtlpSink(max_bytes=500) as sink,
        closing(Sender(sink, protocol)) as sender,
    ):
        (letter,) = sender.deliver(outgoing(1), outgoing(2, size=9_000)) or ()
        assert (letter.event.event_id, letter.reason) == ("op-2/1/end", "too_large")
        assert sender.values.dead_letters == {"refused": 0, "too_large": 1}
        assert sender.values.requests["split"] == 2  # both spans, then the giant alone
        assert [span.name for span in sink.spans] == ["span 1"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "auth"), (403, "auth"), (404, "not_found")],
)
def test_held(
    sender: Sender, sink: OtlpSink, status: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 17: kept, loud, slowly tried again; works without a restart once it is mended."""
    sink.script(then=Answer(status=status))
    spans = _spans(3)
    background = InBackground(sender, *spans)
    assert wait_until(lambda: sender.values.requests["held"] >= 3, 20.0)
    assert sender.values.held == reason
    assert sender.values.sent == 0
    assert not background.result
    sink.script()
    assert background.ends()
    assert background.result == [[]]
    assert arrived_once(sink.spans) == names(spans)
    assert sender.values.held == ""
    held, works = [record.getMessage() for record in caplog.records]
    assert f"held ({reason}, " in held
    assert "OTEL_EXPORTER_OTLP_" in held
    assert "works again" in works


def test_a_redirect_never_counts_as_delivered(sink: OtlpSink) -> None:
    """Row 17: the SDK takes it for success; here it is held, and nothing is sent elsewhere."""
    sink.script(then=Answer(status=301, location=f"{sink.http_endpoint}/v1/traces"))
    with closing(Sender(sink, "http/protobuf")) as sender:
        background = InBackground(sender, *_spans(2))
        assert wait_until(lambda: sender.values.held == "redirect", 20.0)
        assert sink.wait_for(lambda s: len(s.requests) > 2)
        assert sender.values.requests["ok"] == sender.values.sent == 0
        assert not sink.spans
        sender.stop.set()
        assert background.ends()
    assert background.result == [None]


def test_wrong_path(sink: OtlpSink) -> None:
    """Row 17: an endpoint for traces without its path leads nowhere, visibly."""
    variables = {"TRACES_ENDPOINT": sink.http_endpoint}
    with closing(Sender(sink, "http/protobuf", variables=variables)) as sender:
        background = InBackground(sender, *_spans(1))
        assert wait_until(lambda: sender.values.held == "not_found", 20.0)
        sender.stop.set()
        assert background.ends()


def test_partial_success(sender: Sender, sink: OtlpSink) -> None:
    """Row 18: rejected spans are counted as such, and not sent again."""
    sink.script(Answer(rejected=2), Answer(rejected=99))
    assert sender.deliver(*_spans(5)) == []
    assert sender.deliver(*_spans(3)) == []
    values = sender.values
    assert (values.sent, values.rejected) == (3, 5)
    assert values.requests["partial"] == 2
    assert len(sink.requests) == 2


def test_rotated_certificate(tmp_path: Path, protocol: str) -> None:
    """Row 20: held while the certificate is not trusted, works by itself once it is."""
    trusted, foreign = self_signed(tmp_path, "trusted"), self_signed(tmp_path, "foreign")
    variables = {"CERTIFICATE": str(trusted.certificate)}
    with (
        OtlpSink(tls=foreign) as sink,
        closing(Sender(sink, protocol, variables=variables)) as sender,
    ):
        background = InBackground(sender, *_spans(3))
        assert wait_until(lambda: sender.values.requests["held"] >= 2, 20.0)
        assert sender.values.held == "tls"
        sink.tls = trusted
        assert background.ends()
        assert arrived_once(sink.spans) == ["span 0", "span 1", "span 2"]
        assert sender.values.held == ""


@pytest.mark.parametrize(
    "answer",
    [Answer(status=503), Answer(status=401), Answer(status=503, retry_after=200, retry_info=200)],
)
def test_stop_ends_every_wait(
    sink: OtlpSink, protocol: str, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    """However long the wait is: `deliver` returns at once, and claims nothing."""
    sink.script(then=answer)
    waits = Waits(first_s=300.0, longest_s=300.0, held_s=300.0, random=lambda: 0.99)
    with closing(Sender(sink, protocol, waits=waits)) as sender:
        background = InBackground(sender, *_spans(2))
        assert sink.wait_for(lambda s: len(s.requests) == 1)
        assert wait_until(lambda: bool(caplog.records), 20.0)
        sender.stop.set()
        assert background.ends(5.0)
        assert background.result == [None]
        assert len(sink.requests) == 1
        values = sender.values
        assert values.sent == values.rejected == sum(values.dead_letters.values()) == 0
        assert sender.deliver(*_spans(1)) is None


def test_stop_between_requests_claims_nothing(sink: OtlpSink, protocol: str) -> None:
    """Half of a delivery is none: what arrived arrives again, the same."""
    sink.script(Answer(), then=Answer(status=503))
    with closing(Sender(sink, protocol, max_spans=2)) as sender:
        background = InBackground(sender, *_spans(4))
        assert wait_until(lambda: sender.values.requests["retry"] > 0, 20.0)
        sender.stop.set()
        assert background.ends()
        assert background.result == [None]
        assert sender.values.sent == 0
        sender.stop.clear()
        sink.script()
        assert sender.deliver(*_spans(4)) == []
        assert sender.values.sent == 4
    assert arrived_once(sink.spans) == names(_spans(4))
    assert len(sink.spans) == 6


def test_log_has_one_line_per_change(
    sender: Sender, sink: OtlpSink, caplog: pytest.LogCaptureFixture
) -> None:
    """However many requests fail; never a header, never content."""
    caplog.set_level(logging.DEBUG, logger="otel_journal")
    busy, refused = Answer(status=503, message="hush"), Answer(status=401, message="hush")
    sink.script(busy, busy, busy, refused, refused, busy, busy, Answer(), busy, busy)
    sender.deliver(*_spans(2))
    sender.deliver(*_spans(2))
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    expected = ["fails (", "held (auth", "fails (", "works again", "fails (", "works again"]
    assert len(lines) == len(expected)
    for (level, line), words in zip(lines, expected, strict=True):
        assert words in line
        assert level == ("ERROR" if "held" in words else "WARNING")
        assert "hush" not in line
    assert "hush" not in sender.values.last_error


def test_counts_are_there_from_the_start(sender: Sender, sink: OtlpSink) -> None:
    """Every result and reason at zero first; then each request in one result and one bucket."""
    before = sender.values
    assert before.requests == dict.fromkeys(RESULTS, 0)
    assert before.dead_letters == {"refused": 0, "too_large": 0}
    assert (before.held, before.last_error, before.last_success) == ("", "", 0.0)
    sink.script(Answer(status=503))
    sender.deliver(*_spans(2))
    after = sender.values
    assert sum(after.requests.values()) == sum(after.seconds_counts) == 2
    assert len(after.seconds_counts) == len(SECONDS_BOUNDS) + 1
    assert after.seconds_sum > 0
    assert "503" in after.last_error or "UNAVAILABLE" in after.last_error
    assert abs(after.last_success - time.time()) < 60
    assert before.requests["ok"] == 0  # a snapshot does not move


def test_counts_from_many_threads() -> None:
    """No increment is lost."""
    counts = ExportCounts()

    def work() -> None:
        for _ in range(500):
            counts.answered("ok", 0.001)
            counts.answered("retry", 99.0, "status: HTTP 503")
            counts.settled(2, 1, ("refused",))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    values = counts.snapshot()
    assert values.requests["ok"] == values.requests["retry"] == 2_000
    assert values.seconds_counts[0] == values.seconds_counts[-1] == 2_000
    assert (values.sent, values.rejected, values.dead_letters["refused"]) == (4_000, 2_000, 2_000)


@given(failures=st.integers(0, 10_000), number=st.floats(0, 1, exclude_max=True))
def test_waits_stay_within_their_bounds(failures: int, number: float) -> None:
    """Doubling with full jitter up to 30 s, forever; a server that asks for more gets it."""
    waits = Waits(random=lambda: number)
    assert waits.before_retry(failures, None) == number * min(30.0, 2.0 ** min(failures, 32))
    assert waits.before_retry(failures, 120.0) == 120.0
    assert 15.0 <= waits.while_held(None) <= 45.0
    assert waits.while_held(120.0) == 120.0


def test_waits_grow_with_failures_in_a_row(sink: OtlpSink) -> None:
    """And start again with the next request."""
    asked: list[float] = []

    class Recorded(Waits):
        def before_retry(self, failures: int, asked_for: float | None) -> float:
            asked.append(failures)
            return super().before_retry(failures, asked_for)

    sink.script(*[Answer(status=503)] * 3, Answer(), *[Answer(status=503)] * 2)
    waits = Recorded(first_s=0.001, longest_s=0.002)
    with closing(Sender(sink, "http/protobuf", waits=waits, max_spans=1)) as sender:
        sender.deliver(*_spans(2))
    assert asked == [0, 1, 2, 0, 1]


def test_a_storm_of_faults(sink: OtlpSink, protocol: str) -> None:
    """Everything at once: each span arrives, repeats are the same, nothing is dead."""
    faults: Callable[[], Iterator[Answer]] = lambda: iter(  # noqa: E731
        (
            Answer(status=503),
            Answer(reset=True),
            Answer(status=401),
            Answer(reset=True, keep=True),
            Answer(status=500, keep=True),
            Answer(),
        )
    )
    sink.script(*chain.from_iterable(faults() for _ in repeat(None, 10)))
    spans = _spans(60)
    with closing(Sender(sink, protocol, max_spans=3)) as sender:
        assert sender.deliver(*spans) == []
        assert sender.values.sent == 60
    assert arrived_once(sink.spans) == names(spans)


def test_what_refuses_everything_makes_no_dead_letters(sender: Sender, sink: OtlpSink) -> None:
    """A port that speaks no OTLP is a mistake of the set-up: the backlog is held, and goes on."""
    sink.script(then=Answer(400, message="what is this?"))
    delivery = InBackground(sender, *_spans(3))
    assert wait_until(lambda: sender.values.held == "not_otlp", 20)
    assert not delivery.ends(0.1)
    sink.script(then=Answer())
    assert delivery.ends()

    assert delivery.result == [[]]
    assert arrived_once(sink.spans) == names(_spans(3))
    assert sender.values.held == ""
