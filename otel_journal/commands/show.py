"""``otel-journal show RUN``: one run as a tree, with its tool calls, messages and tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from otel_journal.errors import StoreError
from otel_journal.events import LEAD_AGENT
from otel_journal.run_view import fold_run, walk

from . import terminal
from .reading import events_of, json_option, opened, store_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_journal.run_view import MessageView, OperationView, RunView, ToolCallView
    from otel_journal.store.protocol import Store

_NAME_WIDTH: Final = 44
_WORD_WIDTH: Final = 11
_DURATION_WIDTH: Final = 9
_MAX_CELL: Final = 200
"""Characters shown of arguments, results and errors; ``--json`` has all of them."""
_MARGIN: Final = "  "


def run_of(store: Store, run_id: str) -> RunView:
    """Read a run.

    Raises:
        StoreError: the store has no event of it.
    """
    events = events_of(store, run_id)
    if not events:
        msg = f"run {run_id!r} is not in the store; `otel-journal runs` lists those that are"
        raise StoreError(msg)
    return fold_run(events)


def lines(view: RunView, marks: terminal.Glyphs) -> Iterator[str]:
    """Yield the run as text."""
    yield from _header(view, marks)
    yield ""
    for operation, path in walk(view.operations):
        yield _operation(operation, terminal.indent(path, marks), marks)
    if view.tool_calls:
        yield ""
        yield click.style("Tool calls", bold=True)
        for call in view.tool_calls:
            yield from _tool_call(call, marks)
    if view.messages:
        yield ""
        yield click.style("Messages", bold=True)
        for message in view.messages:
            yield from message_lines(message)
    if view.failures:
        yield ""
        yield click.style("Failures", bold=True)
        for failure in view.failures:
            told = _short(f"{failure.type}: {failure.message}" if failure.message else failure.type)
            yield f"{_MARGIN}{terminal.safe(failure.name)}{_MARGIN}{told}"


def _header(view: RunView, marks: terminal.Glyphs) -> Iterator[str]:
    word = terminal.styled(terminal.word_of(view.outcome))
    yield f"Run {click.style(terminal.safe(view.run_id), bold=True)}{_MARGIN}{word}"
    if view.thread_id:
        yield f"{_MARGIN}thread {terminal.safe(view.thread_id)}"
    took = terminal.span_of(view.start_ns, view.end_ns)
    yield f"{_MARGIN}start  {terminal.moment(view.start_ns)}{_MARGIN}duration {took}"
    spent = f"{view.input_tokens:,} {marks.arrow} {view.output_tokens:,}"
    yield f"{_MARGIN}tokens {spent}{_MARGIN}model calls {view.model_calls:,}"
    for row in view.tokens:
        who = " ".join(filter(None, (row.model or "?", row.agent, _other(row.caller))))
        spent = f"{row.input_tokens:,} {marks.arrow} {row.output_tokens:,}"
        yield f"{_MARGIN * 2}{terminal.safe(who)}: {spent}"


def _other(caller: str) -> str:
    return "" if caller == LEAD_AGENT else caller


def _operation(one: OperationView, lead: str, marks: terminal.Glyphs) -> str:
    word = terminal.word_of(one.outcome)
    took = terminal.span_of(one.start_ns, one.end_ns)
    notes = []
    if one.usage is not None:
        notes.append(f"{one.usage.input_tokens:,} {marks.arrow} {one.usage.output_tokens:,}")
    if one.error_type:
        notes.append(terminal.safe(one.error_type))
    if one.attempt > 1:
        notes.append(f"attempt {one.attempt}")
    name = f"{lead}{terminal.safe(one.name)}"
    return (
        f"{name:<{_NAME_WIDTH}} {terminal.styled(word, f'{word:<{_WORD_WIDTH}}')}"
        f" {took:>{_DURATION_WIDTH}}{_MARGIN}{', '.join(notes)}"
    ).rstrip()


def _tool_call(call: ToolCallView, marks: terminal.Glyphs) -> Iterator[str]:
    latency = "" if call.latency_ms is None else f"{_MARGIN}{call.latency_ms:,} ms"
    attempt = f"{_MARGIN}attempt {call.attempt}" if call.attempt > 1 else ""
    orphan = f"{_MARGIN}never started" if call.orphan else ""
    if call.state == "cancelled" and call.outcome != "cancelled":
        orphan = f"{_MARGIN}{call.outcome}{orphan}"
    yield (
        f"{_MARGIN}{terminal.safe(call.call_id)}{_MARGIN}{terminal.safe(call.name)}"
        f"{_MARGIN}{terminal.styled(call.state)}{latency}{attempt}{orphan}"
    )
    yield f"{_MARGIN * 2}{_value(call.arguments)}"
    if call.state == "ok":
        yield f"{_MARGIN * 2}{marks.arrow} {_value(call.result)}"
    elif call.error:
        yield f"{_MARGIN * 2}{marks.arrow} {_short(call.error)}"


def message_lines(message: MessageView) -> Iterator[str]:
    """Yield one message of a feed as text, its further lines indented."""
    who = message.role
    if _other(message.caller):
        who = f"{who} {message.caller}"
    first, *rest = terminal.safe_lines(message.text)
    yield (
        f"{_MARGIN}{click.style(terminal.moment(message.created_ns), dim=True)}"
        f"{_MARGIN}{click.style(terminal.safe(who), bold=True)}{_MARGIN}{first or _calls(message)}"
    )
    for line in rest:
        yield f"{_MARGIN * 3}{line}"


def _calls(message: MessageView) -> str:
    """What an answer without text says: the tools it asks for."""
    content: Any = message.content
    calls = content.get("tool_calls") if isinstance(content, dict) else None
    names = [str(call.get("name")) for call in calls or () if isinstance(call, dict)]
    return click.style(terminal.safe(f"calls {', '.join(names)}"), dim=True) if names else ""


def _value(value: object) -> str:
    return _short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    cut = text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]} ... ({len(text):,} characters)"
    return terminal.safe(cut)


@click.command()
@click.argument("run_id", metavar="RUN")
@store_option
@json_option
def show(*, run_id: str, url: str, as_json: bool) -> None:
    """Show one run: its operations, tool calls, messages and tokens."""
    with opened(url) as store:
        view = run_of(store, run_id)
    if as_json:
        terminal.echo_json(view)
        return
    for line in lines(view, terminal.glyphs()):
        terminal.echo(line)
