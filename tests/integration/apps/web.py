"""Web applications whose every request runs an agent: WSGI, and ASGI with and without our lifespan.

``web:asgi``, ``web:bare``, ``web:wsgi``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agent import QUESTION, answering, ask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from otel_journal import RunJournal
from otel_journal.asgi import lifespan

GRAPH = answering()


async def _answer(_: Request) -> PlainTextResponse:
    await GRAPH.ainvoke(QUESTION, {"callbacks": [RunJournal()]})
    return PlainTextResponse("3")


ROUTES = [Route("/", _answer), Route("/ready", lambda _: PlainTextResponse("yes"))]

asgi = Starlette(routes=ROUTES, lifespan=lifespan())
bare = Starlette(routes=ROUTES)


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer one request."""
    if environ["PATH_INFO"] == "/":
        ask()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"3"]
