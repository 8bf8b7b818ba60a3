"""Journal health: can the other boards be believed?"""

from __future__ import annotations

from typing import Final

from .model import (
    ANY_IS_BAD,
    COUNT,
    GREEN,
    JOB,
    ORANGE,
    RATE,
    RED,
    SECONDS,
    SHARE,
    Board,
    Panel,
    Row,
    growth,
    rate_sum,
    ratio,
    single,
)

FILL: Final = ((None, GREEN), (0.8, ORANGE), (1, RED))
SINK: Final = "job, instance, sink"
BY_PROCESS: Final = "job, instance"


def _by_sink(metric: str) -> str:
    return f"sum by ({SINK}) (otel_journal_events_{metric}{{{JOB}}})"


def _fill(used: str, limit: str, by: str) -> str:
    """Return the fullest of the processes' limits."""
    return f"max by ({by}) (otel_journal_{used}{{{JOB}}} / otel_journal_{limit}{{{JOB}}})"


PROCESSES: Final = Row(
    "Processes",
    (
        Panel(
            "Processes", "What runs, as each process says of itself.", "table", COUNT,
            single(f"otel_journal_info{{{JOB}}}", "processes"), width=12,
        ),
        Panel(
            "Processes by version", "Two lines during a rollout.", "timeseries", COUNT,
            single(f"count by (role, version) (otel_journal_info{{{JOB}}})",
                   "{{role}} {{version}}"), width=4,
        ),
        Panel(
            "Unreachable processes", "Scrape targets of the chosen jobs that do not answer.",
            "stat", COUNT, single(f"count(up{{{JOB}}} == 0) or vector(0)"),
            steps=ANY_IS_BAD, width=4,
        ),
        Panel(
            "Unaccounted events",
            "Seen, less exported, pending and dropped, per process and sink: must be 0. Raw"
            " counters on purpose: the identity holds within every scrape.",
            "stat", COUNT,
            single(f"sum({_by_sink('seen_total')} - {_by_sink('exported_total')}"
                   f" - {_by_sink('pending')} - {_by_sink('dropped_total')})"),
            steps=ANY_IS_BAD, width=4,
        ),
    ),
)  # fmt: skip

PIPELINE: Final = Row(
    "Pipeline",
    (
        Panel(
            "Events per second offered", "By sink.", "timeseries", COUNT,
            single(rate_sum("otel_journal_events_seen_total", JOB, by="job, sink"),
                   "{{job}} {{sink}}"),
        ),
        Panel(
            "Events per second delivered", "By sink.", "timeseries", COUNT,
            single(rate_sum("otel_journal_events_exported_total", JOB, by="job, sink"),
                   "{{job}} {{sink}}"),
        ),
        Panel(
            "Events waiting", "Neither accepted nor dropped yet.", "timeseries", COUNT,
            single(f"sum by (job, sink) (otel_journal_events_pending{{{JOB}}})",
                   "{{job}} {{sink}}"),
        ),
        Panel(
            "Oldest unsent event", "How late a sink is; 0 when nothing waits.",
            "timeseries", SECONDS,
            single(f"max by ({SINK}) (otel_journal_export_oldest_unsent_age_seconds{{{JOB}}})",
                   "{{instance}} {{sink}}"),
            steps=((None, GREEN), (60, ORANGE), (300, RED)),
        ),
        Panel(
            "Events dropped", "They will not come back.", "bars", COUNT,
            single(growth("otel_journal_events_dropped_total", JOB, by="job, sink, reason",
                          window=RATE) + " > 0 or vector(0)", "{{sink}} {{reason}}"),
            steps=ANY_IS_BAD,
        ),
        Panel(
            "Queue fill", "Full: new events are dropped.", "timeseries", SHARE,
            single(_fill("queue_events", "queue_capacity_events", BY_PROCESS), "{{instance}}"),
            steps=FILL,
        ),
    ),
)  # fmt: skip

OVERHEAD: Final = Row(
    "Limits and overhead",
    (
        Panel(
            "Callbacks that repeat a booked one",
            "Dropped, so counts stay right. Half of all: the handler is attached twice.",
            "timeseries", SHARE,
            single(ratio(rate_sum("otel_journal_replays_dropped_total", JOB, by="kind"),
                         rate_sum("otel_journal_observations_total", JOB, by="kind")), "{{kind}}"),
            steps=((None, GREEN), (0.2, RED)),
        ),
        Panel(
            "Label values over their cap", "Beyond the cap values are booked under __other__.",
            "bargauge", SHARE,
            single(_fill("label_values", "label_values_limit", "label"), "{{label}}"), steps=FILL,
        ),
        Panel(
            "Values booked under __other__", "By label.", "bars", COUNT,
            single(growth("otel_journal_label_overflow_total", JOB, by="label", window=RATE)
                   + " > 0 or vector(0)", "{{label}}"), steps=ANY_IS_BAD,
        ),
        Panel(
            "Open operations over their cap", "Full: the oldest is closed for the newest.",
            "timeseries", SHARE,
            single(_fill("operations_open", "operations_limit", BY_PROCESS), "{{instance}}"),
            steps=FILL,
        ),
        Panel(
            "Time in callbacks per run", "What the journal costs the agent.",
            "timeseries", SECONDS,
            single(ratio(rate_sum("otel_journal_callback_seconds_total", JOB, by="job"),
                         rate_sum("otel_journal_runs_started_total", JOB, by="job")), "{{job}}"),
        ),
        Panel(
            "Handler errors", "Exceptions caught at the callback boundary: defects of ours.",
            "bars", COUNT,
            single(growth("otel_journal_handler_errors_total", JOB, by="job", window=RATE),
                   "{{job}}"), steps=ANY_IS_BAD,
        ),
        Panel(
            "Content cut to the size limit", "Values per minute; only with content capture.",
            "timeseries", COUNT,
            single(f"60 * {rate_sum('otel_journal_content_truncated_total', JOB, by='job')}",
                   "{{job}}"),
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    "otel-journal-health",
    "Journal health",
    "Can the other boards be believed?",
    (PROCESSES, PIPELINE, OVERHEAD),
)
