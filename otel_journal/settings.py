"""Settings: one frozen value, read once from ``OTEL_JOURNAL_*``.

``OTEL_*`` variables belong to the OpenTelemetry SDK and are read by it, with two exceptions that
decide whether we run at all: ``OTEL_SDK_DISABLED`` and the content-capture switch shared by all
GenAI instrumentations.
"""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .errors import SettingsError
from .setting_fields import BOOLEAN, boolean, check, choice, integer, parsed, seconds, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .semconv import Generation

PREFIX: Final = "OTEL_JOURNAL_"
SIDECAR_PREFIX: Final = PREFIX + "SIDECAR_"
"""What begins so belongs to `sidecar.configuration`."""
CAPTURE_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Shared switch for message content (OpenTelemetry GenAI util): NO_CONTENT, SPAN_ONLY, ..."""
DISABLED_VARIABLE: Final = "OTEL_SDK_DISABLED"

_CAPTURE: Final = {
    "no_content": False,
    "span_only": True,
    "event_only": False,
    "span_and_event": True,
}


def _capture(text: str) -> bool:
    return _CAPTURE[text.lower()]


_ATTRIBUTE: Final = re.compile(r"[A-Za-z_][\w.-]*\*?|\*", re.ASCII)
"""Name of a span attribute, or the beginning of names followed by a star."""


def attribute_names(text: str) -> tuple[str, ...]:
    """Split the value of `Settings.span_attributes`.

    Raises:
        ValueError: a part is no attribute name.
    """
    names = tuple(name for part in text.split(",") if (name := part.strip()))
    if not all(map(_ATTRIBUTE.fullmatch, names)):
        raise ValueError
    return names


def _attributes(text: str) -> str:
    return ",".join(attribute_names(text))


_STORES: Final = ("memory:", "sqlite:///", "postgresql://", "postgres://")


def _store_url(text: str) -> str:
    if not text.startswith(_STORES):
        raise ValueError
    return text


_DAY_S: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that can be configured; the environment gives the same names in upper case."""

    semconv: Generation = setting(
        "0.1",
        "Generation of GenAI names on spans and metrics.",
        choice("0.1", "1.41", "both"),
        "0.1, 1.41 or both",
    )
    spans: str = setting(
        "kept",
        "Which operations become spans: roots, nodes, model, tool and retrieval calls, or all.",
        choice("kept", "all", "none"),
        "kept, all or none",
    )
    metrics: bool = setting(True, "Fold events into Prometheus series.", boolean, BOOLEAN)
    capture_content: bool = setting(
        False,
        "Put prompts, completions, tool arguments and results, queries and exception messages on "
        f"spans and logs. Also set by {CAPTURE_VARIABLE}=SPAN_ONLY or SPAN_AND_EVENT.",
        boolean,
        BOOLEAN,
    )
    span_attributes: str = setting(
        "",
        "Names of the attributes that go onto spans, comma-separated; a name that ends in * stands "
        "for all that begin so. Empty: all. otel_journal.outcome and error.type always stay; "
        "metrics and the feed are not affected.",
        _attributes,
        "attribute names separated by commas, each may end in *",
    )
    max_content_chars: int = setting(
        32_768,
        "Longest content attribute or stored payload, in characters; longer values are cut "
        "inside valid JSON, marked and counted.",
        integer(64, 10_000_000),
        "an integer from 64 to 10000000",
    )
    track_token_usage: bool = setting(
        True, "Count tokens in totals, spans and metrics.", boolean, BOOLEAN
    )
    propagate: bool = setting(
        True,
        "Make nodes, tools and model calls current in the OpenTelemetry context, so that HTTP and "
        "DB spans become their children and provider instrumentations keep quiet.",
        boolean,
        BOOLEAN,
    )
    store: str = setting(
        "",
        "URL of the durable journal: memory:, sqlite:///PATH or postgresql://USER@HOST/NAME. "
        "Empty: none.",
        _store_url,
        "memory:, sqlite:///PATH or postgresql://USER@HOST/NAME",
    )
    durability: str = setting(
        "batch",
        "When events are committed: in groups, some time after the callback (OTEL_JOURNAL_LINGER), "
        "or before the callback returns, which costs the agent that commit.",
        choice("batch", "sync"),
        "batch or sync",
    )
    export: str = setting(
        "inline",
        "Who exports: this process, or a sidecar that reads the store, which then has to be set; "
        "this process only appends to it.",
        choice("inline", "sidecar"),
        "inline or sidecar",
    )
    max_label_values: int = setting(
        100,
        "Distinct values per metric label; further ones are folded into __other__ and counted.",
        integer(1, 100_000),
        "an integer from 1 to 100000",
    )
    max_open_operations: int = setting(
        10_000,
        "Operations open at once; beyond it the oldest is closed as abandoned and counted.",
        integer(16, 10_000_000),
        "an integer from 16 to 10000000",
    )
    max_operation_age: float = setting(
        86_400.0,
        "Seconds after which an operation that never ended is closed as abandoned.",
        seconds(0.1, 30 * _DAY_S),
        "seconds from 0.1 to 2592000",
    )
    max_remembered: int = setting(
        10_000,
        "Ended operations remembered to recognise replays and late children.",
        integer(16, 10_000_000),
        "an integer from 16 to 10000000",
    )
    max_summaries: int = setting(
        1_000,
        "Ended runs whose summary stays available.",
        integer(1, 1_000_000),
        "an integer from 1 to 1000000",
    )
    grace: float = setting(
        2.0,
        "Seconds that late usage may take to reach its span, and a child may outlive its parent "
        "before it is closed.",
        seconds(0.0, 600.0),
        "seconds from 0 to 600",
    )
    queue_size: int = setting(
        65_536,
        "Events waiting for the worker. Payload (feed rows) is dropped from half of it, spans "
        "and counters only when it is full; both are counted.",
        integer(16, 10_000_000),
        "an integer from 16 to 10000000",
    )
    linger: float = setting(
        0.02,
        "Seconds the worker waits for more events before it handles a batch.",
        seconds(0.0, 10.0),
        "seconds from 0 to 10",
    )
    shutdown_timeout: float = setting(
        5.0,
        "Seconds that the flush at interpreter exit may take.",
        seconds(0.0, 600.0),
        "seconds from 0 to 600",
    )
    disabled: bool = setting(
        False,
        f"Record nothing at all. Also set by {DISABLED_VARIABLE}=true.",
        boolean,
        BOOLEAN,
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """Read ``OTEL_JOURNAL_*`` (default: the process environment).

        Empty values count as unset, as everywhere in OpenTelemetry.

        Raises:
            SettingsError: a value is not allowed, or a variable of our prefix is unknown.
        """
        env = os.environ if environ is None else environ
        fields = {PREFIX + f.name.upper(): f for f in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for variable, field in _shared(fields).items():
            if text := env.get(variable, "").strip():
                values[field.name] = _read(variable, text, field)
        for variable in (name for name in env if name.startswith(PREFIX)):
            if variable.startswith(SIDECAR_PREFIX):
                continue
            if variable not in fields:
                known = ", ".join(sorted(fields))
                msg = f"{variable} is not a setting of otel-journal; known: {known}"
                raise SettingsError(msg)
            if text := env[variable].strip():
                values[fields[variable].name] = parsed(variable, text, fields[variable])
        return cls(**values)

    def __post_init__(self) -> None:
        """Check values given in code by the same rules as those from the environment.

        Raises:
            SettingsError: a value is not allowed.
        """
        check(self)


def _shared(fields: Mapping[str, dataclasses.Field[Any]]) -> dict[str, dataclasses.Field[Any]]:
    """Variables that are not ours but set one of our settings; ours win over them."""
    return {
        CAPTURE_VARIABLE: fields[PREFIX + "CAPTURE_CONTENT"],
        DISABLED_VARIABLE: fields[PREFIX + "DISABLED"],
    }


def _read(variable: str, text: str, field: dataclasses.Field[Any]) -> Any:
    if variable == CAPTURE_VARIABLE:
        allowed = "NO_CONTENT, SPAN_ONLY, EVENT_ONLY or SPAN_AND_EVENT"
        return parsed(variable, text, field, _capture, allowed)
    return parsed(variable, text, field)
