"""The names and signatures that users type, and the hooks that LangChain calls.

Changing a line of the tables here is breaking a promise: it needs a major version.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.callbacks import GraphCallbackHandler
from opentelemetry import context as otel_context
from prometheus_client import REGISTRY, CollectorRegistry

import otel_journal
from otel_journal import (
    Journal,
    JournalError,
    RunJournal,
    RunSummary,
    Settings,
    SettingsError,
    Store,
    StoreError,
    events,
    open_store,
    testing,
)

NAMES = [
    "Journal",
    "JournalError",
    "RunJournal",
    "RunSummary",
    "Settings",
    "SettingsError",
    "Store",
    "StoreError",
    "carry_context",
    "instrument",
    "open_store",
    "patch_thread_pools",
    "uninstrument",
]

SIGNATURES: dict[str, tuple[Any, str]] = {
    "Journal": (
        Journal,
        "(settings=None, *, tracer_provider=None, registry=None, store=None, redact=None)",
    ),
    "Journal.handler": (Journal.handler, "(self, run_id=None, thread_id=None)"),
    "Journal.summary": (Journal.summary, "(self, run_id)"),
    "Journal.tool_call_started": (
        Journal.tool_call_started,
        "(self, run_id, name, arguments=None, call_id=None)",
    ),
    "Journal.tool_call_completed": (
        Journal.tool_call_completed,
        "(self, run_id, name, call_id=None, *, result=None, error=None)",
    ),
    "Journal.annotate": (Journal.annotate, "(self, run_id, tag, **content)"),
    "Journal.record_external_usage": (
        Journal.record_external_usage,
        "(self, run_id, source_id, usage, model=None, caller=None)",
    ),
    "Journal.flush": (Journal.flush, "(self, timeout=5.0)"),
    "Journal.shutdown": (Journal.shutdown, "(self, timeout=5.0)"),
    "RunJournal": (RunJournal, "(journal=None, *, run_id=None, thread_id=None)"),
    "RunSummary.by": (RunSummary.by, "(self, dimension)"),
    "Settings.from_env": (Settings.from_env, "(environ=None)"),
    "open_store": (open_store, "(url, *, read_only=False)"),
    "Store.append": (Store.append, "(self, events)"),
    "Store.read": (Store.read, "(self, after=0, limit=500)"),
    "Store.events": (Store.events, "(self, run_id, types=None, after=0, limit=500)"),
    "Store.messages": (Store.messages, "(self, thread_id, before=None, after=None, limit=50)"),
    "Store.run_messages": (
        Store.run_messages,
        "(self, run_id, before=None, after=None, limit=50)",
    ),
    "Store.count_messages": (Store.count_messages, "(self, thread_id)"),
    "Store.runs": (Store.runs, "(self, before=None, limit=50, thread_id=None)"),
    "Store.put_if_absent": (Store.put_if_absent, "(self, event)"),
    "Store.watermark": (Store.watermark, "(self)"),
    "Store.delete_thread": (Store.delete_thread, "(self, thread_id)"),
    "Store.delete_run": (Store.delete_run, "(self, run_id)"),
    "Store.prune": (Store.prune, "(self, up_to)"),
    "Store.close": (Store.close, "(self)"),
    "testing.ai": (testing.ai, "(text='', *calls, usage=None)"),
    "testing.tool_call": (testing.tool_call, "(name, args, call_id=None)"),
}

SETTINGS: dict[str, Any] = {
    "semconv": "0.1",
    "spans": "kept",
    "metrics": True,
    "capture_content": False,
    "max_content_chars": 32_768,
    "track_token_usage": True,
    "max_label_values": 100,
    "max_open_operations": 10_000,
    "max_operation_age": 86_400.0,
    "max_remembered": 10_000,
    "max_summaries": 1_000,
    "grace": 2.0,
    "queue_size": 65_536,
    "linger": 0.02,
    "shutdown_timeout": 5.0,
    "disabled": False,
    "propagate": True,
    "span_attributes": "",
    "store": "",
    "export": "inline",
    "durability": "batch",
}
"""Name of each setting -> its default. New settings may be added; these stay."""

SUMMARY = (
    "run_id", "thread_id", "trace_id", "outcome", "tokens", "llm_calls", "usage_missing",
    "tool_calls", "messages", "first_human_message", "last_ai_message", "input_tokens",
    "output_tokens", "total_tokens",
)  # fmt: skip

ENVELOPE = (
    "event_id", "seq", "thread_id", "run_id", "event_type", "category", "content", "metadata",
    "created_at", "span", "process",
)  # fmt: skip
"""What every stored event has, as attributes."""


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    """Let no span that another test left current be around this one, nor ours around others."""
    token = otel_context.attach(otel_context.Context())
    yield
    otel_context.detach(token)


def _plain(target: Any) -> str:
    signature = inspect.signature(target)
    parameters = [
        p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()
    ]
    return str(inspect.Signature(parameters))


def test_names() -> None:
    """The package offers exactly these names."""
    assert sorted(otel_journal.__all__) == NAMES
    assert all(hasattr(otel_journal, name) for name in NAMES)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    """Parameters keep their names, order, kinds and defaults."""
    target, expected = SIGNATURES[name]

    assert _plain(target) == expected


@pytest.mark.parametrize("name", SETTINGS)
def test_setting(name: str) -> None:
    """Settings keep their names, defaults and environment variables."""
    assert getattr(Settings(), name) == SETTINGS[name]
    text = str(SETTINGS[name])
    assert (
        getattr(Settings.from_env({f"OTEL_JOURNAL_{name.upper()}": text}), name) == SETTINGS[name]
    )


def test_every_setting_is_in_the_table_and_documented() -> None:
    """A new setting is written down here, and says what it does."""
    assert {field.name for field in dataclasses.fields(Settings)} >= set(SETTINGS)
    for field in dataclasses.fields(Settings):
        assert field.metadata["doc"], field.name
        assert field.name in SETTINGS, f"{field.name} is new: add it"


def test_settings_are_frozen() -> None:
    """One value for the life of a journal."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().grace = 1.0  # type: ignore[misc]


@pytest.mark.parametrize("name", SUMMARY)
def test_summary_field(journal: Journal, name: str) -> None:
    """A summary keeps its fields."""
    journal.tool_call_started("r", "t")
    summary = journal.summary("r")

    assert summary is not None
    assert hasattr(summary, name)


def test_summary_is_frozen_and_unknown_runs_have_none(journal: Journal) -> None:
    """A summary is a copy; there is none of a run nobody saw."""
    journal.tool_call_started("r", "t")
    summary = journal.summary("r")

    assert journal.summary("never") is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.messages = 5  # type: ignore[misc, union-attr]


@pytest.mark.parametrize("name", ENVELOPE)
def test_envelope_field(name: str) -> None:
    """A stored event has the envelope's fields as attributes."""
    store = open_store("memory:")
    event = events.Event("e/0/x", "r", "run.start", "trace", 1_764_500_000_000_000_000, "t")
    (stored,) = store.append([event])

    assert hasattr(stored, name)
    assert stored.seq == 1
    assert stored.created_at == "2025-11-30T10:53:20+00:00"


def test_errors() -> None:
    """One base class for what the journal itself raises."""
    assert issubclass(SettingsError, JournalError)
    assert issubclass(StoreError, JournalError)
    with pytest.raises(StoreError, match="not allowed"):
        open_store("mysql://nowhere")
    with pytest.raises(SettingsError, match="OTEL_JOURNAL_GRACE"):
        Settings.from_env({"OTEL_JOURNAL_GRACE": "long"})
    with pytest.raises(SettingsError, match="OTEL_JOURNAL_GRASE"):
        Settings.from_env({"OTEL_JOURNAL_GRASE": "1"})


def test_parts_in_use(registry: CollectorRegistry) -> None:
    """A journal shows its parts; what is not given is the default."""
    store = open_store("memory:")
    with Journal(Settings(), registry=registry, store=store) as journal:
        assert journal.registry is registry
        assert journal.store is store
        assert journal.settings == Settings()
    with Journal(Settings(metrics=False, spans="none")) as journal:
        assert journal.registry is REGISTRY
        assert journal.store is None


def test_handlers(journal: Journal) -> None:
    """Handlers of a journal are its own; one without a journal uses the process-wide one."""
    handler = journal.handler("r", "t")

    assert isinstance(handler, RunJournal)
    assert handler.journal is journal
    assert (handler.run_id, handler.thread_id) == ("r", "t")


def test_shutdown_may_be_repeated(registry: CollectorRegistry) -> None:
    """A second shutdown is no error, nor is using a journal after it."""
    journal = Journal(Settings(), registry=registry)
    assert journal.shutdown() is True
    assert journal.shutdown() is True
    handler = journal.handler()
    handler.on_custom_event("late", {}, run_id=uuid4())


@pytest.mark.parametrize("tag", ["", "x" * 22])
def test_annotation_tags_are_limited(journal: Journal, tag: str) -> None:
    """A tag has 1 to 21 characters; another one is refused and nothing is kept."""
    with pytest.raises(ValueError, match="1 to 21"):
        journal.annotate("r", tag)


# Hooks --------------------------------------------------------------------------------------

BASES = (BaseCallbackHandler, GraphCallbackHandler)
HOOKS = sorted(
    {name for base in BASES for name in dir(base) if name.startswith("on_")}
    | {name for name in dir(RunJournal) if name.startswith("on_")}
)

UNUSED = {"on_text", "on_retry", "on_agent_action", "on_agent_finish"}
"""Hooks of LangChain that say nothing an operation needs."""


def _base_hook(name: str) -> Any:
    return next((getattr(b, name) for b in reversed(BASES) if hasattr(b, name)), None)


@pytest.mark.parametrize("name", HOOKS)
def test_hook_is_known_to_langchain(name: str) -> None:
    """No hook is misspelt: each exists in LangChain or LangGraph."""
    assert _base_hook(name) is not None


@pytest.mark.parametrize("name", [name for name in HOOKS if name not in UNUSED])
def test_hook_is_implemented(name: str) -> None:
    """Every hook that says something is overridden."""
    assert getattr(RunJournal, name) is not _base_hook(name)


@pytest.mark.parametrize("name", [name for name in HOOKS if name not in UNUSED])
def test_hook_takes_what_langchain_sends(name: str) -> None:
    """Parameters have LangChain's names, kinds and order: it passes some by keyword."""
    base, ours = inspect.signature(_base_hook(name)), inspect.signature(getattr(RunJournal, name))
    for parameter in base.parameters.values():
        mine = ours.parameters.get(parameter.name)
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            assert any(p.kind is parameter.kind for p in ours.parameters.values())
            continue
        assert mine is not None, f"{name} lacks {parameter.name}"
        assert mine.kind is parameter.kind, f"{name}({parameter.name})"
        if parameter.default is not inspect.Parameter.empty:
            assert mine.default == parameter.default, f"{name}({parameter.name})"
    positional = [
        [p.name for p in s.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        for s in (base, ours)
    ]
    assert positional[0] == positional[1]


@pytest.mark.parametrize("name", [name for name in HOOKS if name not in UNUSED])
def test_hook_asks_for_no_more_than_langchain_sends(name: str) -> None:
    """What LangChain does not send has a default."""
    base, ours = inspect.signature(_base_hook(name)), inspect.signature(getattr(RunJournal, name))
    extra = [
        p for p in ours.parameters.values()
        if p.name not in base.parameters and p.kind is not p.VAR_KEYWORD
    ]  # fmt: skip

    assert not [p.name for p in extra if p.default is p.empty]


@pytest.mark.parametrize("name", [name for name in HOOKS if name not in UNUSED])
def test_hook_never_raises(journal: Journal, name: str) -> None:
    """Called with nothing it can use, a hook returns and is counted or ignored."""
    base = inspect.signature(_base_hook(name))
    required = [
        p for p in base.parameters.values()
        if p.name != "self" and p.default is p.empty and p.kind is not p.VAR_KEYWORD
    ]  # fmt: skip
    positional = [None for p in required if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = {p.name: None for p in required if p.kind is p.KEYWORD_ONLY}

    assert getattr(journal.handler(), name)(*positional, **keywords) is None
    journal.flush()


def test_handlers_are_called_in_line_and_never_switched_off() -> None:
    """LangChain must call the handler on its own thread and for every kind of event."""
    handler = RunJournal.__new__(RunJournal)

    assert handler.run_inline is True
    assert handler.raise_error is False
    assert handler.ignore_retry is True


# Types --------------------------------------------------------------------------------------


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_typical_program_type_checks() -> None:
    """A user's program passes mypy in strict mode: the package is typed, and says so."""
    program = Path(__file__).parents[1] / "typing" / "api.py"
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        timeout=110,
    )

    assert done.stdout == ""
    assert done.returncode == 0, done.stderr
