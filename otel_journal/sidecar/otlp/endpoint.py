"""Where spans are sent: the ``OTEL_EXPORTER_OTLP_*`` variables of OpenTelemetry, read once.

Each variable has a general form and one for traces (``OTEL_EXPORTER_OTLP_TRACES_*``), which wins.
An empty value counts as unset. No message ever shows a header or what a URL may hide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import SplitResult, unquote, urlsplit

from otel_journal.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Protocol: TypeAlias = Literal["http/protobuf", "grpc"]
"""How spans travel."""

Compression: TypeAlias = Literal["gzip", "none"]
"""What is done to a request's body."""

GENERAL: Final = "OTEL_EXPORTER_OTLP_"
"""Prefix of the variables for all signals."""

TRACES: Final = "OTEL_EXPORTER_OTLP_TRACES_"
"""Prefix of the variables for traces; they win over the general ones."""

TRACES_PATH: Final = "v1/traces"
"""Hung below a general endpoint over HTTP; an endpoint for traces is used as it is."""

HTTP_DEFAULT: Final = "http://localhost:4318"
"""Base URL without any variable, over HTTP."""

GRPC_DEFAULT: Final = "http://localhost:4317"
"""Endpoint without any variable, over gRPC."""

DEFAULT_TIMEOUT_S: Final = 10.0
"""Seconds one request may take: the default of OpenTelemetry."""

LONGEST_TIMEOUT_S: Final = 600.0
"""Above it a number is most likely meant in milliseconds, as other languages read it."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e]*", re.ASCII)
_GRPC_NAME: Final = re.compile(r"[0-9a-z_.-]+", re.ASCII)
_OWN_HEADERS: Final = frozenset(
    {"content-type", "content-encoding", "content-length", "transfer-encoding", "host"}
)
"""Headers that describe our own body; another value would make it unreadable."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where and how spans are sent."""

    protocol: Protocol = "http/protobuf"
    url: str = f"{HTTP_DEFAULT}/{TRACES_PATH}"
    """The whole URL over HTTP; ``HOST:PORT`` over gRPC."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Lower-case names and values; often secrets, so never shown."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Seconds one request may take."""
    compression: Compression = "none"
    certificate: str = ""
    """PEM file of the authorities that are trusted; empty: those of the system."""
    client_key: str = ""
    """PEM file of our private key; empty: the one in `client_certificate`, if that is given."""
    client_certificate: str = ""
    """PEM file of our certificate chain, for servers that ask for one."""
    insecure: bool = True
    """True: without TLS."""


class _Value(NamedTuple):
    """A variable that is set."""

    name: str
    text: str

    def refuse(self, allowed: str, *, shown: str | None = None) -> SettingsError:
        text = self.text if shown is None else shown
        return SettingsError(f"{self.name}={text!r} is not allowed; allowed: {allowed}")


def endpoint_from_env(environ: Mapping[str, str]) -> Endpoint:
    """Read the endpoint for traces.

    Raises:
        SettingsError: a value is not allowed, or a file it names cannot be read.
    """
    protocol = cast(
        "Protocol", _choice(environ, "PROTOCOL", ("http/protobuf", "grpc"), "http/protobuf")
    )
    grpc = protocol == "grpc"
    url, insecure = _grpc_target(environ) if grpc else _http_url(environ)
    key, certificate = _file(environ, "CLIENT_KEY"), _file(environ, "CLIENT_CERTIFICATE")
    if key and not certificate:
        msg = f"{GENERAL}CLIENT_KEY is set without {GENERAL}CLIENT_CERTIFICATE; set both"
        raise SettingsError(msg)
    return Endpoint(
        protocol=protocol,
        url=url,
        headers=_headers(environ, grpc=grpc),
        timeout_s=_timeout(environ),
        compression=cast("Compression", _choice(environ, "COMPRESSION", ("gzip", "none"), "none")),
        certificate=_file(environ, "CERTIFICATE"),
        client_key=key,
        client_certificate=certificate,
        insecure=insecure,
    )


def _value(environ: Mapping[str, str], key: str) -> _Value | None:
    for name in (TRACES + key, GENERAL + key):
        if text := environ.get(name, "").strip():
            return _Value(name, text)
    return None


def _choice(environ: Mapping[str, str], key: str, allowed: tuple[str, ...], default: str) -> str:
    value = _value(environ, key)
    if value is None:
        return default
    if value.text.lower() not in allowed:
        raise value.refuse(" or ".join(allowed))
    return value.text.lower()


def _timeout(environ: Mapping[str, str]) -> float:
    value = _value(environ, "TIMEOUT")
    if value is None:
        return DEFAULT_TIMEOUT_S
    try:
        seconds = float(value.text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_TIMEOUT_S:  # NaN fails both comparisons
        allowed = f"seconds (not milliseconds) above 0, up to {LONGEST_TIMEOUT_S:g}"
        raise value.refuse(allowed)
    return seconds


def _file(environ: Mapping[str, str], key: str) -> str:
    value = _value(environ, key)
    if value is None:
        return ""
    try:
        with Path(value.text).open("rb"):
            return value.text
    except OSError as error:
        allowed = f"a PEM file that can be read ({error.strerror})"
        raise value.refuse(allowed) from None


def _http_url(environ: Mapping[str, str]) -> tuple[str, bool]:
    """Return the whole URL, and whether it goes without TLS."""
    value = _value(environ, "ENDPOINT") or _Value(f"{GENERAL}ENDPOINT", HTTP_DEFAULT)
    parts = _split(value, "http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]")
    path = parts.path or "/"
    if value.name.startswith(TRACES):
        return parts._replace(path=path).geturl(), parts.scheme == "http"
    path = path if path.endswith("/") else f"{path}/"
    return parts._replace(path=f"{path}{TRACES_PATH}").geturl(), parts.scheme == "http"


def _grpc_target(environ: Mapping[str, str]) -> tuple[str, bool]:
    """Return ``HOST:PORT``, and whether it goes without TLS; a path has no meaning in gRPC."""
    value = _value(environ, "ENDPOINT") or _Value(f"{GENERAL}ENDPOINT", GRPC_DEFAULT)
    insecure = _choice(environ, "INSECURE", ("true", "false"), "false") == "true"
    bare = "://" not in value.text
    url = f"{'http' if insecure else 'https'}://{value.text}" if bare else value.text
    parts = _split(value._replace(text=url), "HOST:PORT, http://HOST[:PORT] or https://HOST[:PORT]")
    if parts.port is not None:
        return parts.netloc, parts.scheme == "http"
    default = 80 if parts.scheme == "http" else 443
    return f"{parts.netloc.removesuffix(':')}:{default}", parts.scheme == "http"


def _split(value: _Value, allowed: str) -> SplitResult:
    """Split a URL.

    Raises:
        SettingsError: it is none that we can use.
    """
    shown = re.sub(r"//[^/]*@", "//...@", value.text.partition("?")[0])
    try:
        parts = urlsplit(value.text)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # the port is no number, or the brackets of an IPv6 address do not match
        usable = None
    if not usable or not value.text.isascii() or re.search(r"[\s\x00-\x1f]", value.text):
        raise value.refuse(allowed, shown=shown)
    if "@" in parts.netloc:
        what = f"a URL without user and password; they belong in {TRACES}HEADERS"
        raise value.refuse(what, shown=shown)
    return parts._replace(fragment="")


def _headers(environ: Mapping[str, str], *, grpc: bool) -> tuple[tuple[str, str], ...]:
    value = _value(environ, "HEADERS")
    if value is None:
        return ()
    check = _grpc_name if grpc else _http_name
    return tuple(dict(_pairs(value, check)).items())


def _pairs(value: _Value, check: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield names and values of ``name=value,...``; both may be percent-encoded."""
    parts = [part.strip() for part in value.text.split(",")]
    for place, part in enumerate(parts, start=1):
        if not part:
            continue
        raw_name, equals, raw_value = part.partition("=")
        name, text = unquote(raw_name).strip().lower(), unquote(raw_value).strip()
        if not equals or not check(name) or not _HEADER_VALUE.fullmatch(text):
            # Without "=" the part may be a bare secret: name its place, not its text.
            msg = (
                f"{value.name}: entry {place} of {len(parts)} is not allowed; allowed: NAME=VALUE "
                "separated by commas, printable ASCII, other characters percent-encoded, and no "
                "header that describes the body"
            )
            raise SettingsError(msg)
        yield name, text


def _http_name(name: str) -> bool:
    return bool(_HEADER_NAME.fullmatch(name)) and name not in _OWN_HEADERS


def _grpc_name(name: str) -> bool:
    # "grpc-" is reserved, and a "-bin" value would be bytes.
    return (
        bool(_GRPC_NAME.fullmatch(name))
        and name not in _OWN_HEADERS
        and not name.startswith("grpc-")
        and not name.endswith("-bin")
    )
