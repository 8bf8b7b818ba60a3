"""Plays incidents under a journal of the demo's own and reports what came of them."""

from __future__ import annotations

import dataclasses
import os
import time
import uuid
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_journal.errors import SettingsError
from otel_journal.journal import Journal
from otel_journal.provider import (
    ENDPOINT_VARIABLES,
    EXPORTER_VARIABLE,
    PROTOCOL_VARIABLES,
    tracer_provider_from_environment,
)
from otel_journal.settings import Settings

from . import checks
from .agent import APPROVAL, QUESTION, Incident
from .redelivery import Redelivery
from .report import Load, Readings, Report, Run, dedupe_of, runs_of, sinks_of, token_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from prometheus_client import CollectorRegistry
    from typing_extensions import Self

    from otel_journal.summary import RunSummary

FLUSH_TIMEOUT_S: Final = 15.0
"""Longer than an OTLP exporter tries to reach its endpoint (10 s), so that it can say so."""
FLUSH_EVERY: Final = 25
"""Incidents between two flushes: their spans (20 each) fit into an exporter's default queue."""


class Stage:
    """A journal with its outlets, and the handler that plays tricks on it; a context manager."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Set up from the environment, exposing metrics in `registry`.

        Raises:
            SettingsError: a setting is not allowed, or switches the journal off.
        """
        settings = Settings.from_env()
        if settings.disabled:
            msg = (
                "nothing to show: OTEL_SDK_DISABLED or OTEL_JOURNAL_DISABLED switches the"
                " journal off; unset it for the demo"
            )
            raise SettingsError(msg)
        self._exporter = InMemorySpanExporter()
        environment = tracer_provider_from_environment()
        self.exported_to = _destination() if environment is not None else ""
        """Where spans go besides the report, in words; empty when nowhere."""
        self._provider = environment or TracerProvider(shutdown_on_exit=False)
        self._provider.get_tracer(__name__)  # connects now: a broken variable is told before we run
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._journal = Journal(
            _with_everything_shown(settings),
            tracer_provider=self._provider,
            registry=registry,
        )
        self._registry = registry
        self._handler = Redelivery(self._journal.handler())
        self._summaries: list[RunSummary | None] = []
        self._answer = ""

    def play(self, incidents: int = 1, progress: Callable[[], None] = lambda: None) -> Report:
        """Play incidents one after the other; several are played without their pauses.

        Args:
            incidents: how many; each is two runs.
            progress: called after each.
        """
        incident = Incident(hurry=incidents > 1)
        first: list[Run] = []
        flushed = True
        begun = time.perf_counter()
        for number in range(1, incidents + 1):
            self._play_one(incident, f"incident-{number}")
            if number == 1 or number % FLUSH_EVERY == 0 or number == incidents:
                flushed = self._journal.flush(FLUSH_TIMEOUT_S) and flushed
                first = first or runs_of(self._exporter.get_finished_spans())
                self._exporter.clear()
            progress()
        seconds = time.perf_counter() - begun
        load = Load(2 * incidents, seconds, 2 * incidents / seconds) if incidents > 1 else None
        return self._report(first, incidents, flushed=flushed, load=load)

    def _play_one(self, incident: Incident, thread_id: str) -> None:
        run_ids = uuid.uuid4(), uuid.uuid4()
        incident.ask(thread_id, run_ids[0], self._handler)
        self._answer = incident.approve(thread_id, run_ids[1], self._handler)
        self._handler.deliver_bills()
        self._summaries += [self._journal.summary(run_id) for run_id in run_ids]

    def _report(
        self, runs: list[Run], incidents: int, *, flushed: bool, load: Load | None
    ) -> Report:
        scrape = Readings(self._registry)
        rows, sinks = token_rows(scrape), sinks_of(scrape)
        deliveries = checks.Deliveries(self._handler.repeats, self._handler.late)
        dedupe = dedupe_of(scrape, late=deliveries.late)
        summed = checks.spending_of(self._summaries)
        return Report(
            question=QUESTION,
            approval=APPROVAL,
            answer=self._answer,
            runs=runs,
            tokens=rows,
            dedupe=dedupe,
            sinks=sinks,
            checks=[
                *checks.token_checks(incidents, summed, rows, scrape, runs),
                *checks.delivery_checks(dedupe, deliveries, incidents),
                *checks.sink_checks(scrape, sinks, flushed=flushed),
            ],
            exported_to=self.exported_to,
            load=load,
        )

    def __enter__(self) -> Self:
        """Return the stage itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Shut down the journal and the provider."""
        self._journal.shutdown(FLUSH_TIMEOUT_S)
        self._provider.shutdown()


def _with_everything_shown(settings: Settings) -> Settings:
    """Return the user's settings without those that would hide what the demo is about."""
    return dataclasses.replace(
        settings,
        metrics=True,
        track_token_usage=True,
        spans="kept",
        export="inline",  # the report is made of the spans that this process makes
        grace=max(settings.grace, Settings().grace),  # usage must be able to come late
    )


def _destination() -> str:
    exporter = os.environ.get(EXPORTER_VARIABLE) or "otlp"
    if exporter != "otlp":
        return f"{EXPORTER_VARIABLE}={exporter}"
    protocol = _first(PROTOCOL_VARIABLES) or "grpc"
    endpoint = _first(ENDPOINT_VARIABLES) or "the default endpoint"
    return f"{endpoint} ({protocol})"


def _first(variables: tuple[str, ...]) -> str:
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
