"""Settings of the sidecar, checked before anything opens: command line over environment over file.

The OTLP endpoint is that of OpenTelemetry's own variables, ``OTEL_EXPORTER_OTLP_*``, in the
environment or in the file's table ``[otlp]`` under the same names in lower case, without prefix.
What shapes spans and series (`SHARED`) is shared with the application's settings.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from otel_journal.errors import SettingsError
from otel_journal.setting_fields import (
    BOOLEAN,
    boolean,
    check,
    choice,
    integer,
    parsed,
    seconds,
    setting,
)
from otel_journal.settings import PREFIX, SIDECAR_PREFIX, Settings

from .shard import Shard

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib  # type: ignore[import-not-found,no-redef]

if TYPE_CHECKING:
    from collections.abc import Mapping

OTLP_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
"""Variables of OpenTelemetry that say where spans go."""

SHARED: Final = ("semconv", "span_attributes", "capture_content", "max_label_values")
"""Settings of the application that the sidecar honours, too: both make the same spans."""

DEFAULT_STATE: Final = "otel-journal-sidecar.db"
"""State file of a sidecar whose journal is no file that it could stand beside."""
STATE_SUFFIX: Final = ".sidecar"
"""Ending of the state file beside a SQLite journal."""

_SQLITE: Final = "sqlite:///"
_MAX_PORT: Final = 65_535
_LISTEN: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^:\[\]/\s]+):(?P<port>\d{1,5})")
_LISTEN_WORDS: Final = "HOST:PORT, or nothing for no HTTP"
_STORE_WORDS: Final = "sqlite:///PATH or postgresql://USER@HOST/NAME"
_TEMPLATE: Final = "{trace_id}"


def _store(text: str) -> str:
    if text and not text.startswith((_SQLITE, "postgresql://", "postgres://")):
        raise ValueError
    return text


def _listen(text: str) -> str:
    found = _LISTEN.fullmatch(text)
    if text and (found is None or int(found["port"]) > _MAX_PORT):
        raise ValueError
    return text


def _shard(text: str) -> str:
    return text and str(Shard.parse(text))


def _trace_url(text: str) -> str:
    parts = urlsplit(text)
    if text and not (
        parts.scheme in {"http", "https"} and parts.netloc and text.count(_TEMPLATE) == 1
    ):
        raise ValueError
    return text


@dataclass(frozen=True, kw_only=True)
class SidecarSettings:
    """Everything about the sidecar that can be configured.

    In the environment the names are in upper case behind ``OTEL_JOURNAL_SIDECAR_``, in the file's
    table ``[sidecar]`` in lower case.
    """

    store: str = setting(
        "",
        "URL of the journal to read. Default: OTEL_JOURNAL_STORE.",
        _store,
        _STORE_WORDS,
    )
    state: str = setting(
        "",
        "The sidecar's own file: how far it is, totals, dead letters. Default: beside a SQLite "
        f"journal, with the ending {STATE_SUFFIX}, else {DEFAULT_STATE}.",
        str,
        "a path",
    )
    listen: str = setting(
        "127.0.0.1:9465",
        "Where HTTP is served; empty: nowhere.",
        _listen,
        _LISTEN_WORDS,
    )
    token: str = setting(
        "",
        "Bearer token that guards everything but /healthz and /readyz.",
        str,
        "any text",
    )
    allow_public: bool = setting(
        False,
        "Serve on an address other than loopback without a token.",
        boolean,
        BOOLEAN,
    )
    open_metrics: bool = setting(False, "Serve /metrics without the token.", boolean, BOOLEAN)
    trace_url: str = setting(
        "",
        "Link from a run to its trace, e.g. http://localhost:16686/trace/{trace_id}.",
        _trace_url,
        "an http or https URL with {trace_id} in it",
    )
    shard: str = setting(
        "",
        "i/n: read the share i of n sidecars, from 0/n to (n-1)/n.",
        _shard,
        "i/n with 0 <= i < n <= 64",
    )
    dead_after: float = setting(
        30.0,
        "Seconds without a sign of life after which the open operations of a process are closed "
        "as unknown; processes give one every 5 s.",
        seconds(10.0, 86_400.0),
        "seconds from 10 to 86400",
    )
    max_request_spans: int = setting(
        2_000, "Most spans in one OTLP request.", integer(1, 100_000), "an integer from 1 to 100000"
    )
    max_request_bytes: int = setting(
        3_500_000,
        "Largest OTLP request before compression; collectors take 4 MiB over gRPC.",
        integer(10_000, 1_000_000_000),
        "an integer from 10000 to 1000000000",
    )
    drain_timeout: float = setting(
        10.0,
        "Seconds that sending what is there may take after SIGTERM.",
        seconds(0.0, 3_600.0),
        "seconds from 0 to 3600",
    )
    log_format: str = setting("text", "How log lines look.", choice("text", "json"), "text or json")

    def __post_init__(self) -> None:
        """Check values given in code by the same rules as those from the environment.

        Raises:
            SettingsError: a value is not allowed.
        """
        check(self)

    @property
    def state_path(self) -> Path:
        """Where the state file is."""
        if self.state:
            return Path(self.state)
        if self.store.startswith(_SQLITE):
            return Path(unquote(urlsplit(self.store).path)[1:] + STATE_SUFFIX)
        return Path(DEFAULT_STATE)

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port to listen on; None: nowhere."""
        found = _LISTEN.fullmatch(self.listen)
        return (found["host"].strip("[]"), int(found["port"])) if found else None


@dataclass(frozen=True)
class Configuration:
    """What one sidecar does, read once; a reload reads another one."""

    sidecar: SidecarSettings
    shared: Settings
    """The application's settings; only `SHARED` is read."""
    otlp: Mapping[str, str]
    """Variables that say where spans go."""


def read(
    environ: Mapping[str, str],
    file: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
) -> Configuration:
    """Read everything; `given` are settings of the command line, None for those that are not.

    Raises:
        SettingsError: a value is not allowed, a name is not known, the file cannot be read, or no
            journal is named.
    """
    tables = _tables(file)
    values = _from_file(tables.get("sidecar", {}), file)
    values.update(_from_environment(environ))
    values.update({name: value for name, value in (given or {}).items() if value is not None})
    own = {name: text for name, text in environ.items() if not name.startswith(SIDECAR_PREFIX)}
    shared = Settings.from_env(own)
    settings = SidecarSettings(**{"store": shared.store, **values})
    if not settings.store:
        msg = f"no journal to read: set {PREFIX}STORE, or --store; allowed: {_STORE_WORDS}"
        raise SettingsError(msg)
    named = {OTLP_PREFIX + name.upper(): str(v) for name, v in tables.get("otlp", {}).items()}
    asked = {name: text for name, text in environ.items() if name.startswith(OTLP_PREFIX)}
    return Configuration(settings, shared, {**named, **asked})


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    fields = {SIDECAR_PREFIX + f.name.upper(): f for f in dataclasses.fields(SidecarSettings)}
    values: dict[str, Any] = {}
    for variable in (name for name in environ if name.startswith(SIDECAR_PREFIX)):
        field = fields.get(variable)
        if field is None:
            msg = f"{variable} is not a setting of the sidecar; known: {', '.join(sorted(fields))}"
            raise SettingsError(msg)
        if text := environ[variable].strip():
            values[field.name] = parsed(variable, text, field)
    return values


def _tables(file: str | Path | None) -> dict[str, dict[str, Any]]:
    if file is None:
        return {}
    try:
        found = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        msg = f"settings file {str(file)!r}: {error.strerror}"
        raise SettingsError(msg) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        msg = f"settings file {str(file)!r}: {error}"
        raise SettingsError(msg) from error
    for name, table in found.items():
        if name not in {"sidecar", "otlp"} or not isinstance(table, dict):
            where = f"settings file {str(file)!r}: {name!r}"
            msg = f"{where} is not allowed; allowed: the tables [sidecar] and [otlp]"
            raise SettingsError(msg)
    return found


def _from_file(table: Mapping[str, Any], file: str | Path | None) -> dict[str, Any]:
    fields = {field.name: field for field in dataclasses.fields(SidecarSettings)}
    values: dict[str, Any] = {}
    for name, value in table.items():
        where = f"settings file {str(file)!r}: [sidecar] {name}"
        if name not in fields:
            msg = f"{where} is not a setting of the sidecar; known: {', '.join(sorted(fields))}"
            raise SettingsError(msg)
        values[name] = parsed(where, str(value), fields[name])
    return values
