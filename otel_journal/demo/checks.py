"""What must hold after a demo: the script says what was spent, all accounts must agree with it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from .agent import KNOWN, REPORTER
from .report import Check, Dedupe, Readings, Run, Sink, TokenRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_journal.summary import RunSummary

Spending: TypeAlias = "Mapping[str, tuple[int, int]]"
"""Model -> input and output tokens."""

_OFFICIAL: Final = "gen_ai_client_inference_usage_{}_tokens_total"
_OFFICIAL_1_41: Final = "gen_ai_client_token_usage_sum"


class Deliveries(NamedTuple):
    """What the handler of the demo did to the journal."""

    repeats: int
    late: int


def known_spending(incidents: int) -> Spending:
    """Return what the script spends in so many incidents."""
    return {
        model: (incidents * known.input_tokens, incidents * known.output_tokens)
        for model, known in KNOWN.items()
    }


def spending_of(summaries: Iterable[RunSummary | None]) -> Spending:
    """Return what run summaries say was spent."""
    spent: Counter[tuple[str, str]] = Counter()
    models = set()
    for summary in summaries:
        for model, tokens in (summary.by("model") if summary is not None else {}).items():
            models.add(model)
            spent[model, "input"] += tokens.input_tokens
            spent[model, "output"] += tokens.output_tokens
    return {model: (spent[model, "input"], spent[model, "output"]) for model in models}


def token_checks(
    incidents: int,
    summed: Spending,
    rows: Sequence[TokenRow],
    scrape: Readings,
    runs: Sequence[Run],
) -> list[Check]:
    """Compare the accounts of tokens with the script, model by model."""
    known = known_spending(incidents)
    by_rows = {
        model: (
            sum(row.input_tokens for row in rows if row.model == model),
            sum(row.output_tokens for row in rows if row.model == model),
        )
        for model in {row.model for row in rows}
    }
    official = {model: _official(scrape, model) for model in known}
    total, counted = _total(known), _total(by_rows)
    first, late = _total(known_spending(1)), KNOWN[REPORTER]
    on_spans = sum(
        (step.input_tokens or 0) + (step.output_tokens or 0)
        for run in runs
        for step in run.tree.walk()
    )
    amended = late.input_tokens + late.output_tokens
    return [
        Check("run summaries", summed == known, f"{_total(summed):,} of {total:,} tokens"),
        Check("otel_journal_* series", by_rows == known, f"{counted:,} of {total:,} tokens"),
        Check("gen_ai_* series", official == known, f"{_total(official):,} of {total:,} tokens"),
        Check(
            "spans",
            on_spans + amended == first,
            f"{on_spans:,} on spans + {amended:,} amended = {on_spans + amended:,}"
            f" of {first:,} tokens",
        ),
    ]


def delivery_checks(dedupe: Dedupe, deliveries: Deliveries, incidents: int) -> list[Check]:
    """Compare what was dropped with what was delivered twice."""
    dropped = sum(received.repeats_dropped for received in dedupe.by_kind.values())
    return [
        Check(
            "repeated callbacks",
            dropped == deliveries.repeats,
            f"{dropped:,} of {deliveries.repeats:,} dropped",
        ),
        Check(
            "late usage",
            (dedupe.usage_merged, dedupe.usage_amended) == (incidents, incidents)
            and not dedupe.usage_conflicts,
            f"{deliveries.late:,} deliveries: {dedupe.usage_merged:,} merged into its span,"
            f" {dedupe.usage_amended:,} amended",
        ),
    ]


def sink_checks(scrape: Readings, sinks: Mapping[str, Sink], *, flushed: bool) -> list[Check]:
    """Demand that nothing failed, every event reached every sink, and `flush` said so."""
    errors = scrape.total("otel_journal_handler_errors_total")
    told = ", ".join(f"{name} {sink.exported:,} of {sink.seen:,}" for name, sink in sinks.items())
    return [
        Check("callbacks", not errors, f"{errors:,} failed inside the journal"),
        Check(
            "events",
            all(sink.exported == sink.seen > 0 for sink in sinks.values()) and bool(sinks),
            f"{told}; {sum(sink.pending for sink in sinks.values()):,} pending,"
            f" {sum(sink.dropped for sink in sinks.values()):,} dropped",
        ),
        Check("flush", flushed, "everything reached every sink" if flushed else "not everything"),
    ]


def _total(spending: Spending) -> int:
    return sum(sum(pair) for pair in spending.values())


def _official(scrape: Readings, model: str) -> tuple[int, int]:
    """Read the series of the GenAI conventions, of whichever generation is exposed."""
    return _direction(scrape, model, "input"), _direction(scrape, model, "output")


def _direction(scrape: Readings, model: str, direction: str) -> int:
    counted = scrape.total(_OFFICIAL.format(direction), gen_ai_request_model=model)
    return counted or scrape.total(
        _OFFICIAL_1_41, gen_ai_request_model=model, gen_ai_token_type=direction
    )
