"""Both transports against real servers: what goes over the wire, and what comes of faults."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from servers.certificates import self_signed
from servers.otlp_sink import Answer, OtlpSink, Tls
from servers.otlp_spans import body, outgoing
from servers.process import free_port

from otel_journal.sidecar.otlp.endpoint import Endpoint, endpoint_from_env
from otel_journal.sidecar.otlp.transport import Transport, connect

PROTOCOLS = ("http/protobuf", "grpc")


def endpoint_of(sink: OtlpSink, protocol: str, **variables: str) -> Endpoint:
    """Return the endpoint of a sink, from the variables a user would set."""
    url = sink.grpc_endpoint if protocol == "grpc" else sink.http_endpoint
    variables = {"PROTOCOL": protocol, "ENDPOINT": url, **variables}
    return endpoint_from_env({f"OTEL_EXPORTER_OTLP_{k}": v for k, v in variables.items()})


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    """A receiver without TLS."""
    with OtlpSink() as running:
        yield running


def _wait_for_requests(sink: OtlpSink, count: int) -> None:
    assert sink.wait_for(lambda s: len(s.requests) >= count)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_spans_arrive_with_headers(sink: OtlpSink, protocol: str, compression: str) -> None:
    """Body, compression, headers and the name of the sender arrive as configured."""
    endpoint = endpoint_of(
        sink, protocol, COMPRESSION=compression, HEADERS="Authorization=Bearer%20x,x-tenant=shop"
    )
    with closing(connect(endpoint)) as transport:
        reply = transport.send(body(outgoing(1, size=5_000), outgoing(2)))
    assert (reply.verdict, reply.reason) == ("accepted", "ok")
    assert [span.name for span in sink.spans] == ["span 1", "span 2"]
    (request,) = sink.requests
    assert request.headers["authorization"] == "Bearer x"
    assert request.headers["x-tenant"] == "shop"
    assert request.headers["user-agent"].startswith("otel-journal/")
    assert request.compressed == (compression == "gzip" and protocol != "grpc")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_partial_success_is_read(sink: OtlpSink, protocol: str) -> None:
    """The number of rejected spans comes back."""
    sink.script(Answer(rejected=2))
    with closing(connect(endpoint_of(sink, protocol))) as transport:
        reply = transport.send(body(outgoing(1), outgoing(2), outgoing(3)))
    assert (reply.verdict, reply.rejected) == ("accepted", 2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nobody_listens(protocol: str) -> None:
    """A refused connection is a reason to wait."""
    endpoint = Endpoint(
        protocol="grpc" if protocol == "grpc" else "http/protobuf",
        url=f"127.0.0.1:{free_port()}" if protocol == "grpc" else f"http://127.0.0.1:{free_port()}",
    )
    with closing(connect(endpoint)) as transport:
        assert transport.send(b"").verdict == "retry"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_answer_ends_by_the_timeout(sink: OtlpSink, protocol: str) -> None:
    """A collector that hangs costs one timeout, and no thread is left over."""
    sink.script(Answer(delay=60.0))
    with closing(connect(endpoint_of(sink, protocol, TIMEOUT="0.3"))) as transport:
        reply = transport.send(body(outgoing(1)))
        assert (reply.verdict, reply.reason) == ("retry", "timeout")
        assert transport.send(body(outgoing(1))).verdict == "accepted"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_close_cuts_a_request_short(sink: OtlpSink, protocol: str) -> None:
    """Whoever stops the sidecar does not wait for a collector that hangs."""
    sink.script(Answer(delay=60.0))
    transport = connect(endpoint_of(sink, protocol, TIMEOUT="60"))
    closer = threading.Thread(target=lambda: (_wait_for_requests(sink, 1), transport.close()))
    closer.start()
    started = time.monotonic()
    assert transport.send(body(outgoing(1))).verdict == "retry"
    assert time.monotonic() - started < 30.0
    closer.join()
    assert transport.send(body(outgoing(1))).verdict == "retry"
    assert len(sink.requests) == 1
    transport.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_is_verified_and_certificates_rotate(tmp_path: Path, protocol: str) -> None:
    """Untrusted is held; a new trust file or a new certificate works without a restart."""
    old, new = self_signed(tmp_path, "old"), self_signed(tmp_path, "new")
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(new.certificate.read_bytes())
    with (
        OtlpSink(tls=old) as sink,
        closing(connect(endpoint_of(sink, protocol, CERTIFICATE=str(trusted)))) as transport,
    ):
        untrusted = transport.send(body(outgoing(1)))
        assert (untrusted.verdict, untrusted.reason) == ("held", "tls")
        sink.tls = new
        assert transport.send(body(outgoing(1))).verdict == "accepted"
        trusted.write_bytes(old.certificate.read_bytes())
        sink.tls = old
        sink.script(Answer(status=503))
        assert transport.send(body(outgoing(2))).verdict == "retry"  # it connects anew after that
        assert transport.send(body(outgoing(2))).verdict == "accepted"
        trusted.unlink()
        sink.script(Answer(status=503))
        assert transport.send(body(outgoing(3))).verdict == "retry"
        missing = transport.send(body(outgoing(3)))
        assert (missing.verdict, missing.reason) == ("held", "tls")
        assert "No such file" in missing.detail
        trusted.write_bytes(old.certificate.read_bytes())
        assert transport.send(body(outgoing(3))).verdict == "accepted"
    assert [span.name for span in sink.spans] == ["span 1", "span 2", "span 3"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_client_certificate(tmp_path: Path, protocol: str) -> None:
    """A server that asks for a certificate gets ours."""
    server, client = self_signed(tmp_path, "server"), self_signed(tmp_path, "client")
    with OtlpSink(tls=Tls(server.certificate, server.key, client.certificate)) as sink:
        trust = {"CERTIFICATE": str(server.certificate)}
        own = {"CLIENT_CERTIFICATE": str(client.certificate), "CLIENT_KEY": str(client.key)}
        with closing(connect(endpoint_of(sink, protocol, **trust, **own))) as transport:
            assert transport.send(body(outgoing(1))).verdict == "accepted"
        with closing(connect(endpoint_of(sink, protocol, **trust))) as transport:
            assert transport.send(body(outgoing(1))).verdict in {"held", "retry"}
    assert len(sink.spans) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_towards_a_server_without_it(sink: OtlpSink, protocol: str) -> None:
    """No TLS where TLS is asked for is for a person to mend."""
    endpoint = endpoint_of(sink, protocol)
    url = endpoint.url.replace("http://", "https://")
    with closing(connect(replace(endpoint, url=url, insecure=False))) as transport:
        reply = transport.send(body(outgoing(1)))
    assert (reply.verdict, reply.reason) == ("held", "tls")


class _Script:
    """A bare TCP server: for each connection it runs the next function of its list."""

    def __init__(self, *scenes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1/traces"
        self._thread = threading.Thread(target=self._run, args=(scenes,))
        self._thread.start()

    def _run(self, scenes) -> None:
        for scene in scenes:
            connection, _ = self._listener.accept()
            with connection:
                scene(connection)

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


def _read_request(connection: socket.socket) -> None:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65_536)
    head, _, rest = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(rest) < length:
        rest += connection.recv(65_536)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def _serve_one(connection: socket.socket) -> None:
    _read_request(connection)
    connection.sendall(OK)


def _serve_two(connection: socket.socket) -> None:
    _serve_one(connection)
    _serve_one(connection)


def test_http_keeps_its_connection_and_renews_an_idle_one() -> None:
    """One connection serves many requests; one that was closed meanwhile is no failure."""
    with (
        closing(_Script(_serve_two, _serve_one)) as server,
        closing(connect(Endpoint(url=server.url))) as transport,
    ):
        replies = [transport.send(b"").verdict for _ in range(3)]
    assert replies == ["accepted"] * 3


def test_http_answer_before_the_body_is_read() -> None:
    """A server that refuses a large body by its size alone is understood."""

    def refuse(connection: socket.socket) -> None:
        connection.recv(1_000)
        connection.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        connection.shutdown(socket.SHUT_RD)  # closed with the body unread: the send fails

    with (
        closing(_Script(refuse)) as server,
        closing(connect(Endpoint(url=server.url))) as transport,
    ):
        assert transport.send(b"x" * 20_000_000).verdict == "too_large"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 2",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
    ],
)
def test_http_answers_that_are_none(answer: bytes) -> None:
    """What is no HTTP answer is a reason to try again, and raises nothing."""

    def scene(connection: socket.socket) -> None:
        _read_request(connection)
        connection.sendall(answer)

    with (
        closing(_Script(scene)) as server,
        closing(connect(Endpoint(url=server.url))) as transport,
    ):
        assert transport.send(b"").verdict == "retry"


def test_http_reply_without_end() -> None:
    """Only the beginning of a long body is read, and the next request is not disturbed by it."""

    def scene(connection: socket.socket) -> None:
        _read_request(connection)
        connection.sendall(b"HTTP/1.1 400 Bad\r\nContent-Length: 999999999\r\n\r\n" + b"n" * 70_000)
        connection.recv(1)  # until the client has had enough

    with (
        closing(_Script(scene, _serve_one)) as server,
        closing(connect(Endpoint(url=server.url))) as transport,
    ):
        assert transport.send(b"").verdict == "refused"
        assert transport.send(b"").verdict == "accepted"


def test_a_redirect_is_never_followed(sink: OtlpSink) -> None:
    """Not even to a place that would take the spans."""
    sink.script(
        *(
            Answer(status=status, location=f"{sink.http_endpoint}/v1/traces")
            for status in (301, 302, 303, 307, 308)
        )
    )
    with closing(connect(endpoint_of(sink, "http/protobuf"))) as transport:
        replies = [transport.send(body(outgoing(1))) for _ in range(5)]
    assert {(reply.verdict, reply.reason) for reply in replies} == {("held", "redirect")}
    assert len(sink.requests) == 5
    assert not sink.spans


def test_both_are_transports() -> None:
    """What `connect` gives has the methods that delivery calls."""
    for protocol in PROTOCOLS:
        transport: Transport = connect(endpoint_from_env({"OTEL_EXPORTER_OTLP_PROTOCOL": protocol}))
        transport.close()
        assert transport.send(b"").detail == "closed"
