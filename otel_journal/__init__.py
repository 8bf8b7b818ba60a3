"""A flight recorder for LangGraph agents.

One LangChain callback handler turns what happens into one ordered, deduplicated stream of
events; OpenTelemetry spans, Prometheus series and the message feed are projections of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .errors import JournalError, SettingsError, StoreError
    from .handler import RunJournal
    from .instrumentation import instrument, uninstrument
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

_HOMES: Final = {
    "Journal": "journal",
    "JournalError": "errors",
    "RunJournal": "handler",
    "RunSummary": "summary",
    "Settings": "settings",
    "SettingsError": "errors",
    "Store": "store",
    "StoreError": "errors",
    "carry_context": "propagation",
    "instrument": "instrumentation",
    "open_store": "store",
    "patch_thread_pools": "propagation",
    "uninstrument": "instrumentation",
}
"""Name -> its module, imported with the first use: a sidecar and a command that reads a store
have no need of LangChain, which takes half a second."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    home = _HOMES.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(f".{home}", __name__), name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted({*globals(), *__all__})
