"""The pages over real runs in a SQLite file, by HTTP and in a real browser."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import uvicorn
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry
from servers import chromium
from servers.process import wait_until

from otel_journal import Journal, Settings, open_store
from otel_journal.demo.agent import Incident
from otel_journal.errors import SettingsError, StoreError
from otel_journal.events import Event, Failure, SpanBlock, Usage
from otel_journal.sidecar.pages.routes import POLICY, page_routes
from otel_journal.sidecar.web.access import Access, allowed_hosts
from otel_journal.sidecar.web.app import build_app
from otel_journal.sidecar.web.server import WebServer
from otel_journal.sidecar.web.streams import Streams
from otel_journal.store.protocol import Store

PATIENCE_S = 30.0
EVIL = "<script>alert('x')</script>"
TRACE_URL = "http://traces.test/trace/{trace_id}"


class Condition:
    """The health of a sidecar, as a test sets it."""

    def __init__(self) -> None:
        """Be ready."""
        self.found: list[str] = []

    def problems(self) -> list[str]:
        """Return what the test says."""
        return self.found

    def metrics_ready(self) -> bool:
        """Return True."""
        return True


@contextmanager
def served(
    store: Callable[[], Store], health: Condition, token: str | None = None
) -> Iterator[tuple[str, Streams]]:
    """Serve the pages beside the API; give the address, and the streams to count readers."""
    pages = page_routes(store=store, health=health, trace_url=TRACE_URL)
    access = Access(token, allowed_hosts("127.0.0.1"))
    app = build_app(
        store=store, health=health, registry=CollectorRegistry(), access=access, pages=pages
    )
    server = WebServer(uvicorn.Config(app, log_level="warning"), app.state.streams)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        assert wait_until(lambda: server.started, PATIENCE_S)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", app.state.streams
        server.should_exit = True
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Open a journal."""
    store = open_store(f"sqlite:///{tmp_path / 'journal.db'}")
    yield store
    store.close()


@pytest.fixture
def health() -> Condition:
    """Provide a sidecar that is ready."""
    return Condition()


@pytest.fixture
def site(store: Store, health: Condition) -> Iterator[str]:
    """Serve the journal."""
    with served(lambda: store, health) as (url, _):
        yield url


@pytest.fixture
def browser(server_program: Callable[[str], Path]) -> Path:
    """Find the browser."""
    return server_program(chromium.PROGRAM)


def get(url: str, **options: Any) -> httpx.Response:
    """Return the answer to one request."""
    with httpx.Client(timeout=PATIENCE_S, trust_env=False) as client:
        return client.get(url, **options)


@contextmanager
def recording(store: Store) -> Iterator[Journal]:
    """Keep what agents do in the journal."""
    provider = TracerProvider(shutdown_on_exit=False)
    registry = CollectorRegistry()
    with Journal(Settings(), tracer_provider=provider, registry=registry, store=store) as journal:
        yield journal


def record(store: Store, thread: str = "incident") -> tuple[str, str]:
    """Run the demo's agent until it waits for a person, and on; return both runs."""
    asked, approved = uuid4(), uuid4()
    incident = Incident(hurry=True)
    with recording(store) as journal:
        incident.ask(thread, asked, journal.handler())
        incident.approve(thread, approved, journal.handler())
        assert journal.flush()
    return str(asked), str(approved)


def pair(number: int, text: str = "", *, end: bool = True, **fields: Any) -> list[Event]:
    """Return start and end of one operation of the run ``big``; number 1 is its root."""
    root, at = number == 1, 10**18 + number * 1_000
    block: dict[str, Any] = {
        "op_id": f"op-{number}{text}",
        "kind": "node",
        "name": f"step {number}{text}",
        "trace_id": "c" * 32,
        "span_id": f"{number:016x}",
        "start_ns": at,
        "attributes": {},
        "parent_span_id": "" if root else f"{1:016x}",
        "root": root,
    }
    made = {"run_id": f"big{text}", "thread_id": f"t{text}", "created_ns": at}
    kind = "run" if root else "node"
    events = [
        Event(
            event_id=f"{number}/0/start",
            event_type=f"{kind}.start",
            category="trace",
            span=SpanBlock(**block),
            **made,
        )
    ]
    if end:
        done = SpanBlock(**block, end_ns=at + 900, **{"outcome": "ok", **fields})
        events.append(
            Event(
                event_id=f"{number}/0/end",
                event_type=f"{kind}.end",
                category="trace",
                span=done,
                **made,
            )
        )
    return events


def test_the_list_says_what_runs_came_to(site: str, store: Store) -> None:
    """Newest first, with outcome, tokens, calls and thread."""
    asked, approved = record(store)
    answer = get(f"{site}/")
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"] == POLICY
    page = answer.text
    assert page.index(approved) < page.index(asked)
    assert "interrupted" in page
    assert "3,360 → 175" in page
    assert "/?thread=incident" in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("agent=oncall", True),
        ("agent=nobody", False),
        ("outcome=interrupted", True),
        ("outcome=error", False),
        ("thread=incident", True),
        ("thread=other", False),
    ],
)
def test_the_list_can_be_narrowed(site: str, store: Store, query: str, *, found: bool) -> None:
    """By agent, outcome and thread."""
    asked, _ = record(store)
    assert (f"/runs/{asked}" in get(f"{site}/?{query}").text) is found


def test_a_trace_leads_to_its_run(site: str, store: Store) -> None:
    """Dashboards know traces, not runs."""
    asked, _ = record(store)
    start = store.events(asked, {"run.start"})[0]
    assert start.span is not None
    answer = get(f"{site}/?trace={start.span.trace_id}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{asked}")
    assert "is not one of the newest" in get(f"{site}/?trace=unknown").text


def test_the_list_has_pages(site: str, store: Store) -> None:
    """Each run is on one page."""
    for number in range(1, 32):
        (start,) = pair(1, f"-{number:02}", end=False)
        changed = {"event_id": f"{number}/1/start"}
        store.append(
            [Event(**{**{f: getattr(start, f) for f in start.__struct_fields__}, **changed})]
        )
    first = get(f"{site}/").text
    older = re.search(r'href="(/\?before=\d+)"', first)
    assert older is not None
    shown = re.findall(r'href="/runs/(big-\d\d)"', first + get(site + older[1]).text)
    assert shown == [f"big-{number:02}" for number in range(31, 0, -1)]


def test_a_run_shows_its_operations_tools_and_relations(site: str, store: Store) -> None:
    """In order of the tree, with what resumed it and where its trace is."""
    asked, approved = record(store)
    page = get(f"{site}/runs/{asked}").text
    names = re.findall(r'<span class="op d(\d)">([^<]+)<', page)
    assert names[:3] == [
        ("0", "invoke_workflow oncall"),
        ("1", "plan"),
        ("2", "chat scripted-large"),
    ]
    assert "ConnectionError" in page
    assert "call-3" in page
    assert f'href="/runs/{approved}"' in page
    assert re.search(r'href="http://traces\.test/trace/[0-9a-f]{32}"', page)
    assert f'href="/runs/{asked}"' in get(f"{site}/runs/{approved}").text


def test_a_run_of_many_operations_is_cut_and_says_so(site: str, store: Store) -> None:
    """Ten thousand operations make a page that can be read, with the run's own outcome."""
    events = [event for number in range(2, 10_001) for event in pair(number)]
    start, end = pair(1)
    events = [start, *events, end]
    for at in range(0, len(events), 500):
        store.append(events[at : at + 500])
    began = time.monotonic()
    page = get(f"{site}/runs/big").text
    assert time.monotonic() - began < 5
    assert page.count("<rect") == 1_000
    assert "more are left out" in page
    assert re.search(r"<h1>step 1 <span class=\"badge o-ok\">", page)


def test_everything_is_escaped(site: str, store: Store, health: Condition) -> None:
    """A script in any field is text."""
    health.found = [f"problem {EVIL}"]
    store.append(
        pair(
            1,
            EVIL,
            outcome="error",
            error_type=f"E{EVIL}",
            agent=f"a{EVIL}",
            failure=Failure(f"F{EVIL}", f"m{EVIL}"),
            usage=Usage(1, 2),
        )
    )
    said = {"call_id": f"c{EVIL}", "name": f"n{EVIL}", "arguments": {EVIL: EVIL}}
    store.append(
        [
            Event("x/0/start", f"big{EVIL}", "tool_call.started", "trace", 1, f"t{EVIL}", said),
            Event(
                "m", f"big{EVIL}", "llm.human.input", "message", 1, f"t{EVIL}", {"content": EVIL}
            ),
        ]
    )
    whole = get(f"{site}/", params={"agent": f"a{EVIL}", "trace": EVIL}).text
    run = re.search(r'href="(/runs/big[^"]+)"', whole)
    assert run is not None
    whole += get(site + run[1]).text
    assert "alert(" in whole
    assert "<script>" not in whole
    assert not re.search(r"\sstyle=|\son\w+=", whole)


def test_problems_are_shown(site: str, health: Condition) -> None:
    """The sidecar says why it is not ready."""
    assert "not ready" not in get(f"{site}/").text
    health.found = ["sending is held: 401"]
    assert "sending is held: 401" in get(f"{site}/").text


def test_what_is_not_there_is_said(site: str) -> None:
    """An unknown run, and a cursor that was not made here."""
    assert get(f"{site}/runs/none").status_code == 404
    assert get(f"{site}/?before=x").status_code == 200
    assert get(f"{site}/?before={'9' * 40}").status_code == 200


def test_a_store_that_is_away_is_said_without_its_place(health: Condition) -> None:
    """503, and nothing of the error."""

    def away() -> Store:
        msg = "journal file /secret: gone"
        raise StoreError(msg)

    with served(away, health) as (url, _):
        answer = get(f"{url}/")
    assert answer.status_code == 503
    assert "secret" not in answer.text


def test_the_form_to_log_in_is_open_and_has_its_style(store: Store, health: Condition) -> None:
    """Who has no token sees the form and nothing else."""
    with served(lambda: store, health, "s3cret-token") as (url, _):
        form = get(f"{url}/login?failed=1")
        assert 'name="token"' in form.text
        assert "The token is wrong" in form.text
        style = re.search(r'rel="stylesheet" href="([^"]+)"', form.text)
        assert style is not None
        assert get(url + style[1]).headers["content-type"].startswith("text/css")
        assert get(f"{url}/", headers={"Accept": "text/html"}).status_code == 303


@pytest.mark.parametrize(
    "address", ["javascript:{trace_id}", "http://x/trace", "ftp://x/{trace_id}"]
)
def test_an_address_of_traces_that_is_not_allowed_is_refused(address: str) -> None:
    """At the start, by name."""
    with pytest.raises(SettingsError, match="trace_url"):
        page_routes(store=lambda: pytest.fail("read"), health=Condition(), trace_url=address)


def test_a_browser_has_nothing_to_complain_about(
    site: str, store: Store, browser: Path, tmp_path: Path
) -> None:
    """No violation of the policy, no error, and the style is used."""
    asked, _ = record(store)
    for path in ("/", f"/runs/{asked}"):
        shown = chromium.show(browser, tmp_path, site + path, show_ms=2_000)
        assert shown.console == []
        assert asked in shown.dom


def test_a_run_that_ends_is_seen_without_a_reload(
    store: Store, health: Condition, browser: Path, tmp_path: Path
) -> None:
    """The run ends only once the browser shows the page and follows it."""
    start, end = pair(1)
    store.append([start])
    with served(lambda: store, health) as (url, streams):
        assert "o-running" in get(f"{url}/runs/big").text

        def finish() -> None:
            if wait_until(lambda: streams.clients > 0, PATIENCE_S):
                store.append([end])

        ending = threading.Thread(target=finish)
        ending.start()
        seen = chromium.appears(browser, tmp_path, f"{url}/runs/big", "badge o-ok")
        ending.join()
    assert store.events("big", {"run.end"})
    assert seen


def test_dark_mode_looks_different(site: str, store: Store, browser: Path, tmp_path: Path) -> None:
    """The browser's preference is followed."""
    asked, _ = record(store)
    pictures = {
        chromium.picture(
            browser, tmp_path, f"{site}/runs/{asked}", f"--blink-settings=preferredColorScheme={n}"
        )
        for n in (0, 1)
    }
    assert len(pictures) == 2
