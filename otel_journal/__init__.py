"""A flight recorder for LangGraph agents.

One LangChain callback handler turns what happens into one ordered, deduplicated stream of
events; OpenTelemetry spans, Prometheus series and the message feed are projections of it.
"""

from __future__ import annotations

from .errors import JournalError, SettingsError, StoreError
from .handler import RunJournal
from .instrument import instrument, uninstrument
from .journal import Journal
from .propagation import carry_context, patch_thread_pools
from .settings import Settings
from .store import Store, open_store
from .summary import RunSummary

__all__ = [
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
