"""Tokens and cost: who spends what, and does the budget hold?"""

from __future__ import annotations

from typing import Final

from .model import (
    AGENT,
    ATTRIBUTED,
    BURN_STEPS,
    COUNT,
    GREEN,
    JOB,
    MODEL,
    ORANGE,
    RANGE,
    RED,
    SHARE,
    USD,
    Board,
    Panel,
    Query,
    Row,
    growth,
    quantiles,
    rate_sum,
    ratio,
    single,
)

TOKENS: Final = "otel_journal_tokens_total"
USAGE: Final = "gen_ai_client_inference_usage"
BURN: Final = "job_agent:otel_journal_token_budget:burnrate"
COST: Final = "job_agent_model:otel_journal_cost_usd:rate5m"
PRICE: Final = "otel_journal:token_price_usd:per_token"
PRICED: Final = "on (gen_ai_provider_name, gen_ai_request_model)"
BY_AGENT: Final = "gen_ai_agent_name"
BY_MODEL: Final = "gen_ai_request_model"
AGENT_LEGEND: Final = "{{gen_ai_agent_name}}"
MODEL_LEGEND: Final = "{{gen_ai_request_model}}"
HOURLY: Final = f"job_agent:otel_journal_tokens:rate1h{{{AGENT}}}"

BUDGET: Final = Row(
    "Budget",
    (
        Panel(
            "Budget used in 7 days",
            "Tokens of 7 days over 7/30 of the 30-day budget in settings.rules.yml. Not 30 days:"
            " Prometheus keeps 15 by default.",
            "bargauge", SHARE,
            single(f"{growth(TOKENS, AGENT, by=BY_AGENT, window='7d')} / on ({BY_AGENT})"
                   f" (max by ({BY_AGENT}) (otel_journal:token_budget:tokens30d) * 7 / 30)",
                   AGENT_LEGEND),
            steps=((None, GREEN), (0.8, ORANGE), (1, RED)), width=6,
        ),
        Panel(
            "Budget burn rate, 1 h", "1 spends the budget in exactly 30 days.",
            "timeseries", COUNT, single(f"{BURN}1h{{{AGENT}}}", AGENT_LEGEND),
            steps=BURN_STEPS, width=6,
        ),
        Panel(
            "Budget burn rate by window", "What the alerts compare.", "timeseries", COUNT,
            tuple(Query(f"max by ({BY_AGENT}) ({BURN}{window}{{{AGENT}}})",
                        f"{window} {AGENT_LEGEND}") for window in ("5m", "1h", "6h", "1d")),
            steps=BURN_STEPS, width=6,
        ),
        Panel(
            "Tokens per minute against before", "Hourly mean now, yesterday and last week.",
            "timeseries", COUNT,
            (Query(f"60 * sum({HOURLY})", "now"),
             Query(f"60 * sum({HOURLY} offset 1d)", "yesterday"),
             Query(f"60 * sum({HOURLY} offset 1w)", "last week")),
            width=6,
        ),
    ),
)  # fmt: skip


def _per_minute(title: str, by: str, legend: str) -> Panel:
    expr = f"60 * {rate_sum(TOKENS, ATTRIBUTED, by=by)}"
    return Panel(
        title, "Input and output tokens; details are part of them.", "stacked", COUNT,
        single(expr, legend),
    )  # fmt: skip


WHERE: Final = Row(
    "Where they go",
    (
        Panel(
            "Input and output tokens per minute", "From the series of the semantic conventions.",
            "timeseries", COUNT,
            tuple(Query(f"60 * {rate_sum(f'{USAGE}_{way}_tokens_total', MODEL)}", way)
                  for way in ("input", "output")),
        ),
        _per_minute(
            "Tokens per minute by model",
            f"gen_ai_provider_name, {BY_MODEL}",
            f"{{{{gen_ai_provider_name}}}} {MODEL_LEGEND}",
        ),
        _per_minute("Tokens per minute by agent", BY_AGENT, AGENT_LEGEND),
        _per_minute("Tokens per minute by caller", "caller", "{{caller}}"),
        Panel(
            "Token details per minute",
            "Cached, written and reasoning tokens: subsets, never add them to the others.",
            "timeseries", COUNT,
            single("60 * " + rate_sum("otel_journal_token_details_total", ATTRIBUTED, by="detail"),
                   "{{detail}}"),
        ),
        Panel(
            "Largest consumers", "Over the time range.", "table", COUNT,
            single("topk(15, " + growth(TOKENS, ATTRIBUTED,
                                        by=f"{BY_AGENT}, caller, {BY_MODEL}, type") + ")",
                   "tokens"),
        ),
    ),
)  # fmt: skip


def _share(title: str, description: str, part: str, whole: str) -> Panel:
    expr = ratio(
        rate_sum(f"{USAGE}_{part}_tokens_total", MODEL, by=BY_MODEL),
        rate_sum(f"{USAGE}_{whole}_tokens_total", MODEL, by=BY_MODEL),
    )
    return Panel(title, description, "timeseries", SHARE, single(expr, MODEL_LEGEND))


def _per_call(direction: str) -> Panel:
    metric = f"gen_ai_client_inference_operation_{direction}_tokens"
    return Panel(
        f"{direction.capitalize()} tokens per call",
        "Of calls that did not fail. A rising p95 of the input is a growing context.",
        "timeseries", COUNT, quantiles(metric, MODEL, 0.5, 0.95),
    )  # fmt: skip


EFFICIENCY: Final = Row(
    "Efficiency",
    (
        _share("Input read from the prompt cache", "The more the cheaper.",
               "cache_read_input", "input"),
        _share("Input written to the prompt cache", "Some providers charge extra for it.",
               "cache_write_input", "input"),
        _share("Output spent on reasoning", "Part of the output, at its price.",
               "reasoning_output", "output"),
        Panel(
            "Tokens per run", "Fixed window of 30 minutes: some agents run rarely.",
            "timeseries", COUNT,
            single(ratio(rate_sum(TOKENS, AGENT, by=BY_AGENT, window="30m"),
                         rate_sum("otel_journal_runs_started_total", AGENT, by=BY_AGENT,
                                  window="30m")), AGENT_LEGEND),
        ),
        _per_call("input"),
        _per_call("output"),
    ),
    collapsed=True,
)  # fmt: skip

_WINDOW: Final = f"{{{AGENT}}}[{RANGE}]"
_PRICED_GROWTH: Final = (
    f"(increase({TOKENS}{_WINDOW}) or label_replace("
    f'increase(otel_journal_token_details_total{_WINDOW}), "type", "$1", "detail", "(.+)"))'
)
"""Details join as types of their own: their price is the difference to the plain one."""

MONEY: Final = Row(
    "Cost",
    (
        Panel(
            "Cost per hour by model", "Models without a price are not in it.", "stacked", USD,
            single(f"3600 * sum by (gen_ai_provider_name, {BY_MODEL}) ({COST}{{{AGENT}}})",
                   MODEL_LEGEND),
        ),
        Panel(
            "Cost by agent", "Of the time range, at today's prices.", "bargauge", USD,
            single(f"sum by ({BY_AGENT}) ({_PRICED_GROWTH} * on (gen_ai_provider_name,"
                   f" {BY_MODEL}, type) group_left () {PRICE})", AGENT_LEGEND),
        ),
        Panel(
            "Cost of 30 days at this pace", "The pace is that of the last day.", "stat", USD,
            single(f"30 * 86400 * sum(avg_over_time({COST}{{{AGENT}}}[1d]))"), width=4,
        ),
        Panel(
            "Tokens without a price", "Share of the last hour's tokens that cost looks past.",
            "stat", SHARE,
            single(f"clamp_min(1 - sum(rate({TOKENS}{{{AGENT}}}[1h]) and {PRICED} {PRICE})"
                   f" / ({rate_sum(TOKENS, AGENT, window='1h')} > 0), 0)"),
            steps=((None, GREEN), (0.001, ORANGE)), width=4,
        ),
    ),
)  # fmt: skip

TRUST: Final = Row(
    "Trust",
    (
        Panel(
            "Successful calls without usage", "Token counts are too low by about this share.",
            "timeseries", SHARE,
            single(ratio(
                rate_sum("otel_journal_usage_missing_total", ATTRIBUTED, by=BY_MODEL),
                rate_sum("otel_journal_llm_calls_total", f'{ATTRIBUTED}, outcome="ok"',
                         by=BY_MODEL),
            ), MODEL_LEGEND),
            steps=((None, GREEN), (0.05, RED)),
        ),
        Panel(
            "Late and conflicting usage per minute",
            "Amended: booked after the call had ended. Conflict: a later report differed from the"
            " booked one and was ignored.",
            "timeseries", COUNT,
            tuple(Query(f"60 * {rate_sum(f'otel_journal_usage_{what}_total', JOB)}", what)
                  for what in ("amended", "conflicts")),
        ),
        Panel(
            "Own count over semconv count", "Input tokens, two ways of counting: must be 1.",
            "timeseries", COUNT,
            single(ratio(rate_sum(TOKENS, f'{JOB}, type="input"', window="1h"),
                         rate_sum(f"{USAGE}_input_tokens_total", JOB, window="1h")), "ratio"),
        ),
    ),
    collapsed=True,
)  # fmt: skip

BOARD: Final = Board(
    "otel-journal-tokens",
    "Tokens and cost",
    "Who spends what, and does the budget hold?",
    (BUDGET, WHERE, EFFICIENCY, MONEY, TRUST),
    since="now-24h",
)
