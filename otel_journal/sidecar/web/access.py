"""Who may read: a bearer token or the cookie made from it, and which names the host goes by."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from otel_journal.errors import SidecarError

if TYPE_CHECKING:
    from collections.abc import Collection

COOKIE: Final = "otel_journal_session"
SESSION_S: Final = 12 * 3600
"""Seconds for which a cookie is valid: a working day."""
HEALTH_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Open to everybody: whoever probes them has no secrets."""
LOGIN_PATH: Final = "/login"
METRICS_PATH: Final = "/metrics"

_LOCALHOST: Final = "localhost"
_BEARER: Final = "bearer"
_PURPOSE: Final = b"otel-journal session until "


@dataclass(frozen=True)
class Access:
    """The rules; pure: the clock is an argument."""

    token: str | None = None
    """Guards everything but the probes and the form to log in; None guards nothing."""
    hosts: frozenset[str] | None = None
    """Names the Host header may have besides loopback addresses; None: any (`allowed_hosts`)."""
    open_metrics: bool = False
    """Whether /metrics needs no token."""

    def __repr__(self) -> str:
        """Without the token."""
        shown = None if self.token is None else "***"
        return f"Access(token={shown!r}, hosts={self.hosts!r}, open_metrics={self.open_metrics!r})"

    def guards(self, path: str) -> bool:
        """Return whether a path needs the token."""
        if self.token is None or path in HEALTH_PATHS or path == LOGIN_PATH:
            return False
        return not (self.open_metrics and path == METRICS_PATH)

    def admits(self, authorization: str, cookie: str, now: float) -> bool:
        """Return whether a header ``Authorization`` or a cookie is that of somebody who may read.

        Args:
            authorization: the header's value; empty when there is none.
            cookie: the value of `COOKIE`; empty when there is none.
            now: Unix time in seconds.
        """
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == _BEARER and self.is_token(given.strip()):
            return True
        return self._is_session(cookie, now)

    def is_token(self, given: str) -> bool:
        """Compare in a time that tells nothing of the token, its length included."""
        if self.token is None:
            return False
        return hmac.compare_digest(_digest(given), _digest(self.token))

    def session(self, now: float) -> str:
        """Return a cookie's value, good for `SESSION_S` seconds; the token cannot be had from it.

        Raises:
            ValueError: there is no token to log in with.
        """
        if self.token is None:
            msg = "a session without a token is not allowed; allowed: with a token"
            raise ValueError(msg)
        until = str(int(now) + SESSION_S)
        return f"{until}.{_signature(self.token, until)}"

    def _is_session(self, cookie: str, now: float) -> bool:
        until, _, signature = cookie.partition(".")
        if self.token is None or not (until.isascii() and until.isdecimal()):
            return False
        signed = hmac.compare_digest(signature.encode(), _signature(self.token, until).encode())
        return signed and int(until) > now

    def knows_host(self, header: str) -> bool:
        """Return whether a Host header names this server.

        A page of a foreign name that resolves to loopback (DNS rebinding) sends its own name.
        """
        if self.hosts is None:
            return True
        name = _host_name(header)
        return name in self.hosts or name == _LOCALHOST or is_loopback(name)


def allowed_hosts(listen: str, names: Collection[str] = ()) -> frozenset[str] | None:
    """Return `Access.hosts` for a server that listens at `listen`.

    On loopback nobody but loopback names and `names` may be meant; elsewhere `names`, when there
    are any, since the server cannot know what it is called.
    """
    if names or is_loopback(listen):
        return frozenset(name.lower() for name in names)
    return None


def check_listen(host: str, token: str | None, *, allow_public: bool = False) -> None:
    """See to it that nobody shows a feed to a network by accident.

    Args:
        host: the address to listen at.
        token: the token that readers need; None or empty when they need none.
        allow_public: the user said that no token is needed.

    Raises:
        SidecarError: `host` is not loopback, and neither a token nor the flag is given.
    """
    if is_loopback(host) or token or allow_public:
        return
    msg = (
        f"listening at {host!r} without a token is not allowed: others can read the feed; allowed:"
        " a loopback address (127.0.0.1, ::1, localhost), a token, or to allow it explicitly"
    )
    raise SidecarError(msg)


def is_loopback(host: str) -> bool:
    """Return whether an address can only be reached from this machine."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == _LOCALHOST


def _host_name(header: str) -> str:
    """The name in a Host header, in lower case; empty when it cannot be read."""
    try:
        return (urlsplit(f"//{header}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _signature(token: str, until: str) -> str:
    key = token.encode("utf-8", "surrogateescape")
    return hmac.new(key, _PURPOSE + until.encode(), hashlib.sha256).hexdigest()
