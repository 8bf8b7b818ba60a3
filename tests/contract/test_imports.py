"""Who may import what, how long code may be, and where exceptions may be caught broadly.

The layout is a promise of the design (13): it keeps LangChain, the OpenTelemetry SDK and the
Prometheus client each behind a few modules, so that a release of theirs changes only those.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import otel_journal

PACKAGE = Path(otel_journal.__file__).parent
NAME = PACKAGE.name

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 40
"""Without the docstring, which explains and does not nest."""

HOST = {
    "capture", "cli", "demo", "failures", "handler", "instrumentation", "model_hooks", "testing",
}  # fmt: skip
"""Modules that know LangChain and LangGraph."""

ALLOWED = {
    "langchain": HOST,
    "langchain_core": HOST,
    "langgraph": HOST | {"commands"},
    "opentelemetry.sdk": {"demo", "exceptions_log", "provider", "resources", "sidecar", "spans"},
    "opentelemetry.exporter": {"provider", "sidecar"},
    "opentelemetry": {
        "demo", "exceptions_log", "journal", "propagation", "provider", "resources", "sidecar",
        "spans",
    },
    "prometheus_client": {"cli", "demo", "exposition", "journal", "sidecar"},
    "msgspec": None,
    "apsw": {"sidecar", "store"},
    "psycopg": {"store"},
    "ulid": {"ids"},
    "click": {"cli", "commands", "demo"},
    "pydantic": {"testing"},
}  # fmt: skip
"""Foreign package -> modules (or subpackages) that may import it at run time; None: all may."""

BROAD = {"capture", "cli", "foreign", "model_hooks", "pipeline", "recorder", "sidecar", "spans"}
"""Modules with a boundary: to payloads, users, agents, sinks, notes, threads and samplers.

Each ``except Exception`` there says why in a comment."""

LAYERS = (
    {"errors", "events", "semconv", "stats", "ids", "foreign"},
    {
        "run_view",
        "run_operations",
        "run_tools",
        "usage",
        "usage_dialects",
        "messages",
        "content_blocks",
        "payload",
        "json_shape",
    },
    {"observations", "capture", "notes", "ledger", "opening", "ending", "responses", "manual"},
    {"spans", "provider", "exceptions_log", "metrics", "exposition", "store"},
    {"pipeline", "recorder", "reports"},
    {"journal", "handler", "model_hooks"},
    {"cli", "commands", "demo", "sidecar"},
)
"""A module imports from its own layer or one before it. Modules not named here are free."""


@dataclass(frozen=True)
class Module:
    """A source file."""

    name: str
    """Dotted, below the package; a package is its ``__init__``."""
    path: Path
    text: str
    tree: ast.Module

    @property
    def unit(self) -> str:
        """The module, or the subpackage it belongs to."""
        return self.name.partition(".")[0]


def _modules() -> Iterator[Module]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__") or "__init__"
        text = path.read_text(encoding="utf-8")
        yield Module(name, path, text, ast.parse(text))


MODULES = list(_modules())
IDS = [module.name for module in MODULES]


def _is_typing_only(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )


def _runtime(node: ast.AST, *, top_level: bool = False) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if _is_typing_only(child):
            continue
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        if not (top_level and inside):
            yield from _runtime(child, top_level=top_level)


def _foreign(module: Module) -> set[str]:
    """Absolute names that a module imports when it runs, functions included."""
    found: set[str] = set()
    for node in _runtime(module.tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif not node.level and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _own(module: Module) -> set[str]:
    """Units of this package that a module imports when it is imported."""
    found: set[str] = set()
    inside = len(module.path.relative_to(PACKAGE).parts) - 1
    for node in _runtime(module.tree, top_level=True):
        if not isinstance(node, ast.ImportFrom) or not node.level:
            continue
        if node.level <= inside:
            found.add(module.unit)
        elif node.module:
            found.add(node.module.partition(".")[0])
        else:
            found |= {alias.name for alias in node.names}
    return found - {module.unit}


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_foreign_packages_stay_behind_their_modules(module: Module) -> None:
    """LangChain, the SDK and the Prometheus client are imported only where the design says."""
    for package, allowed in ALLOWED.items():
        if allowed is None or module.unit in allowed:
            continue
        used = {n for n in _foreign(module) if n == package or n.startswith(f"{package}.")}
        assert not used, f"{module.name} imports {used}"


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_import_order(module: Module) -> None:
    """No module imports from a later layer."""
    rank = {name: n for n, layer in enumerate(LAYERS) for name in layer}
    if module.unit not in rank:
        return
    later = {name for name in _own(module) if rank.get(name, 0) > rank[module.unit]}

    assert not later, f"{module.name} imports {later}"


def test_layers_name_real_modules() -> None:
    """A layer that names no module would guard nothing."""
    assert set().union(*LAYERS) <= {module.unit for module in MODULES}


def test_no_import_cycles() -> None:
    """Modules can be read, and imported, in some order."""
    graph = {module.name: _own(module) for module in MODULES if module.name != "__init__"}
    done: set[str] = set()
    while remaining := set(graph) - done:
        free = {name for name in remaining if not (graph[name] & remaining)}
        assert free, f"these import each other: {sorted(remaining)}"
        done |= free


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_module_length(module: Module) -> None:
    """No module is longer than what one reads in a sitting."""
    assert len(module.text.splitlines()) <= MAX_MODULE_LINES


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_function_length(module: Module) -> None:
    """No function is longer than a screen."""
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node):
                first = node.body[0]
                length -= (first.end_lineno or 0) - first.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name}: {length} lines"


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_broad_excepts_are_boundaries(module: Module) -> None:
    """Everything is caught at named boundaries only, and each says why."""
    lines = module.text.splitlines()
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        if isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None:
            continue  # it tidies up and catches nothing
        caught = ast.unparse(node.type) if node.type else "BaseException"
        if {"Exception", "BaseException"} & set(caught.strip("()").split(", ")):
            assert module.unit in BROAD, f"{module.name}:{node.lineno}"
            assert "# noqa: BLE001 - " in lines[node.lineno - 1], f"{module.name}:{node.lineno}"


@pytest.mark.parametrize("unit", sorted(BROAD))
def test_boundaries_exist(unit: str) -> None:
    """A boundary that is gone must go from the list."""
    assert any("except Exception" in m.text for m in MODULES if m.unit == unit)


@pytest.mark.parametrize("module", MODULES, ids=IDS)
def test_no_module_without_a_docstring(module: Module) -> None:
    """Every module says what it is for."""
    assert ast.get_docstring(module.tree)


def test_vague_names_are_no_modules() -> None:
    """A module is named after what it does."""
    assert not {"utils", "util", "helpers", "common", "misc", "base"} & {
        module.path.stem for module in MODULES
    }


def _python(program: str) -> list[str]:
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_importing_has_no_side_effects() -> None:
    """Importing registers no series, starts no thread, sets no provider and says nothing."""
    told = _python(
        "import threading, logging\n"
        "from opentelemetry import trace\n"
        "from prometheus_client import REGISTRY\n"
        "provider = trace.get_tracer_provider()\n"
        "before = {m.name for m in REGISTRY.collect()}\n"
        "import otel_journal\n"
        "otel_journal.RunJournal, otel_journal.Journal, otel_journal.open_store\n"
        "print(sorted({m.name for m in REGISTRY.collect()} - before))\n"
        "print(threading.active_count())\n"
        "print(trace.get_tracer_provider() is provider)\n"
        "print(logging.getLogger('otel_journal').handlers)\n"
    )

    assert told == ["[]", "1", "True", "[]"]


def test_a_journal_starts_no_thread_before_it_is_used() -> None:
    """Setting up costs no thread: a pre-fork server may do it in the parent."""
    told = _python(
        "import threading\n"
        "from otel_journal import Journal\n"
        "journal = Journal()\n"
        "handler = journal.handler()\n"
        "print(threading.active_count())\n"
    )

    assert told == ["1"]


def test_heavy_packages_are_not_imported() -> None:
    """The application pays for no server, no CLI and no exporter it does not use."""
    told = _python(
        "import sys, otel_journal\n"
        "[getattr(otel_journal, name) for name in otel_journal.__all__]\n"
        "heavy = ['click', 'starlette', 'uvicorn', 'psycopg', 'apsw', 'grpc', 'langchain',"
        " 'sqlalchemy']\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )

    assert told == ["[]"]


def test_the_command_line_needs_no_langchain() -> None:
    """`otel-journal runs` answers at once, and a sidecar is small."""
    told = _python(
        "import sys, otel_journal.cli\n"
        "heavy = ['langchain_core', 'langgraph', 'opentelemetry.sdk', 'starlette']\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )

    assert told == ["[]"]
