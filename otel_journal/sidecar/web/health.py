"""``/healthz`` and ``/readyz``: does the process live, and is it fit to be relied on."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

import anyio
import anyio.to_thread
import msgspec
from starlette.responses import PlainTextResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request

PATIENCE_S: Final = 5.0
"""Seconds for which a probe waits; then the sidecar is not ready."""
LINES: Final = "application/x-ndjson"


class Health(Protocol):
    """What the sidecar knows about its own state; called from threads."""

    def problems(self) -> list[str]:
        """Return why the sidecar is not ready, one reason each; empty when it is."""
        ...

    def metrics_ready(self) -> bool:
        """Return whether the totals hold all that the journal held when the sidecar started.

        Before that they would be taken for counters that were reset.
        """
        ...


class HealthApi:
    """The two probes; no token guards them, so that they say nothing of the feed."""

    def __init__(self, health: Health) -> None:
        """Answer from `health`."""
        self._health = health

    async def alive(self, _request: Request) -> Response:
        """Answer 200 while the event loop runs."""
        return PlainTextResponse("ok\n")

    async def ready(self, _request: Request) -> Response:
        """Answer 200, or 503 with a line of JSON for each reason."""
        reasons = await self._reasons()
        lines = b"".join(msgspec.json.encode({"problem": one}) + b"\n" for one in reasons)
        status = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
        return Response(lines, status, media_type=LINES)

    async def _reasons(self) -> list[str]:
        try:
            with anyio.fail_after(PATIENCE_S):
                return await anyio.to_thread.run_sync(self._health.problems, abandon_on_cancel=True)
        except TimeoutError:
            return [f"the state of the sidecar is not known within {PATIENCE_S:g} s"]
