"""What every request passes: the check of its host and of its token, and the headers back."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from .access import COOKIE, LOGIN_PATH, SESSION_S
from .problems import ProblemError
from .security_headers import SECURITY_HEADERS

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from .access import Access

MAX_FORM: Final = 8192
"""Bytes of the form to log in: a token and its name, with room."""
_CHALLENGE: Final = 'Bearer realm="otel-journal"'
_FORM: Final = "application/x-www-form-urlencoded"


class Gate:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        """Guard `app` by the rules of `access`."""
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self._refusal(Request(scope)) or self._app
        await app(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        access = self._access
        if not access.knows_host(request.headers.get("host", "")):
            detail = "the Host header does not name this server; allowed: loopback addresses" + (
                "".join(f", {name}" for name in sorted(access.hosts or ()))
            )
            return ProblemError(HTTPStatus.MISDIRECTED_REQUEST, detail).response()
        if not access.guards(request.scope["path"]) or access.admits(
            request.headers.get("authorization", ""), request.cookies.get(COOKIE, ""), time.time()
        ):
            return None
        if _is_page(request) and request.method in {"GET", "HEAD"}:
            return _to(LOGIN_PATH)
        return _unauthorized().response()


class LoginApi:
    """Where a browser turns the token into a cookie that scripts cannot read."""

    def __init__(self, access: Access) -> None:
        """Accept the token of `access`."""
        self._access = access

    async def login(self, request: Request) -> Response:
        """Answer a form with the field ``token``.

        Raises:
            ProblemError: it is no such form, or the token is wrong.
        """
        given = await _token(request)
        if self._access.token is None:
            return _to("/")
        if not self._access.is_token(given):
            if _is_page(request):
                return _to(f"{LOGIN_PATH}?failed=1")
            raise _unauthorized()
        response = _to("/")
        response.set_cookie(
            COOKIE,
            self._access.session(time.time()),
            max_age=SESSION_S,
            path="/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return response


async def _token(request: Request) -> str:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != _FORM:
        detail = f"this content type is not allowed here; allowed: {_FORM}"
        raise ProblemError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            detail = f"a form of more than {MAX_FORM} bytes is not allowed"
            raise ProblemError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    given = fields.get("token", [])
    if len(given) != 1:
        detail = f"the form has the field token {len(given)} times; allowed: once"
        raise ProblemError(HTTPStatus.BAD_REQUEST, detail)
    return given[0]


def _is_page(request: Request) -> bool:
    """True for a browser that wants to show what comes."""
    return "text/html" in request.headers.get("accept", "")


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)


def _unauthorized() -> ProblemError:
    detail = "a token is needed: send the header `Authorization: Bearer TOKEN`"
    return ProblemError(HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": _CHALLENGE})
