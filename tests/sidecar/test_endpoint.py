"""The endpoint from the standard variables of OpenTelemetry."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_journal.errors import SettingsError
from otel_journal.sidecar.otlp.endpoint import Endpoint, endpoint_from_env

GENERAL = "OTEL_EXPORTER_OTLP_"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_"


def _endpoint(**variables: str) -> Endpoint:
    """Read variables without their common prefix."""
    return endpoint_from_env({GENERAL + name: text for name, text in variables.items()})


def test_defaults() -> None:
    """Without any variable spans go to a collector on this machine, over HTTP."""
    assert endpoint_from_env({}) == Endpoint(
        protocol="http/protobuf",
        url="http://localhost:4318/v1/traces",
        headers=(),
        timeout_s=10.0,
        compression="none",
        insecure=True,
    )
    grpc = _endpoint(PROTOCOL="grpc")
    assert (grpc.url, grpc.insecure) == ("localhost:4317", True)


@pytest.mark.parametrize(
    ("variables", "url", "insecure"),
    [
        ({"ENDPOINT": "http://c:4318"}, "http://c:4318/v1/traces", True),
        ({"ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces", True),
        ({"ENDPOINT": "https://c/otlp"}, "https://c/otlp/v1/traces", False),
        ({"ENDPOINT": "https://c/otlp/"}, "https://c/otlp/v1/traces", False),
        ({"ENDPOINT": "https://c/a?k=v#f"}, "https://c/a/v1/traces?k=v", False),
        ({"TRACES_ENDPOINT": "http://t:1"}, "http://t:1/", True),
        ({"TRACES_ENDPOINT": "https://t/x/"}, "https://t/x/", False),
        ({"TRACES_ENDPOINT": "http://t/x", "ENDPOINT": "http://c"}, "http://t/x", True),
        ({"TRACES_ENDPOINT": " ", "ENDPOINT": "http://c"}, "http://c/v1/traces", True),
        ({"ENDPOINT": "http://[::1]:4318"}, "http://[::1]:4318/v1/traces", True),
    ],
)
def test_url_over_http(variables: dict[str, str], url: str, insecure: bool) -> None:  # noqa: FBT001
    """The path is added to the general endpoint only; the one for traces wins as it is."""
    endpoint = _endpoint(**variables)
    assert (endpoint.url, endpoint.insecure) == (url, insecure)


@pytest.mark.parametrize(
    ("variables", "url", "insecure"),
    [
        ({"ENDPOINT": "http://c:4317"}, "c:4317", True),
        ({"ENDPOINT": "https://c:4317/ignored"}, "c:4317", False),
        ({"ENDPOINT": "https://c"}, "c:443", False),
        ({"ENDPOINT": "http://c"}, "c:80", True),
        ({"ENDPOINT": "c:4317"}, "c:4317", False),
        ({"ENDPOINT": "c:4317", "INSECURE": "true"}, "c:4317", True),
        ({"ENDPOINT": "c:4317", "INSECURE": "true", "TRACES_INSECURE": "False"}, "c:4317", False),
        ({"ENDPOINT": "http://c:4317", "INSECURE": "false"}, "c:4317", True),
        ({"ENDPOINT": "https://c:4317", "INSECURE": "true"}, "c:4317", False),
        ({"ENDPOINT": "[::1]:4317", "INSECURE": "true"}, "[::1]:4317", True),
    ],
)
def test_target_over_grpc(variables: dict[str, str], url: str, insecure: bool) -> None:  # noqa: FBT001
    """A scheme decides about TLS; INSECURE only where there is none."""
    endpoint = _endpoint(PROTOCOL="grpc", **variables)
    assert (endpoint.url, endpoint.insecure) == (url, insecure)


def test_other_variables(tmp_path: Path) -> None:
    """Every variable has a form for traces, which wins."""
    for name in ("ca", "key", "own"):
        (tmp_path / name).write_text("pem")
    environ = {
        f"{GENERAL}PROTOCOL": "grpc",
        f"{TRACES}PROTOCOL": "HTTP/protobuf",
        f"{GENERAL}TIMEOUT": "3",
        f"{TRACES}TIMEOUT": "2.5",
        f"{TRACES}COMPRESSION": "gzip",
        f"{GENERAL}HEADERS": "Authorization=Bearer%20a%3Db, x-tenant = shop ,,x-tenant=two",
        f"{GENERAL}CERTIFICATE": str(tmp_path / "ca"),
        f"{GENERAL}CLIENT_KEY": str(tmp_path / "key"),
        f"{TRACES}CLIENT_CERTIFICATE": str(tmp_path / "own"),
    }
    assert endpoint_from_env(environ) == Endpoint(
        headers=(("authorization", "Bearer a=b"), ("x-tenant", "two")),
        timeout_s=2.5,
        compression="gzip",
        certificate=str(tmp_path / "ca"),
        client_key=str(tmp_path / "key"),
        client_certificate=str(tmp_path / "own"),
    )


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("PROTOCOL", "http/json", "http/protobuf or grpc"),
        ("COMPRESSION", "deflate", "gzip or none"),
        ("TIMEOUT", "soon", "seconds"),
        ("TIMEOUT", "0", "seconds"),
        ("TIMEOUT", "nan", "seconds"),
        ("TRACES_TIMEOUT", "10000", "not milliseconds"),
        ("ENDPOINT", "collector", "http://HOST"),
        ("ENDPOINT", "ftp://c", "http://HOST"),
        ("ENDPOINT", "http://", "http://HOST"),
        ("ENDPOINT", "http://c:port", "http://HOST"),
        ("ENDPOINT", "http://c:99999", "http://HOST"),
        ("ENDPOINT", "http://c/with space", "http://HOST"),
        ("TRACES_ENDPOINT", "http://[::1", "http://HOST"),
        ("CERTIFICATE", "/not/there.pem", "a PEM file that can be read"),
    ],
)
def test_values_that_are_not_allowed(variable: str, text: str, allowed: str) -> None:
    """One message names the variable, the value and what is allowed."""
    with pytest.raises(SettingsError) as caught:
        _endpoint(**{variable: text})
    message = str(caught.value)
    assert message.startswith(f"{GENERAL}{variable}={text!r} is not allowed; allowed: ")
    assert allowed in message


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize(
    "text",
    [
        "hush",
        "a=b,hush",
        "=hush",
        "na me=hush",
        "k=hush%0d%0aother: header",
        "k=hush\N{BULLET}",
        "Content-Type=hush",
        "n%C3%A4me=hush",
    ],
)
def test_headers_that_are_not_allowed_are_never_shown(protocol: str, text: str) -> None:
    """The message names the entry by its place: without a name it may be a bare secret."""
    with pytest.raises(SettingsError, match=r"HEADERS: entry \d of \d is not allowed") as caught:
        _endpoint(PROTOCOL=protocol, HEADERS=text)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["grpc-timeout", "trace-bin", "a!b"])
def test_names_that_grpc_keeps_for_itself(name: str) -> None:
    """What gRPC would refuse at the first request is refused at the start."""
    assert _endpoint(HEADERS=f"{name}=v").headers == ((name, "v"),)
    with pytest.raises(SettingsError, match="entry 1 of 1"):
        _endpoint(PROTOCOL="grpc", HEADERS=f"{name}=v")


def test_a_password_in_the_url_is_refused_and_not_shown() -> None:
    """Neither in the message nor in what a debugger prints of an endpoint."""
    with pytest.raises(SettingsError, match=r"//\.\.\.@c' is not allowed") as caught:
        _endpoint(ENDPOINT="http://me:hush@c?token=hush")
    assert "hush" not in str(caught.value)
    assert "hush" not in repr(_endpoint(HEADERS="k=hush"))


def test_a_key_needs_its_certificate(tmp_path: Path) -> None:
    """A private key alone is of no use, so it is a mistake."""
    (tmp_path / "key").write_text("pem")
    with pytest.raises(SettingsError, match=r"CLIENT_KEY is set without .*CLIENT_CERTIFICATE"):
        _endpoint(CLIENT_KEY=str(tmp_path / "key"))
