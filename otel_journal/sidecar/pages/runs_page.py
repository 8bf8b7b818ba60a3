"""The list of runs as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from otel_journal.commands.terminal import RUNNING, safe
from otel_journal.events import OUTCOMES

from . import facts
from .html import Html, element, in_path, joined, link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .html import Part
    from .run_list import Filter, Listed, Row

_HEAD: Final = ("Run", "Outcome", "Agent", "Started", "Duration", "Tokens in → out",
                "Model calls", "Tool calls", "Thread")  # fmt: skip
_NUMBERS: Final = frozenset({"Duration", "Tokens in → out", "Model calls", "Tool calls"})


def runs_main(  # noqa: PLR0913 - one for each thing that it shows
    listed: Listed, wanted: Filter, *, problems: Sequence[str], note: str, now_ns: int, first: bool
) -> Html:
    """Return the content of the page.

    Args:
        listed: the runs.
        wanted: what they were narrowed to.
        problems: what is wrong with the sidecar.
        note: something to say about the request; empty for nothing.
        now_ns: Unix time in nanoseconds.
        first: whether this is the page with the newest runs.
    """
    return element(
        "main",
        {"id": "main", "tabindex": "-1", "data-stream": "/v1/runs/stream" if first else None},
        element("h1", {}, "Runs"),
        banner(problems),
        element("p", {"class": "note", "role": "status"}, note) if note else None,
        _filter(wanted),
        _table(listed, now_ns) if listed.rows else _nothing(wanted),
        _pager(listed, wanted, first=first),
    )


def banner(problems: Sequence[str]) -> Html | None:
    """Return what is wrong with the sidecar; None when nothing is."""
    if not problems:
        return None
    reasons = joined(element("li", {}, safe(one)) for one in problems)
    return element(
        "div",
        {"class": "banner", "role": "alert"},
        element("strong", {}, "The sidecar is not ready"),
        element("ul", {}, reasons),
    )


def run_address(run_id: str) -> str:
    """Return the address of a run's page."""
    return f"/runs/{in_path(run_id)}"


def list_address(wanted: Filter, before: int | None = None) -> str:
    """Return the address of the list."""
    given = {key: value for key, value in wanted._asdict().items() if value}
    if before is not None:
        given["before"] = str(before)
    return f"/?{urlencode(given, errors='replace')}" if given else "/"


def _filter(wanted: Filter) -> Html:
    options = [element("option", {"value": ""}, "any")]
    for word in (RUNNING, *OUTCOMES):
        chosen = "" if word == wanted.outcome else None
        options.append(element("option", {"value": word, "selected": chosen}, word))
    return element(
        "form",
        {"class": "filter", "method": "get", "action": "/", "role": "search"},
        _field("Agent", "agent", wanted.agent),
        element("label", {}, "Outcome", element("select", {"name": "outcome"}, joined(options))),
        _field("Thread", "thread", wanted.thread),
        element("button", {"type": "submit"}, "Filter"),
        link("/", "Clear") if any(wanted) else None,
    )


def _field(label: str, name: str, value: str) -> Html:
    return element("label", {}, label, element("input", {"name": name, "value": value}))


def _table(listed: Listed, now_ns: int) -> Html:
    head = joined(
        element("th", {"scope": "col", "class": "n" if name in _NUMBERS else None}, name)
        for name in _HEAD
    )
    return element(
        "div",
        {"class": "card"},
        element(
            "table",
            {"class": "runs", "aria-label": "Runs, newest first"},
            element("thead", {}, element("tr", {}, head)),
            element("tbody", {}, joined(_row(row, now_ns) for row in listed.rows)),
        ),
    )


def _row(row: Row, now_ns: int) -> Html:
    view = row.view
    least = "≥ " if row.cut else ""
    name = link(run_address(view.run_id), facts.name_of(view.name), id=f"run-{view.run_id}")
    thread = facts.name_of(view.thread_id) if view.thread_id else ""
    cells: tuple[Part, ...] = (
        facts.outcome(view.outcome),
        ", ".join(map(safe, row.agents)) or "-",
        facts.when(view.start_ns),
        facts.took(view.start_ns, view.end_ns, now_ns),
        least + facts.tokens(view.input_tokens, view.output_tokens),
        f"{least}{view.model_calls:,}",
        f"{least}{len(view.tool_calls):,}",
        link(f"/?thread={in_path(view.thread_id)}", thread) if thread else "-",
    )
    shown = (
        element("td", {"data-label": title, "class": "n" if title in _NUMBERS else None}, cell)
        for title, cell in zip(_HEAD[1:], cells, strict=True)
    )
    first = element("th", {"scope": "row", "class": "name", "data-label": _HEAD[0]}, name)
    return element("tr", {"data-row": ""}, first, *shown)


def _nothing(wanted: Filter) -> Html:
    text = "No run here matches the filter." if any(wanted) else "No runs yet."
    return element("p", {"class": "note"}, text)


def _pager(listed: Listed, wanted: Filter, *, first: bool) -> Html | None:
    if first and listed.before is None:
        return None
    older = None
    if listed.before is not None:
        older = link(list_address(wanted, listed.before), "Older runs", rel="next", id="older")
    newest = None if first else link(list_address(wanted), "Newest runs", id="newest")
    seen = element("span", {"class": "dim"}, f"{listed.looked_at:,} runs looked at")
    return element("nav", {"class": "pager", "aria-label": "Pages"}, newest, older, seen)
