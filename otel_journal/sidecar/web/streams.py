"""The feed as server-sent events: ``id:`` is the `seq`, and Last-Event-ID goes on behind it."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio
import msgspec
from starlette.responses import Response

from otel_journal.errors import StoreError

from . import feed_pages, parameters
from .parameters import read_id, read_query, resume_from
from .problems import ProblemError, not_now
from .watch import Mark, mark_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from otel_journal.events import Event
    from otel_journal.store.protocol import Store

    from .store_reads import StoreReads
    from .watch import Watch

MEDIA_TYPE: Final = "text/event-stream"
MAX_CLIENTS: Final = 100
"""Streams at a time; each holds a connection and at most one page of events."""
HEARTBEAT_S: Final = 15.0
"""Seconds without a word after which a comment goes out: proxies close what is silent for 30."""
SEND_S: Final = 60.0
"""Seconds for which a client may leave a block unread before it loses its place."""
FAREWELL_S: Final = 1.0
"""Seconds that the proper end of a stream may take."""
AWAY_S: Final = 1.0
"""Seconds between two tries to read a store that is away."""
PAGE: Final = 100
"""Events read at once for one client."""

_RETRY: Final = b"retry: 2000\n\n"
"""Milliseconds after which a browser that lost the connection comes back."""
_HEARTBEAT: Final = b": alive\n\n"
_HEADERS: Final = {"Content-Type": MEDIA_TYPE, "X-Accel-Buffering": "no"}
"""The second one keeps nginx from holding events back."""


class Source(NamedTuple):
    """What a stream is made of."""

    read: Callable[[Store, int, int], list[Event]]
    """``(store, after, limit)`` -> events in order."""
    show: Callable[[Event], Any]
    """The value to send; None for an event that is not part of the stream."""
    from_now: bool = False
    """Whether a new reader begins at the end of the journal."""


class Streams:
    """The routes of the streams, and the places for their clients."""

    def __init__(self, reads: StoreReads, watch: Watch, max_clients: int = MAX_CLIENTS) -> None:
        """Read through `reads` whenever `watch` says that there is something."""
        self.reads = reads
        self.watch = watch
        self.closing = asyncio.Event()
        self.clients = 0
        self._max_clients = max_clients

    def close(self) -> None:
        """End all streams, and begin no new one; to be called on the event loop."""
        self.closing.set()

    def enter(self) -> None:
        """Take a place.

        Raises:
            ProblemError: there is none.
        """
        if self.closing.is_set():
            msg = "the sidecar is shutting down"
            raise not_now(msg)
        if self.clients >= self._max_clients:
            msg = f"{self._max_clients} streams are open, which is all there may be"
            raise not_now(msg)
        self.clients += 1

    def leave(self) -> None:
        """Give the place back."""
        self.clients -= 1

    async def events(self, request: Request) -> Response:
        """Stream the events of one run, which need not have begun."""
        query = read_query(request, parameters.EVENTS_STREAM)
        run_id, types = read_id(request, "run_id"), query[parameters.TYPES.name]
        source = Source(
            lambda store, after, limit: store.events(run_id, types, after, limit), lambda one: one
        )
        return EventStream(self, source, resume_from(request, query))

    async def messages(self, request: Request) -> Response:
        """Stream the messages of one thread, which need not have begun."""
        query = read_query(request, parameters.STREAM)
        thread_id = read_id(request, "thread_id")
        source = Source(
            lambda store, after, limit: store.messages(thread_id, after=after, limit=limit),
            feed_pages.feed_message,
        )
        return EventStream(self, source, resume_from(request, query))

    async def runs(self, request: Request) -> Response:
        """Stream the starts and ends of all runs, for a new reader from now on."""
        query = read_query(request, parameters.STREAM)
        source = Source(
            lambda store, after, limit: store.read(after, limit),
            feed_pages.run_change,
            from_now=True,
        )
        return EventStream(self, source, resume_from(request, query))


class EventStream(Response):
    """One client's stream: it reads a page when the client has taken the one before."""

    def __init__(self, streams: Streams, source: Source, after: int | None) -> None:
        """Begin behind `after`; None for a new reader."""
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._streams = streams
        self._source = source
        self._after = after
        self._told = after or 0
        """What the client would come back with."""
        self._epoch = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client leaves or the server ends.

        Raises:
            ProblemError: there is no place, or the store did not answer in time.
            StoreError: the store cannot be read.
        """
        self._streams.enter()
        try:
            mark = await self._streams.reads(mark_of)
            start = {
                "type": "http.response.start",
                "status": HTTPStatus.OK,
                "headers": self.raw_headers,
            }
            await send(start)
            if scope["method"] != "HEAD":
                async with anyio.create_task_group() as group:
                    group.start_soon(self._cancel_when_gone, receive, group.cancel_scope)
                    group.start_soon(self._cancel_when_closing, group.cancel_scope)
                    await self._send_all(mark, send)
                    group.cancel_scope.cancel()
            with anyio.move_on_after(FAREWELL_S):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.leave()

    async def _cancel_when_gone(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _cancel_when_closing(self, scope: anyio.CancelScope) -> None:
        await self._streams.closing.wait()
        scope.cancel()

    async def _send_all(self, mark: Mark, send: Send) -> None:
        async with aclosing(self._blocks(mark)) as blocks:
            async for block in blocks:
                with anyio.move_on_after(SEND_S) as sending:
                    await send({"type": "http.response.body", "body": block, "more_body": True})
                if sending.cancelled_caught:
                    return

    async def _blocks(self, mark: Mark) -> AsyncGenerator[bytes, None]:
        yield _RETRY + self._begin(mark)
        seen: Mark | None = None
        silent_until = time.monotonic() + HEARTBEAT_S
        while True:
            epoch, blocks, more = await self._page()
            if epoch not in {"", self._epoch}:
                yield self._reset(epoch)
                continue
            for block in blocks:
                yield block
            now = time.monotonic()
            if blocks:
                silent_until = now + HEARTBEAT_S
            elif now >= silent_until:
                yield self._heartbeat()
                silent_until = now + HEARTBEAT_S
            if not epoch:
                await anyio.sleep(AWAY_S)
            elif not more:
                wait_s = max(0.0, silent_until - time.monotonic())
                seen = await self._streams.watch.other_than(seen, wait_s) or seen

    async def _page(self) -> tuple[str, list[bytes], bool]:
        """Read on: the epoch (empty while the store is away), what to send, whether to go on."""
        after = self._after or 0

        def read(store: Store) -> tuple[str, list[tuple[int, bytes]]]:
            found = self._source.read(store, after, PAGE)
            return store.epoch, [(event.seq, self._block(event)) for event in found]

        try:
            epoch, found = await self._streams.reads(read)
        except (StoreError, ProblemError):
            return "", [], False
        if epoch != self._epoch or not found:
            return epoch, [], False
        self._after = found[-1][0]
        shown = [(seq, block) for seq, block in found if block]
        if shown:
            self._told = shown[-1][0]
        return epoch, [block for _, block in shown], True

    def _block(self, event: Event) -> bytes:
        value = self._source.show(event)
        if value is None:
            return b""
        return b"id: %d\ndata: %b\n\n" % (event.seq, msgspec.json.encode(value))

    def _begin(self, mark: Mark) -> bytes:
        self._epoch = mark.epoch
        if self._after is None:
            if not self._source.from_now:
                return b""
            self._after = mark.seq
            return self._heartbeat()
        # A cursor ahead of the journal is one of another journal: it would wait for ever.
        return self._reset(mark.epoch) if self._after > mark.seq else b""

    def _reset(self, epoch: str) -> bytes:
        """Tell that another journal is read now, from its beginning."""
        self._epoch, self._after, self._told = epoch, 0, 0
        return b"id: 0\nevent: reset\ndata: %b\n\n" % msgspec.json.encode({"epoch": epoch})

    def _heartbeat(self) -> bytes:
        """A comment; with an id when the client's own is far behind, which is no event either."""
        if self._after is None or self._after == self._told:
            return _HEARTBEAT
        self._told = self._after
        return b"id: %d\n\n" % self._after
