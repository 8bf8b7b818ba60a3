"""`Journal`: the parts put together, and their life from first callback to process exit."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from prometheus_client import REGISTRY

from . import ids, process_life
from .capture import Capture
from .events import MAX_EVENT_TYPE, NS_PER_S
from .exposition import Metrics, metrics_for
from .observations import Ambient, Annotated, ExternalUsage
from .parts import beats_for, commits_at_once, ledger_for, sidecar_exports, spans_for
from .pipeline import Pipeline, Sink, remaining
from .propagation import Propagation, span_context_of
from .recorder import Recorder
from .reports import Reports
from .settings import Settings
from .stats import ProcessStats
from .store import Store, StoreSink, open_configured
from .tool_calls import ToolCalls
from .usage import read_usage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from uuid import UUID

    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import SpanContext
    from prometheus_client import CollectorRegistry
    from typing_extensions import Self

    from .handler import RunJournal
    from .payload import Redact
    from .summary import RunSummary

_logger: Final = logging.getLogger(__name__)
_MIDDLEWARE: Final = "middleware:"


class Journal:
    """One recorder with its sinks; thread-safe. Make one per process and share it."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        tracer_provider: TracerProvider | None = None,
        registry: CollectorRegistry | None = None,
        store: Store | None = None,
        redact: Redact | None = None,
    ) -> None:
        """Set up a journal; nothing is exported before the first callback.

        Args:
            settings: default `Settings.from_env()`.
            tracer_provider: default the global one if it is an SDK provider when the first run
                begins, else one built from the standard ``OTEL_*`` environment, else no spans.
            registry: where the series are exposed; default ``prometheus_client.REGISTRY``.
            store: durable journal, closed by whoever opened it; default the one that
                `Settings.store` names, which `shutdown` closes. One that cannot be opened is
                logged, and the journal works without.
            redact: ``redact(place, value)`` returns what is recorded in place of a payload, on
                spans and in the store; `payload.Place` lists the places. It is called in the
                callback, only for payloads that are recorded, and must not change `value`, which
                may be the application's own object. When it raises, the payload is not recorded.

        Raises:
            SettingsError: a setting in the environment is not allowed.
        """
        self.settings = settings or Settings.from_env()
        self._reports = Reports()
        url = "" if self.settings.disabled else self.settings.store
        self._own_store = open_configured(url) if store is None else None
        self.store = store or self._own_store
        self._redact = redact
        self._truncated = self._handler_errors = 0
        self._lost_before = 0
        self._closing = threading.Lock()
        self._closed = False
        self.registry = REGISTRY if registry is None else registry
        self._beats = beats_for(self.settings, self.store, tracer_provider)
        self._spans = spans_for(self.settings, tracer_provider)
        self._metrics = self._metric_sink(self.registry)
        process = self._beats.process if self._beats is not None else ""
        feed = self.store is not None
        self.ledger = ledger_for(self.settings, feed=feed, spans=self._spans, process=process)
        self.recorder = self._recorder()
        self.capture = self._capture()
        self.propagation = self._propagation()
        self._tool_calls = ToolCalls(self.recorder, self.capture)
        self.pipeline = self._pipeline()
        self.recorder.attach(self.pipeline)
        if self._metrics is not None:
            self._metrics.attach(self)
        if self.settings.disabled:
            _logger.info("otel-journal is disabled by settings; nothing is recorded")
        process_life.register(self)

    # Parts -----------------------------------------------------------------------------------

    def _recorder(self) -> Recorder:
        return Recorder(
            self.ledger,
            capacity=self.settings.queue_size,
            failed=self.handler_failed,
            sync=commits_at_once(self.settings, self.store),
        )

    def _propagation(self) -> Propagation:
        return Propagation(
            self._identity,
            limit=self.settings.max_open_operations,
            enabled=self.settings.propagate and not self.settings.disabled,
        )

    def _pipeline(self) -> Pipeline:
        return Pipeline(
            self._sinks(),
            capacity=self.settings.queue_size,
            linger=self.settings.linger,
            tick=self._tick,
            failed=self._reports.failed,
        )

    def _metric_sink(self, registry: CollectorRegistry) -> Metrics | None:
        settings = self.settings
        if settings.disabled or not settings.metrics:
            return None
        return metrics_for(
            registry, generation=settings.semconv, max_label_values=settings.max_label_values
        )

    def _sinks(self) -> list[Sink]:
        store = (
            StoreSink(self.store, failed=self._reports.failed) if self.store is not None else None
        )
        if sidecar_exports(self.settings):
            return [] if store is None else [store]
        return [sink for sink in (store, self._spans, self._metrics) if sink is not None]

    def _tick(self) -> float:
        """Do what is due in the ledger, and say that this process lives."""
        working = bool(
            len(self.recorder) or len(self.pipeline) or self.ledger.stats.operations_open
        )
        beat = self._beats.next(working=working) if self._beats is not None else None
        if beat is not None:
            self.recorder.put(beat)
        return self.recorder.sweep()

    def _capture(self) -> Capture:
        return Capture(
            content=self.settings.capture_content,
            feed=self.store is not None,
            limit=self.settings.max_content_chars,
            message_finish_reasons=self.settings.semconv != "0.1",
            redact=self._redact,
            on_truncated=self._count_truncated,
            on_unreadable=self.handler_failed,
        )

    def _identity(self, key: int) -> SpanContext | None:
        """Context of an open operation, for spans made inside it; None when it has no span."""
        found = self.recorder.identity(key)
        if found is None or self._spans is None or not self._spans.exporting:
            return None
        trace_id, span_id, sampled, trace_state = found
        return span_context_of(Ambient(trace_id, span_id, sampled, False, trace_state))  # noqa: FBT003

    def _count_truncated(self) -> None:
        self._truncated += 1

    # Use -------------------------------------------------------------------------------------

    def handler(self, run_id: str | None = None, thread_id: str | None = None) -> RunJournal:
        """A LangChain callback handler that records into this journal.

        One handler serves any number of runs, threads and event loops at once.

        Args:
            run_id: record all runs of this handler under this id; default each root's own id.
            thread_id: conversation; default the ``thread_id`` of the run's configuration.
        """
        from .handler import RunJournal  # noqa: PLC0415 - handler imports this module

        return RunJournal(self, run_id=run_id, thread_id=thread_id)

    def summary(self, run_id: str | UUID) -> RunSummary | None:
        """Totals of a run, exact at once; None when it is unknown or forgotten."""
        return self.recorder.summary(str(run_id))

    def tool_call_started(
        self, run_id: str | UUID, name: str, arguments: object = None, call_id: str | None = None
    ) -> str:
        """Report by hand that a tool call begins, for tools that LangChain does not run.

        Returns:
            The call's id: `call_id`, or a new ULID when that is missing or empty. A second
            start with the same id changes nothing.

        Raises:
            ValueError: `call_id` is longer than 64 characters.
        """
        return self._tool_calls.started(str(run_id), name, arguments, call_id)

    def tool_call_completed(
        self,
        run_id: str | UUID,
        name: str,
        call_id: str | None = None,
        *,
        result: object = None,
        error: BaseException | str | None = None,
    ) -> None:
        """Report by hand that a tool call ended; a null result is a result.

        Without `call_id` the oldest pending call of that name in the run ends. An unknown
        `call_id` is kept as an orphan completion and never ends another call; a second
        completion changes nothing.
        """
        self._tool_calls.completed(str(run_id), name, call_id, result=result, error=error)

    def annotate(self, run_id: str | UUID, tag: str, **content: object) -> None:
        """Keep a note beside a run's operations, as event ``middleware:{tag}``.

        Raises:
            ValueError: `tag` is empty or longer than 21 characters.
        """
        event_type = _MIDDLEWARE + tag
        if not tag or len(event_type) > MAX_EVENT_TYPE:
            most = MAX_EVENT_TYPE - len(_MIDDLEWARE)
            msg = f"tag {tag!r} is not allowed; allowed: 1 to {most} characters"
            raise ValueError(msg)
        self.recorder.record(
            Annotated(
                key=None,
                run_id=str(run_id),
                at=time.perf_counter_ns(),
                event_type=event_type,
                identity=f"{ids.new_call_id()}/0/note",
                content=self.capture.fed(content, "custom"),
            )
        )

    def record_external_usage(
        self,
        run_id: str | UUID,
        source_id: str,
        usage: Mapping[str, object],
        model: str | None = None,
        caller: str | None = None,
    ) -> None:
        """Book tokens spent outside the callbacks, once per `source_id`.

        `source_id` shares the callbacks' id space: the run id of a model call that was counted
        by its callback is not counted again. An empty id, or a usage without a positive count,
        is ignored. `usage` may use any provider's names for its counts.
        """
        found = read_usage(usage).usage or read_usage(None, {"usage": usage}).usage
        if not source_id or found is None or not found.positive or self.settings.disabled:
            return
        self.recorder.record(
            ExternalUsage(
                run_id=str(run_id),
                source_id=str(source_id),
                at=time.perf_counter_ns(),
                usage=found,
                model=model or "",
                caller=caller or "",
            )
        )

    # Health ----------------------------------------------------------------------------------

    def handler_failed(self, hook: str, error: BaseException) -> None:
        """Count a failure at the boundary to the agent; log it once per hook and kind."""
        self._handler_errors += 1
        self._reports.failed(hook, error)

    def snapshot(self) -> ProcessStats:
        """Counters of this journal, as the scrape endpoint shows them."""
        sinks = self.pipeline.counts
        return ProcessStats(
            ledger=self.ledger.stats,
            sinks=sinks,
            queue_events=len(self.recorder) + len(self.pipeline),
            queue_capacity=self.pipeline.capacity,
            oldest_unsent_s=dict.fromkeys(sinks, self.pipeline.oldest_age()),
            callback_seconds=self.recorder.callback_ns / NS_PER_S,
            handler_errors=self._handler_errors,
            truncated=self._truncated,
            store_name=self.store.name if self.store is not None else "none",
            semconv=self.settings.semconv,
        )

    # Life ------------------------------------------------------------------------------------

    def flush(self, timeout: float = 5.0) -> bool:
        """Hand everything recorded so far to every sink and wait until it has arrived.

        Responses that still wait for usage are written as they are; usage that comes later is
        booked as an amendment. Open operations stay open.

        Returns:
            True only when every event reached every sink within `timeout` seconds, and none
            was dropped since the last flush.
        """
        deadline = time.monotonic() + timeout
        with self.recorder.undisturbed():
            self.recorder.flush()
            complete = self.pipeline.drain(remaining(deadline))
            for sink in self.pipeline.sinks:
                complete = sink.flush(remaining(deadline)) and complete
        lost = sum(sum(sink.counts.dropped.values()) for sink in self.pipeline.sinks)
        complete = complete and lost == self._lost_before
        self._lost_before = lost
        return complete

    def shutdown(self, timeout: float = 5.0) -> bool:
        """End open operations as abandoned, flush, and release everything; safe to repeat.

        Returns:
            True only when every event reached every sink within `timeout` seconds.
        """
        with self._closing:
            if self._closed:
                return True
            self._closed = True
        deadline = time.monotonic() + timeout
        self.recorder.close()
        complete = self.flush(remaining(deadline))
        complete = self.pipeline.stop(remaining(deadline)) and complete
        for sink in self.pipeline.sinks:
            complete = sink.close(remaining(deadline)) and complete
        if self._metrics is not None:
            self._metrics.detach(self)
        if self._own_store is not None:
            self._own_store.close()
        process_life.forget(self)
        return complete

    def __enter__(self) -> Self:
        """Return the journal itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Shut down."""
        self.shutdown(self.settings.shutdown_timeout)

    def exit(self) -> None:
        """Shut down at the end of the interpreter, within the configured time."""
        self.shutdown(self.settings.shutdown_timeout)

    def forked(self) -> None:
        """Start over in a forked child, without the parent's queue, locks and worker."""
        self._lost_before = 0
        self.recorder.forked()
        if self._beats is not None:
            self._beats.forked()
            self.ledger.belong_to(self._beats.process)
        self.pipeline.forked()
