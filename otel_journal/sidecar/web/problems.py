"""Errors as ``application/problem+json``: one message, without content, file names or queries."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from otel_journal.errors import StoreError

from .security_headers import SECURITY_HEADERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from starlette.requests import Request

_logger: Final = logging.getLogger("otel_journal")

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 5
"""Seconds after which a reader may ask again: a store that restarts needs about that."""
_SHOWN: Final = 80
"""Characters of a bad value that its message repeats."""


class ProblemError(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what is wrong in `detail`; `members` are further facts for programs."""
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = dict(members or {})

    def response(self) -> Response:
        """Return the answer."""
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }
        return Response(
            msgspec.json.encode(body), self.status, headers=self.headers, media_type=MEDIA_TYPE
        )


def bad_parameter(name: str, value: str, allowed: str) -> ProblemError:
    """Return the answer to a parameter whose value is not allowed."""
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    detail = f"parameter {name} has the value {shown!r}; allowed: {allowed}"
    return ProblemError(HTTPStatus.BAD_REQUEST, detail, members={"parameter": name})


def not_now(detail: str) -> ProblemError:
    """Return the answer of a sidecar that cannot do it at the moment."""
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": str(RETRY_AFTER_S)}
    )


def store_away() -> ProblemError:
    """Return the answer while the store cannot be read; the log has the reason."""
    return not_now("the journal's store cannot be read now")


async def on_problem(_request: Request, error: Exception) -> Response:
    """Answer a `ProblemError`."""
    assert isinstance(error, ProblemError)  # noqa: S101 - registered for this class
    return error.response()


async def on_store_error(_request: Request, error: Exception) -> Response:
    """Answer when the store is away, and log why."""
    assert isinstance(error, StoreError)  # noqa: S101 - registered for this class
    _logger.warning("the store cannot be read: %s", error)
    return store_away().response()


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer an unknown path and a wrong method."""
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "this path is not known; /openapi.json lists those that are"
        return ProblemError(error.status_code, detail).response()
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = ", ".join(_methods(request))
        method = request.method[:_SHOWN]
        detail = f"method {method!r} is not allowed here; allowed: {allowed}"
        return ProblemError(error.status_code, detail, headers={"Allow": allowed}).response()
    return ProblemError(error.status_code, error.detail, headers=error.headers).response()


async def on_failure(request: Request, error: Exception) -> Response:
    """Answer after an error of our own; its message stays in the log."""
    _logger.error("%s %s failed: %s", request.method, _route_of(request), type(error).__name__)
    problem = ProblemError(
        HTTPStatus.INTERNAL_SERVER_ERROR, "the sidecar failed to answer; see its log"
    )
    problem.headers.update(SECURITY_HEADERS)  # this answer passes no middleware
    return problem.response()


def _route_of(request: Request) -> str:
    """The path with names for its ids, which are no business of a log."""
    return getattr(request.scope.get("route"), "path", "a request")


def _methods(request: Request) -> list[str]:
    """All methods that the routes of this path take together."""
    routes: Iterable[object] = request.app.routes
    found: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)
