"""The application: which path leads where."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Match, Route

from otel_journal.errors import StoreError

from . import problems
from .access import LOGIN_PATH, METRICS_PATH
from .feed_api import FeedApi
from .gate import Gate, LoginApi
from .health import HealthApi
from .metrics_endpoint import MetricsApi
from .openapi import OpenApi
from .store_reads import StoreReads
from .streams import MAX_CLIENTS, Streams
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from prometheus_client import CollectorRegistry
    from starlette.routing import BaseRoute
    from starlette.types import Scope

    from otel_journal.store.protocol import Store

    from .access import Access
    from .health import Health


class IdRoute(Route):
    """A route whose ids may hold any character: a slash comes as ``%2F`` and separates nothing."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match what was sent, and decode the ids afterwards."""
        raw: bytes | None = scope.get("raw_path")
        sent = scope if raw is None else {**scope, "path": raw.decode("latin-1")}
        match, found = super().matches(sent)
        if raw is not None and match is not Match.NONE:
            ids = found["path_params"]
            found["path_params"] = {name: unquote(value) for name, value in ids.items()}
        return match, found


def build_app(  # noqa: PLR0913 - one argument for each part that it joins
    *,
    store: Callable[[], Store],
    health: Health,
    registry: CollectorRegistry,
    access: Access,
    trace_url: str = "",
    pages: Sequence[BaseRoute] = (),
    max_streams: int = MAX_CLIENTS,
) -> Starlette:
    """Return the application; it writes nothing and keeps nothing.

    Its ``state.streams`` is for `server.WebServer`, which ends them before it waits for them.

    Args:
        store: gives the store to read; called in threads, may raise StoreError while it is away.
        health: what the probes say.
        registry: what /metrics shows.
        access: who may read.
        trace_url: where a trace can be looked at, with ``{trace_id}`` in it; empty for nowhere.
        pages: routes for people, which come after those of programs.
        max_streams: most streams at a time.
    """
    reads = StoreReads(store)
    watch = Watch(reads)
    streams = Streams(reads, watch, max_streams)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(watch.run)
            try:
                yield
            finally:
                streams.close()
                group.cancel_scope.cancel()
                reads.close()

    feed = FeedApi(reads, trace_url)
    routes = _routes(feed, streams, HealthApi(health), MetricsApi(registry, health))
    app = Starlette(
        routes=[*routes, Route(LOGIN_PATH, LoginApi(access).login, methods=["POST"]), *pages],
        middleware=[Middleware(Gate, access=access)],
        exception_handlers=_handlers(),
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.reads = reads
    app.state.streams = streams
    app.state.trace_url = trace_url
    return app


def _routes(
    feed: FeedApi, streams: Streams, probes: HealthApi, series: MetricsApi
) -> list[BaseRoute]:
    run, messages = "/v1/runs/{run_id}", "/v1/threads/{thread_id}/messages"
    return [
        Route(METRICS_PATH, series.metrics),
        Route("/healthz", probes.alive),
        Route("/readyz", probes.ready),
        Route("/openapi.json", OpenApi().document),
        Route("/v1/runs", feed.runs),
        IdRoute("/v1/runs/stream", streams.runs),
        IdRoute(run, feed.run),
        IdRoute(f"{run}/events", feed.events),
        IdRoute(f"{run}/events/stream", streams.events),
        IdRoute(messages, feed.messages),
        IdRoute(f"{messages}/stream", streams.messages),
    ]


def _handlers() -> dict[Any, Any]:
    return {
        problems.ProblemError: problems.on_problem,
        StoreError: problems.on_store_error,
        HTTPException: problems.on_http_error,
        Exception: problems.on_failure,
    }
