"""Settings of the sidecar: where they come from, which one wins, and what a bad one says."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from otel_journal.errors import SettingsError
from otel_journal.sidecar.configuration import SidecarSettings, read

STORE = {"OTEL_JOURNAL_STORE": "sqlite:////var/j.db"}

GOOD: dict[str, list[tuple[str, object]]] = {
    "store": [("sqlite:///j.db", "sqlite:///j.db"), ("postgresql://h/d", "postgresql://h/d")],
    "state": [("/tmp/state.db", "/tmp/state.db")],  # noqa: S108 - not opened
    "listen": [("0.0.0.0:80", "0.0.0.0:80"), ("[::1]:9465", "[::1]:9465"), ("pod:1", "pod:1")],
    "token": [("secret", "secret")],
    "allow_public": [("true", True)],
    "open_metrics": [("yes", True)],
    "trace_url": [("https://j/trace/{trace_id}", "https://j/trace/{trace_id}")],
    "shard": [("0/4", "0/4"), ("63/64", "63/64")],
    "dead_after": [("10", 10.0), ("86400", 86_400.0)],
    "max_request_spans": [("1", 1), ("100000", 100_000)],
    "max_request_bytes": [("10000", 10_000)],
    "drain_timeout": [("0", 0.0), ("3600", 3_600.0)],
    "log_format": [("JSON", "json")],
}

BAD: dict[str, list[str]] = {
    "store": ["memory:", "j.db", "sqlite://j.db"],
    "listen": ["9465", ":9465", "localhost:", "localhost:65536", "http://localhost:80", "a b:1"],
    "allow_public": ["perhaps"],
    "open_metrics": ["2"],
    "trace_url": ["javascript:{trace_id}", "http://j/trace", "/trace/{trace_id}"],
    "shard": ["4/4", "1", "0/65", "-1/2"],
    "dead_after": ["5", "nan", "86401"],
    "max_request_spans": ["0", "many"],
    "max_request_bytes": ["9999"],
    "drain_timeout": ["-1", "3601"],
    "log_format": ["xml"],
}
FREE = {"state", "token"}
"""Settings that may be any text."""


def rows(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    """Return (name, row) for every row of a table."""
    return [(name, row) for name, listed in table.items() for row in listed]


def variable(name: str) -> str:
    """Return the variable of a setting."""
    return f"OTEL_JOURNAL_SIDECAR_{name.upper()}"


def test_the_tables_are_complete() -> None:
    """Every setting has good and bad values here."""
    names = {field.name for field in dataclasses.fields(SidecarSettings)}

    assert set(GOOD) == names
    assert set(BAD) == names - FREE


@pytest.mark.parametrize(("name", "row"), rows(GOOD))
def test_an_allowed_value_is_taken(tmp_path: Path, name: str, row: tuple[str, object]) -> None:
    """From the environment, from the file and from the command line alike."""
    text, value = row
    file = tmp_path / "sidecar.toml"
    file.write_text(f"[sidecar]\n{name} = '{text}'\n")

    assert getattr(read({**STORE, variable(name): text}).sidecar, name) == value
    assert getattr(read(STORE, file).sidecar, name) == value
    assert getattr(read(STORE, given={name: value}).sidecar, name) == value


@pytest.mark.parametrize(("name", "text"), rows(BAD))
def test_a_bad_value_gets_one_message(tmp_path: Path, name: str, text: str) -> None:
    """The message names the setting as the user wrote it, the value and what is allowed."""
    file = tmp_path / "sidecar.toml"
    file.write_text(f"[sidecar]\n{name} = '{text}'\n")
    (field,) = (f for f in dataclasses.fields(SidecarSettings) if f.name == name)
    said = f"={text!r} is not allowed; allowed: {field.metadata['allowed']}"

    with pytest.raises(SettingsError) as by_environment:
        read({**STORE, variable(name): text})
    with pytest.raises(SettingsError) as by_file:
        read(STORE, file)
    with pytest.raises(SettingsError) as by_code:
        read(STORE, given={name: text})
    assert str(by_environment.value) == variable(name) + said
    assert str(by_file.value) == f"settings file {str(file)!r}: [sidecar] {name}{said}"
    assert str(by_code.value) == name + said


def test_the_nearest_wins(tmp_path: Path) -> None:
    """Command line over environment over file."""
    file = tmp_path / "sidecar.toml"
    file.write_text(
        "[sidecar]\ntoken = 'file'\ndead_after = 60\nlisten = '127.0.0.1:1'\n"
        "[otlp]\nendpoint = 'http://file:4318'\nheaders = 'a=b'\n"
    )
    environ = {
        **STORE,
        variable("dead_after"): "70",
        variable("listen"): "127.0.0.1:2",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://environment:4318",
    }
    found = read(environ, file, {"listen": "127.0.0.1:3", "state": None})

    assert found.sidecar.token == "file"  # noqa: S105 - not a secret
    assert found.sidecar.dead_after == 70.0
    assert found.sidecar.listen == "127.0.0.1:3"
    assert found.otlp == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://environment:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": "a=b",
    }


def test_application_and_sidecar_share_an_environment() -> None:
    """What shapes spans and series is said once."""
    found = read({**STORE, "OTEL_JOURNAL_SEMCONV": "1.41", "OTEL_JOURNAL_CAPTURE_CONTENT": "true"})

    assert found.sidecar.store == "sqlite:////var/j.db"
    assert found.shared.semconv == "1.41"
    assert found.shared.capture_content


@pytest.mark.parametrize(
    ("store", "state", "path"),
    [
        ("sqlite:////var/j.db", "", "/var/j.db.sidecar"),
        ("sqlite:///a%20b.db?synchronous=FULL", "", "a b.db.sidecar"),
        ("postgresql://h/d", "", "otel-journal-sidecar.db"),
        ("postgresql://h/d", "/state/s.db", "/state/s.db"),
    ],
)
def test_where_the_state_is(store: str, state: str, path: str) -> None:
    """Beside the journal, if that is a file."""
    assert SidecarSettings(store=store, state=state).state_path == Path(path)


@pytest.mark.parametrize(
    ("listen", "address"),
    [("", None), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9465", ("::1", 9465))],
)
def test_the_address(listen: str, address: tuple[str, int] | None) -> None:
    """An IPv6 address stands in brackets, a port behind a colon."""
    assert SidecarSettings(store="sqlite:///j.db", listen=listen).address == address


def test_a_journal_must_be_named() -> None:
    """The message says how."""
    with pytest.raises(SettingsError, match="no journal to read: set OTEL_JOURNAL_STORE"):
        read({})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sidecar]\nport = 1\n", "[sidecar] port is not a setting of the sidecar; known: "),
        ("[http]\nport = 1\n", "'http' is not allowed; allowed: the tables [sidecar] and [otlp]"),
        ("sidecar = 1\n", "'sidecar' is not allowed; allowed: "),
        ("[sidecar\n", "line 1"),
        ("\udce4", "codec can't decode"),
    ],
)
def test_a_bad_file_gets_one_message(tmp_path: Path, text: str, said: str) -> None:
    """The message names the file and what is wrong in it."""
    file = tmp_path / "sidecar.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))

    with pytest.raises(SettingsError) as caught:
        read(STORE, file)
    assert str(caught.value).startswith(f"settings file {str(file)!r}: ")
    assert said in str(caught.value)


def test_a_missing_file_and_an_unknown_variable(tmp_path: Path) -> None:
    """Neither is passed over in silence."""
    with pytest.raises(SettingsError, match="No such file"):
        read(STORE, tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="OTEL_JOURNAL_SIDECAR_PORT is not a setting"):
        read({**STORE, "OTEL_JOURNAL_SIDECAR_PORT": "1"})
