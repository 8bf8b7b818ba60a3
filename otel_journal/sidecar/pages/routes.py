"""Which address shows which page."""

from __future__ import annotations

import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from otel_journal.errors import SettingsError, StoreError
from otel_journal.sidecar.web.access import LOGIN_PATH
from otel_journal.sidecar.web.app import IdRoute

from .html import Html, document, element
from .login_page import login_main
from .run_list import MAX_TRACES, Filter, list_runs, run_of_trace
from .run_page import run_main
from .run_reading import read_run
from .runs_page import run_address, runs_main

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from otel_journal.sidecar.web.health import Health
    from otel_journal.store import Store

_T = TypeVar("_T")

POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
"""Content-Security-Policy of the pages: nothing inline, nothing from elsewhere."""
STYLE_PATH: Final = "/assets/style.css"
SCRIPT_PATH: Final = "/assets/live.js"
LOGIN_STYLE: Final = f"{LOGIN_PATH}?style"
"""The style for who has no token yet: no other path is open to them."""
THREADS: Final = 4
"""Reads for pages at a time."""
PATIENCE_S: Final = 10.0
"""Seconds for which a reader waits for the store."""
MAX_BEFORE: Final = 1 << 63
"""Cursors are below this: stores number their rows in 64 bits."""
_HTML: Final = "text/html; charset=utf-8"
_AWAY: Final = "The journal cannot be read now. Load the page again in a moment."


def page_routes(*, store: Callable[[], Store], health: Health, trace_url: str) -> list[BaseRoute]:
    """Return the routes.

    Args:
        store: gives the store to read; called in threads, may raise StoreError while it is away.
        health: what the banner says.
        trace_url: where a trace can be looked at, with ``{trace_id}`` in it; empty for nowhere.

    Raises:
        SettingsError: `trace_url` is not allowed.
    """
    pages = Pages(store, health, checked_trace_url(trace_url))
    return [
        Route("/", pages.runs),
        IdRoute("/runs/{run_id}", pages.run),
        Route(LOGIN_PATH, pages.login, methods=["GET"]),
        Route(STYLE_PATH, _file("style.css", "text/css")),
        Route(SCRIPT_PATH, _file("live.js", "text/javascript")),
    ]


def checked_trace_url(text: str) -> str:
    """Return a template of addresses of traces; empty is allowed.

    Raises:
        SettingsError: it is not http or https, or has no ``{trace_id}``.
    """
    parts = urlsplit(text)
    good = parts.scheme in {"http", "https"} and parts.netloc and text.count("{trace_id}") == 1
    if text and not good:
        msg = (
            f"trace_url {text!r} is not allowed; allowed: an http or https URL with {{trace_id}}"
            " in it once, or nothing"
        )
        raise SettingsError(msg)
    return text


class Pages:
    """The pages that read the journal."""

    def __init__(self, store: Callable[[], Store], health: Health, trace_url: str) -> None:
        """Read from `store` and `health`, in threads."""
        self._store = store
        self._health = health
        self._trace_url = trace_url
        self._limiter = anyio.CapacityLimiter(THREADS)

    async def runs(self, request: Request) -> Response:
        """Show the list of runs, or lead to the run of a trace."""
        query = request.query_params
        note = ""
        try:
            if trace := query.get("trace"):
                run_id = await self._read(lambda: run_of_trace(self._store(), trace))
                if run_id is not None:
                    return RedirectResponse(run_address(run_id), HTTPStatus.SEE_OTHER)
                note = f"Trace {trace!r} is not one of the newest {MAX_TRACES:,} runs."
            wanted = Filter(
                query.get("agent", ""), query.get("outcome", ""), query.get("thread", "")
            )
            before = _cursor(query.get("before", ""))
            listed = await self._read(lambda: list_runs(self._store(), wanted, before))
            problems = await self._read(self._health.problems)
        except (StoreError, TimeoutError):
            return _away()
        main = runs_main(
            listed,
            wanted,
            problems=problems,
            note=note,
            now_ns=time.time_ns(),
            first=before is None,
        )
        return _page("Runs", main)

    async def run(self, request: Request) -> Response:
        """Show one run."""
        run_id = request.path_params["run_id"]
        try:
            run = await self._read(lambda: read_run(self._store(), run_id))
            problems = await self._read(self._health.problems)
            if run is None:
                return _message("Not found", "The journal has no such run.", HTTPStatus.NOT_FOUND)
            draw = partial(
                run_main,
                run,
                trace_url=self._trace_url,
                problems=problems,
                now_ns=time.time_ns(),
            )
            main = await self._read(draw)
        except (StoreError, TimeoutError):
            return _away()
        return _page(run.view.name or "Run", main)

    async def login(self, request: Request) -> Response:
        """Show the form for the token."""
        if "style" in request.query_params:
            return await _file("style.css", "text/css")(request)
        main = login_main(failed="failed" in request.query_params)
        body = document("Log in", main, style=LOGIN_STYLE, script=None)
        return Response(body, headers=_headers(), media_type=_HTML)

    async def _read(self, work: Callable[[], _T]) -> _T:
        """Do `work` in a thread.

        Raises:
            StoreError: the store cannot be read.
            TimeoutError: it did not answer in time.
        """
        with anyio.fail_after(PATIENCE_S):
            return await anyio.to_thread.run_sync(
                work, abandon_on_cancel=True, limiter=self._limiter
            )


def _cursor(text: str) -> int | None:
    """Read a cursor; one that was not made here leads to the newest runs."""
    if not (text.isascii() and text.isdecimal() and len(text) < len(str(MAX_BEFORE))):
        return None
    return int(text)


def _file(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    body = (Path(__file__).parent / name).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(body, media_type=media_type)

    return answer


def _page(title: str, main: Html, status: HTTPStatus = HTTPStatus.OK) -> Response:
    body = document(title, main, style=STYLE_PATH, script=SCRIPT_PATH)
    return Response(body, status, headers=_headers(), media_type=_HTML)


def _headers() -> dict[str, str]:
    return {"Content-Security-Policy": POLICY}


def _away() -> Response:
    return _message("Away", _AWAY, HTTPStatus.SERVICE_UNAVAILABLE)


def _message(title: str, text: str, status: HTTPStatus) -> Response:
    main = element(
        "main",
        {"id": "main", "tabindex": "-1"},
        element("h1", {}, title),
        element("p", {"class": "note", "role": "alert"}, text),
    )
    return _page(title, main, status)
