"""The JSON pages over a real server: what an agent did, page by page, and what errors look like."""

from __future__ import annotations

import json
from typing import Any

import httpx
import msgspec
import pytest

from otel_journal.events import Event
from otel_journal.run_view import fold_run
from otel_journal.sidecar.web import feed_pages
from otel_journal.testing.stores_samples import CONTENTS

MESSAGES = "/v1/threads/t1/messages"


def _message(number: int, thread_id: str = "t1", run_id: str = "r", content: Any = "x") -> Event:
    return Event(
        f"{run_id}/{number}", run_id, "llm.ai.response", "message", number, thread_id, content
    )


def _start(number: int, run_id: str) -> Event:
    return Event(f"{run_id}/{number}/start", run_id, "run.start", "trace", number, "t1")


def _seqs(found: list[dict[str, Any]]) -> list[int]:
    return [one["seq"] for one in found]


def test_a_run_is_what_show_prints(site, store, record):
    """The view has the operations, the tool calls by id with their state, and the tokens."""
    record("t1", "r1")
    answer = site.get("/v1/runs/r1").json()
    run = answer["run"]
    shown = msgspec.to_builtins(fold_run(store.events("r1")))

    assert run == json.loads(json.dumps(shown))
    assert run["outcome"] == "ok"
    assert run["operations"][0]["children"]
    assert [(one["call_id"], one["state"], one["result"]) for one in run["tool_calls"]] == [
        ("c1", "ok", "3"),
        ("c2", "ok", "7"),
    ]
    assert run["model_calls"] == 2
    assert answer["watermark"] == store.watermark()
    assert answer["epoch"] == store.epoch
    assert [one["url"] for one in answer["traces"]] == [""]


def test_a_trace_has_a_link_where_one_is_configured(serve, record):
    """The place in the template is filled in."""
    record("t1", "r1")
    site = serve(trace_url="http://traces.test/{trace_id}?uiEmbed=v0")
    (trace,) = site.get("/v1/runs/r1").json()["traces"]

    assert trace["url"] == f"http://traces.test/{trace['trace_id']}?uiEmbed=v0"
    assert len(trace["trace_id"]) == 32


def test_runs_are_listed_newest_first_each_once(site, store, record):
    """Pages of one follow each other by `next`; a run that began twice is in one of them."""
    for number in range(3):
        record(f"t{number % 2}", f"r{number}")
    store.append([_start(1, "r0"), _start(2, "r1")])
    found, query = [], {"limit": 1}
    while True:
        page = site.get("/v1/runs", params=query).json()
        found += page["runs"]
        if page["next"] is None:
            break
        query = {"limit": 1, **page["next"]}

    assert [one["run_id"] for one in found] == ["r1", "r0", "r2"]
    assert found == site.get("/v1/runs").json()["runs"]
    assert found[2]["outcome"] == "ok"
    assert found[2]["input_tokens"] > 0
    of_thread = site.get("/v1/runs", params={"thread_id": "t1"}).json()["runs"]
    assert [one["run_id"] for one in of_thread] == ["r1", "r0"]


def test_events_are_paged_after_their_filter(site, store, record):
    """Concatenated pages are the events of the run; a filter counts before the limit."""
    record("t1", "r1")
    found, query = [], {"limit": 2}
    while True:
        page = site.get("/v1/runs/r1/events", params=query).json()
        found += page["events"]
        if page["next"] is None:
            break
        query = {"limit": 2, **page["next"]}

    assert msgspec.convert(found, list[Event]) == store.events("r1")
    types = "llm.ai.response,tool_call.completed"
    filtered = site.get("/v1/runs/r1/events", params={"types": types, "limit": 3}).json()
    expected = store.events("r1", types.split(","), limit=3)
    assert _seqs(filtered["events"]) == [one.seq for one in expected]
    assert filtered["next"] == {"after": expected[-1].seq}


def test_messages_lead_both_ways(site, store):
    """The last ones first; `prev` and `next` lead through the feed and end where it ends."""
    store.append([_message(number, thread_id=f"t{number % 2}") for number in range(20)])
    feed = [one.seq for one in store.messages("t1", limit=100)]
    last = site.get(MESSAGES, params={"limit": 4}).json()
    assert _seqs(last["messages"]) == feed[-4:]
    assert last["next"] is None
    found, page = last["messages"], last
    while page["prev"] is not None:
        page = site.get(MESSAGES, params={"limit": 4, **page["prev"]}).json()
        found = page["messages"] + found
    assert _seqs(found) == feed
    forward = page["messages"]
    while page["next"] is not None:
        page = site.get(MESSAGES, params={"limit": 4, **page["next"]}).json()
        forward = forward + page["messages"]
    assert _seqs(forward[:2]) == feed[:2]
    assert sorted(set(_seqs(forward))) == feed
    between = site.get(MESSAGES, params={"after": feed[2], "before": feed[5]}).json()
    assert _seqs(between["messages"]) == feed[3:5]


def test_an_empty_page_still_leads_back(site, store):
    """Behind the end and before the beginning of a feed the cursors point at it."""
    store.append([_message(1), _message(2)])
    behind = site.get(MESSAGES, params={"after": 2}).json()
    assert (behind["messages"], behind["prev"], behind["next"]) == ([], {"before": 3}, None)
    before = site.get(MESSAGES, params={"before": 1}).json()
    assert (before["messages"], before["prev"], before["next"]) == ([], None, {"after": 0})
    unknown = site.get("/v1/threads/nobody/messages").json()
    assert (unknown["messages"], unknown["prev"], unknown["next"]) == ([], None, None)


def test_a_reader_that_cached_not_there_asks_again_when_the_mark_grew(site, record):
    """The answer 404 has the watermark; once it has grown the run is there."""
    missing = site.get("/v1/runs/r1")
    assert missing.status_code == 404
    mark = missing.json()["watermark"]
    assert site.get("/v1/runs/r1/events").json()["watermark"] == mark == 0
    record("t1", "r1")
    assert site.get("/v1/runs").json()["watermark"] > mark
    assert site.get("/v1/runs/r1").status_code == 200


@pytest.mark.parametrize("odd", ["a/b", "a b", "ä☃", "%2F", "a?b#c", "stream", "a/events"])
def test_ids_may_hold_any_character(site, store, odd):
    """An encoded slash separates nothing."""
    store.append([_message(1, odd, odd), _start(2, odd)])
    quoted = "".join(f"%{byte:02X}" for byte in odd.encode())
    assert site.get(f"/v1/runs/{quoted}").json()["run"]["run_id"] == odd
    assert len(site.get(f"/v1/runs/{quoted}/events").json()["events"]) == 2
    assert len(site.get(f"/v1/threads/{quoted}/messages").json()["messages"]) == 1
    assert site.get("/v1/runs", params={"thread_id": odd}).status_code == 200


def test_every_content_arrives(site, store):
    """What stores find hard is passed on as it was stored."""
    for number, content in enumerate(CONTENTS.values()):
        store.append([_message(number, content=content)])
    page = site.get(MESSAGES, params={"limit": 500}).json()
    stored = [one.content for one in store.messages("t1", limit=500)]
    assert [one["content"] for one in page["messages"]] == stored


def test_a_run_too_large_for_one_view_says_so(site, store, monkeypatch):
    """The message names the way to read it all the same."""
    monkeypatch.setattr(feed_pages, "MAX_RUN_EVENTS", 10)
    store.append([_message(number) for number in range(11)])
    answer = site.get("/v1/runs/r")
    assert answer.status_code == 422
    _is_problem(answer)
    assert "page by page" in answer.json()["detail"]
    assert site.get("/v1/runs/r/events").status_code == 200


BAD = [
    ("/v1/runs?limit=0", "limit", "1 to 500"),
    ("/v1/runs?limit=501", "limit", "1 to 500"),
    ("/v1/runs?limit=", "limit", "1 to 500"),
    ("/v1/runs?limit=ten", "limit", "1 to 500"),
    ("/v1/runs?limit=%D9%A1", "limit", "1 to 500"),
    ("/v1/runs?limit=1&limit=2", "limit", "it once"),
    ("/v1/runs?before=-1", "before", "0 to 9223372036854775807"),
    ("/v1/runs?before=9223372036854775808", "before", "0 to 9223372036854775807"),
    ("/v1/runs?thread_id=", "thread_id", "1 to 64 characters"),
    ("/v1/runs?thread_id=a%00b", "thread_id", "without controls"),
    ("/v1/runs?thread_id=" + "x" * 65, "thread_id", "1 to 64 characters"),
    ("/v1/runs?after=1", "'after'", "only thread_id, before, limit here"),
    ("/v1/runs/r?x=1", "'x'", "only no parameter here"),
    ("/v1/runs/r/events?types=", "types", "separated by commas"),
    ("/v1/runs/r/events?types=a,,b", "types", "separated by commas"),
    ("/v1/runs/r/events?types=" + ",".join("a" * 51), "types", "1 to 50 names"),
    ("/v1/runs/r/events/stream?last_event_id=x", "last_event_id", "0 to 9223372036854775807"),
    ("/v1/runs/a%00b", "run_id", "without controls"),
    ("/v1/runs/" + "x" * 65, "run_id", "1 to 64 characters"),
    ("/v1/threads/a%0A/messages", "thread_id", "without controls"),
    ("/v1/threads/a%0A/messages/stream", "thread_id", "without controls"),
    ("/v1/threads/t/messages?after=1.0", "after", "0 to 9223372036854775807"),
]


@pytest.mark.parametrize(("target", "name", "allowed"), BAD)
def test_a_bad_parameter_is_named_with_what_is_allowed(site, target, name, allowed):
    """One message names the parameter, its value and what is allowed."""
    answer = site.get(target)
    assert answer.status_code == 400
    _is_problem(answer)
    problem = answer.json()
    assert problem["parameter"] == name
    assert problem["detail"].startswith(f"parameter {name} has the value ")
    assert allowed in problem["detail"]
    assert len(problem["detail"]) < 300


def test_unknown_paths_and_wrong_methods(site):
    """404 and 405 are problems as well; 405 names the methods."""
    for path in ("/nothing", "/v1", "/v1/runs/", "/v1/runs/r/", "/v1/runs//events", "/metrics/"):
        answer = site.get(path)
        assert answer.status_code == 404, path
        _is_problem(answer)
    with site.client() as client:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            answer = client.request(method, "/v1/runs/r/events")
            assert answer.status_code == 405
            assert answer.headers["allow"] == "GET, HEAD"
            _is_problem(answer)
        assert client.get("/login").headers["allow"] == "POST"
        assert client.head("/v1/runs").status_code == 200
        head = client.head("/v1/runs/stream")
        assert (head.status_code, head.content) == (200, b"")


def test_a_store_that_is_away_is_a_problem_without_its_place(site):
    """503, whatever is read, until it is back."""
    store, site.store = site.store, None
    for path in ("/v1/runs", "/v1/runs/r", MESSAGES, f"{MESSAGES}/stream", "/v1/runs/stream"):
        answer = site.get(path)
        assert answer.status_code == 503, path
        assert int(answer.headers["retry-after"]) > 0
        assert "/secret" not in answer.text
        _is_problem(answer)
    assert site.get("/healthz").status_code == 200
    site.store = store
    assert site.get("/v1/runs").status_code == 200


def test_our_own_failure_tells_nothing(site):
    """500 with a message that holds none of the error's."""

    class Broken:
        epoch = "e"

        def watermark(self) -> int:
            msg = "SELECT secret"
            raise RuntimeError(msg)

    site.store = Broken()
    answer = site.get("/v1/runs")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    _is_problem(answer)


def _is_problem(answer: httpx.Response) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["type"] == "about:blank"
    assert problem["title"]
    assert problem["detail"]
    assert "\n" not in problem["detail"]
