"""``/metrics``: the registry in the format that the scraper asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

from .problems import not_now

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.requests import Request

    from .health import Health

PATIENCE_S: Final = 10.0
"""Seconds for which a scrape is awaited: Prometheus' own default."""


class MetricsApi:
    """The series of the sidecar."""

    def __init__(self, registry: CollectorRegistry, health: Health) -> None:
        """Expose `registry` once `health` says that its totals are complete."""
        self._registry = registry
        self._health = health

    async def metrics(self, request: Request) -> Response:
        """Answer in OpenMetrics or in Prometheus' text format.

        Raises:
            ProblemError: the totals are not complete yet, or cannot be had in time.
        """
        try:
            with anyio.fail_after(PATIENCE_S):
                return await anyio.to_thread.run_sync(
                    self._exposition, request.headers.get("accept", ""), abandon_on_cancel=True
                )
        except TimeoutError:
            msg = f"the series could not be had within {PATIENCE_S:g} s"
            raise not_now(msg) from None

    def _exposition(self, accept: str) -> Response:
        if not self._health.metrics_ready():
            msg = "the totals have not caught up with the journal yet"
            raise not_now(msg)
        encoder, media_type = choose_encoder(accept)
        headers = {"Content-Type": media_type, "Vary": "Accept"}
        return Response(encoder(self._registry), headers=headers)
