"""The fold: which event changes which series, by how much, under which labels."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_journal import metric_catalogue as catalogue
from otel_journal.events import OUTCOMES, Event, SpanBlock, StreamTiming, Usage
from otel_journal.metric_series import Distribution, Point
from otel_journal.metrics import MetricsFold

NOW_NS = 1_764_500_000_000_000_000
S = 1_000_000_000
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"

MODEL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.model": "gpt-4o-2024-08-06",
    "server.address": "api.openai.com",
    "server.port": 443,
}
G = {
    "gen_ai_operation_name": "chat",
    "gen_ai_provider_name": "openai",
    "gen_ai_request_model": "gpt-4o",
    "gen_ai_response_model": "gpt-4o-2024-08-06",
    "server_address": "api.openai.com",
    "server_port": "443",
}
OWN = {
    "gen_ai_agent_name": "support",
    "caller": "lead_agent",
    "gen_ai_provider_name": "openai",
    "gen_ai_request_model": "gpt-4o",
}
USAGE = Usage(
    input_tokens=100,
    output_tokens=20,
    details={"cache_read": 40, "cache_write": 10, "reasoning": 8},
)


def event(event_type: str, **block: Any) -> Event:
    """Return an event whose span block is a chat of agent ``support`` unless told otherwise."""
    fields: dict[str, Any] = {
        "op_id": "op-1",
        "kind": "chat",
        "name": "chat gpt-4o",
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "start_ns": NOW_NS,
        "attributes": MODEL,
        "agent": "support",
    }
    return Event(
        event_id="op-1/1/x",
        run_id="run-1",
        event_type=event_type,
        category="trace",
        created_ns=NOW_NS + S,
        span=SpanBlock(**(fields | block)),
    )


def ended(event_type: str, *, seconds: float = 1.0, **block: Any) -> Event:
    """Return an end event, outcome ok unless told otherwise."""
    return event(event_type, **({"end_ns": NOW_NS + round(seconds * S), "outcome": "ok"} | block))


def tool(event_type: str = "tool_call.completed", name: str = "search", **block: Any) -> Event:
    """Return an event of a tool call."""
    attributes = {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
    make = event if event_type == "tool_call.started" else ended
    return make(
        event_type,
        **({"kind": "tool", "name": f"execute_tool {name}", "attributes": attributes} | block),
    )


def run(event_type: str, agent: str = "support", **block: Any) -> Event:
    """Return an event of a root agent."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
    defaults = {"kind": "agent", "root": True, "agent": agent, "attributes": attributes}
    make = event if event_type == "run.start" else ended
    return make(event_type, **(defaults | block))


@dataclass
class Series:
    """Readable access to what a fold holds."""

    fold: MetricsFold

    def rows(self, name: str, now_ns: int = NOW_NS) -> list[tuple[dict[str, str], Any]]:
        """Return (labels, row) of a family; a family that does not exist fails the test."""
        (reading,) = [r for r in self.fold.read(now_ns) if r.series.name == name]
        rows: list[Point | Distribution] = [*reading.points, *reading.distributions]
        return [(dict(zip(reading.series.labels, r.labels, strict=True)), r) for r in rows]

    def value(self, name: str, now_ns: int = NOW_NS, **labels: str) -> float:
        """Return the value of exactly one sample."""
        (row,) = [row for found, row in self.rows(name, now_ns) if found == labels]
        return row.value

    def all(self, name: str, by: str) -> dict[str, float]:
        """Return label value -> value; every sample must differ in that label."""
        rows = self.rows(name)
        assert len({labels[by] for labels, _ in rows}) == len(rows)
        return {labels[by]: row.value for labels, row in rows}

    def one(self, name: str, **labels: str) -> Distribution:
        """Return the distribution with exactly these labels."""
        (row,) = [row for found, row in self.rows(name) if found == labels]
        return row

    @property
    def names(self) -> set[str]:
        """Return the names of families with at least one sample."""
        return {r.series.name for r in self.fold.read(NOW_NS) if r.points or r.distributions}


def folded(*events: Event, **options: Any) -> Series:
    """Return the series of a fold over events."""
    fold = MetricsFold(**options)
    for one in events:
        fold.apply(one)
    return Series(fold)


def bucket_of(distribution: Distribution) -> int:
    """Return the index of the only bucket with a count."""
    (index,) = [i for i, count in enumerate(distribution.counts) if count]
    return index


class TestModelCalls:
    """Chats and completions."""

    def test_success_counts_once_in_every_family(self) -> None:
        """A successful call adds its duration, tokens and details to own and official series."""
        series = folded(ended("llm.end", seconds=2.0, usage=USAGE))
        duration = series.one("gen_ai_client_inference_duration_seconds", **G, error_type="")
        assert (bucket_of(duration), duration.total) == (8, 2.0)
        official = {
            which: series.value(
                f"gen_ai_client_inference_usage_{which}_tokens_total",
                **(G | {"gen_ai_token_modality": "unknown"}),
            )
            for which in (
                "input",
                "output",
                "cache_read_input",
                "cache_write_input",
                "reasoning_output",
            )
        }
        assert official == {
            "input": 100,
            "output": 20,
            "cache_read_input": 40,
            "cache_write_input": 10,
            "reasoning_output": 8,
        }
        for direction, tokens in (("input", 100), ("output", 20)):
            per_call = series.one(f"gen_ai_client_inference_operation_{direction}_tokens", **G)
            assert (sum(per_call.counts), per_call.total) == (1, tokens)
        assert series.all("otel_journal_tokens_total", "type") == {"input": 100, "output": 20}
        assert series.all("otel_journal_llm_calls_total", "outcome") == {"ok": 1, "error": 0}
        assert series.value("otel_journal_usage_missing_total", **OWN) == 0

    def test_details_are_a_separate_family(self) -> None:
        """Cache and reasoning tokens are details, never a type that a sum would add again."""
        series = folded(ended("llm.end", usage=USAGE))
        assert series.all("otel_journal_token_details_total", "detail") == {
            "cache_read": 40,
            "cache_write": 10,
            "reasoning": 8,
            "audio_input": 0,
            "audio_output": 0,
        }

    def test_failure_has_its_error_type_and_no_token_histogram(self) -> None:
        """A failed call is timed under its error type; its tokens reach counters only."""
        series = folded(
            ended("llm.error", outcome="error", error_type="openai.RateLimitError", usage=USAGE)
        )
        timed = series.one(
            "gen_ai_client_inference_duration_seconds", **G, error_type="openai.RateLimitError"
        )
        assert sum(timed.counts) == 1
        assert series.all("otel_journal_llm_calls_total", "outcome") == {"ok": 0, "error": 1}
        assert series.all("otel_journal_tokens_total", "type") == {"input": 100, "output": 20}
        assert "gen_ai_client_inference_operation_input_tokens" not in series.names
        assert "gen_ai_client_inference_usage_input_tokens_total" in series.names

    def test_error_without_a_type_is_named(self) -> None:
        """An error never looks like a success only because its type is unknown."""
        series = folded(ended("llm.error", outcome="error"))
        assert series.one("gen_ai_client_inference_duration_seconds", **G, error_type="_OTHER")

    @pytest.mark.parametrize("outcome", sorted(set(OUTCOMES) - {"ok", "error"}))
    def test_other_outcomes_are_not_errors(self, outcome: str) -> None:
        """Interrupted, cancelled and the like carry no error type and miss no usage."""
        series = folded(ended("llm.error", outcome=outcome, error_type="Ignored"))
        assert series.one("gen_ai_client_inference_duration_seconds", **G, error_type="")
        calls = series.all("otel_journal_llm_calls_total", "outcome")
        assert calls == {"ok": 0, "error": 0, outcome: 1}
        assert series.value("otel_journal_usage_missing_total", **OWN) == 0

    def test_absent_usage_is_missing_not_zero(self) -> None:
        """A success without usage is counted as missing and records no tokens at all."""
        series = folded(ended("llm.end"))
        assert series.value("otel_journal_usage_missing_total", **OWN) == 1
        assert "gen_ai_client_inference_usage_input_tokens_total" not in series.names
        assert "gen_ai_client_inference_operation_input_tokens" not in series.names

    def test_reported_zero_is_recorded(self) -> None:
        """A successful call that used zero tokens is one record of 0, not missing usage."""
        series = folded(ended("llm.end", usage=Usage()))
        per_call = series.one("gen_ai_client_inference_operation_output_tokens", **G)
        assert (bucket_of(per_call), per_call.total) == (0, 0)
        assert series.value("otel_journal_usage_missing_total", **OWN) == 0

    def test_cached_answer_is_a_call_without_tokens(self) -> None:
        """A hit in LangChain's cache is not billed and does not count as missing usage."""
        series = folded(ended("llm.end", cached=True))
        assert series.all("otel_journal_llm_calls_total", "outcome") == {"ok": 1, "error": 0}
        assert series.all("otel_journal_tokens_total", "type") == {"input": 0, "output": 0}
        assert series.value("otel_journal_usage_missing_total", **OWN) == 0

    def test_tokens_are_charged_to_the_innermost_agent_and_its_caller(self) -> None:
        """A subagent's tokens stand under its own name; official series do not know agents."""
        series = folded(
            ended("llm.end", usage=USAGE, agent="outer"),
            ended("llm.end", usage=USAGE, agent="researcher", caller="subagent:researcher"),
            ended("llm.end", usage=USAGE, agent="researcher", caller="subagent:researcher"),
        )
        spent = {
            (labels["gen_ai_agent_name"], labels["caller"]): row.value
            for labels, row in series.rows("otel_journal_tokens_total")
            if labels["type"] == "input"
        }
        assert spent == {("outer", "lead_agent"): 100, ("researcher", "subagent:researcher"): 200}
        official = series.all(
            "gen_ai_client_inference_usage_input_tokens_total", "gen_ai_token_modality"
        )
        assert official == {"unknown": 300}

    def test_labels_that_are_not_known_are_empty(self) -> None:
        """Every sample of a family has the same label names; what is absent is empty."""
        series = folded(ended("llm.end", attributes={}, kind="completion", agent="", usage=USAGE))
        empty = dict.fromkeys(G, "") | {"gen_ai_operation_name": "text_completion"}
        assert series.one("gen_ai_client_inference_duration_seconds", **empty, error_type="")

    def test_known_modalities_leave_the_rest_unknown(self) -> None:
        """Tokens of a known modality are taken out of ``unknown``: never both total and parts."""
        usage = Usage(100, 20, {"audio_input": 30, "image_input": 5, "text_output": 20})
        series = folded(ended("llm.end", usage=usage))
        assert series.all(
            "gen_ai_client_inference_usage_input_tokens_total", "gen_ai_token_modality"
        ) == {"unknown": 65, "audio": 30, "image": 5}
        assert series.all(
            "gen_ai_client_inference_usage_output_tokens_total", "gen_ai_token_modality"
        ) == {"unknown": 0, "text": 20}
        assert series.all("otel_journal_tokens_total", "type") == {"input": 100, "output": 20}


class TestStreaming:
    """Chunk timing of streamed calls."""

    STREAM = StreamTiming(
        first_chunk_ns=300_000_000, gap_counts=(0, 1, 0, 2) + (0,) * 11, gap_sum_ns=170_000_000
    )

    def test_first_chunk_and_gaps(self) -> None:
        """A streamed call adds one time to first chunk and one record per later chunk."""
        series = folded(*[ended("llm.end", usage=USAGE, stream=self.STREAM)] * 2)
        first = series.one("gen_ai_client_inference_time_to_first_chunk_seconds", **G)
        assert (bucket_of(first), first.total) == (5, 0.6)
        gaps = series.one("gen_ai_client_inference_time_per_output_chunk_seconds", **G)
        assert gaps.counts == (0, 2, 0, 4) + (0,) * 11
        assert gaps.total == pytest.approx(0.34)

    def test_calls_that_do_not_stream_have_neither(self) -> None:
        """Without a stream there is no first chunk, rather than one at 0."""
        series = folded(ended("llm.end", usage=USAGE))
        assert "gen_ai_client_inference_time_to_first_chunk_seconds" not in series.names

    def test_foreign_buckets_are_refused(self) -> None:
        """Gap counts sorted into other buckets are an error, not a shorter histogram."""
        wrong = StreamTiming(first_chunk_ns=1, gap_counts=(1, 2), gap_sum_ns=3)
        with pytest.raises(ValueError, match="2 buckets"):
            folded(ended("llm.end", stream=wrong))


class TestBuckets:
    """Histogram bounds."""

    def test_bounds_are_those_of_the_conventions(self) -> None:
        """Each histogram has the bounds its semantic convention asks for."""
        bounds = {s.name: s.buckets for s in catalogue.FOLDED if s.type == "histogram"}
        seconds = (
            0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
        )  # fmt: skip
        agent = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
        tokens = (
            1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216,
            67108864,
        )  # fmt: skip
        calls = (1, 2, 4, 8, 16, 32, 64, 128)
        workflow = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
        assert bounds == {
            "gen_ai_client_inference_duration_seconds": seconds,
            "gen_ai_client_inference_time_to_first_chunk_seconds": seconds,
            "gen_ai_client_inference_time_per_output_chunk_seconds": seconds,
            "gen_ai_client_inference_operation_input_tokens": tokens,
            "gen_ai_client_inference_operation_output_tokens": tokens,
            "gen_ai_client_operation_duration_seconds": seconds,
            "gen_ai_client_operation_time_to_first_chunk_seconds": seconds,
            "gen_ai_client_operation_time_per_output_chunk_seconds": seconds,
            "gen_ai_client_token_usage": tokens,
            "gen_ai_invoke_agent_duration_seconds": agent,
            "gen_ai_invoke_agent_inference_calls": calls,
            "gen_ai_invoke_agent_tool_calls": calls,
            "gen_ai_invoke_workflow_duration_seconds": workflow,
            "gen_ai_execute_tool_duration_seconds": seconds,
            "gen_ai_retrieval_duration_seconds": seconds,
        }

    @pytest.mark.parametrize(
        ("seconds", "index"), [(0.0, 0), (0.01, 0), (0.010000001, 1), (81.92, 13), (81.93, 14)]
    )
    def test_bounds_are_inclusive(self, seconds: float, index: int) -> None:
        """A value on a bound belongs to that bucket; one above the last to ``+Inf``."""
        series = folded(ended("llm.end", seconds=seconds))
        timed = series.one("gen_ai_client_inference_duration_seconds", **G, error_type="")
        assert bucket_of(timed) == index


class TestAmendedUsage:
    """Usage that comes after its call has ended."""

    def test_late_usage_is_tokens_only(self) -> None:
        """Late usage reaches every token series, and no call, duration or missing counter moves."""
        before = folded(ended("llm.end"))
        after = folded(ended("llm.end"), event("usage.amended", usage=USAGE, outcome="ok"))
        assert after.value("otel_journal_usage_amended_total") == 1
        assert after.all("otel_journal_tokens_total", "type") == {"input": 100, "output": 20}
        official = after.all(
            "gen_ai_client_inference_usage_input_tokens_total", "gen_ai_token_modality"
        )
        assert official == {"unknown": 100}
        for name in (
            "otel_journal_llm_calls_total",
            "otel_journal_usage_missing_total",
            "gen_ai_client_inference_duration_seconds",
        ):
            assert after.rows(name) == before.rows(name)

    def test_late_usage_is_the_one_record_of_its_operation(self) -> None:
        """The token histogram gets the record that the end event could not give."""
        series = folded(ended("llm.end"), event("usage.amended", usage=USAGE, outcome="ok"))
        assert series.one("gen_ai_client_inference_operation_input_tokens", **G).total == 100

    def test_late_usage_of_a_failed_call_has_no_histogram(self) -> None:
        """Failed operations stay out of token histograms, however late their usage is."""
        series = folded(event("usage.amended", usage=USAGE, outcome="error"))
        assert "gen_ai_client_inference_operation_input_tokens" not in series.names
        assert series.all("otel_journal_tokens_total", "type") == {"input": 100, "output": 20}

    def test_amending_alone_invents_no_call(self) -> None:
        """An amendment whose end is in an earlier process creates no duration series."""
        series = folded(event("usage.amended", usage=USAGE))
        assert "gen_ai_client_inference_duration_seconds" not in series.names
        assert series.all("otel_journal_llm_calls_total", "outcome") == {"ok": 0, "error": 0}


class TestTools:
    """Tool calls."""

    @pytest.mark.parametrize(
        ("outcome", "label"),
        [
            ("ok", "ok"),
            ("error", "error"),
            ("cancelled", "cancelled"),
            ("interrupted", "interrupted"),
            ("abandoned", "cancelled"),
            ("handoff", "ok"),
            ("unknown", "cancelled"),
        ],
    )
    def test_seven_outcomes_become_four(self, outcome: str, label: str) -> None:
        """Each tool outcome is counted under one of the four labels."""
        series = folded(tool(outcome=outcome, error_type="tool_error"))
        expected = {"ok": 0, "error": 0, "cancelled": 0, "interrupted": 0} | {label: 1}
        assert series.all("otel_journal_tool_calls_total", "outcome") == expected
        ((labels, _),) = series.rows("gen_ai_execute_tool_duration_seconds")
        assert labels == {
            "gen_ai_tool_name": "search",
            "gen_ai_tool_type": "function",
            "gen_ai_agent_name": "support",
            "error_type": "tool_error" if outcome == "error" else "",
        }

    def test_start_exposes_every_outcome_at_zero(self) -> None:
        """A tool that has only started is there with all four outcomes, so none is born above 0."""
        series = folded(tool("tool_call.started"))
        assert series.all("otel_journal_tool_calls_total", "outcome") == dict.fromkeys(
            ("ok", "error", "cancelled", "interrupted"), 0
        )


class TestRetrievals:
    """Retrievals."""

    def test_duration(self) -> None:
        """A retrieval is timed under operation, provider and error type."""
        series = folded(
            ended(
                "retrieval.end", kind="retrieval", name="retrieval docs", attributes={}, seconds=0.5
            )
        )
        ((labels, row),) = series.rows("gen_ai_retrieval_duration_seconds")
        assert labels == {
            "gen_ai_operation_name": "retrieval",
            "gen_ai_provider_name": "",
            "error_type": "",
        }
        assert (bucket_of(row), row.total) == (6, 0.5)


class TestAgents:
    """Agent and workflow invocations."""

    def test_invocation(self) -> None:
        """An agent's end records its duration and its own model and tool calls."""
        series = folded(run("run.end", seconds=3.0, inference_calls=3, tool_calls=2))
        timed = series.one(
            "gen_ai_invoke_agent_duration_seconds",
            gen_ai_operation_name="invoke_agent",
            gen_ai_agent_name="support",
            gen_ai_request_model="",
            error_type="",
        )
        assert (bucket_of(timed), timed.total) == (5, 3.0)
        agent = {"gen_ai_agent_name": "support"}
        assert bucket_of(series.one("gen_ai_invoke_agent_inference_calls", **agent)) == 2
        assert bucket_of(series.one("gen_ai_invoke_agent_tool_calls", **agent)) == 1

    def test_nested_agent_is_an_invocation_but_not_a_run(self) -> None:
        """A subagent has a duration of its own and does not move the run counters."""
        series = folded(run("node.end", agent="researcher", root=False))
        assert "gen_ai_invoke_agent_duration_seconds" in series.names
        assert "otel_journal_runs_total" not in series.names

    def test_nodes_and_plain_chains_have_no_family(self) -> None:
        """Graph nodes are spans only."""
        empty = folded()
        series = folded(
            event("node.start", kind="node", name="n"), ended("node.end", kind="node", name="n")
        )
        assert series.names == empty.names


class TestRuns:
    """Root operations."""

    @pytest.mark.parametrize(
        ("event_type", "outcome"),
        [
            ("run.end", "ok"),
            ("run.error", "error"),
            ("run.interrupted", "interrupted"),
            ("run.end", "handoff"),
            ("run.end", "cancelled"),
            ("run.end", "abandoned"),
            ("run.end", "unknown"),
        ],
    )
    def test_ends_once_under_its_outcome(self, event_type: str, outcome: str) -> None:
        """A run ends under one of seven outcomes; the other six are there at 0."""
        series = folded(run("run.start"), run(event_type, outcome=outcome))
        expected = dict.fromkeys(OUTCOMES, 0) | {outcome: 1}
        assert series.all("otel_journal_runs_total", "outcome") == expected
        assert series.all("otel_journal_runs_started_total", "gen_ai_agent_name") == {"support": 1}

    def test_gauges_follow_open_runs(self) -> None:
        """In flight is what has started and not ended; age is that of the oldest, 0 when none."""
        fold = MetricsFold()
        series = Series(fold)
        fold.apply(run("run.start", op_id="a", start_ns=NOW_NS - 60 * S))
        fold.apply(run("run.start", op_id="b", start_ns=NOW_NS - 5 * S))
        fold.apply(run("run.start", op_id="c", agent="billing", start_ns=NOW_NS + S))
        in_flight = series.all("otel_journal_runs_in_flight", "gen_ai_agent_name")
        assert in_flight == {"support": 2, "billing": 1}
        ages = series.all("otel_journal_run_oldest_age_seconds", "gen_ai_agent_name")
        assert ages == {"support": 60.0, "billing": 0.0}
        fold.apply(run("run.end", op_id="a"))
        fold.apply(run("run.interrupted", op_id="c", agent="billing", outcome="interrupted"))
        in_flight = series.all("otel_journal_runs_in_flight", "gen_ai_agent_name")
        assert in_flight == {"support": 1, "billing": 0}
        age = series.value(
            "otel_journal_run_oldest_age_seconds", NOW_NS + 2 * S, gen_ai_agent_name="support"
        )
        assert age == 7.0

    def test_one_root_id_may_run_again(self) -> None:
        """A reused root id is a run of its own: open runs are told apart by span id too."""
        series = folded(
            run("run.start", span_id="1" * 16),
            run("run.start", span_id="2" * 16),
            run("run.end", span_id="1" * 16),
        )
        assert series.value("otel_journal_runs_in_flight", gen_ai_agent_name="support") == 1

    def test_a_model_call_may_be_a_run(self) -> None:
        """A chat without a graph around it starts and ends a run of its own."""
        fold = MetricsFold()
        series = Series(fold)
        fold.apply(event("llm.start", root=True))
        assert series.value("otel_journal_runs_in_flight", gen_ai_agent_name="support") == 1
        fold.apply(ended("llm.end", root=True, usage=USAGE))
        assert series.value("otel_journal_runs_in_flight", gen_ai_agent_name="support") == 0
        assert series.all("otel_journal_runs_total", "outcome")["ok"] == 1

    def test_a_root_whose_start_was_not_seen_still_began(self) -> None:
        """Retrievals have no start event: their runs start and end together."""
        series = folded(ended("retrieval.end", kind="retrieval", root=True, attributes={}))
        agent = {"gen_ai_agent_name": "support"}
        assert series.value("otel_journal_runs_started_total", **agent) == 1
        assert series.all("otel_journal_runs_total", "outcome")["ok"] == 1
        assert series.value("otel_journal_runs_in_flight", **agent) == 0

    def test_open_runs_are_bounded(self) -> None:
        """Beyond the cap the oldest run leaves the gauges; the table does not grow."""
        starts = [run("run.start", op_id=str(i), start_ns=NOW_NS - i * S) for i in range(5)]
        series = folded(*starts, max_open_runs=2)
        agent = {"gen_ai_agent_name": "support"}
        assert series.value("otel_journal_runs_in_flight", **agent) == 2
        assert series.value("otel_journal_runs_started_total", **agent) == 5


class TestAttempts:
    """Executions that repeat an earlier one."""

    @pytest.mark.parametrize(
        ("again", "kind"),
        [
            (run("run.end", attempt=2), "run"),
            (run("node.end", root=False, attempt=2), "node"),
            (ended("node.end", kind="node", attempt=3), "node"),
            (ended("llm.end", attempt=2), "llm"),
            (ended("llm.end", attempt=2, root=True), "llm"),
            (tool(attempt=2), "tool"),
            (ended("retrieval.end", kind="retrieval", attempt=2), "retrieval"),
        ],
    )
    def test_repeats_count_once_by_kind(self, again: Event, kind: str) -> None:
        """An execution after the first counts as one attempt of its kind; all kinds start at 0."""
        expected = dict.fromkeys(("run", "node", "llm", "tool", "retrieval"), 0)
        assert folded().all("otel_journal_attempts_total", "kind") == expected
        assert folded(again).all("otel_journal_attempts_total", "kind") == expected | {kind: 1}


class TestZeroes:
    """Series that exist before they count."""

    def test_starting_a_model_exposes_all_its_own_counters(self) -> None:
        """Own counters of a model call exist at 0 before it ends, under the labels it ends with."""
        fold = MetricsFold()
        series = Series(fold)
        start = {k: v for k, v in MODEL.items() if k != "gen_ai.response.model"}
        fold.apply(event("llm.start", attributes=start))
        names = ("llm_calls", "tokens", "token_details", "usage_missing")
        at_start = {n: series.rows(f"otel_journal_{n}_total") for n in names}
        assert {n: len(rows) for n, rows in at_start.items()} == {
            "llm_calls": 2,
            "tokens": 2,
            "token_details": 5,
            "usage_missing": 1,
        }
        assert all(row.value == 0 for rows in at_start.values() for _, row in rows)
        fold.apply(ended("llm.end", usage=USAGE))
        for name in names:
            now = [labels for labels, _ in series.rows(f"otel_journal_{name}_total")]
            assert now == [labels for labels, _ in at_start[name]]

    def test_starting_a_run_exposes_all_its_counters(self) -> None:
        """An agent seen to start has all seven outcomes at 0."""
        series = folded(run("run.start"))
        assert series.all("otel_journal_runs_total", "outcome") == dict.fromkeys(OUTCOMES, 0)

    def test_nothing_official_is_born_at_the_start(self) -> None:
        """A start leaves no official series behind: the response model is not known yet."""
        assert not [n for n in folded(event("llm.start")).names if n.startswith("gen_ai_")]


class TestLabelCaps:
    """Bounds on label values, and so on series."""

    def test_further_values_are_folded_and_counted(self) -> None:
        """Beyond the cap values share one series, and each fold is counted under its label."""
        series = folded(*[tool(name=f"t{i}") for i in range(5)], max_label_values=2)
        calls = {
            labels["gen_ai_tool_name"]: row.value
            for labels, row in series.rows("otel_journal_tool_calls_total")
            if labels["outcome"] == "ok"
        }
        assert calls == {"t0": 1, "t1": 1, "__other__": 3}
        overflow = series.all("otel_journal_label_overflow_total", "label")
        assert overflow == dict.fromkeys(catalogue.CAPPED_LABELS, 0) | {"gen_ai_tool_name": 3}
        assert series.value("otel_journal_label_values", label="gen_ai_tool_name") == 2
        assert series.value("otel_journal_label_values_limit", label="gen_ai_tool_name") == 2

    def test_known_values_stay_after_the_cap_is_reached(self) -> None:
        """A value admitted early keeps its own series."""
        series = folded(*[tool(name=n) for n in ("a", "b", "a")], max_label_values=1)
        assert series.value("otel_journal_label_overflow_total", label="gen_ai_tool_name") > 0
        assert (
            series.value(
                "otel_journal_tool_calls_total",
                gen_ai_tool_name="a",
                gen_ai_agent_name="support",
                outcome="ok",
            )
            == 2
        )

    def test_fifty_thousand_agents_stay_bounded(self) -> None:
        """One agent name per user ends in a few hundred series, not in as many as users."""
        fold = MetricsFold(max_label_values=10)
        for i in range(50_000):
            fold.apply(run("run.end", agent=f"agent-of-user-{i}", op_id=str(i)))
        readings = fold.read(NOW_NS)
        assert sum(len(r.points) + len(r.distributions) for r in readings) < 250
        assert len(fold._runs) == 11
        assert len(fold._agents) < 30
        assert not fold._open_runs
        totals = {
            labels["gen_ai_agent_name"]: row.value
            for labels, row in Series(fold).rows("otel_journal_runs_started_total")
        }
        assert totals["__other__"] == 49_990

    def test_hallucinated_names_cannot_break_a_scrape(self) -> None:
        """Names that no text encoding can carry, or of any length, become usable labels."""
        fold = MetricsFold()
        for i in range(300):
            fold.apply(tool(name="x" * 500 + str(i)))
        fold.apply(tool(name="bad \ud800 name"))
        names = {
            r["gen_ai_tool_name"] for r, _ in Series(fold).rows("otel_journal_tool_calls_total")
        }
        assert names == {"x" * 200, "bad ? name"}
        assert len(fold._tools) == 2

    def test_unknown_details_are_capped_too(self) -> None:
        """A provider that invents detail keys cannot invent series without end."""
        usages = [Usage(1, 1, {f"d{i}": 1}) for i in range(50)]
        series = folded(*[ended("llm.end", usage=u) for u in usages], max_label_values=10)
        details = {
            r["detail"]: row.value for r, row in series.rows("otel_journal_token_details_total")
        }
        assert sum(details.values()) == 50
        assert details["__other__"] == 40

    def test_ids_are_never_labels(self) -> None:
        """No family has a label for runs, threads, traces, calls or users."""
        labels = {label for series in catalogue.series_of("both") for label in series.labels}
        assert not [label for label in labels if "id" in label.split("_")]
        assert not labels & {"thread", "run", "user", "trace"}


class TestExemplars:
    """The way from a number to a trace."""

    def test_sampled_spans_leave_exemplars(self) -> None:
        """A sampled span is the exemplar of its bucket and of the counters it moved."""
        series = folded(ended("llm.end", seconds=2.0, usage=USAGE))
        timed = series.one("gen_ai_client_inference_duration_seconds", **G, error_type="")
        expected = (2.0, (TRACE_ID, SPAN_ID, NOW_NS + S))
        assert [e for e in timed.exemplars if e] == [expected]
        assert timed.exemplars[8] == expected
        (tokens,) = [
            row
            for labels, row in series.rows("otel_journal_tokens_total")
            if labels == OWN | {"type": "input"}
        ]
        assert tokens.exemplar == (100, (TRACE_ID, SPAN_ID, NOW_NS + S))

    def test_unsampled_spans_count_without_exemplar(self) -> None:
        """A trace nobody kept counts in full, and nothing points at it."""
        series = folded(
            run("run.start", sampled=False),
            ended("llm.end", sampled=False, usage=USAGE),
            tool(sampled=False),
            run("run.end", sampled=False),
        )
        assert series.all("otel_journal_tokens_total", "type") == {"input": 100, "output": 20}
        for reading in series.fold.read(NOW_NS):
            assert not [p for p in reading.points if p.exemplar]
            assert not [d for d in reading.distributions if any(d.exemplars)]

    def test_the_latest_wins_and_unsampled_ones_keep_it(self) -> None:
        """Each bucket shows its latest sampled span."""
        series = folded(
            ended("llm.end", span_id="1" * 16),
            ended("llm.end", span_id="2" * 16),
            ended("llm.end", span_id="3" * 16, sampled=False),
        )
        timed = series.one("gen_ai_client_inference_duration_seconds", **G, error_type="")
        assert [e.origin[1] for e in timed.exemplars if e] == ["2" * 16]


class TestGenerations:
    """Names of 0.1 and of 1.41."""

    STREAMED = ended("llm.end", usage=USAGE, stream=TestStreaming.STREAM)
    WORKFLOW = run(
        "run.end",
        kind="workflow",
        attributes={"gen_ai.operation.name": "invoke_workflow", "gen_ai.agent.name": "etl"},
    )

    ONLY_0_1 = frozenset(
        {
            "gen_ai_client_inference_duration_seconds",
            "gen_ai_client_inference_time_to_first_chunk_seconds",
            "gen_ai_client_inference_time_per_output_chunk_seconds",
            "gen_ai_client_inference_operation_input_tokens",
            "gen_ai_client_inference_operation_output_tokens",
            "gen_ai_client_inference_usage_input_tokens_total",
            "gen_ai_client_inference_usage_output_tokens_total",
            "gen_ai_client_inference_usage_cache_read_input_tokens_total",
            "gen_ai_client_inference_usage_cache_write_input_tokens_total",
            "gen_ai_client_inference_usage_reasoning_output_tokens_total",
        }
    )
    ONLY_1_41 = frozenset(
        {
            "gen_ai_client_operation_duration_seconds",
            "gen_ai_client_operation_time_to_first_chunk_seconds",
            "gen_ai_client_operation_time_per_output_chunk_seconds",
            "gen_ai_client_token_usage",
            "gen_ai_invoke_workflow_duration_seconds",
        }
    )

    @pytest.mark.parametrize(
        ("generation", "present", "absent"),
        [
            ("0.1", ONLY_0_1, ONLY_1_41),
            ("1.41", ONLY_1_41, ONLY_0_1),
            ("both", ONLY_0_1 | ONLY_1_41, frozenset()),
        ],
    )
    def test_names(self, generation: Any, present: frozenset[str], absent: frozenset[str]) -> None:
        """Each generation emits its own names, ``both`` emits both."""
        series = folded(self.STREAMED, self.WORKFLOW, generation=generation)
        assert present <= series.names
        assert not absent & series.names
        assert not absent & {r.series.name for r in series.fold.read(NOW_NS)}

    def test_token_usage_of_1_41(self) -> None:
        """Input and output share one histogram, told apart by token type."""
        series = folded(self.STREAMED, generation="1.41")
        for kind, tokens in (("input", 100), ("output", 20)):
            labels = G | {"gen_ai_token_type": kind}
            row = series.one("gen_ai_client_token_usage", **labels)
            assert (sum(row.counts), row.total) == (1, tokens)

    @pytest.mark.parametrize(("generation", "agents"), [("0.1", 2), ("1.41", 1), ("both", 2)])
    def test_workflows_are_agents_in_0_1_only(self, generation: Any, agents: int) -> None:
        """The agent family takes workflows in 0.1; 1.41 keeps them in a family of their own."""
        series = folded(run("run.end"), self.WORKFLOW, generation=generation)
        assert len(series.rows("gen_ai_invoke_agent_duration_seconds")) == agents
        if generation != "0.1":
            row = series.one(
                "gen_ai_invoke_workflow_duration_seconds", gen_ai_workflow_name="etl", error_type=""
            )
            assert sum(row.counts) == 1

    @pytest.mark.parametrize("generation", ["0.1", "1.41", "both"])
    def test_own_series_do_not_depend_on_it(self, generation: Any) -> None:
        """``otel_journal_*`` is the same under every generation."""
        events = (run("run.start"), self.STREAMED, tool(), run("run.end"))

        def own(series: Series) -> list[Any]:
            found = series.fold.read(NOW_NS)
            return [r for r in found if r.series.name.startswith("otel_journal_")]

        assert own(folded(*events, generation=generation)) == own(folded(*events))


class TestState:
    """Totals that outlive a process."""

    EVENTS = (
        run("run.start", op_id="open", start_ns=NOW_NS - 9 * S),
        run("run.start"),
        ended("llm.end", usage=USAGE, stream=TestStreaming.STREAM),
        tool(name="a"),
        tool(name="b", outcome="error", error_type="KeyError"),
        event("usage.amended", usage=USAGE),
        run("run.end"),
    )

    def test_survives_json(self) -> None:
        """A fold restored from its JSON state reads and continues like the original."""
        original = folded(*self.EVENTS, max_label_values=1).fold
        restored = MetricsFold(max_label_values=1)
        restored.apply(ended("llm.end", agent="gone after restore"))
        restored.restore(json.loads(json.dumps(original.state())))
        assert restored.state() == original.state()
        for fold in (original, restored):
            for one in (*self.EVENTS, run("run.end", op_id="open")):
                fold.apply(one)
        assert restored.state() == original.state()
        labels = {"gen_ai_agent_name": "support"}
        assert Series(restored).value("otel_journal_runs_in_flight", **labels) == 0

    def test_keeps_open_runs_and_zero_gauges(self) -> None:
        """Runs open when the state was taken are open after it; idle agents stay at 0."""
        fold = MetricsFold()
        fold.restore(folded(*self.EVENTS, run("run.end", agent="idle", op_id="x")).fold.state())
        series = Series(fold)
        in_flight = series.all("otel_journal_runs_in_flight", "gen_ai_agent_name")
        assert in_flight == {"support": 1, "idle": 0}
        ages = series.all("otel_journal_run_oldest_age_seconds", "gen_ai_agent_name")
        assert ages == {"support": 9.0, "idle": 0.0}

    def test_another_generation_keeps_own_series(self) -> None:
        """Own totals survive a change of the naming setting; families without a home are left."""
        fold = MetricsFold("1.41")
        fold.restore(folded(*self.EVENTS).fold.state())
        series = Series(fold)
        assert series.all("otel_journal_tokens_total", "type") == {"input": 200, "output": 40}
        assert "gen_ai_client_token_usage" not in series.names

    @pytest.mark.parametrize("state", [{}, {"version": 99}])
    def test_refuses_what_it_does_not_understand(self, state: dict[str, Any]) -> None:
        """State of another version raises instead of counting from a wrong base."""
        with pytest.raises(ValueError, match="version"):
            MetricsFold().restore(state)

    @pytest.mark.parametrize(
        "children", [[[["too", "many", "labels"], 1]], [[["support"], "not a number"]]]
    )
    def test_refuses_children_that_do_not_fit(self, children: list[Any]) -> None:
        """Totals under other labels, or that are no numbers, raise."""
        state = MetricsFold().state()
        state["counters"]["otel_journal_runs_started_total"] = children
        with pytest.raises(ValueError, match=r"labels|invalid literal"):
            MetricsFold().restore(state)

    def test_refuses_other_buckets(self) -> None:
        """Counts taken with other bounds raise."""
        state = folded(*self.EVENTS).fold.state()
        state["histograms"]["gen_ai_invoke_agent_tool_calls"] = [[["support"], [[1, 2], 3.0]]]
        with pytest.raises(ValueError, match="2 buckets"):
            MetricsFold().restore(state)


class TestPurity:
    """What must not matter."""

    def test_events_without_a_span_change_nothing(self) -> None:
        """Messages, annotations and unknown types leave every series alone."""
        empty = MetricsFold()
        fold = MetricsFold()
        for kind in ("llm.human.input", "middleware:todo", "annotation:x", "from.the.future"):
            fold.apply(Event("e", "r", kind, "trace", NOW_NS))
        fold.apply(ended("from.the.future"))
        assert fold.read(NOW_NS) == empty.read(NOW_NS)


COUNTS = st.integers(min_value=0, max_value=10_000)
DETAIL_KEYS = st.sampled_from(
    [
        "cache_read",
        "cache_write",
        "reasoning",
        "audio_input",
        "image_input",
        "text_input",
        "audio_output",
        "text_output",
        "video_output",
        "surprise",
    ]
)
USAGES = st.builds(Usage, COUNTS, COUNTS, st.dictionaries(DETAIL_KEYS, COUNTS, max_size=5))
CALLS = st.builds(
    lambda kind, usage, agent, model, failed: ended(
        kind,
        usage=usage,
        agent=agent,
        attributes=MODEL | {"gen_ai.request.model": model},
        outcome="error" if failed else "ok",
    ),
    st.sampled_from(["llm.end", "llm.error", "usage.amended"]),
    USAGES,
    st.sampled_from("abcd"),
    st.sampled_from("wxyz"),
    st.booleans(),
)


@given(st.lists(CALLS, max_size=20), st.integers(min_value=1, max_value=3))
@settings(max_examples=60, deadline=None)
def test_own_and_official_tokens_agree(calls: list[Event], limit: int) -> None:
    """Whatever details a provider reports and whatever is folded, both counts are the same sum."""
    series = folded(*calls, max_label_values=limit)
    for direction in ("input", "output"):
        expected = sum(getattr(c.span.usage, f"{direction}_tokens") for c in calls if c.span)
        own = sum(
            row.value
            for labels, row in series.rows("otel_journal_tokens_total")
            if labels["type"] == direction
        )
        official = sum(
            row.value
            for _, row in series.rows(f"gen_ai_client_inference_usage_{direction}_tokens_total")
        )
        assert own == official == expected
