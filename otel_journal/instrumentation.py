"""Recording without a handler in any call: one handler is put into every callback manager.

LangChain's own hook does it (`register_configure_hook`, in all threads and tasks), without a
patch. Only the events of pauses and resumes pass it by: LangGraph builds the manager for them from
the caller's configuration alone, so the two functions that do are wrapped where graphs call them.
"""

from __future__ import annotations

import functools
import importlib
import logging
import threading
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from .errors import SettingsError
from .handler import RunJournal
from .journal import Journal
from .model_hooks import process_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextvars import ContextVar

_logger: Final = logging.getLogger(__name__)

ENTRY_POINT_GROUP: Final = "opentelemetry_instrumentor"
"""Entry points that ``opentelemetry-instrument`` loads."""
_OURS: Final = "otel_journal"
_LIBRARY: Final = "langchain"

_GRAPHS: Final = "langgraph.pregel.main"
_LIFECYCLE: Final = (
    "get_sync_graph_callback_manager_for_config",
    "get_async_graph_callback_manager_for_config",
)
"""Public functions of `langgraph.callbacks`, under the names that `_GRAPHS` imports them by."""


class _Injected:
    """What LangChain asks for the handler; it stands in for a context variable.

    A real one has a value per context, and a thread that the application starts has a new context.
    """

    def __init__(self) -> None:
        self.handler: RunJournal | None = None
        self.process_wide = False
        self.lock = threading.Lock()
        self.replaced: dict[str, Any] = {}
        self.looked = False

    def get(self) -> RunJournal | None:
        """Return the handler for a callback manager that is being made."""
        if not self.looked and self.handler is not None:
            # Not earlier: by the first run every other instrumentation has been set up.
            self.looked = True
            warn_of_others()
        return self.handler


_injected: Final = _Injected()


def instrument(journal: Journal | None = None) -> None:
    """Record every LangChain and LangGraph run of this process, without handlers in any call.

    A run that is given a `RunJournal` of its own is recorded by that one alone. A second call
    puts another journal in place of the first.

    Args:
        journal: default the process-wide one, configured from the environment.

    Raises:
        SettingsError: a setting in the environment is not allowed.
    """
    recording = process_journal() if journal is None else journal
    with _injected.lock:
        if _injected.handler is None:
            _inject()
        _injected.handler = RunJournal(recording)
        _injected.process_wide = journal is None


def uninstrument() -> None:
    """Undo `instrument`; runs that have begun are recorded to their end. Safe to repeat."""
    with _injected.lock:
        if _injected.handler is not None:
            _injected.handler = None
            _withdraw()


def renew() -> None:
    """Record into the process-wide journal of now, when the one before has been shut down."""
    handler = _injected.handler
    if handler is not None and _injected.process_wide:
        journal = process_journal()
        if handler.journal is not journal:
            instrument()


def _inject() -> None:
    from langchain_core.tracers.context import register_configure_hook  # noqa: PLC0415 - slow

    hook = cast("ContextVar[RunJournal | None]", _injected)
    register_configure_hook(hook, inheritable=True, handle_class=RunJournal)
    graphs = importlib.import_module(_GRAPHS)
    for name in _LIFECYCLE:
        original = getattr(graphs, name, None)
        if original is None:
            _logger.warning("otel-journal: %s has no %s: pauses are not seen", _GRAPHS, name)
        else:
            _injected.replaced[name] = original
            setattr(graphs, name, _with_handler(original))


def _withdraw() -> None:
    from langchain_core.tracers import context  # noqa: PLC0415

    # There is no public way to unregister; were the list renamed, an inert hook would stay.
    hooks = getattr(context, "_configure_hooks", [])
    hooks[:] = [hook for hook in hooks if hook[0] is not _injected]
    graphs = importlib.import_module(_GRAPHS)
    for name, original in _injected.replaced.items():
        if getattr(getattr(graphs, name), "__wrapped__", None) is original:
            setattr(graphs, name, original)
    _injected.replaced.clear()


def _with_handler(configure: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(configure)
    def configured(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - passed on
        manager = configure(*args, **kwargs)
        handler = _injected.get()
        if handler is not None and not any(isinstance(h, RunJournal) for h in manager.handlers):
            manager.add_handler(handler)
        return manager

    return configured


class OtelJournalInstrumentor:
    """What ``opentelemetry-instrument`` loads under the name ``otel_journal``.

    It has the methods of `opentelemetry.instrumentation.instrumentor.BaseInstrumentor`, but does
    not import it: that package is there only when somebody uses it.
    """

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """True while `instrument` is in force."""
        return _injected.handler is not None

    def instrumentation_dependencies(self) -> Collection[str]:
        """Name what is instrumented, as requirements: our own, which pip has checked."""
        return ("langchain-core",)

    def instrument(self, **kwargs: Any) -> None:  # noqa: ANN401 - options of any instrumentor
        """Call `instrument`, with a journal given as ``journal`` or made for a ``tracer_provider``.

        A setting that is not allowed is logged: it must not keep other instrumentations away.
        """
        if self.is_instrumented_by_opentelemetry:
            _logger.warning("otel-journal is instrumenting already")
            return
        try:
            journal = kwargs.get("journal")
            provider = kwargs.get("tracer_provider")
            if journal is None and provider is not None:
                journal = Journal(tracer_provider=provider)
            instrument(journal)
        except SettingsError:
            _logger.exception("otel-journal records nothing")

    def uninstrument(self, **_: Any) -> None:  # noqa: ANN401 - options of any instrumentor
        """Call `uninstrument`."""
        uninstrument()


class Instrumentation(NamedTuple):
    """Another package that records LangChain."""

    name: str
    """The distribution, else the module that has patched LangChain."""
    active: bool
    """It has patched LangChain in this process; False when it is only installed."""


def other_instrumentations() -> list[Instrumentation]:
    """Find other OpenTelemetry instrumentations of LangChain, installed or active.

    Looks through the metadata of all installed packages, which takes milliseconds.
    """
    patches = _patches()
    found: dict[str, bool] = {}
    for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        module = entry_point.module
        if _LIBRARY not in f"{entry_point.name} {module}" or module.startswith(_OURS):
            continue
        mine = [patch for patch in patches if f"{patch}.".startswith(f"{module}.")]
        patches = [patch for patch in patches if patch not in mine]
        name = entry_point.dist.name if entry_point.dist is not None else module
        found[name] = found.get(name, False) or bool(mine)
    found.update(dict.fromkeys(patches, True))
    return [Instrumentation(name, active) for name, active in found.items()]


def warn_of_others() -> None:
    """Log one warning if another instrumentation is active; looks at LangChain only."""
    if patches := _patches():
        _logger.warning(
            "another LangChain instrumentation is active: tokens may be counted by both (%s)",
            ", ".join(patches),
        )


def _patches() -> list[str]:
    """Modules that have wrapped the constructor of callback managers, as all peers do."""
    from langchain_core.callbacks import BaseCallbackManager  # noqa: PLC0415

    found: list[str] = []
    layer: Any = BaseCallbackManager.__init__
    while (inner := getattr(layer, "__wrapped__", None)) is not None:
        wrapper = getattr(layer, "_self_wrapper", layer)  # wrapt's name for what it calls
        names = getattr(wrapper, "__globals__", None)
        found.append(names["__name__"] if names else type(wrapper).__module__)
        layer = inner
    return list(dict.fromkeys(found))
