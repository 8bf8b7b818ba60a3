"""The report as text for a terminal: trees with a time line, aligned tables, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import click

from otel_journal.events import LEAD_AGENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .report import Check, Report, Run, Step

NAME_WIDTH: Final = 36
OUTCOME_WIDTH: Final = 12
DURATION_WIDTH: Final = 8
TOKENS_WIDTH: Final = 12
TIMELINE_WIDTH: Final = 24
"""Characters of the time line: with the columns before it, a tree fits into 100 columns."""

_COLOURS: Final = {"error": "red", "interrupted": "yellow"}
_OTHER_COLOUR: Final = "magenta"
_MS_BELOW_S: Final = 1.0


class Glyphs(NamedTuple):
    """Characters that not every terminal can show."""

    branch: str
    last: str
    pipe: str
    bar: str
    arrow: str
    good: str
    bad: str


UNICODE: Final = Glyphs("├─ ", "└─ ", "│  ", "█", "→", "✓", "✗")
ASCII: Final = Glyphs("|- ", "`- ", "|  ", "#", "->", "ok", "FAILED")
_GAP: Final = "   "


def render(report: Report, glyphs: Glyphs = UNICODE) -> str:
    """Return the whole report, styled; strip the styles for anything but a terminal."""
    return "\n".join(_lines(report, glyphs))


def _lines(report: Report, glyphs: Glyphs) -> Iterator[str]:
    yield "An on-call agent looks into an incident. On purpose, every start and end of its"
    yield "operations is delivered to the journal twice, and two models report usage late."
    yield ""
    yield f"  question  {report.question}"
    yield f"  approval  {report.approval} {click.style('interrupt, then resumed', dim=True)}"
    yield f"  report    {report.answer}"
    for number, run in enumerate(report.runs, start=1):
        yield ""
        yield from _run(run, number, report.runs, glyphs)
    yield ""
    yield from _tokens(report)
    yield ""
    yield from _dedupe(report)
    yield ""
    yield from _checks(report.checks, glyphs)
    yield from _footer(report)


def _heading(text: str, note: str = "") -> str:
    return click.style(text, bold=True) + (click.style(f"  {note}", dim=True) if note else "")


# Trees ---------------------------------------------------------------------------------------


def _run(run: Run, number: int, runs: Sequence[Run], glyphs: Glyphs) -> Iterator[str]:
    yield _heading(f"Run {number}", f"thread {run.thread_id}  trace {run.trace_id}")
    yield click.style(
        f"{'span':<{NAME_WIDTH}}{'outcome':<{OUTCOME_WIDTH}}{'time':>{DURATION_WIDTH}}"
        f"  {'tokens':<{TOKENS_WIDTH}}{'time line':<{TIMELINE_WIDTH}}  notes",
        dim=True,
    )
    numbers = {known.trace_id: index for index, known in enumerate(runs, start=1)}
    yield from _tree(run.tree, run, numbers, glyphs)


def _tree(
    step: Step,
    run: Run,
    numbers: dict[str, int],
    glyphs: Glyphs,
    indents: tuple[str, str] = ("", ""),
) -> Iterator[str]:
    name = click.style(f"{indents[0] + step.name:<{NAME_WIDTH}}", bold=step is run.tree)
    outcome = _styled(step.outcome, f"{step.outcome:<{OUTCOME_WIDTH}}")
    notes = ", ".join(_notes(step, run, numbers))
    line = _timeline(step, run.tree, glyphs)
    yield (
        f"{name}{outcome}{_duration(step.duration_s):>{DURATION_WIDTH}}"
        f"  {_tokens_of(step, glyphs):<{TOKENS_WIDTH}}{_styled(step.outcome, line, ok='cyan')}"
        f"{' ' * (TIMELINE_WIDTH + 2 - len(line)) + notes if notes else ''}"
    )
    for child in step.children:
        last = child is step.children[-1]
        head = indents[1] + (glyphs.last if last else glyphs.branch)
        rest = indents[1] + (_GAP if last else glyphs.pipe)
        yield from _tree(child, run, numbers, glyphs, (head, rest))


def _styled(outcome: str, text: str, *, ok: str | None = None) -> str:
    colour = ok if outcome == "ok" else _COLOURS.get(outcome, _OTHER_COLOUR)
    return click.style(text, fg=colour) if colour else text


def _duration(seconds: float) -> str:
    if seconds < _MS_BELOW_S:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds:.2f} s"


def _tokens_of(step: Step, glyphs: Glyphs) -> str:
    if step.input_tokens is None:
        return ""
    return f"{step.input_tokens:,} {glyphs.arrow} {step.output_tokens:,}"


def _timeline(step: Step, root: Step, glyphs: Glyphs) -> str:
    """Return where in the run the step took place, at least one character of it."""
    scale = TIMELINE_WIDTH / root.duration_s if root.duration_s else 0.0
    begin = min(TIMELINE_WIDTH - 1, int(step.start_s * scale))
    end = min(TIMELINE_WIDTH, max(begin + 1, round((step.start_s + step.duration_s) * scale)))
    return " " * begin + glyphs.bar * (end - begin)


def _notes(step: Step, run: Run, numbers: dict[str, int]) -> Iterator[str]:
    if step.error_type:
        yield step.error_type
    if step.caller not in {"", LEAD_AGENT}:
        yield step.caller
    if step.first_chunk_s is not None:
        yield f"first chunk after {_duration(step.first_chunk_s)}"
    if step.name.startswith("chat ") and step.input_tokens is None:
        yield "usage came after the run"
    if step.attempt > 1:
        yield f"attempt {step.attempt}"
    for link in step.links:
        if link.trace_id != run.trace_id:
            relation = link.relation.replace("_", " ")
            yield f"{relation}: run {numbers.get(link.trace_id, '?')}"


# Tables --------------------------------------------------------------------------------------


def _tokens(report: Report) -> Iterator[str]:
    yield _heading("Tokens", "by model, agent and caller, as /metrics exposes them")
    rows = [
        (row.model, row.agent, row.caller, row.calls, row.input_tokens, row.output_tokens,
         row.input_tokens + row.output_tokens, row.cache_read)
        for row in report.tokens
    ]  # fmt: skip
    sums = [sum(column) for column in zip(*(row[3:] for row in rows), strict=True)]
    head = ("model", "agent", "caller", "calls", "input", "output", "total", "cache read")
    yield from _table(head, [*rows, ("all", "", "", *sums)], texts=3)
    yield click.style("  cache read is part of input and is not added to it", dim=True)


def _dedupe(report: Report) -> Iterator[str]:
    dedupe = report.dedupe
    yield _heading("Deduplicated")
    rows = [
        (kind, received.callbacks, received.repeats_dropped)
        for kind, received in dedupe.by_kind.items()
    ]
    sums = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    yield from _table(("kind", "callbacks", "repeats dropped"), [*rows, ("all", *sums)], texts=1)
    yield (
        f"  usage that came late: {dedupe.usage_merged:,} merged into its span,"
        f" {dedupe.usage_amended:,} amended after the end; {dedupe.usage_conflicts:,} conflicts"
    )


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str | int]], *, texts: int
) -> Iterator[str]:
    """Align columns, the first `texts` to the left; the last row is a sum."""
    cells = [head, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for number, row in enumerate(cells):
        line = "  ".join(
            f"{value:<{width}}" if column < texts else f"{value:>{width}}"
            for column, (value, width) in enumerate(zip(row, widths, strict=True))
        )
        yield click.style(f"  {line}", dim=number == 0, bold=number == len(cells) - 1)


def _cell(value: str | int) -> str:
    return value if isinstance(value, str) else f"{value:,}"


# Verdict -------------------------------------------------------------------------------------


def _checks(checks: Sequence[Check], glyphs: Glyphs) -> Iterator[str]:
    yield _heading("Checks", "the script of the models says what must come out")
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = glyphs.good if check.ok else glyphs.bad
        styled = click.style(mark, fg="green" if check.ok else "red", bold=not check.ok)
        yield f"  {styled} {check.name:<{width}}  {check.detail}"


def _footer(report: Report) -> Iterator[str]:
    if report.load is not None:
        load = report.load
        yield f"  {load.runs:,} runs in {load.seconds:.2f} s: {load.runs_per_second:,.0f} runs/s"
    if report.exported_to:
        spans = report.sinks.get("spans")
        arrived = spans is not None and spans.exported == spans.seen
        yield f"  spans {'also went' if arrived else 'did not all go'} to {report.exported_to}"
    yield ""
    if report.ok:
        yield click.style("OK: all accounts agree.", fg="green", bold=True)
    else:
        failed = ", ".join(check.name for check in report.checks if not check.ok)
        yield click.style(f"FAILED: {failed}.", fg="red", bold=True)
