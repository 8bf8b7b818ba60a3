"""Settings: one message per bad value, the same rules for the environment and for code."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings, SettingsError
from otel_journal.testing import ScriptedModel, ai

FIELDS = {field.name: field for field in dataclasses.fields(Settings)}
CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
SHARED_CAPTURE = "NO_CONTENT, SPAN_ONLY, EVENT_ONLY or SPAN_AND_EVENT"

GOOD: dict[str, list[tuple[str, object]]] = {
    "semconv": [("1.41", "1.41"), ("BOTH", "both")],
    "spans": [("all", "all"), ("None", "none")],
    "metrics": [("false", False), ("OFF", False), ("0", False), ("no", False)],
    "capture_content": [("true", True), ("1", True), ("Yes", True), ("on", True)],
    "span_attributes": [("gen_ai.*, langgraph.node", "gen_ai.*,langgraph.node")],
    "durability": [("sync", "sync"), ("SYNC", "sync")],
    "export": [("sidecar", "sidecar"), ("SideCar", "sidecar")],
    "max_content_chars": [("64", 64), ("10000000", 10_000_000)],
    "track_token_usage": [("false", False)],
    "propagate": [("false", False)],
    "store": [
        ("memory:", "memory:"),
        ("sqlite:///j.db", "sqlite:///j.db"),
        ("postgresql://h/d", "postgresql://h/d"),
    ],
    "max_label_values": [("1", 1), ("100000", 100_000)],
    "max_open_operations": [("16", 16), ("10000000", 10_000_000)],
    "max_operation_age": [("0.1", 0.1), ("2592000", 2_592_000.0)],
    "max_remembered": [("16", 16), ("10000000", 10_000_000)],
    "max_summaries": [("1", 1), ("1000000", 1_000_000)],
    "grace": [("0", 0.0), ("1.5", 1.5), ("600", 600.0)],
    "queue_size": [("16", 16), ("10000000", 10_000_000)],
    "linger": [("0", 0.0), ("10", 10.0)],
    "shutdown_timeout": [("0", 0.0), ("600", 600.0)],
    "disabled": [("true", True)],
}
"""Setting -> texts that are allowed (bounds included) and what they mean."""

BAD: dict[str, list[str]] = {
    "semconv": ["0.2", "latest"],
    "spans": ["some"],
    "metrics": ["maybe", "2"],
    "capture_content": ["SPAN_ONLY", "y"],
    "span_attributes": ["a b", "*x", "gen_ai.*x"],
    "durability": ["full", "true"],
    "export": ["otlp", "both"],
    "max_content_chars": ["63", "10000001", "1e3", "many"],
    "track_token_usage": ["never"],
    "propagate": ["w3c"],
    "store": ["memory", "journal.db", "sqlite://j.db", "mysql://h/d"],
    "max_label_values": ["0", "100001", "-1"],
    "max_open_operations": ["15", "10000001", "16.5"],
    "max_operation_age": ["0.05", "2592001", "nan", "1h"],
    "max_remembered": ["15", "10000001"],
    "max_summaries": ["0", "1000001"],
    "grace": ["-0.1", "601", "inf", "nan"],
    "queue_size": ["15", "10000001"],
    "linger": ["-1", "10.1"],
    "shutdown_timeout": ["-1", "601"],
    "disabled": ["disabled"],
}
"""Setting -> texts that are not allowed."""


def rows(table: dict[str, list[Any]]) -> list[Any]:
    """Return one test parameter per value of a table."""
    return [
        pytest.param(name, value, id=f"{name}={value}")
        for name, values in table.items()
        for value in values
    ]


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"OTEL_JOURNAL_{name.upper()}"


class TestTables:
    """The tables of this module know every setting."""

    def test_every_setting_has_rows(self):
        """A new setting needs good and bad values here."""
        assert set(GOOD) == set(BAD) == set(FIELDS)


class TestFromEnvironment:
    """`Settings.from_env`."""

    def test_an_empty_environment_gives_the_defaults(self):
        """Nothing set means the documented defaults."""
        assert Settings.from_env({}) == Settings()

    def test_the_process_environment_is_the_default(self, monkeypatch):
        """Without a mapping the environment of the process is read."""
        monkeypatch.setenv("OTEL_JOURNAL_LINGER", "0.5")
        assert Settings.from_env().linger == 0.5

    @pytest.mark.parametrize(("name", "row"), rows(GOOD))
    def test_an_allowed_value_is_taken(self, name, row):
        """Allowed texts, bounds included and in any case, become values of the right type."""
        text, value = row
        settings = Settings.from_env({variable(name): text})
        assert settings == Settings(**{name: value})
        assert type(getattr(settings, name)) is type(value)

    @pytest.mark.parametrize(("name", "text"), rows(BAD))
    def test_a_bad_value_gets_one_message(self, name, text):
        """The message names variable, value and what is allowed, in one line."""
        with pytest.raises(SettingsError) as caught:
            Settings.from_env({variable(name): text})
        allowed = FIELDS[name].metadata["allowed"]
        assert str(caught.value) == (
            f"{variable(name)}={text!r} is not allowed; allowed: {allowed}"
        )
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__

    @pytest.mark.parametrize("name", FIELDS)
    @pytest.mark.parametrize("text", ["", "  "])
    def test_an_empty_value_counts_as_unset(self, name, text):
        """As everywhere in OpenTelemetry, empty is unset."""
        assert Settings.from_env({variable(name): text}) == Settings()

    def test_spaces_around_a_value_do_not_matter(self):
        """A value copied with spaces is the same value."""
        assert Settings.from_env({"OTEL_JOURNAL_LINGER": " 0.5 "}).linger == 0.5

    def test_an_unknown_variable_of_our_prefix_is_refused(self):
        """A typing error is told, with the names that exist."""
        with pytest.raises(SettingsError) as caught:
            Settings.from_env({"OTEL_JOURNAL_LINGR": "1"})
        message = str(caught.value)
        assert message.startswith("OTEL_JOURNAL_LINGR is not a setting of otel-journal; known: ")
        assert all(variable(name) in message for name in FIELDS)

    def test_variables_of_others_are_left_alone(self):
        """OTEL_* belongs to the SDK, whatever it says."""
        environment = {"OTEL_TRACES_EXPORTER": "nonsense", "PATH": "/bin"}
        assert Settings.from_env(environment) == Settings()


class TestSharedVariables:
    """The two variables that are not ours."""

    @pytest.mark.parametrize(
        ("text", "captured"),
        [
            ("NO_CONTENT", False),
            ("SPAN_ONLY", True),
            ("span_only", True),
            ("EVENT_ONLY", False),
            ("SPAN_AND_EVENT", True),
            ("", False),
        ],
    )
    def test_the_shared_switch_captures_content(self, text, captured):
        """Content goes on spans when the shared switch says spans."""
        assert Settings.from_env({CAPTURE: text}).capture_content is captured

    @pytest.mark.parametrize("text", ["true", "yes", "SPANS"])
    def test_a_bad_shared_switch_gets_the_same_message(self, text):
        """The message names the shared variable and its own values."""
        with pytest.raises(SettingsError) as caught:
            Settings.from_env({CAPTURE: text})
        assert str(caught.value) == f"{CAPTURE}={text!r} is not allowed; allowed: {SHARED_CAPTURE}"

    @pytest.mark.parametrize(
        ("shared", "ours", "captured"),
        [("SPAN_ONLY", "false", False), ("NO_CONTENT", "true", True), ("SPAN_ONLY", "", True)],
    )
    def test_ours_wins_over_the_shared_switch(self, shared, ours, captured):
        """OTEL_JOURNAL_CAPTURE_CONTENT decides when it is set; empty is not set."""
        environment = {"OTEL_JOURNAL_CAPTURE_CONTENT": ours, CAPTURE: shared}
        assert Settings.from_env(environment).capture_content is captured

    @pytest.mark.parametrize(
        ("shared", "ours", "disabled"),
        [("true", None, True), ("TRUE", None, True), ("false", None, False), ("", None, False),
         ("true", "false", False), ("false", "true", True), ("true", "", True)],
    )  # fmt: skip
    def test_the_sdk_switch_disables_unless_ours_says_otherwise(self, shared, ours, disabled):
        """OTEL_SDK_DISABLED=true switches the journal off too; OTEL_JOURNAL_DISABLED wins."""
        environment = {"OTEL_SDK_DISABLED": shared}
        if ours is not None:
            environment["OTEL_JOURNAL_DISABLED"] = ours
        assert Settings.from_env(environment).disabled is disabled


class TestFromCode:
    """Values given in code."""

    @pytest.mark.parametrize(("name", "row"), rows(GOOD))
    def test_an_allowed_value_is_taken(self, name, row):
        """What the environment may say, code may say."""
        assert getattr(Settings(**{name: row[1]}), name) == row[1]

    @pytest.mark.parametrize(("name", "text"), rows(BAD))
    def test_a_bad_value_gets_one_message(self, name, text):
        """The same rules and words; the message names the field."""
        with pytest.raises(SettingsError) as caught:
            Settings(**{name: text})
        allowed = FIELDS[name].metadata["allowed"]
        assert str(caught.value) == f"{name}={text!r} is not allowed; allowed: {allowed}"

    def test_settings_are_frozen(self):
        """What was checked cannot change any more."""
        with pytest.raises(dataclasses.FrozenInstanceError):
            Settings().linger = 1.0  # type: ignore[misc]

    def test_settings_are_keyword_only(self):
        """The order of the fields is no interface."""
        with pytest.raises(TypeError):
            Settings("0.1")  # type: ignore[call-arg]

    @pytest.mark.parametrize("name", FIELDS)
    def test_every_setting_is_documented(self, name):
        """README and messages are made from the metadata of each field."""
        assert FIELDS[name].metadata["doc"].endswith(".")
        assert FIELDS[name].metadata["allowed"]


class TestDisabled:
    """OTEL_SDK_DISABLED and OTEL_JOURNAL_DISABLED."""

    @pytest.mark.parametrize("switch", ["OTEL_SDK_DISABLED", "OTEL_JOURNAL_DISABLED"])
    def test_a_disabled_journal_records_nothing(self, switch, monkeypatch, caplog):
        """The agent runs as ever; there are no spans, no series and no summary, and a log line."""
        monkeypatch.setenv(switch, "true")
        spans, registry = InMemorySpanExporter(), CollectorRegistry()
        with (
            caplog.at_level(logging.INFO, logger="otel_journal"),
            Journal(tracer_provider=TracerProvider(shutdown_on_exit=False), registry=registry)
            as journal,
        ):  # fmt: skip
            handler = journal.handler(run_id="r1")
            answer = ScriptedModel(script=[ai("hi")]).invoke("q", {"callbacks": [handler]})
            assert journal.flush()
        assert answer.text == "hi"
        assert not spans.get_finished_spans()
        assert not list(registry.collect())
        assert journal.summary("r1") is None
        assert "disabled" in caplog.text
