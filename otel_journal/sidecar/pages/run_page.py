"""One run as HTML: facts, waterfall, tool calls, messages, failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from otel_journal.commands.terminal import duration, safe
from otel_journal.events import LEAD_AGENT

from . import facts
from .html import Html, element, in_path, joined, link
from .runs_page import banner, run_address
from .waterfall import lay_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_journal.run_view import FailureView, MessageView, RunView, ToolCallView

    from .html import Part
    from .run_reading import RunFacts
    from .waterfall import Bar, Tick, Waterfall

_T = TypeVar("_T")

MAX_PARTS: Final = 200
"""Tool calls, messages and failures shown, of each."""
MAX_DEPTH: Final = 8
"""Deepest indent; what is below stands there too."""
_TICK_LABEL_ROOM: Final = 94.0
"""Percent of the axis behind which a label has no room."""
_HEAD: Final = (("Operation", "c-name"), ("Outcome", "c-outcome"), ("Duration", "c-took n"),
                ("Tokens in → out", "c-tokens n"))  # fmt: skip


def run_main(run: RunFacts, *, trace_url: str, problems: Sequence[str], now_ns: int) -> Html:
    """Return the content of the page.

    Args:
        run: the run.
        trace_url: where a trace can be looked at, with ``{trace_id}``; empty for nowhere.
        problems: what is wrong with the sidecar.
        now_ns: Unix time in nanoseconds.
    """
    view = run.view
    picture = lay_out(view.operations, now_ns)
    stream = f"/v1/runs/{in_path(view.run_id)}/events/stream?last_event_id={run.last_seq}"
    return element(
        "main",
        {"id": "main", "tabindex": "-1", "data-stream": stream},
        element("h1", {}, f"{facts.name_of(view.name)} ", facts.outcome(view.outcome)),
        banner(problems),
        _facts(run, trace_url, now_ns),
        element("h2", {"id": "operations"}, "Operations"),
        _cut_note(picture, cut=run.cut),
        _waterfall(picture, now_ns),
        _section("Failures", view.failures, _failure),
        _section("Tool calls", view.tool_calls, _tool_call),
        _section("Messages", view.messages, _message),
        _spenders(view),
    )


def _facts(run: RunFacts, trace_url: str, now_ns: int) -> Html:
    view = run.view
    thread: Part = "-"
    if view.thread_id:
        thread = link(f"/?thread={in_path(view.thread_id)}", safe(view.thread_id))
    pairs: list[tuple[str, Part]] = [
        ("Started", facts.when(view.start_ns)),
        ("Duration", facts.took(view.start_ns, view.end_ns, now_ns)),
        ("Tokens in → out", facts.tokens(view.input_tokens, view.output_tokens)),
        ("Model calls", f"{view.model_calls:,}"),
        ("Tool calls", f"{len(view.tool_calls):,}"),
        ("Thread", thread),
        ("Run", element("span", {"class": "id"}, safe(view.run_id))),
        ("Trace", _traces(run.traces, trace_url)),
    ]
    for title, runs in (("Resumes", run.earlier), ("Resumed by", run.later)):
        if runs:
            pairs.append((title, _list(link(run_address(one), safe(one)) for one in runs)))
    shown = (
        element("div", {}, element("dt", {}, title), element("dd", {}, value))
        for title, value in pairs
    )
    return element("dl", {"class": "facts"}, *shown)


def _traces(traces: Sequence[str], trace_url: str) -> Html:
    return _list(_trace(one, trace_url) for one in traces)


def _trace(trace_id: str, trace_url: str) -> Html:
    shown = element("span", {"class": "id"}, safe(trace_id))
    if not trace_url:
        return shown
    address = trace_url.replace("{trace_id}", in_path(trace_id))
    return link(address, shown, rel="noreferrer")


def _list(items: Iterable[Html]) -> Html:
    return element("ul", {"class": "list"}, *(element("li", {}, one) for one in items))


def _cut_note(picture: Waterfall, *, cut: bool) -> Html | None:
    if not picture.left_out and not cut:
        return None
    least = "At least " if cut else ""
    more = " This run has more events than are read for a page; its numbers are lower bounds."
    text = (
        f"{len(picture.bars):,} operations are shown. {least}{picture.left_out:,} more are left"
        f" out.{more if cut else ''}"
    )
    return element("p", {"class": "note", "role": "note"}, text)


def _waterfall(picture: Waterfall, now_ns: int) -> Html:
    head = [element("th", {"scope": "col", "class": style}, name) for name, style in _HEAD]
    axis = element("svg", {"role": "img", "aria-label": _axis_text(picture)}, *_labels(picture))
    head.insert(2, element("th", {"scope": "col", "class": "c-time"}, axis))
    lines = joined(_line(tick) for tick in picture.ticks[1:])
    rows = joined(_bar(bar, lines, now_ns) for bar in picture.bars)
    return element(
        "div",
        {"class": "card", "tabindex": "0", "role": "region", "aria-labelledby": "operations"},
        element(
            "table",
            {"class": "waterfall", "aria-labelledby": "operations"},
            element("thead", {}, element("tr", {}, *head)),
            element("tbody", {}, rows),
        ),
    )


def _axis_text(picture: Waterfall) -> str:
    return f"Time from 0 to {duration(picture.length_ns)}"


def _labels(picture: Waterfall) -> list[Html]:
    return [
        element("text", {"x": f"{tick.left:.2f}%", "y": "75%"}, _short(tick.after_ns))
        for tick in picture.ticks
        if tick.left < _TICK_LABEL_ROOM
    ]


def _short(ns: int) -> str:
    """A duration without zeros that say nothing: ticks stand at round numbers."""
    number, _, unit = duration(ns).partition(" ")
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}" if ns else "0"


def _line(tick: Tick) -> Html:
    at = f"{tick.left:.2f}%"
    return element("line", {"x1": at, "x2": at, "y1": "-25%", "y2": "125%"})


def _bar(bar: Bar, lines: Html, now_ns: int) -> Html:
    one = bar.operation
    notes: list[str] = [one.kind]
    if one.attempt > 1:
        notes.append(f"attempt {one.attempt}")
    if one.agent and not bar.depth:
        notes.append(f"agent {safe(one.agent)}")
    if one.caller not in {"", LEAD_AGENT} and one.usage is not None:
        notes.append(safe(one.caller))
    name = element(
        "span",
        {"class": f"op d{min(bar.depth, MAX_DEPTH)}"},
        facts.name_of(one.name),
        element("span", {"class": "kind"}, " · ".join(notes)),
        element("span", {"class": "why"}, safe(one.error_type)) if one.error_type else None,
    )
    word = one.outcome or "running"
    place = {"x": f"{bar.left:.2f}%", "width": f"{bar.width:.2f}%", "y": "20%", "height": "60%"}
    rect = element("rect", {**place, "rx": "2", "class": f"o-{word}"})
    cells = (
        element("td", {}, facts.outcome(one.outcome)),
        element("td", {"class": "time"}, element("svg", {"aria-hidden": "true"}, lines, rect)),
        element("td", {"class": "n"}, facts.took(one.start_ns, one.end_ns, now_ns)),
        element("td", {"class": "n"}, facts.usage_text(one.usage)),
    )
    return element("tr", {"data-op": one.op_id}, element("th", {"scope": "row"}, name), *cells)


def _section(title: str, items: Sequence[_T], draw: Callable[[int, _T], Html]) -> Html | None:
    if not items:
        return None
    parts = joined(draw(number, one) for number, one in enumerate(items[:MAX_PARTS]))
    more = len(items) - MAX_PARTS
    note = f"{more:,} more are left out." if more > 0 else None
    return element(
        "section",
        {},
        element("h2", {}, f"{title} ", element("span", {"class": "dim"}, f"{len(items):,}")),
        element("div", {"class": "card"}, parts),
        element("p", {"class": "note"}, note) if note else None,
    )


def _failure(_number: int, failure: FailureView) -> Html:
    head = element("p", {}, element("strong", {}, safe(failure.type)), safe(failure.name))
    said = facts.content(failure.message) if failure.message else None
    return element("div", {"class": "call"}, head, said)


def _tool_call(number: int, call: ToolCallView) -> Html:
    notes = [] if call.latency_ms is None else [f"{call.latency_ms:,} ms"]
    if call.attempt > 1:
        notes.append(f"attempt {call.attempt}")
    if call.orphan:
        notes.append("never started")
    if call.state == "cancelled" and call.outcome not in {None, "cancelled"}:
        notes.append(str(call.outcome))
    head = element(
        "p",
        {},
        element("strong", {}, facts.name_of(call.name)),
        facts.badge(call.state),
        element("span", {"class": "id dim"}, safe(call.call_id)),
        element("span", {"class": "dim"}, " · ".join(notes)),
    )
    held = (("Arguments", call.arguments), ("Result", call.result), ("Error", call.error or None))
    shown = [
        part
        for title, value in held
        if value is not None
        for part in (element("div", {"class": "dim"}, title), facts.content(value))
    ]
    titles = " and ".join(title for title, value in held if value is not None).lower()
    details = None
    if shown:
        summary = element("summary", {}, titles.capitalize())
        details = element("details", {"id": f"call-{number}"}, summary, *shown)
    return element("div", {"class": "call", "data-row": ""}, head, details)


def _message(_number: int, message: MessageView) -> Html:
    caller = message.caller if message.caller not in {"", LEAD_AGENT} else ""
    head = element(
        "p",
        {},
        element("strong", {}, safe(message.role)),
        element("span", {"class": "dim"}, safe(caller)) if caller else None,
        element("span", {"class": "dim"}, facts.when(message.created_ns)),
    )
    said = facts.content(message.text) if message.text else _asked(message.content)
    return element("div", {"class": "message"}, head, said)


def _asked(content: object) -> Html | None:
    """What an answer without text says: the tools it asks for."""
    calls = content.get("tool_calls") if isinstance(content, dict) else None
    names = [str(one.get("name")) for one in calls or () if isinstance(one, dict)]
    return element("div", {"class": "dim"}, f"calls {safe(', '.join(names))}") if names else None


def _spenders(view: RunView) -> Html | None:
    if not view.tokens:
        return None
    titles = ("Model", "Agent", "Caller", "Calls", "Tokens in → out", "Details")
    rows = (
        (
            row.model or "?",
            row.agent,
            row.caller,
            f"{row.calls:,}",
            facts.tokens(row.input_tokens, row.output_tokens),
            ", ".join(f"{name} {count:,}" for name, count in sorted(row.details.items()) if count),
        )
        for row in view.tokens
    )
    head = element("tr", {}, *(element("th", {"scope": "col"}, title) for title in titles))
    body = joined(element("tr", {}, *(element("td", {}, safe(one)) for one in row)) for row in rows)
    table = element("table", {}, element("thead", {}, head), element("tbody", {}, body))
    return element(
        "section", {}, element("h2", {}, "Tokens"), element("div", {"class": "card"}, table)
    )
