"""A typical program, never run: it must pass ``mypy --strict`` as it stands.

It uses every public name the way the documentation does. `reveal` lines would tell nothing to a
reader; assignments with types do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from otel_journal import (
    Journal,
    JournalError,
    RunJournal,
    RunSummary,
    Settings,
    SettingsError,
    Store,
    StoreError,
    open_store,
)
from otel_journal.events import Event, Outcome, Usage
from otel_journal.testing import ScriptedModel, ai, tool_call


def zero_setup(graph: Runnable[Any, Any], inputs: dict[str, Any]) -> None:
    """Use the process-wide journal."""
    graph.invoke(inputs, config={"callbacks": [RunJournal()]})


def explicit_setup(provider: TracerProvider, registry: CollectorRegistry) -> Journal:
    """Set every part."""
    settings: Settings = Settings.from_env()
    store: Store = open_store("memory:")
    return Journal(settings, tracer_provider=provider, registry=registry, store=store)


def settings_in_code() -> Settings:
    """Give settings by keyword."""
    try:
        return Settings(semconv="both", grace=0.5, capture_content=True, max_label_values=50)
    except SettingsError as error:
        raise SystemExit(str(error)) from error


def run(journal: Journal, graph: Runnable[Any, Any]) -> RunSummary | None:
    """Run a graph and look at its totals."""
    run_id = uuid4()
    handler: RunJournal = journal.handler(thread_id="t-1")
    config: RunnableConfig = {"callbacks": [handler], "run_id": run_id}
    graph.invoke({}, config)
    summary = journal.summary(run_id)
    if summary is not None:
        outcome: Outcome | None = summary.outcome
        tokens: int = summary.input_tokens + summary.output_tokens
        calls: int = summary.by("caller")["lead_agent"].calls
        print(outcome, tokens, calls, summary.last_ai_message)  # noqa: T201
    return summary


def by_hand(journal: Journal, run_id: str, usage: Mapping[str, object]) -> None:
    """Report what LangChain does not see."""
    call: str = journal.tool_call_started(run_id, "search", {"q": "x"})
    try:
        journal.tool_call_completed(run_id, "search", call, result=["found"])
    except ValueError as error:
        journal.tool_call_completed(run_id, "search", call, error=error)
    journal.annotate(run_id, "budget", left=3, name="x")
    journal.record_external_usage(run_id, "source", usage, model="m", caller="subagent:x")


def read(store: Store, run_id: str) -> Sequence[str]:
    """Read the journal."""
    events: list[Event] = store.events(run_id, types={"llm.end"}, after=0, limit=10)
    for event in events:
        if event.span is not None:
            usage: Usage | None = event.span.usage
            print(event.seq, event.created_at, usage.total_tokens if usage else 0)  # noqa: T201
    newest: list[Event] = store.messages("t-1", before=None, after=None, limit=5)
    count: int = store.count_messages("t-1")
    return [str(event.content) for event in newest[:count]]


def life(journal: Journal) -> bool:
    """Flush and shut down, as a context manager or by hand."""
    with journal as same:
        flushed: bool = same.flush(timeout=1.0)
    return flushed and journal.shutdown(timeout=1.0)


def scripted() -> BaseChatModel:
    """Test without a provider."""
    asked: AIMessage = ai("", tool_call("add", {"x": 1}, "c1"))
    return ScriptedModel(script=[asked, ai("3")], delay=0.0, usage=None)


async def awaited(journal: Journal, model: BaseChatModel) -> str:
    """Use a handler in an event loop."""
    answer = await model.ainvoke("q", {"callbacks": [journal.handler(run_id="r")]})
    return str(answer.content)


def main() -> None:
    """Put it together."""
    journal = explicit_setup(TracerProvider(), CollectorRegistry())
    try:
        asyncio.run(awaited(journal, scripted()))
    except (StoreError, JournalError) as error:
        print(error)  # noqa: T201
    if journal.store is not None:
        read(journal.store, "r")
    life(journal)
