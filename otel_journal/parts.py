"""The parts of a journal, each made from its settings."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .beats import Beats
from .errors import SettingsError
from .events import NS_PER_S
from .ledger import Ledger, Limits, Sampled, Sampler, Switches
from .propagation import span_context_of
from .resources import provider_without_export
from .settings import attribute_names
from .spans import Spans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from .observations import Ambient
    from .operations import Operation
    from .settings import Settings
    from .store import Store


def sidecar_exports(settings: Settings) -> bool:
    """True when this process only appends to its store, and a sidecar does the rest."""
    return settings.export == "sidecar" and not settings.disabled


def beats_for(
    settings: Settings, store: Store | None, provider: TracerProvider | None
) -> Beats | None:
    """Return who makes the signs of life; None when nobody else could read them.

    Raises:
        SettingsError: a sidecar is to export, and there is no store that it could read.
    """
    if sidecar_exports(settings) and store is None and not settings.store:
        msg = (
            f"export={settings.export!r} needs a store for the sidecar to read: set "
            "OTEL_JOURNAL_STORE, or give one to Journal"
        )
        raise SettingsError(msg)
    if store is None or store.name == "memory":
        return None
    resource = provider.resource if provider is not None else None
    return Beats(export=settings.export, resource=resource)


def commits_at_once(settings: Settings, store: Store | None) -> bool:
    """Return whether callbacks wait until their events are in the store.

    Raises:
        SettingsError: they should, and there is no store.
    """
    if settings.durability != "sync" or settings.disabled:
        return False
    if store is None and not settings.store:
        msg = (
            f"durability={settings.durability!r} needs a store: set OTEL_JOURNAL_STORE, or give "
            "one to Journal"
        )
        raise SettingsError(msg)
    return store is not None


def spans_for(settings: Settings, provider: TracerProvider | None) -> Spans | None:
    """Return the span projection; with a sidecar it only answers who is sampled."""
    if settings.disabled or settings.spans == "none":
        return None
    if sidecar_exports(settings) and provider is None:
        provider = provider_without_export()
    return Spans(
        provider,
        generation=settings.semconv,
        capture_content=settings.capture_content,
        span_attributes=attribute_names(settings.span_attributes),
    )


def ledger_for(settings: Settings, *, feed: bool, spans: Spans | None, process: str) -> Ledger:
    """Return the state machine; `feed` says that something durable reads the messages."""
    ledger = Ledger(
        wall=_wall,
        limits=Limits(
            max_open=settings.max_open_operations,
            max_remembered=settings.max_remembered,
            max_summaries=settings.max_summaries,
            max_age_ns=int(settings.max_operation_age * NS_PER_S),
            grace_ns=int(settings.grace * NS_PER_S),
        ),
        switches=Switches(
            track_usage=settings.track_token_usage,
            all_spans=settings.spans == "all",
            feed=feed,
        ),
        sampler=None if spans is None else _sampler(spans),
    )
    ledger.belong_to(process)
    return ledger


def _sampler(spans: Spans) -> Sampler:
    def sample(root: Operation, ambient: Ambient | None) -> Sampled:
        parent = span_context_of(ambient) if ambient is not None else None
        trace_id = int(root.run.trace_id, 16)
        return Sampled(*spans.sample(trace_id, root.name, root.kind, root.attributes, parent))

    return sample


def _wall(at: int) -> int:
    """Unix nanoseconds of a recent monotonic reading."""
    return time.time_ns() - (time.perf_counter_ns() - at)
