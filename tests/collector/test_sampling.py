"""The gateway: which traces it keeps, what it measures, and several of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import NonRecordingSpan, Status, StatusCode, set_span_in_context
from servers import prometheus as prometheus_server
from servers.jaeger import Jaeger
from servers.otelcol import FILES, Otelcol
from servers.process import wait_until

from otel_journal import semconv

from .users_prometheus import UsersPrometheus

ARRIVAL_S: Final = 30.0
NS_PER_MS: Final = 1_000_000
SLOW_MS: Final = 60_000
TOKENS: Final = 100_000
"""Defaults of the configuration."""
HURRY: Final = {
    "OTELCOL_DECISION_WAIT": "4s",
    "OTELCOL_DECISION_WAIT_AFTER_ROOT": "1s",
    "OTELCOL_SPAN_METRICS_INTERVAL": "1s",
    "OTELCOL_REMOTE_WRITE": "http://127.0.0.1:9/api/v1/write",
}


@dataclass(frozen=True)
class Trace:
    """A run with one step; its attributes, how long it took, whether its step failed."""

    root: Mapping[str, Any] = field(default_factory=dict)
    step: Mapping[str, Any] = field(default_factory=dict)
    milliseconds: int = 1_000
    step_failed: bool = False

    def spans(self, maker: Any) -> list[ReadableSpan]:
        """Return the step and the root, in the order in which they end."""
        tracer = maker.tracer
        begin = time.time_ns() - 2 * SLOW_MS * NS_PER_MS
        root = tracer.start_span("run", attributes=dict(self.root), start_time=begin)
        step = tracer.start_span(
            "step", set_span_in_context(root), attributes=dict(self.step), start_time=begin
        )
        if self.step_failed:
            step.set_status(Status(StatusCode.ERROR))
        step.end(begin + NS_PER_MS)
        root.end(begin + self.milliseconds * NS_PER_MS)
        spans: list[ReadableSpan] = maker.take()
        return spans


def _tokens(given: int, made: int) -> dict[str, Any]:
    return {semconv.RUN_INPUT_TOKENS: given, semconv.RUN_OUTPUT_TOKENS: made}


KEPT: Final = {
    "a step failed": Trace({semconv.OUTCOME: "ok"}, step_failed=True),
    "waits for a human": Trace({semconv.OUTCOME: "interrupted"}),
    "cancelled": Trace({semconv.OUTCOME: "cancelled"}),
    "abandoned": Trace({semconv.OUTCOME: "abandoned"}),
    "nobody saw its end": Trace({semconv.OUTCOME: "unknown"}),
    "a step was interrupted": Trace({}, {semconv.OUTCOME: "interrupted"}),
    "slow": Trace(milliseconds=SLOW_MS + 1),
    "expensive": Trace(_tokens(TOKENS - 10, 10)),
}
DROPPED: Final = {
    "ordinary": Trace({semconv.OUTCOME: "ok"}),
    "handed over": Trace({semconv.OUTCOME: "handoff"}),
    "nearly slow": Trace(milliseconds=SLOW_MS - 1),
    "nearly expensive": Trace(_tokens(TOKENS - 10, 9)),
    "tokens of one kind only": Trace({semconv.RUN_INPUT_TOKENS: TOKENS}),
    "an expensive call, but not the run": Trace({}, {semconv.USAGE_INPUT_TOKENS: TOKENS}),
    "of somebody else": Trace(),
}


def _decided(gateway: Otelcol, traces: int) -> bool:
    """True when the gateway has decided about so many traces, by its own count."""
    counts = re.findall(
        r"^otelcol_processor_tail_sampling_global_count_traces_sampled\S* (\S+)$",
        gateway.metrics(),
        re.MULTILINE,
    )
    return sum(map(float, counts)) >= traces


def _ids(traces: Mapping[str, list[ReadableSpan]]) -> dict[str, str]:
    """Trace id -> name."""
    return {f"{spans[0].context.trace_id:032x}": name for name, spans in traces.items()}


class TestSampling:
    """Which traces reach Jaeger."""

    def test_exactly_the_promised_ones_are_kept_whole(
        self,
        otelcol: Callable[..., Otelcol],
        jaeger: Callable[..., Jaeger],
        maker: Any,
        send: Callable[..., bool],
    ) -> None:
        """With 0 percent of the rest; what comes after a decision follows it."""
        stored = jaeger()
        gateway = otelcol(
            "otelcol-gateway.yaml",
            export_to=stored.place.grpc_endpoint,
            OTELCOL_KEEP_PERCENT="0",
            **HURRY,
        )
        made = {name: trace.spans(maker) for name, trace in {**KEPT, **DROPPED}.items()}
        names = _ids(made)
        for step_or_root in zip_longest(*made.values()):
            assert send(gateway.place.http_endpoint, step_or_root)
        assert wait_until(lambda: _decided(gateway, len(made)), ARRIVAL_S)
        stored.wait_for_traces(maker.service, len(KEPT))

        assert {names[one] for one in stored.trace_ids(maker.service)} == set(KEPT)
        assert wait_until(lambda: len(stored.spans(names)) == 2 * len(KEPT), ARRIVAL_S)

        late = []
        for spans in made.values():
            context = set_span_in_context(NonRecordingSpan(spans[-1].context))
            maker.tracer.start_span("late", context).end()
            late += maker.take()
        assert send(gateway.place.http_endpoint, late)
        assert wait_until(lambda: len(stored.spans(names)) == 3 * len(KEPT), ARRIVAL_S)
        assert {names[one] for one in stored.trace_ids(maker.service)} == set(KEPT)

    def test_a_share_of_the_rest_is_kept(
        self,
        otelcol: Callable[..., Otelcol],
        jaeger: Callable[..., Jaeger],
        maker: Any,
        send: Callable[..., bool],
    ) -> None:
        """Of 400 ordinary traces about the share that was asked for; one without a root, too."""
        stored = jaeger()
        gateway = otelcol(
            "otelcol-gateway.yaml",
            export_to=stored.place.grpc_endpoint,
            OTELCOL_KEEP_PERCENT="25",
            **HURRY,
        )
        ordinary = [Trace().spans(maker) for _ in range(400)]
        rootless, _ = Trace({}, step_failed=True).spans(maker)
        assert send(gateway.place.http_endpoint, [s for spans in ordinary for s in spans])
        assert send(gateway.place.http_endpoint, [rootless])
        assert wait_until(lambda: _decided(gateway, 401), ARRIVAL_S)

        wanted = f"{rootless.context.trace_id:032x}"
        assert wait_until(lambda: wanted in stored.trace_ids(maker.service), ARRIVAL_S)
        # Trace ids are the same in every run, and the decision follows from them.
        assert 70 <= len(stored.trace_ids(maker.service)) - 1 <= 130


def test_all_spans_are_measured_whatever_is_kept(
    otelcol: Callable[..., Otelcol],
    server_program: Callable[[str], Path],
    tmp_path: Path,
    maker: Any,
    send: Callable[..., bool],
) -> None:
    """Calls and durations reach Prometheus, by what agents and tools are called."""
    program = server_program(prometheus_server.PROGRAM)
    with UsersPrometheus(program, tmp_path, targets={}) as prometheus:
        gateway = otelcol(
            "otelcol-gateway.yaml",
            export_to="http://127.0.0.1:9",
            OTELCOL_KEEP_PERCENT="0",
            **{**HURRY, "OTELCOL_REMOTE_WRITE": f"{prometheus.url}/api/v1/write"},
        )
        named = {semconv.AGENT_NAME: "boss", semconv.OUTCOME: "ok"}
        for trace in [Trace(named)] * 5 + [Trace(named, step_failed=True)] * 2:
            assert send(gateway.place.http_endpoint, trace.spans(maker))
        calls = (
            "sum(traces_span_metrics_calls_total"
            '{gen_ai_agent_name="boss",otel_journal_outcome="ok",span_name="run"})'
        )
        failed = 'sum(traces_span_metrics_calls_total{status_code="STATUS_CODE_ERROR"})'
        seconds = 'sum(traces_span_metrics_duration_seconds_sum{span_name="run"})'

        assert prometheus.wait_for_value(calls, 7.0) == 7.0
        assert prometheus.value(failed) == 2.0
        assert prometheus.value(seconds) == 7.0
        assert prometheus.query("traces_span_metrics_calls_total")[0].labels["job"] == maker.service


class TestSeveral:
    """Agents that choose between gateways."""

    @pytest.mark.parametrize("resolver", ["static", "dns"])
    def test_a_trace_goes_to_one_gateway(  # noqa: PLR0913, PLR0917 - fixtures
        self,
        resolver: str,
        otelcol: Callable[..., Otelcol],
        jaeger: Callable[..., Jaeger],
        tmp_path: Path,
        maker: Any,
        send: Callable[..., bool],
    ) -> None:
        """Spans of a trace that come one by one meet at one gateway; the traces are spread."""
        stored = jaeger()
        gateways = [
            otelcol(
                "otelcol-gateway.yaml",
                export_to=stored.place.grpc_endpoint,
                OTELCOL_KEEP_PERCENT="100",
                **HURRY,
            )
            for _ in range(2 if resolver == "static" else 1)
        ]
        # Loopback has no name with two addresses: two gateways are given as a list.
        over = FILES / "balanced.yaml"
        if resolver == "static":
            over = _with_list([f"127.0.0.1:{one.place.grpc_port}" for one in gateways], tmp_path)
        agent = otelcol(
            "otelcol.yaml",
            over,
            export_to="http://127.0.0.1:9",
            OTELCOL_GATEWAYS="localhost",
            OTELCOL_GATEWAYS_PORT=str(gateways[0].place.grpc_port),
        )
        traces = [Trace().spans(maker) for _ in range(60)]
        for one_of_each in zip(*traces, strict=True):
            assert send(agent.place.http_endpoint, one_of_each)

        ids = {f"{spans[0].context.trace_id:032x}" for spans in traces}
        assert wait_until(lambda: len(stored.spans(ids)) == 2 * len(traces), ARRIVAL_S)
        seen = [_traces_seen(gateway) for gateway in gateways]
        assert sum(seen) == len(traces)
        assert min(seen) >= len(traces) // 6


def _traces_seen(gateway: Otelcol) -> int:
    [seen] = re.findall(
        r"^otelcol_processor_tail_sampling_new_trace_id_received\S* (\S+)$",
        gateway.metrics(),
        re.MULTILINE,
    )
    return int(float(seen))


def _with_list(addresses: list[str], folder: Path) -> Path:
    config = yaml.safe_load((FILES / "balanced.yaml").read_text())
    config["exporters"]["load_balancing"]["resolver"] = {"static": {"hostnames": addresses}}
    path = folder / "balanced.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path
