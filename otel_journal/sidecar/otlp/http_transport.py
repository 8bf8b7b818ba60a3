"""OTLP over HTTP: protobuf bodies, one kept-alive connection, no redirects."""

from __future__ import annotations

import gzip
import http.client
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from otel_journal.exposition import installed_version

from .replies import PROTOBUF, Reply, failure_reply, http_reply

if TYPE_CHECKING:
    from .endpoint import Endpoint

GZIP_LEVEL: Final = 1
"""The cheapest: spans are repetitive, and higher levels win little for several times the time."""

LONGEST_REPLY: Final = 65_536
"""Bytes read of a reply's body; a sound one has a few dozen."""

_STALE: Final = (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected)
"""How a kept-alive connection shows that the server closed it while it was idle."""


class HttpTransport:
    """Sends requests to one URL; see `transport.Transport`."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        url = urlsplit(endpoint.url)
        self._host, self._port = url.hostname or "", url.port
        self._target = f"{url.path or '/'}{'?' if url.query else ''}{url.query}"
        self._gzip = endpoint.compression == "gzip"
        self._headers = {
            "User-Agent": f"otel-journal/{installed_version()}",
            **{name.title(): value for name, value in endpoint.headers},
            "Content-Type": PROTOBUF,
            **({"Content-Encoding": "gzip"} if self._gzip else {}),
        }
        self._connection: http.client.HTTPConnection | None = None
        self._sending = threading.Lock()
        self._closed = False

    def send(self, body: bytes) -> Reply:
        """Post one request. Never raises."""
        payload = gzip.compress(body, GZIP_LEVEL, mtime=0) if self._gzip else body
        with self._sending:
            reply = self._send(payload)
            if reply.verdict in {"retry", "held"}:
                self._drop()
            return reply

    def close(self) -> None:
        """Close the connection for good; a request under way ends early."""
        self._closed = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):  # it may be closed already
                # On the plain socket: the TLS layer belongs to the thread that sends.
                socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)
        with self._sending:
            self._drop()

    def _send(self, payload: bytes) -> Reply:
        reused = self._connection is not None and self._connection.sock is not None
        try:
            return self._exchange(payload)
        except _STALE as error:
            self._drop()
            if not reused:
                return failure_reply(error)
        except (OSError, http.client.HTTPException) as error:
            return failure_reply(error)
        try:  # the server closed the idle connection: that is no failure of the request
            return self._exchange(payload)
        except (OSError, http.client.HTTPException) as error:
            return failure_reply(error)

    def _exchange(self, payload: bytes) -> Reply:
        if self._closed:
            return Reply("retry", "connection", "closed")
        if self._connection is None:
            try:
                self._connection = self._new_connection()
            except OSError as error:  # a certificate file: ssl.SSLError is one too
                return Reply("held", "tls", f"certificate files: {error.strerror or error}")
        connection = self._connection
        if connection.sock is None:
            connection.connect()
        with suppress(BrokenPipeError, ConnectionResetError):
            # A server may refuse a large body before it has read it: its answer is there then.
            connection.request("POST", self._target, payload, self._headers)
        response = connection.getresponse()
        body = response.read(LONGEST_REPLY)
        if not response.isclosed():  # more than a collector ever says
            self._drop()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return http_reply(response.status, headers, body, now=time.time())

    def _new_connection(self) -> http.client.HTTPConnection:
        timeout = self._endpoint.timeout_s
        if self._endpoint.insecure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        context = ssl.create_default_context(cafile=self._endpoint.certificate or None)
        if certificate := self._endpoint.client_certificate:
            context.load_cert_chain(certificate, self._endpoint.client_key or None)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
