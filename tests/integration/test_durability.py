"""`Settings.durability`: with ``sync`` what a callback told is committed when it returns."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManager
from prometheus_client import CollectorRegistry
from servers.programs import APPS

from otel_journal import Journal, Settings, SettingsError, StoreError, open_store
from otel_journal.events import Event
from otel_journal.store import MemoryStore
from otel_journal.testing import ScriptedModel, ai

SYNC = Settings(durability="sync", linger=10.0)
"""With a linger that no test would sit out: what is committed was committed on purpose."""


@pytest.mark.parametrize("way", ["sync", "async"])
def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path, way: str) -> None:
    """SIGKILL the moment a tool runs: its start, and all before, are in the journal."""
    url = f"sqlite:///{tmp_path}/journal.db"
    said = []
    for kills in range(1, 6):
        command = [sys.executable, APPS / "committing.py", url, way]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
            assert process.stdout is not None
            for _ in range(kills):
                last = process.stdout.readline()
            process.kill()
        said.append(f"call-{int(last)}")
    store = open_store(url)
    started = [e for e in store.read(limit=10_000) if e.event_type == "tool_call.started"]
    store.close()

    told = [event.content["call_id"] for event in started]
    for call in set(said):
        assert told.count(call) >= said.count(call)
    assert len(told) >= 1 + 2 + 3 + 4 + 5


def record(journal: Journal, question: str = "hi") -> None:
    """Make one model call."""
    ScriptedModel(script=[ai("yes")]).invoke(question, {"callbacks": [journal.handler()]})


def test_a_callback_returns_after_its_commit(tmp_path: Path) -> None:
    """Another connection sees the start while the call goes on."""
    url = f"sqlite:///{tmp_path}/journal.db"
    store, other = open_store(url), open_store(url)
    with Journal(SYNC, store=store, registry=CollectorRegistry()) as journal:
        manager = CallbackManager([journal.handler()])
        run = manager.on_chain_start({"name": "x"}, {})
        assert "run.start" in {event.event_type for event in other.read()}
        run.on_chain_end({})
        assert "run.end" in {event.event_type for event in other.read()}
    store.close()
    other.close()


class _Hanging(MemoryStore):
    """A store that can be made to hang, or to be away."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.free.set()
        self.away = False

    def append(self, events: Sequence[Event]) -> list[Event]:
        self.free.wait(30)
        if self.away:
            msg = "away"
            raise StoreError(msg)
        return super().append(events)


def test_a_store_that_is_away_is_not_waited_for() -> None:
    """The agent goes on at once, and what it did is committed later."""
    store = _Hanging()
    store.away = True
    journal = Journal(SYNC, store=store, registry=CollectorRegistry())
    record(journal)  # finds out
    began = time.monotonic()
    for _ in range(20):
        record(journal)
    assert time.monotonic() - began < 5
    store.away = False
    assert journal.flush()
    assert len([e for e in store.read(limit=1_000) if e.event_type == "llm.end"]) == 21
    journal.shutdown()


def test_a_store_that_hangs_holds_up_a_callback_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted, said once, and the agent's result is what it would have been."""
    monkeypatch.setattr("otel_journal.recorder.COMMIT_WAIT_S", 0.2)
    store = _Hanging()
    registry = CollectorRegistry()
    journal = Journal(SYNC, store=store, registry=registry)
    record(journal)
    store.free.clear()
    record(journal)
    store.free.set()
    assert journal.flush()

    assert registry.get_sample_value("otel_journal_handler_errors_total") > 0
    assert caplog.text.count("commit failed") == 1
    journal.shutdown()


def test_a_finalizer_inside_our_own_code_waits_for_nobody() -> None:
    """A stream that is given up ends by the garbage collector, wherever that runs."""
    store = MemoryStore()
    journal = Journal(SYNC, store=store, registry=CollectorRegistry())
    streams: list[Any] = []

    def give_up() -> None:
        stream = ScriptedModel(script=[ai("one two three")]).stream(
            "x", {"callbacks": [journal.handler()]}
        )
        next(stream)
        streams.append(stream)

    give_up()
    began = time.monotonic()
    with journal.recorder._lock:  # as if the collector ran here
        streams.clear()
        gc.collect()
    assert time.monotonic() - began < 3
    give_up()
    with journal.recorder.undisturbed():
        streams.clear()
        gc.collect()
    assert journal.flush()
    assert len([e for e in store.read(limit=1_000) if e.event_type.startswith("llm.e")]) == 2
    journal.shutdown()


def test_without_a_store_it_is_refused() -> None:
    """There is nothing that could be committed."""
    with pytest.raises(SettingsError, match=r"durability='sync' needs a store.*OTEL_JOURNAL_STORE"):
        Journal(Settings(durability="sync"), registry=CollectorRegistry())
