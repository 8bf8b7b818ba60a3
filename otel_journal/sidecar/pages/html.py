"""HTML that cannot be broken out of: whatever is not `Html` already is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID: Final = frozenset({"input", "link", "meta", "rect", "line"})
"""Elements without content here; those of SVG are written in short form."""


class Html(str):
    """Text that is HTML; made by this module only."""

    __slots__ = ()


Part: TypeAlias = "str | Html | None"
"""Content of an element: text, which is escaped, HTML, or nothing."""


def element(name: str, attributes: dict[str, str | None], *parts: Part) -> Html:
    """Return an element; attributes that are None are left out, and all values are escaped."""
    given = "".join(
        f' {key}="{escape(value)}"' for key, value in attributes.items() if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{given}/>")
    return Html(f"<{name}{given}>{joined(parts)}</{name}>")


def joined(parts: Iterable[Part]) -> Html:
    """Return parts one after the other."""
    return Html("".join(escaped(part) for part in parts if part is not None))


def escaped(part: str) -> Html:
    """Return text as HTML; HTML stays as it is."""
    return part if isinstance(part, Html) else Html(escape(part))


def link(address: str, *parts: Part, **attributes: str) -> Html:
    """Return a link; `address` is put together by us, with `in_path` for what is not ours."""
    return element("a", {"href": address, **attributes}, *parts)


def in_path(text: str) -> str:
    """Return text as one segment of a path or as a value of a query."""
    return quote(text, safe="", errors="replace")


def document(title: str, main: Html, *, style: str, script: str | None) -> bytes:
    """Return a whole page.

    Args:
        title: what the window is called.
        main: what stands between header and end, the element ``main``.
        style: address of the style sheet.
        script: address of the script; None for a page without one.
    """
    head = element(
        "head",
        {},
        element("meta", {"charset": "utf-8"}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("meta", {"name": "color-scheme", "content": "light dark"}),
        element("title", {}, f"{title} · otel-journal"),
        element("link", {"rel": "icon", "href": "data:,"}),
        element("link", {"rel": "stylesheet", "href": style}),
        element("script", {"src": script, "defer": ""}) if script else None,
    )
    top = element(
        "header",
        {"class": "top"},
        link("#main", "Skip to content", **{"class": "skip"}),
        link("/", "otel-journal", **{"class": "brand"}),
        element("nav", {"aria-label": "Site"}, link("/", "Runs")) if script else None,
        element("span", {"id": "live", "class": "live", "role": "status"}) if script else None,
    )
    body = element("body", {}, top, main)
    page = f"<!doctype html>\n{element('html', {'lang': 'en'}, head, body)}\n"
    return page.encode("utf-8", "replace")
