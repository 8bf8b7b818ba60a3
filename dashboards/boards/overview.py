"""Agents overview: are the agents well right now, and if not, which?"""

from __future__ import annotations

from typing import Final

from .model import (
    AGENT,
    ANY_IS_BAD,
    ATTRIBUTED,
    BURN_STEPS,
    COUNT,
    GREEN,
    MODEL,
    ORANGE,
    RANGE,
    RATE,
    RED,
    SECONDS,
    SHARE,
    USD,
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

BAD: Final = f'{AGENT}, outcome=~"error|unknown"'
VALID: Final = f'{AGENT}, outcome!~"cancelled|abandoned"'
"""Runs that count for the objective: what the caller gave up is nobody's failure."""
RUNS: Final = "otel_journal_runs_total"
LATENCY: Final = "gen_ai_client_inference_duration_seconds"
RUN_LATENCY: Final = "gen_ai_invoke_agent_duration_seconds"
ALLOWED: Final = f"(1 - job_agent:otel_journal_run_objective:ratio{{{AGENT}}})"
ERRORS: Final = "job_agent:otel_journal_run_errors:ratio_rate"
BY_AGENT: Final = "gen_ai_agent_name"
BY_MODEL: Final = "gen_ai_request_model"
AGENT_LEGEND: Final = "{{gen_ai_agent_name}}"

NOW: Final = Row(
    "Now",
    (
        Panel(
            "Runs per minute", "Runs that ended, whatever their outcome.", "stat", COUNT,
            single(f"60 * {rate_sum(RUNS, AGENT)}"), width=3,
        ),
        Panel(
            "Runs that succeed, last hour",
            "Share of runs that did not fail. Cancelled and abandoned runs are left out; a run"
            " that waits for a human counts as good.",
            "stat", SHARE,
            single("1 - " + ratio(rate_sum(RUNS, BAD, window="1h"),
                                  rate_sum(RUNS, VALID, window="1h"))),
            steps=((None, RED), (0.95, ORANGE), (0.99, GREEN)), width=3,
        ),
        Panel(
            "Error budget left, worst agent",
            "Over three days, by the objective in settings.rules.yml. Negative: objective missed.",
            "stat", SHARE, single(f"min(1 - {ERRORS}3d{{{AGENT}}} / {ALLOWED})"),
            steps=((None, RED), (0, ORANGE), (0.25, GREEN)), width=3,
        ),
        Panel(
            "Runs in flight", "Open runs; one that waits for a human is not open.", "stat", COUNT,
            single(f"sum(otel_journal_runs_in_flight{{{AGENT}}})"), width=3,
        ),
        Panel(
            "Oldest run in flight", "Age of the oldest open run of any agent.", "stat", SECONDS,
            single(f"max(otel_journal_run_oldest_age_seconds{{{AGENT}}})"),
            steps=((None, GREEN), (600, ORANGE), (1800, RED)), width=3,
        ),
        Panel(
            "Tokens per minute", "Input and output tokens.", "stat", COUNT,
            single(f"60 * {rate_sum('otel_journal_tokens_total', AGENT)}"), width=3,
        ),
        Panel(
            "Cost per hour", "By the prices in settings.rules.yml; models without one are free.",
            "stat", USD,
            single(f"3600 * sum(job_agent_model:otel_journal_cost_usd:rate5m{{{AGENT}}})"),
            width=3,
        ),
        Panel(
            "Firing alerts", "Alerts of this product that fire now.", "stat", COUNT,
            single('count(ALERTS{alertname=~"OtelJournal.+", alertstate="firing"}) or vector(0)'),
            steps=ANY_IS_BAD, width=3,
        ),
    ),
)  # fmt: skip

PER_RUN: Final = (
    Query(growth(RUNS, AGENT, by=BY_AGENT), "runs"),
    Query(
        ratio(growth(RUNS, BAD, by=BY_AGENT), growth(RUNS, VALID, by=BY_AGENT)), "failed", SHARE
    ),
    Query(quantile(0.95, RUN_LATENCY, AGENT, by=BY_AGENT, window=RANGE), "p95", SECONDS),
    Query(
        ratio(growth("otel_journal_tokens_total", AGENT, by=BY_AGENT),
              growth("otel_journal_runs_started_total", AGENT, by=BY_AGENT)),
        "tokens per run",
    ),
    Query(
        ratio(growth("otel_journal_llm_calls_total", AGENT, by=BY_AGENT),
              growth("otel_journal_runs_started_total", AGENT, by=BY_AGENT)),
        "model calls per run",
    ),
)  # fmt: skip
"""Columns of the table of agents."""

AGENTS: Final = Row(
    "Runs",
    (
        Panel(
            "Runs per minute by outcome", "Interrupted: waits for a human. Unknown: process died.",
            "stacked", COUNT, single(f"60 * {rate_sum(RUNS, AGENT, by='outcome')}", "{{outcome}}"),
        ),
        Panel(
            "Run duration",
            "Time a run was busy; waiting for a human is not in it. The last bucket ends at"
            " 409.6 s: that value means 409.6 s or more.",
            "timeseries", SECONDS, quantiles(RUN_LATENCY, AGENT, 0.5, 0.95, 0.99), exemplars=True,
        ),
        Panel(
            "Run duration, all runs", "Every run as a cell; dots lead to traces.",
            "heatmap", SECONDS,
            single(f"sum by (le) (increase({RUN_LATENCY}_bucket{{{AGENT}}}[{RATE}]))", "{{le}}"),
            exemplars=True,
        ),
        Panel(
            "Share of failed runs, 1 h", "Against what the objective allows.",
            "timeseries", SHARE,
            (Query(f"{ERRORS}1h{{{AGENT}}}", AGENT_LEGEND),
             Query(f"1 - job_agent:otel_journal_run_objective:ratio{{{AGENT}}}",
                   f"allowed {AGENT_LEGEND}")),
        ),
        Panel(
            "Error budget burn rate", "1 spends the error budget exactly; alerts begin at 6.",
            "timeseries", COUNT,
            tuple(Query(f"{ERRORS}{window}{{{AGENT}}} / {ALLOWED}", f"{window} {AGENT_LEGEND}")
                  for window in ("1h", "6h")),
            steps=BURN_STEPS,
        ),
        Panel("Agents", "One line per agent, over the time range.", "table", COUNT, PER_RUN),
    ),
)  # fmt: skip

MODEL_LEGEND: Final = "{{gen_ai_request_model}}"
FAILED_CALLS: Final = rate_sum(
    f"{LATENCY}_count", f'{MODEL}, error_type!=""', by=f"{BY_MODEL}, error_type"
)
ALL_CALLS: Final = rate_sum(f"{LATENCY}_count", MODEL, by=BY_MODEL)

MODELS: Final = Row(
    "Models",
    (
        Panel(
            "Model calls per minute", "By model and outcome.", "timeseries", COUNT,
            single("60 * " + rate_sum("otel_journal_llm_calls_total", ATTRIBUTED,
                                      by=f"{BY_MODEL}, outcome"),
                   f"{MODEL_LEGEND} {{{{outcome}}}}"),
        ),
        Panel(
            "Share of failed model calls", "By model and error type.", "timeseries", SHARE,
            single(f"{FAILED_CALLS} / on ({BY_MODEL}) group_left () ({ALL_CALLS} > 0)",
                   f"{MODEL_LEGEND} {{{{error_type}}}}"),
            steps=((None, GREEN), (0.05, RED)),
        ),
        Panel(
            "Model latency p95", "The last bucket ends at 81.92 s.", "timeseries", SECONDS,
            quantiles(LATENCY, MODEL, 0.95, by=BY_MODEL),
            steps=((None, GREEN), (20.48, RED)), exemplars=True,
        ),
        Panel(
            "Model calls beyond the last bucket",
            "Share of calls over 81.92 s. Above 5 % the p95 is a lower bound.", "timeseries", SHARE,
            single("1 - " + ratio(
                rate_sum(f"{LATENCY}_bucket", f'{MODEL}, le="81.92"', by=BY_MODEL), ALL_CALLS,
            ), MODEL_LEGEND),
            steps=((None, GREEN), (0.05, RED)),
        ),
        Panel(
            "Time to first chunk p95", "Streamed calls only.", "timeseries", SECONDS,
            quantiles("gen_ai_client_inference_time_to_first_chunk_seconds", MODEL, 0.95,
                      by=BY_MODEL),
            exemplars=True,
        ),
        Panel(
            "Time per output chunk p95", "Streamed calls only.", "timeseries", SECONDS,
            quantiles("gen_ai_client_inference_time_per_output_chunk_seconds", MODEL, 0.95,
                      by=BY_MODEL),
        ),
    ),
    collapsed=True,
)  # fmt: skip

BOARD: Final = Board(
    "otel-journal-overview",
    "Agents overview",
    "Are the agents well right now, and if not, which?",
    (NOW, AGENTS, MODELS),
)
