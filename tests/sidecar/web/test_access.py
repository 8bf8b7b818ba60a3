"""Who may read: tokens, cookies, host names, and what every answer tells browsers."""

from __future__ import annotations

import socket

import pytest

from otel_journal.errors import SidecarError
from otel_journal.sidecar.web.access import (
    COOKIE,
    SESSION_S,
    Access,
    allowed_hosts,
    check_listen,
)
from otel_journal.sidecar.web.gate import MAX_FORM

TOKEN = "correct horse battery staple"  # noqa: S105 - guards nothing
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PAGE = {"Accept": "text/html,application/xhtml+xml"}
GUARDED = (
    "/v1/runs",
    "/v1/runs/r",
    "/v1/runs/r/events",
    "/v1/runs/stream",
    "/v1/runs/r/events/stream",
    "/v1/threads/t/messages",
    "/v1/threads/t/messages/stream",
    "/openapi.json",
    "/metrics",
    "/",
    "/unknown",
    "/healthz/",
    "/v1/runs/..%2F..%2Flogin",
)
OPEN = ("/healthz", "/readyz")
NOW = 1_700_000_000.0


@pytest.mark.parametrize("target", GUARDED)
def test_without_the_token_nothing_is_read(serve, target):
    """401 with a challenge, in the shape of every error, unknown paths included."""
    site = serve(TOKEN)
    tries = ("Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer", TOKEN)
    cookies = ({"Cookie": f"{COOKIE}={value}"} for value in ("1.2", "9999999999.ab"))
    for headers in ({}, *({"Authorization": one} for one in tries), *cookies):
        answer = site.get(target, headers=headers)
        assert answer.status_code == 401, headers
        assert answer.headers["www-authenticate"] == 'Bearer realm="otel-journal"'
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == 401
        assert TOKEN not in answer.text
    if "stream" not in target:
        assert site.get(target, headers=BEARER).status_code in {200, 404}


def test_probes_are_open_and_metrics_by_a_switch(serve):
    """Whoever probes or scrapes need not read the feed."""
    site = serve(TOKEN)
    assert [site.get(path).status_code for path in OPEN] == [200, 200]
    site = serve(TOKEN, open_metrics=True)
    assert site.get("/metrics").status_code == 200
    assert site.get("/v1/runs").status_code == 401


def test_without_a_token_all_is_open(site):
    """On loopback nobody needs one."""
    assert site.get("/v1/runs").status_code == 200
    assert site.get("/v1/runs", headers={"Authorization": "Bearer x"}).status_code == 200
    with site.client() as client:
        answer = client.post("/login", data={"token": ""})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "set-cookie" not in answer.headers


def test_a_browser_logs_in_with_a_form(serve):
    """The cookie opens the feed; scripts and other sites do not get it; it is not the token."""
    site = serve(TOKEN)
    with site.client(headers=PAGE) as client:
        first = client.get("/")
        assert (first.status_code, first.headers["location"]) == (303, "/login")
        wrong = client.post("/login", data={"token": "wrong"})
        assert (wrong.status_code, wrong.headers["location"]) == (303, "/login?failed=1")
        assert "set-cookie" not in wrong.headers
        right = client.post("/login", data={"token": TOKEN})
        assert (right.status_code, right.headers["location"]) == (303, "/")
        cookie = right.headers["set-cookie"]
        assert {"HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={SESSION_S}"} <= set(
            cookie.split("; ")
        )
        assert "correct" not in cookie
        assert client.get("/v1/runs").status_code == 200
    assert site.get("/v1/runs").status_code == 401
    with site.client() as program:
        assert program.post("/login", data={"token": "wrong"}).status_code == 401


def test_only_a_small_form_is_a_login(serve):
    """Anything else is refused before it is read as a whole."""
    site = serve(TOKEN)
    with site.client() as client:
        assert client.post("/login", json={"token": TOKEN}).status_code == 415
        large = client.post("/login", data={"token": "x" * MAX_FORM})
        assert large.status_code == 413
        odd = client.post(
            "/login",
            content=b"\xff&&=token&token=%ff",
            headers={"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
        )
        assert odd.status_code == 401
        for count in (0, 2):
            none_or_two = client.post("/login", data={"x": "1", "token": [TOKEN] * count})
            assert none_or_two.status_code == 400
            assert TOKEN.partition(" ")[0] not in none_or_two.text
        for answer in (large, odd, none_or_two):
            assert answer.headers["content-type"] == "application/problem+json"


def test_a_session_ends_and_cannot_be_made_or_prolonged():
    """The end is part of what is signed; another token's sessions are worth nothing."""
    access = Access(TOKEN)
    session = access.session(NOW)
    until, _, signature = session.partition(".")

    assert access.admits("", session, NOW)
    assert access.admits("", session, NOW + SESSION_S - 1)
    assert not access.admits("", session, NOW + SESSION_S)
    assert not access.admits("", f"{int(until) + 1}.{signature}", NOW)
    assert not Access("other").admits("", session, NOW)
    assert not Access(None).admits("", session, NOW)
    for odd in ("", ".", until, f"{until}.", f"{until}.ä", f"-1.{signature}", f"².{signature}"):
        assert not access.admits("", odd, NOW), odd
    with pytest.raises(ValueError, match="without a token"):
        Access(None).session(NOW)
    assert TOKEN not in repr(access)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_tokens_may_hold_any_character(scheme):
    """The scheme is read in any case, the token exactly."""
    assert Access("tökên").admits(f"{scheme} tökên", "", NOW)
    assert not Access("tökên").admits(f"{scheme} Tökên", "", NOW)
    assert not Access(None).admits(f"{scheme} None", "", NOW)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:9464", 200),
        ("localhost.", 200),
        ("127.0.0.1:1", 200),
        ("127.8.8.8", 200),
        ("[::1]:9464", 200),
        ("journal.test", 200),
        ("Journal.Test:80", 200),
        ("evil.test", 421),
        ("localhost.evil.test", 421),
        ("evil.test:80@localhost.evil.test", 421),
        ("10.0.0.1", 421),
        ("[::2]", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_a_page_of_another_name_is_not_answered(site, host, status):
    """DNS rebinding: the name leads here, but it is not ours."""
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as client:
        client.sendall(
            f"GET /v1/runs HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    if status == 421:
        assert b"application/problem+json" in answer


def test_which_hosts_are_allowed():
    """Loopback servers know their names; others only those that are configured."""
    assert allowed_hosts("127.0.0.1") == frozenset()
    assert allowed_hosts("::1", ["Name"]) == {"name"}
    assert allowed_hosts("0.0.0.0") is None  # noqa: S104 - nothing listens
    assert allowed_hosts("10.0.0.1", ["name"]) == {"name"}
    assert Access(None, allowed_hosts("10.0.0.1")).knows_host("anything")


@pytest.mark.parametrize(
    "host",
    ["0.0.0.0", "::", "10.1.2.3", "", "feed.test", "127.0.0.1.evil.test"],  # noqa: S104 - unused
)
def test_a_network_needs_a_token_or_a_word(host):
    """The message names the address and what is allowed."""
    check_listen(host, TOKEN)
    check_listen(host, None, allow_public=True)
    for token in (None, ""):
        with pytest.raises(SidecarError, match="without a token is not allowed") as failure:
            check_listen(host, token)
        assert repr(host) in str(failure.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.5.5.5", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_token(host):
    """Only this machine can reach it."""
    check_listen(host, None)


@pytest.mark.parametrize(
    "target", ["/v1/runs", "/v1/runs/x", "/v1/runs?x=1", "/metrics", "/healthz"]
)
def test_every_answer_has_the_security_headers(site, target):
    """Errors as well; no other origin is ever allowed."""
    headers = site.get(target, headers={"Origin": "http://evil.test"}).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control-")]
