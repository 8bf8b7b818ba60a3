"""The routes of the JSON pages: ``/v1/runs`` and below, ``/v1/threads/{thread_id}/messages``."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import Response

from . import feed_pages, parameters
from .parameters import read_id, read_query
from .problems import ProblemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from otel_journal.store.protocol import Store

    from .store_reads import StoreReads
    from .watch import Mark

_T = TypeVar("_T")


class FeedApi:
    """The pages."""

    def __init__(self, reads: StoreReads, trace_url: str = "") -> None:
        """Read through `reads`; `trace_url` has ``{trace_id}`` where the id goes."""
        self._reads = reads
        self._trace_url = trace_url

    async def runs(self, request: Request) -> Response:
        """Answer with the newest runs."""
        query = read_query(request, parameters.RUNS)
        return await self._json(lambda store: feed_pages.runs_page(store, **query))

    async def run(self, request: Request) -> Response:
        """Answer with one run.

        Raises:
            ProblemError: it is not in the store, or too large.
        """
        read_query(request, parameters.RUN)
        run_id = read_id(request, "run_id")

        def read(store: Store) -> object:
            try:
                return _found(*feed_pages.run_answer(store, run_id, self._trace_url))
            except feed_pages.TooLargeError:
                detail = (
                    f"the run has more than {feed_pages.MAX_RUN_EVENTS} events, too many for one"
                    " view; read /v1/runs/{run_id}/events page by page"
                )
                raise ProblemError(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from None

        return await self._json(read)

    async def events(self, request: Request) -> Response:
        """Answer with events of one run.

        Raises:
            ProblemError: it is not in the store.
        """
        query = read_query(request, parameters.EVENTS)
        run_id = read_id(request, "run_id")
        return await self._json(
            lambda store: _found(*feed_pages.events_page(store, run_id, **query))
        )

    async def messages(self, request: Request) -> Response:
        """Answer with messages of one thread."""
        query = read_query(request, parameters.MESSAGES)
        thread_id = read_id(request, "thread_id")
        return await self._json(lambda store: feed_pages.messages_page(store, thread_id, **query))

    async def _json(self, read: Callable[[Store], Any]) -> Response:
        """Read and encode in the thread: a large page takes the event loop's time in neither."""
        body = await self._reads(lambda store: msgspec.json.encode(read(store)))
        return Response(body, media_type="application/json")


def _found(answer: _T | None, mark: Mark) -> _T:
    if answer is not None:
        return answer
    detail = "the store has no such run; it may come once the watermark has grown"
    members = {"watermark": mark.seq, "epoch": mark.epoch}
    raise ProblemError(HTTPStatus.NOT_FOUND, detail, members=members)
