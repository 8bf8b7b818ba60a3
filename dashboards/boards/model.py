"""What a board is made of, and the pieces that most queries share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["stat", "timeseries", "bars", "stacked", "bargauge", "heatmap", "table"]
"""How a panel draws; ``bars`` and ``stacked`` are time series in another style."""

JOB: Final = 'job=~"$job"'
AGENT: Final = f'{JOB}, gen_ai_agent_name=~"$agent"'
ATTRIBUTED: Final = f'{AGENT}, caller=~"$caller", gen_ai_request_model=~"$model"'
MODEL: Final = f'{JOB}, gen_ai_request_model=~"$model"'
TOOL: Final = f'{JOB}, gen_ai_tool_name=~"$tool"'
RATE: Final = "$__rate_interval"
RANGE: Final = "$__range"

SECONDS: Final = "s"
SHARE: Final = "percentunit"
COUNT: Final = "short"
USD: Final = "currencyUSD"

GREEN: Final = "green"
ORANGE: Final = "orange"
RED: Final = "red"
NO_LIMIT: Final = ((None, GREEN),)
"""For numbers that are neither good nor bad in themselves."""
ANY_IS_BAD: Final = ((None, GREEN), (1, RED))
BURN_STEPS: Final = ((None, GREEN), (1, "yellow"), (6, ORANGE), (14.4, RED))
"""Budget pace: 1 lasts exactly as long as planned; 6 and 14.4 are where alerts begin."""

Steps: TypeAlias = tuple[tuple[float | None, str], ...]
"""Lower bound of a range -> colour; None is minus infinity and comes first."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression of a panel."""

    expr: str
    legend: str = ""
    """Legend template; in a table the name of the column."""
    unit: str = ""
    """Unit of a table's column, when it is not the panel's."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; positions are computed from the order in the row."""

    title: str
    description: str
    kind: Kind
    unit: str
    queries: tuple[Query, ...]
    steps: Steps = NO_LIMIT
    width: int = 8
    """Of 24 columns."""
    exemplars: bool = False
    """Show the dots that lead to a trace."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of panels under one heading."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard, which answers one question."""

    uid: str
    """Also the name of its file."""
    title: str
    question: str
    rows: tuple[Row, ...]
    since: str = "now-6h"
    """Default start of the time range."""


def oneline(expr: str) -> str:
    """Return an expression without its line breaks."""
    return " ".join(expr.split())


def single(expr: str, legend: str = "") -> tuple[Query, ...]:
    """Return the queries of a panel that has one."""
    return (Query(oneline(expr), legend),)


def rate_sum(metric: str, selector: str, *, by: str = "", window: str = RATE) -> str:
    """Return the summed rate of a counter, per second."""
    grouping = f" by ({by})" if by else ""
    return f"sum{grouping} (rate({metric}{{{selector}}}[{window}]))"


def growth(metric: str, selector: str, *, by: str, window: str = RANGE) -> str:
    """Return the summed increase of a counter over a window."""
    return f"sum by ({by}) (increase({metric}{{{selector}}}[{window}]))"


def quantile(level: float, metric: str, selector: str, *, by: str = "", window: str = RATE) -> str:
    """Return a quantile of a histogram; idle windows yield nothing instead of NaN."""
    groups = f"{by}, le" if by else "le"
    rates = f"sum by ({groups}) (rate({metric}_bucket{{{selector}}}[{window}]))"
    return f"histogram_quantile({level}, {rates}) >= 0"


def quantiles(metric: str, selector: str, *levels: float, by: str = "") -> tuple[Query, ...]:
    """Return one query per quantile."""
    prefix = f"{{{{{by}}}}} " if by else ""
    return tuple(
        Query(quantile(level, metric, selector, by=by), f"{prefix}p{round(level * 100)}")
        for level in levels
    )


def ratio(part: str, whole: str) -> str:
    """Return a quotient that is absent, not NaN, while the denominator is 0."""
    return f"{part} / ({whole} > 0)"
