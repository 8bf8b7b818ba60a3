"""The answer to a commit is lost on the way: a cable that the test cuts at that moment."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from otel_journal.store.postgres import PostgresStore
from otel_journal.testing.stores_samples import fact, facts, unnumbered


class Cable:
    """Forwards TCP to a server; cut once at the next commit, before or after it arrives."""

    def __init__(self, host: str, port: int) -> None:
        """Listen on a free port of loopback."""
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut_commit: str | None = None
        """``before``: the commit does not arrive. ``after``: its answer does not."""
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        """Stop listening; connections end with their clients."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._forward, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _forward(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            answers = threading.Thread(target=self._answer, args=(server, client))
            answers.start()
            while data := _receive(client):
                cut = self.cut_commit if b"COMMIT\0" in data else None
                if cut is not None:
                    self.cut_commit = None
                    _shut(client)  # answers go nowhere from here on
                if cut != "before":
                    server.sendall(data)
                if cut is not None:
                    break
            # The server reads what was sent before it sees the end.
            server.shutdown(socket.SHUT_WR)
            answers.join()

    @staticmethod
    def _answer(server: socket.socket, client: socket.socket) -> None:
        while data := _receive(server):
            _send(client, data)
        _shut(client)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _send(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except OSError:
        return  # cut: nobody waits for it


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the other side was faster


@pytest.fixture
def cable(url: str) -> Iterator[Cable]:
    """Provide a cable to the server."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    cable = Cable(parts.hostname, parts.port)
    yield cable
    cable.close()


@pytest.fixture
def behind(url: str, cable: Cable) -> Iterator[PostgresStore]:
    """Provide a store behind the cable."""
    store = PostgresStore(url.replace(f":{urlsplit(url).port}/", f":{cable.port}/"), patience=60)
    yield store
    store.close()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_append_returns_what_it_wrote(behind: PostgresStore, cable: Cable, moment: str) -> None:
    """What was known before is not new, the rest is, whatever became of the first try."""
    known = behind.append(facts(2))
    cable.cut_commit = moment
    new = behind.append([*facts(2), fact("a"), fact("b"), fact("a")])
    assert cable.cut_commit is None
    assert unnumbered(new) == [fact("a"), fact("b")]
    assert behind.read() == [*known, *new]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_put_if_absent_says_that_it_wrote(behind: PostgresStore, cable: Cable, moment: str) -> None:
    """Also when the second try finds what the first one had written."""
    cable.cut_commit = moment
    event, created = behind.put_if_absent(fact("end", "run.end"))
    assert cable.cut_commit is None
    assert created
    assert behind.read() == [event]
    assert behind.put_if_absent(fact("other", "run.end")) == (event, False)
