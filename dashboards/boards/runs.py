"""Runs and tools: why does this agent fail, loop or hang?"""

from __future__ import annotations

from typing import Final

from .model import (
    AGENT,
    COUNT,
    GREEN,
    JOB,
    RANGE,
    RATE,
    RED,
    SECONDS,
    SHARE,
    TOOL,
    Board,
    Panel,
    Query,
    Row,
    growth,
    quantile,
    quantiles,
    rate_sum,
    ratio,
    single,
)

RUNS: Final = "otel_journal_runs_total"
STARTED: Final = "otel_journal_runs_started_total"
CALLS: Final = "job_agent:otel_journal_llm_calls_per_run:ratio_rate"
TOOL_CALLS: Final = "otel_journal_tool_calls_total"
TOOL_SECONDS: Final = "gen_ai_execute_tool_duration_seconds"
BY_AGENT: Final = "gen_ai_agent_name"
BY_TOOL: Final = "gen_ai_tool_name"
AGENT_LEGEND: Final = "{{gen_ai_agent_name}}"
TOOL_LEGEND: Final = "{{gen_ai_tool_name}}"


def _per_run(what: str, metric: str) -> Panel:
    return Panel(
        f"{what} calls per finished run", "An invocation's own calls, p50 and p95.",
        "timeseries", COUNT, quantiles(metric, AGENT, 0.5, 0.95),
    )  # fmt: skip


RUN_ROW: Final = Row(
    "Runs",
    (
        Panel(
            "Model calls per run",
            "Counts runs that have not ended, so a loop shows while it runs. The alert line is"
            " three times the mean of a day.",
            "timeseries", COUNT,
            (Query(f"{CALLS}15m{{{AGENT}}}", AGENT_LEGEND),
             Query(f"3 * ({CALLS}1d{{{AGENT}}} offset 3h)", f"alert line {AGENT_LEGEND}")),
        ),
        _per_run("Model", "gen_ai_invoke_agent_inference_calls"),
        _per_run("Tool", "gen_ai_invoke_agent_tool_calls"),
        Panel(
            "Oldest run in flight by agent", "A run that waits for a human is not in flight.",
            "timeseries", SECONDS,
            single(f"max by ({BY_AGENT}) (otel_journal_run_oldest_age_seconds{{{AGENT}}})",
                   AGENT_LEGEND),
            steps=((None, GREEN), (1800, RED)),
        ),
        Panel(
            "Runs in flight by agent", "Open runs.", "timeseries", COUNT,
            single(f"sum by ({BY_AGENT}) (otel_journal_runs_in_flight{{{AGENT}}})", AGENT_LEGEND),
        ),
        Panel(
            "Runs started and ended per minute", "A lasting gap means runs pile up.",
            "timeseries", COUNT,
            (Query(f"60 * {rate_sum(STARTED, AGENT)}", "started"),
             Query(f"60 * {rate_sum(RUNS, AGENT)}", "ended")),
        ),
        Panel(
            "Runs that neither succeeded nor failed, per hour",
            "Interrupted: waits for a human. Handoff: another graph goes on. Cancelled, abandoned:"
            " the caller gave up.",
            "timeseries", COUNT,
            single("3600 * " + rate_sum(
                RUNS, f'{AGENT}, outcome=~"interrupted|handoff|cancelled|abandoned"',
                by="outcome", window="1h"), "{{outcome}}"),
        ),
        Panel(
            "Repeated attempts per minute", "Executions of something that ran before.",
            "timeseries", COUNT,
            single(f"60 * {rate_sum('otel_journal_attempts_total', JOB, by='kind')}", "{{kind}}"),
        ),
        Panel(
            "Operations closed without an end callback", "By the reason of the journal.",
            "bars", COUNT,
            single(growth("otel_journal_operations_closed_total", JOB, by="reason", window=RATE),
                   "{{reason}}"),
        ),
        Panel(
            "Failed runs by error type", "Over the time range.", "table", COUNT,
            single(growth("gen_ai_invoke_agent_duration_seconds_count",
                          f'{AGENT}, error_type!=""', by=f"{BY_AGENT}, error_type") + " > 0",
                   "failed"),
            width=24,
        ),
    ),
)  # fmt: skip

FAILED: Final = f'{TOOL}, outcome="error"'
BOTH: Final = f'{TOOL}, gen_ai_agent_name=~"$agent"'

TOOL_ROW: Final = Row(
    "Tools",
    (
        Panel(
            "Tool calls per minute", "By tool; all outcomes.", "stacked", COUNT,
            single(f"60 * {rate_sum(TOOL_CALLS, BOTH, by=BY_TOOL)}", TOOL_LEGEND),
        ),
        Panel(
            "Share of failed tool calls", "Cancelled and interrupted calls are not counted.",
            "timeseries", SHARE,
            single(ratio(rate_sum(TOOL_CALLS, FAILED, by=BY_TOOL),
                         rate_sum(TOOL_CALLS, f'{TOOL}, outcome=~"ok|error"', by=BY_TOOL)),
                   TOOL_LEGEND),
            steps=((None, GREEN), (0.2, RED)),
        ),
        Panel(
            "Tool duration p95", "The last bucket ends at 81.92 s.", "timeseries", SECONDS,
            quantiles(TOOL_SECONDS, TOOL, 0.95, by=BY_TOOL), exemplars=True,
        ),
        Panel(
            "Tool duration, all calls", "Every call as a cell; dots lead to traces.",
            "heatmap", SECONDS,
            single(f"sum by (le) (increase({TOOL_SECONDS}_bucket{{{TOOL}}}[{RATE}]))", "{{le}}"),
            exemplars=True,
        ),
        Panel(
            "Tools", "One line per tool, over the time range.", "table", COUNT,
            (Query(growth(TOOL_CALLS, TOOL, by=BY_TOOL), "calls"),
             Query(growth(TOOL_CALLS, FAILED, by=BY_TOOL), "failed"),
             Query(quantile(0.95, TOOL_SECONDS, TOOL, by=BY_TOOL, window=RANGE), "p95", SECONDS),
             Query(growth(f"{TOOL_SECONDS}_sum", TOOL, by=BY_TOOL), "time spent", SECONDS)),
        ),
        Panel(
            "Tool failures by error type", "Over the time range.", "table", COUNT,
            single(growth(f"{TOOL_SECONDS}_count", f'{TOOL}, error_type!=""',
                          by=f"{BY_TOOL}, error_type") + " > 0", "failed"),
        ),
        Panel(
            "Retrieval duration", "All retrievals, p50 and p95.", "timeseries", SECONDS,
            quantiles("gen_ai_retrieval_duration_seconds", JOB, 0.5, 0.95), exemplars=True,
        ),
    ),
)  # fmt: skip

BOARD: Final = Board(
    "otel-journal-runs",
    "Runs and tools",
    "Why does this agent fail, loop or hang?",
    (RUN_ROW, TOOL_ROW),
)
