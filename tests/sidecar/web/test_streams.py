"""Server-sent events over a real server: nothing is lost or repeated, whatever cuts them off."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any, NamedTuple

import httpx
import pytest
from servers.process import wait_until

from otel_journal import open_store
from otel_journal.events import Event
from otel_journal.sidecar.web import streams, watch
from otel_journal.store.protocol import Store

PATIENCE_S = 30.0
RUNS = "/v1/runs/stream"
MESSAGES = "/v1/threads/t1/messages/stream"


class Block(NamedTuple):
    """What an EventSource makes of a block: the id it keeps, and an event when there is data."""

    id: int | None
    event: str
    data: Any


class Reader:
    """A client of a stream."""

    def __init__(self, answer: httpx.Response) -> None:
        """Read from an answer that is being streamed."""
        self._lines = answer.iter_lines()
        self.last_id: int | None = None

    def blocks(self) -> Iterator[Block]:
        """Yield whole blocks only: half of one does not count."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
                continue
            block = Block(
                int(fields["id"]) if "id" in fields else None,
                fields.get("event", "message"),
                json.loads(fields["data"]) if "data" in fields else None,
            )
            fields.clear()
            if block.id is not None:
                self.last_id = block.id
            yield block

    def events(self) -> Iterator[Block]:
        """Yield the blocks with data."""
        return (block for block in self.blocks() if block.data is not None)

    def take(self, count: int) -> list[Block]:
        """Return the next events."""
        events = self.events()
        return [next(events) for _ in range(count)]


@contextmanager
def reading(site, path: str, **options: Any) -> Iterator[Reader]:
    """Open a stream."""
    with site.client() as client, client.stream("GET", path, **options) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        yield Reader(answer)


def _message(number: int, writer: str = "w", thread_id: str = "t1") -> Event:
    event_id = f"{writer}/{number}/message"
    return Event(
        event_id, writer, "llm.ai.response", "message", number, thread_id, {"content": event_id}
    )


def _write(path, name: str, count: int, chance: random.Random) -> None:
    """Append in batches of random size, on a connection of its own."""
    with closing(open_store(f"sqlite:///{path}")) as store:
        number = 0
        while number < count:
            size = min(chance.randint(1, 6), count - number)
            batch = [_message(number + one, name) for one in range(size)]
            # Between them what the stream must skip.
            store.append([*batch, _message(number, f"{name}-other", "t2")])
            number += size
            time.sleep(0.002)


class Follower:
    """A client that is cut off at random and goes on by Last-Event-ID."""

    def __init__(self, site, seed: int, kills: int, total: int) -> None:
        """Follow until `total` events are there, `kills` times cut off before."""
        self.site = site
        self.chance = random.Random(seed)  # noqa: S311 - any numbers do
        self.kills = kills
        self.total = total
        self.found: list[Block] = []
        self.cut = 0

    def run(self) -> list[int]:
        """Return the ids of all events, in the order they came."""
        by_header = self.chance.random() < 0.5
        while len(self.found) < self.total:
            known = str(self.found[-1].id) if self.found else "0"
            options: dict[str, Any] = {"params": {"last_event_id": known}}
            if by_header:  # as browsers do: the header is newer than the query
                options = {"params": {"last_event_id": "0"}, "headers": {"Last-Event-ID": known}}
            with reading(self.site, MESSAGES, **options) as reader:
                self._read(reader)
        return [block.id or 0 for block in self.found]

    def _read(self, reader: Reader) -> None:
        left = self.chance.randint(0, 2 * self.total // self.kills)
        for block in reader.events():
            self.found.append(block)
            left -= 1
            if len(self.found) == self.total:
                return
            if left < 0 and self.cut < self.kills:
                self.cut += 1
                return


def test_cut_connections_lose_and_repeat_nothing(site, store, path):
    """Eight clients, four writers, twenty cuts each: what came together is the feed."""
    each, writers = 150, 4
    with ThreadPoolExecutor(12) as pool:
        done = [
            pool.submit(_write, path, f"w{one}", each, random.Random(one))  # noqa: S311
            for one in range(writers)
        ]
        followers = [Follower(site, seed, 20, each * writers) for seed in range(8)]
        found = [one.result(PATIENCE_S * 2) for one in [pool.submit(f.run) for f in followers]]
        for one in done:
            one.result(PATIENCE_S)
    feed = [event.seq for event in _feed(store)]

    assert len(feed) == each * writers
    assert all(one == feed for one in found)
    assert min(follower.cut for follower in followers) >= 10
    assert [block.data["seq"] for block in followers[0].found] == feed
    assert wait_until(lambda: site.app.state.streams.clients == 0, PATIENCE_S)


def _feed(store: Store) -> list[Event]:
    found: list[Event] = []
    while page := store.messages("t1", after=found[-1].seq if found else 0, limit=500):
        found += page
    return found


def test_the_events_of_a_run_are_streamed_while_it_runs(site, store, record):
    """A reader that was there before the run gets all of it, filtered by type."""
    with reading(site, "/v1/runs/r1/events/stream", params={"types": "run.start,run.end"}) as some:
        with reading(site, "/v1/runs/r1/events/stream") as reader:
            record("t1", "r1")
            expected = store.events("r1")
            found = reader.take(len(expected))
        assert [block.id for block in found] == [event.seq for event in expected]
        assert [block.data["event_id"] for block in found] == [one.event_id for one in expected]
        assert [block.data["event_type"] for block in some.take(2)] == ["run.start", "run.end"]


def test_starts_and_ends_of_runs(site, store, record, monkeypatch):
    """A new reader begins now; one with an id where it left."""
    monkeypatch.setattr(streams, "HEARTBEAT_S", 3600.0)
    record("t1", "r1")
    with reading(site, RUNS) as reader:
        mark = store.watermark()
        blocks = reader.blocks()
        # The place is told at once: who is cut off before the first event loses nothing.
        assert [next(blocks).id, next(blocks).id] == [None, mark]
        record("t2", "r2")
        start, end = reader.take(2)
    assert (start.data["event_type"], start.data["run_id"]) == ("run.start", "r2")
    assert (start.data["outcome"], start.data["end_ns"]) == (None, 0)
    assert (end.data["outcome"], end.data["thread_id"]) == ("ok", "t2")
    assert "content" not in end.data
    with reading(site, RUNS, params={"last_event_id": "0"}) as reader:
        again = reader.take(4)
    assert [block.data["run_id"] for block in again] == ["r1", "r1", "r2", "r2"]
    assert again[2:] == [start, end]


def test_silence_is_broken_by_comments_and_ids(site, store, monkeypatch):
    """A comment while nothing comes; an id when much was skipped, so that it is not read again."""
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.2)
    with reading(site, RUNS) as reader:
        blocks = reader.blocks()
        assert [next(blocks) for _ in range(4)] == [Block(None, "message", None)] * 4
        store.append([_message(number) for number in range(250)])
        while reader.last_id is None:
            assert next(blocks).data is None
        while reader.last_id < store.watermark():
            assert next(blocks).data is None


def test_a_cursor_of_another_journal_is_reset(site, store):
    """One ahead of the journal would wait for ever: the reader is told, and gets all."""
    store.append([_message(1), _message(2)])
    with reading(site, MESSAGES, headers={"Last-Event-ID": "900"}) as reader:
        reset, first, second = reader.take(3)
    assert (reset.id, reset.event, reset.data) == (0, "reset", {"epoch": store.epoch})
    assert [first.id, second.id] == [1, 2]


def test_a_journal_that_is_replaced_while_it_is_read(site, store, tmp_path):
    """Readers are told, and get the new one from its beginning."""
    store.append([_message(number) for number in range(5)])
    with (
        closing(open_store(f"sqlite:///{tmp_path / 'other.db'}")) as other,
        reading(site, MESSAGES) as reader,
    ):
        assert [block.id for block in reader.take(5)] == [1, 2, 3, 4, 5]
        other.append([_message(number, "new") for number in range(9)])
        site.store = other
        reset, *found = reader.take(10)
        assert (reset.event, reset.data) == ("reset", {"epoch": other.epoch})
        assert [block.id for block in found] == list(range(1, 10))


def test_a_stream_outlives_a_store_that_is_away(site, store):
    """Nothing is lost while the store is away, and the stream stays open."""
    store.append([_message(1)])
    with reading(site, MESSAGES) as reader:
        reader.take(1)
        site.store = None
        store.append([_message(2)])
        time.sleep(2 * watch.LOOK_EVERY_S)
        site.store = store
        assert [block.id for block in reader.take(1)] == [2]


def test_all_streams_share_one_look_at_the_store(site, store, monkeypatch):
    """Eight idle readers ask the store no more often than one does, and nobody asks for none."""
    looks: list[float] = []
    watermark = store.watermark

    def counting() -> int:
        looks.append(time.monotonic())
        return watermark()

    monkeypatch.setattr(store, "watermark", counting)
    with ExitStack() as clients:
        readers = [clients.enter_context(reading(site, MESSAGES)) for _ in range(8)]
        assert wait_until(lambda: bool(looks) and site.app.state.streams.clients == 8, PATIENCE_S)
        at_start = len(looks)
        time.sleep(8 * watch.LOOK_EVERY_S)
        # Each took a look of its own at the start; one per client and turn would be 64.
        assert 1 <= len(looks) - at_start <= 24
        assert len(readers) == 8
    assert wait_until(lambda: site.app.state.streams.clients == 0, PATIENCE_S)
    time.sleep(2 * watch.LOOK_EVERY_S)
    at_end = len(looks)
    time.sleep(4 * watch.LOOK_EVERY_S)
    assert len(looks) == at_end


def test_there_is_a_place_for_so_many(serve, store):
    """One more gets 503; a place that is left is free again."""
    site = serve(max_streams=2)
    with reading(site, MESSAGES):
        with reading(site, RUNS):
            refused = site.get(RUNS)
            assert refused.status_code == 503
            assert refused.headers["content-type"] == "application/problem+json"
            assert site.get("/v1/runs").status_code == 200
        assert wait_until(lambda: site.app.state.streams.clients == 1, PATIENCE_S)
        store.append([_message(1)])
        with reading(site, MESSAGES) as reader:
            assert reader.take(1)[0].id == 1
    assert wait_until(lambda: site.app.state.streams.clients == 0, PATIENCE_S)


def test_streams_end_properly_when_the_server_does(site, store):
    """The last chunk comes, so that clients know that they have all; the server does not wait."""
    store.append([_message(1)])
    with reading(site, MESSAGES) as reader, reading(site, RUNS) as idle:
        reader.take(1)
        stopped: list[bool] = []
        stopping = threading.Thread(target=lambda: stopped.append(site.stop()))
        stopping.start()
        assert list(reader.events()) == []  # an end that is cut off would raise
        assert list(idle.events()) == []
        stopping.join(PATIENCE_S)
    assert stopped == [True]


@pytest.mark.parametrize("patience_s", [0.3])
def test_a_client_that_does_not_read_costs_its_place_only(site, store, monkeypatch, patience_s):
    """It is read a page at a time, and put out when it leaves a block unread for too long."""
    monkeypatch.setattr(streams, "SEND_S", patience_s)
    read: list[int] = []
    page = store.messages

    def counting(*args: Any, **options: Any) -> list[Event]:
        found = page(*args, **options)
        read.append(len(found))
        return found

    text = "x" * 20_000
    events = [
        Event(f"w/{one}", "w", "llm.ai.response", "message", one, "t1", text) for one in range(1500)
    ]
    store.append(events)
    monkeypatch.setattr(store, "messages", counting)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", site.port))
        client.sendall(f"GET {MESSAGES} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert wait_until(lambda: bool(read), PATIENCE_S)
        assert wait_until(lambda: site.app.state.streams.clients == 0, PATIENCE_S)
        assert sum(read) < len(events)
    with reading(site, MESSAGES) as reader:
        assert len(reader.take(1500)) == 1500


@pytest.mark.parametrize("value", ["x", "-1", "1.5", str(2**63)])
def test_a_bad_last_event_id_is_refused(site, value):
    """As any bad parameter."""
    answer = site.get(MESSAGES, headers={"Last-Event-ID": value})
    assert answer.status_code == 400
    assert answer.json()["parameter"] == "Last-Event-ID"
