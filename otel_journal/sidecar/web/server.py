"""uvicorn, taught that a stream has no end of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    import socket

    from .streams import Streams


class WebServer(uvicorn.Server):
    """A server that ends the streams when it begins to shut down.

    uvicorn waits for open connections before it tells the application; a stream would keep it
    waiting for ever.
    """

    def __init__(self, config: uvicorn.Config, streams: Streams) -> None:
        """Serve the application of `config`, whose streams are `streams`."""
        super().__init__(config)
        self._streams = streams

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then everything else."""
        self._streams.close()
        await super().shutdown(sockets)
