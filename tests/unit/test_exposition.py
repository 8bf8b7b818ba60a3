"""The scrape: families, text formats, shared registries, sums over journals."""

from __future__ import annotations

import gc
import logging
import re
import subprocess
import sys
from typing import Any

import prometheus_client
import prometheus_client.openmetrics.exposition as openmetrics
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from otel_journal import exposition, metric_catalogue
from otel_journal.events import OUTCOMES, Event, SpanBlock, StreamTiming, Usage
from otel_journal.exposition import JournalCollector, Metrics, metrics_for
from otel_journal.metrics import MetricsFold
from otel_journal.stats import (
    CLOSE_REASONS,
    DROP_REASONS,
    OBSERVATION_KINDS,
    LedgerStats,
    ProcessStats,
    SinkCounts,
)

NOW_NS = 1_764_500_000_123_456_789
S = 1_000_000_000
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SPAN_ID = "b7ad6b7169203331"
CHAT = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.model": "gpt-4o-2024-08-06",
}


def event(event_type: str, **block: Any) -> Event:
    """Return an event of a streamed chat with usage unless told otherwise."""
    fields: dict[str, Any] = {
        "op_id": "op-1",
        "kind": "chat",
        "name": "chat gpt-4o",
        "trace_id": TRACE_ID,
        "span_id": SPAN_ID,
        "start_ns": NOW_NS - 2 * S,
        "end_ns": NOW_NS,
        "outcome": "ok",
        "attributes": CHAT,
        "agent": 'the "best"\nagent\\',
        "usage": Usage(100, 20, {"cache_read": 40}),
        "stream": StreamTiming(S, (0, 3) + (0,) * 13, S // 20),
    }
    return Event(
        "op-1/1/end", "run-1", event_type, "trace", NOW_NS, span=SpanBlock(**fields | block)
    )


def root(event_type: str, agent: str = "support") -> Event:
    """Return a start or end event of a root agent."""
    return event(
        event_type,
        kind="agent",
        root=True,
        usage=None,
        stream=None,
        agent=agent,
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent},
    )


TOOL = event(
    "tool_call.completed", kind="tool", attributes={"gen_ai.tool.name": "search"}, stream=None
)
EVENTS = (
    root("run.start"),
    event("llm.start"),
    event("llm.end"),
    event("llm.error", outcome="error", error_type="openai.RateLimitError"),
    TOOL,
    event("retrieval.end", kind="retrieval", attributes={}),
    event("usage.amended"),
    root("run.end"),
)


class Source:
    """A journal as the collector sees it."""

    def __init__(self, **values: Any) -> None:
        """Report zeros unless told otherwise."""
        self.values: dict[str, Any] = {
            "ledger": LedgerStats(operations_limit=100),
            "sinks": {"spans": SinkCounts(), "metrics": SinkCounts()},
            "queue_events": 0,
            "queue_capacity": 10,
            "oldest_unsent_s": {"spans": 0.0, "metrics": 0.0},
            "callback_seconds": 0.0,
            "handler_errors": 0,
            "truncated": 0,
            "store_name": "none",
            "semconv": "0.1",
        } | values

    def snapshot(self) -> ProcessStats:
        """Return the counters."""
        return ProcessStats(**self.values)


def busy(**values: Any) -> Source:
    """Return a journal all of whose counters have moved."""
    dropped = dict.fromkeys(DROP_REASONS, 0) | {"queue_full": 2}
    ledger = LedgerStats(
        observations=dict.fromkeys(OBSERVATION_KINDS, 5),
        replays_dropped=dict.fromkeys(OBSERVATION_KINDS, 1),
        closed=dict.fromkeys(CLOSE_REASONS, 3),
        usage_conflicts=4,
        operations_open=6,
        operations_limit=100,
    )
    return Source(
        **{
            "ledger": ledger,
            "sinks": {"spans": SinkCounts(seen=10, exported=7, dropped=dropped)},
            "queue_events": 1,
            "oldest_unsent_s": {"spans": 2.5},
            "callback_seconds": 0.25,
            "handler_errors": 8,
            "truncated": 9,
        }
        | values
    )


@pytest.fixture
def registry() -> CollectorRegistry:
    """Return an empty registry."""
    return CollectorRegistry()


def scrape(registry: CollectorRegistry) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return (sample name, labels) -> value of everything in a registry."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    """Return one sample, None when it does not exist."""
    return scrape(registry).get((name, frozenset(labels.items())))


def filled(registry: CollectorRegistry, generation: Any = "0.1") -> Metrics:
    """Return a sink with one attached journal that has seen one event of each kind."""
    metrics = metrics_for(registry, generation=generation)
    metrics.attach(busy())
    metrics.write(EVENTS)
    return metrics


@pytest.mark.parametrize("generation", ["0.1", "1.41", "both"])
class TestTextFormats:
    """What Prometheus reads."""

    def test_openmetrics_parses_to_the_catalogue(
        self, registry: CollectorRegistry, generation: Any
    ) -> None:
        """The OpenMetrics text has exactly the catalogued families, with type, help and labels."""
        filled(registry, generation)
        text = openmetrics.generate_latest(registry).decode()
        found = {f.name: f for f in parse_openmetrics(text)}
        expected = metric_catalogue.series_of(generation)
        assert list(found) == [s.name.removesuffix("_total") for s in expected]
        for series in expected:
            family = found[series.name.removesuffix("_total")]
            assert (family.type, family.documentation) == (series.type, series.help)
            for sample in family.samples:
                absent = set(series.labels) - set(sample.labels)
                assert not absent
                assert set(sample.labels) - set(series.labels) <= {"le"}

    def test_classic_text_parses_to_the_same_values(
        self, registry: CollectorRegistry, generation: Any
    ) -> None:
        """The text format 0.0.4 holds the same samples."""
        filled(registry, generation)
        text = prometheus_client.generate_latest(registry).decode()
        parsed = {
            (s.name, frozenset(s.labels.items())): s.value
            for family in parse_text(text)
            for s in family.samples
        }
        # Two scrapes are two moments: nothing here may depend on the clock, since no run is open.
        assert parsed == scrape(registry)

    def test_promtool_would_have_nothing_to_say(
        self, registry: CollectorRegistry, generation: Any
    ) -> None:
        """Families follow the lint rules of Prometheus: help, suffixes, snake case."""
        filled(registry, generation)
        for family in registry.collect():
            assert family.documentation
            assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", family.name)
            if family.type != "histogram":
                assert not family.name.endswith(("_count", "_sum", "_bucket"))
            for sample in family.samples:
                assert sample.name.endswith("_total") == (family.type == "counter")
                assert all(re.fullmatch(r"[a-z][a-z0-9_]*", label) for label in sample.labels)

    def test_no_created_series(self, registry: CollectorRegistry, generation: Any) -> None:
        """``_created`` would be one more series per counter and histogram."""
        filled(registry, generation)
        assert not [name for name, _ in scrape(registry) if name.endswith("_created")]


class TestSamples:
    """Spelling of single samples."""

    def test_histogram_is_cumulative_up_to_infinity(self, registry: CollectorRegistry) -> None:
        """Buckets add up, ``+Inf`` is the count, and bounds are spelt as Go spells floats."""
        metrics_for(registry).write([event("llm.end")])
        name = "gen_ai_client_inference_operation_input_tokens"
        counts = {
            dict(labels)["le"]: count
            for (sample, labels), count in scrape(registry).items()
            if sample == f"{name}_bucket"
        }
        assert list(counts)[:3] == ["1.0", "4.0", "16.0"]
        assert list(counts)[-2:] == ["6.7108864e+07", "+Inf"]
        assert list(counts.values()) == [0, 0, 0, 0] + [1] * 11

    @pytest.mark.parametrize(
        ("sample", "amount"),
        [
            ("gen_ai_client_inference_duration_seconds_bucket", "2.0"),
            ("otel_journal_tokens_total", "100.0"),
        ],
    )
    def test_exemplar_names_trace_and_span(
        self, registry: CollectorRegistry, sample: str, amount: str
    ) -> None:
        """Counters and buckets carry trace id, span id, the measurement and its exact time."""
        metrics_for(registry).write([event("llm.end")])
        text = openmetrics.generate_latest(registry).decode()
        pattern = (
            rf'^{sample}{{.*}} \d+\.\d # {{span_id="{SPAN_ID}",trace_id="{TRACE_ID}"}} '
            rf"{re.escape(amount)} 1764500000\.123456789$"
        )
        assert re.search(pattern, text, re.MULTILINE)
        assert len("trace_id" + TRACE_ID + "span_id" + SPAN_ID) == 63

    def test_unsampled_spans_leave_none(self, registry: CollectorRegistry) -> None:
        """A trace that was not kept cannot be opened, so nothing points at it."""
        metrics_for(registry).write([event("llm.end", sampled=False)])
        assert "trace_id" not in openmetrics.generate_latest(registry).decode()

    def test_awkward_label_values_survive_both_formats(self, registry: CollectorRegistry) -> None:
        """Quotes, newlines, backslashes and lone surrogates in names do not break a scrape."""
        name = 'a "b"\n\\c \ud800 ü'
        metrics_for(registry).write([root("run.end", agent=name)])
        for text, parse in (
            (openmetrics.generate_latest(registry), parse_openmetrics),
            (prometheus_client.generate_latest(registry), parse_text),
        ):
            agents = {
                s.labels["gen_ai_agent_name"]
                for family in parse(text.decode())
                for s in family.samples
                if s.name == "otel_journal_runs_total"
            }
            assert agents == {'a "b"\n\\c ? ü'}


class TestFirstScrape:
    """Series that exist before the first event."""

    def test_holds_every_bounded_series_at_zero(self, registry: CollectorRegistry) -> None:
        """A fresh journal shows each bounded label set at 0, so no first value can be lost."""
        metrics_for(registry).attach(Source())
        found = scrape(registry)
        zero: list[tuple[str, dict[str, str]]] = [
            ("otel_journal_usage_amended_total", {}),
            ("otel_journal_usage_conflicts_total", {}),
            ("otel_journal_handler_errors_total", {}),
            ("otel_journal_callback_seconds_total", {}),
            ("otel_journal_content_truncated_total", {}),
            ("otel_journal_operations_open", {}),
            ("otel_journal_queue_events", {}),
        ]
        kinds = ("run", "node", "llm", "tool", "retrieval")
        zero += [("otel_journal_attempts_total", {"kind": kind}) for kind in kinds]
        for name in ("observations", "replays_dropped"):
            zero += [
                (f"otel_journal_{name}_total", {"kind": kind})
                for kind in (*kinds, "external_usage")
            ]
        zero += [
            ("otel_journal_operations_closed_total", {"reason": reason})
            for reason in ("parent_end", "age", "cap", "shutdown", "process_died")
        ]
        for sink in ("spans", "metrics"):
            zero += [
                ("otel_journal_events_seen_total", {"sink": sink}),
                ("otel_journal_events_exported_total", {"sink": sink}),
                ("otel_journal_events_pending", {"sink": sink}),
                ("otel_journal_export_oldest_unsent_age_seconds", {"sink": sink}),
            ]
            zero += [
                ("otel_journal_events_dropped_total", {"sink": sink, "reason": reason})
                for reason in DROP_REASONS
            ]
        for name in ("label_overflow_total", "label_values"):
            zero += [
                (f"otel_journal_{name}", {"label": label})
                for label in metric_catalogue.CAPPED_LABELS
            ]
        for name, labels in zero:
            assert found[name, frozenset(labels.items())] == 0, (name, labels)
        limits = {
            key: count
            for key, count in found.items()
            if key[0].endswith("_limit") or key[0] == "otel_journal_queue_capacity_events"
        }
        assert set(limits.values()) == {100, 10}
        assert len(found) == len(zero) + len(limits) + 1  # the one is otel_journal_info

    def test_info_says_what_this_is(
        self, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Info is 1 and names version, role, journal, who folds metrics, and the generation."""
        monkeypatch.setattr(exposition, "installed_version", lambda: "1.2.3")
        metrics_for(registry).attach(Source(store_name="prod"))
        labels = {"version": "1.2.3", "role": "app", "journal": "prod", "metrics": "on"}
        assert value(registry, "otel_journal_info", **labels, semconv="0.1") == 1

    def test_a_journal_without_the_metrics_sink_says_off(self, registry: CollectorRegistry) -> None:
        """When a sidecar folds, the application's info must not claim it does."""
        metrics_for(registry).attach(Source(sinks={"store": SinkCounts()}))
        ((_, labels),) = [key for key in scrape(registry) if key[0] == "otel_journal_info"]
        assert dict(labels)["metrics"] == "off"

    def test_run_series_start_at_zero_with_the_run(self, registry: CollectorRegistry) -> None:
        """A run that has only started has all outcomes at 0 and an age above 0."""
        metrics_for(registry).write([root("run.start")])
        agent = {"gen_ai_agent_name": "support"}
        for outcome in OUTCOMES:
            assert value(registry, "otel_journal_runs_total", **agent, outcome=outcome) == 0
        assert value(registry, "otel_journal_runs_in_flight", **agent) == 1
        age = value(registry, "otel_journal_run_oldest_age_seconds", **agent)
        assert age is not None
        assert age > 0

    def test_age_comes_from_the_clock_of_the_scrape(self) -> None:
        """The age of an open run is measured when it is read."""
        collector = JournalCollector(MetricsFold(), clock_ns=lambda: NOW_NS + 58 * S)
        collector.apply([root("run.start")])
        registry = CollectorRegistry()
        registry.register(collector)
        age = value(registry, "otel_journal_run_oldest_age_seconds", gen_ai_agent_name="support")
        assert age == 60.0


class TestProcess:
    """Counters of the journals themselves."""

    def test_one_journal(self, registry: CollectorRegistry) -> None:
        """Each counter of a journal stands under its series."""
        metrics_for(registry).attach(busy())
        expected: dict[str, dict[str, float]] = {
            "otel_journal_operations_open": {"": 6},
            "otel_journal_operations_limit": {"": 100},
            "otel_journal_operations_closed_total": dict.fromkeys(CLOSE_REASONS, 3),
            "otel_journal_observations_total": dict.fromkeys(OBSERVATION_KINDS, 5),
            "otel_journal_replays_dropped_total": dict.fromkeys(OBSERVATION_KINDS, 1),
            "otel_journal_usage_conflicts_total": {"": 4},
            "otel_journal_events_seen_total": {"spans": 10},
            "otel_journal_events_exported_total": {"spans": 7},
            "otel_journal_events_pending": {"spans": 1},
            "otel_journal_queue_events": {"": 1},
            "otel_journal_queue_capacity_events": {"": 10},
            "otel_journal_export_oldest_unsent_age_seconds": {"spans": 2.5},
            "otel_journal_callback_seconds_total": {"": 0.25},
            "otel_journal_handler_errors_total": {"": 8},
            "otel_journal_content_truncated_total": {"": 9},
        }
        found: dict[str, dict[str, float]] = {name: {} for name in expected}
        for (name, labels), count in scrape(registry).items():
            if name in found:
                found[name]["".join(dict(labels).values())] = count
        assert found == expected
        lost = {"sink": "spans", "reason": "queue_full"}
        assert value(registry, "otel_journal_events_dropped_total", **lost) == 2

    def test_two_journals_are_summed(self, registry: CollectorRegistry) -> None:
        """Counters and table sizes add up; the lag is that of the one farthest behind."""
        first, second = metrics_for(registry), metrics_for(registry)
        first.attach(busy(oldest_unsent_s={"spans": 9.0}))
        second.attach(busy())
        assert value(registry, "otel_journal_events_seen_total", sink="spans") == 20
        assert value(registry, "otel_journal_events_pending", sink="spans") == 2
        assert value(registry, "otel_journal_operations_limit") == 200
        lag = value(registry, "otel_journal_export_oldest_unsent_age_seconds", sink="spans")
        assert lag == 9.0

    def test_attaching_twice_counts_once(self, registry: CollectorRegistry) -> None:
        """A journal that attaches again is not a second journal."""
        metrics, journal = metrics_for(registry), busy()
        metrics.attach(journal)
        metrics.attach(journal)
        assert value(registry, "otel_journal_events_seen_total", sink="spans") == 10

    def test_a_closed_journal_keeps_its_counters_and_loses_its_gauges(
        self, registry: CollectorRegistry
    ) -> None:
        """Counters never fall when a journal goes; what it held does not stay open for ever."""
        metrics, journal = metrics_for(registry), busy()
        metrics.attach(journal)
        metrics.detach(journal)
        metrics.detach(journal)
        metrics.detach(busy())
        assert value(registry, "otel_journal_events_seen_total", sink="spans") == 10
        assert value(registry, "otel_journal_handler_errors_total") == 8
        assert value(registry, "otel_journal_operations_open") == 0
        assert value(registry, "otel_journal_operations_limit") == 0
        lag = value(registry, "otel_journal_export_oldest_unsent_age_seconds", sink="spans")
        assert lag == 0
        assert not [name for name, _ in scrape(registry) if name == "otel_journal_info"]

    def test_events_are_accounted_for_while_a_worker_counts(
        self, registry: CollectorRegistry
    ) -> None:
        """No event is lost or counted twice in a scrape that races with a worker."""

        class Racing(SinkCounts):
            """Five more events pass through the sink whenever a counter is read."""

            def __getattribute__(self, name: str) -> Any:
                found = super().__getattribute__(name)
                if name in {"seen", "exported"}:
                    for counter in ("seen", "exported"):
                        setattr(self, counter, super().__getattribute__(counter) + 5)
                return found

        metrics_for(registry).attach(Source(sinks={"spans": Racing()}))
        for _ in range(2):
            found = scrape(registry)
            by_name = {
                name: sum(v for (n, _), v in found.items() if n == f"otel_journal_events_{name}")
                for name in ("seen_total", "exported_total", "pending", "dropped_total")
            }
            seen = by_name.pop("seen_total")
            assert seen == sum(by_name.values()) > 0


class TestRegistry:
    """Where families are registered, and where not."""

    def test_importing_registers_nothing(self) -> None:
        """Import has no side effect on the default registry, nor does using another one."""
        code = (
            "import prometheus_client as p; before = set(p.REGISTRY._names_to_collectors);"
            "from otel_journal.exposition import metrics_for;"
            "metrics_for(p.CollectorRegistry());"
            "assert set(p.REGISTRY._names_to_collectors) == before"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # noqa: S603 - ours

    def test_the_default_is_the_process_wide_one(
        self, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a registry the process-wide one is used, and registered with once."""
        monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
        assert metrics_for().collector is metrics_for().collector
        assert "otel_journal_runs" in {family.name for family in registry.collect()}

    def test_two_journals_share_the_families(self, registry: CollectorRegistry) -> None:
        """A second journal adds to the same series, and its sink keeps its own books."""
        first, second = metrics_for(registry), metrics_for(registry)
        first.write([event("llm.end")])
        second.write([event("llm.end"), TOOL])
        assert (first.counts.exported, second.counts.exported) == (1, 2)
        name = "otel_journal_tokens_total"
        inputs = [v for (n, labels), v in scrape(registry).items() if n == name]
        assert sorted(inputs) == [40, 200]

    def test_registries_are_independent_and_let_go(self) -> None:
        """Each registry has its own totals, and a dropped one does not stay in memory."""
        first, second = CollectorRegistry(), CollectorRegistry()
        metrics_for(first).write([root("run.end")])
        metrics_for(second)
        name = "otel_journal_runs_started_total"
        assert value(first, name, gen_ai_agent_name="support") == 1
        assert value(second, name, gen_ai_agent_name="support") is None
        gc.collect()  # registries of other tests
        known = len(exposition._COLLECTORS)
        del first, second
        gc.collect()
        assert len(exposition._COLLECTORS) == known - 2

    def test_another_wish_for_the_same_registry_is_logged(
        self, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The first journal decides the names; a different second one is told."""
        metrics_for(registry, generation="1.41", max_label_values=7)
        with caplog.at_level(logging.WARNING):
            metrics_for(registry, generation="1.41", max_label_values=7)
            assert not caplog.records
            second = metrics_for(registry)
        assert [r.getMessage() for r in caplog.records] == [
            "registry already exposes metrics (semconv=1.41, max_label_values=7); keeping them"
        ]
        assert second.collector.fold.generation == "1.41"

    def test_a_foreign_family_of_our_name_is_an_error(self, registry: CollectorRegistry) -> None:
        """Two owners of one name raise at set-up instead of corrupting every scrape."""
        prometheus_client.Counter("otel_journal_runs", "Foreign.", registry=registry)
        with pytest.raises(ValueError, match="otel_journal_runs"):
            metrics_for(registry)

    def test_registering_does_not_collect(self, registry: CollectorRegistry) -> None:
        """Set-up asks no journal for its counters: it may not be complete yet."""

        class Unready:
            def snapshot(self) -> ProcessStats:
                raise AssertionError

        registry.register(JournalCollector(MetricsFold(), [Unready()]))
        names = {s.name.removesuffix("_total") for s in metric_catalogue.series_of("0.1")}
        assert names <= set(registry._names_to_collectors)


class TestSink:
    """The sink protocol."""

    def test_written_is_exported_and_flushed(self, registry: CollectorRegistry) -> None:
        """What was written is in the next scrape, so flush and close have nothing to wait for."""
        metrics = metrics_for(registry)
        metrics.counts.seen += len(EVENTS)
        metrics.write(EVENTS)
        assert metrics.name == "metrics"
        assert (metrics.counts.exported, metrics.counts.pending) == (len(EVENTS), 0)
        assert metrics.flush(0.0)
        assert metrics.close(0.0)
        assert value(registry, "otel_journal_attempts_total", kind="run") == 0

    def test_a_failed_batch_is_not_exported(self, registry: CollectorRegistry) -> None:
        """A batch that raises is left to the pipeline to count as dropped, in full."""
        metrics = metrics_for(registry)
        broken = event("llm.end", stream=StreamTiming(1, (1,), 1))
        with pytest.raises(ValueError, match="buckets"):
            metrics.write([event("llm.end"), broken])
        assert metrics.counts.exported == 0

    def test_fifty_thousand_agents_stay_below_five_hundred_series(
        self, registry: CollectorRegistry
    ) -> None:
        """A name per user cannot grow the scrape: the rest is one ``__other__`` and a count."""
        metrics = metrics_for(registry, max_label_values=5)
        for i in range(50_000):
            metrics.write([root("run.end", agent=f"agent-{i}")])
        found = scrape(registry)
        assert len(found) < 500
        other = {"gen_ai_agent_name": "__other__"}
        assert value(registry, "otel_journal_runs_started_total", **other) == 49_995
        overflow = value(registry, "otel_journal_label_overflow_total", label="gen_ai_agent_name")
        assert overflow is not None
        assert overflow >= 49_995
