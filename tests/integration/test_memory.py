"""Memory does not grow with the number of runs, whatever becomes of them.

The tables of a journal are found by walking it, not by a list of names: a table added later is
checked too. The long version of these tests is ``tests/bench/soak.py``.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import pkgutil
import tracemalloc
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import copy_context
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

import otel_journal
from otel_journal import Journal, RunJournal, Settings, custom_events, opening, tool_calls
from otel_journal.propagation import OperationSpan

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

KIB = 1_024
LIMIT = 400
"""Cap of each table in these tests; with the defaults they would take twenty times as long."""
FIXED = (
    (tool_calls, "MAX_PENDING"),
    (custom_events, "MAX_OPERATIONS"),
    (opening, "_MAX_TOLD"),
)
"""Caps that are no settings."""
MOST_BYTES = 64
"""Bytes that a run may leave: less than the smallest record of an operation, which takes 344."""
MOST_KIB = 3 * KIB
"""Growth of the process that is no leak: what the allocator keeps of the last batch."""
USAGE = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
CHUNK = 200
"""Runs between two flushes: fewer than may be open at once."""


class Nowhere(SpanExporter):
    """Takes spans and forgets them."""

    def export(self, spans: Any) -> SpanExportResult:  # noqa: ARG002
        """Forget."""
        return SpanExportResult.SUCCESS


@pytest.fixture(autouse=True)
def _small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring the caps that are no settings down to that of the others."""
    for module, constant in FIXED:
        monkeypatch.setattr(module, constant, LIMIT)


@pytest.fixture
def journal(registry: CollectorRegistry, request: Any) -> Journal:
    """Provide a journal with small tables, whose spans go nowhere."""
    return open_journal(registry, request)


def open_journal(registry: CollectorRegistry, request: Any, **settings: Any) -> Journal:
    """Open a journal with small tables; the test's end shuts it down."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Nowhere()))
    caps = {
        "max_open_operations": LIMIT,
        "max_remembered": LIMIT,
        "max_summaries": LIMIT,
        "max_label_values": 20,
        "grace": 0.0,
    }
    journal = Journal(Settings(**{**caps, **settings}), tracer_provider=provider, registry=registry)
    request.addfinalizer(provider.shutdown)
    request.addfinalizer(journal.shutdown)
    return journal


# What runs do ---------------------------------------------------------------------------------


def complete(handler: RunJournal, n: int) -> None:
    """Do one whole run in which every id and name is new: root, node, model, tool, error."""
    root, node, chat, tool = (uuid4() for _ in range(4))
    thread = {"thread_id": f"thread-{n}", "user": f"user-{n}"}
    inside = {**thread, "langgraph_node": "model", "langgraph_step": 1}
    inside["langgraph_checkpoint_ns"] = f"model:{n}"
    tags = ["graph:step:1", f"subagent:{n}"]
    handler.on_chain_start({}, {}, run_id=root, name=f"graph-{n}", metadata=thread)
    handler.on_chain_start(
        {}, {}, run_id=node, parent_run_id=root, name="model", metadata=inside, tags=tags
    )
    handler.on_chat_model_start(
        {}, [[HumanMessage("q", id=f"m-{n}")]], run_id=chat, parent_run_id=node,
        metadata=inside, tags=tags, invocation_params={"model": f"model-{n}"},
    )  # fmt: skip
    handler.on_llm_new_token("a", run_id=chat)
    handler.on_llm_end(answer(f"call-{n}"), run_id=chat, parent_run_id=node)
    handler.on_tool_start(
        {"name": f"tool-{n}"}, "", run_id=tool, parent_run_id=node, tool_call_id=f"call-{n}"
    )
    handler.on_tool_error(ValueError("no"), run_id=tool, parent_run_id=node)
    handler.on_custom_event("told", {"n": n}, run_id=root)
    handler.on_chain_end({}, run_id=node, parent_run_id=root)
    handler.on_chain_end({}, run_id=root)


def answer(call: str) -> LLMResult:
    """Return a model's answer that asks for a tool."""
    message = AIMessage(
        "a", usage_metadata=USAGE, tool_calls=[{"name": "t", "args": {}, "id": call}]
    )
    return LLMResult(generations=[[ChatGeneration(message=message)]])


def never_end(handler: RunJournal, n: int) -> None:
    """Start a model call and forget it."""
    handler.on_chat_model_start({}, [[]], run_id=uuid4(), metadata={"thread_id": f"t-{n}"})


def abandon_stream(handler: RunJournal, n: int) -> None:
    """Begin to stream, with and without a run around it, and walk away."""
    root, chat = uuid4(), uuid4()
    if n % 2:
        handler.on_chain_start({}, {}, run_id=root, name="graph")
    handler.on_chat_model_start({}, [[]], run_id=chat, parent_run_id=root if n % 2 else None)
    handler.on_llm_new_token("a", run_id=chat)
    handler.on_llm_new_token("b", run_id=chat)
    if n % 2:
        handler.on_chain_end({}, run_id=root)


def repeat(handler: RunJournal, n: int) -> None:
    """Deliver a run twice, and its beginning once more."""
    root = uuid4()
    for _ in range(2):
        handler.on_chain_start({}, {}, run_id=root, name="graph")
        handler.on_chain_end({}, run_id=root)
    handler.on_llm_end(answer(f"c-{n}"), run_id=uuid4())


def come_late(handler: RunJournal, n: int) -> None:
    """Start a call below a run that has ended."""
    root, late = uuid4(), uuid4()
    handler.on_chain_start({}, {}, run_id=root, name="graph")
    handler.on_chain_end({}, run_id=root)
    handler.on_chat_model_start({}, [[]], run_id=late, parent_run_id=root)
    handler.on_llm_end(answer(f"c-{n}"), run_id=late, parent_run_id=root)


def by_hand(handler: RunJournal, n: int) -> None:
    """Report what LangChain does not run; half of the calls never complete."""
    journal, run = handler.journal, f"run-{n}"
    call = journal.tool_call_started(run, "t", {})
    if n % 2:
        journal.tool_call_completed(run, "t", call, result=1)
    journal.annotate(run, "note", n=n)
    journal.record_external_usage(run, f"source-{n}", USAGE, model="m")


PROGRAMS = (complete, never_end, abandon_stream, repeat, come_late, by_hand)
Program = Callable[[RunJournal, int], None]


def drive(journal: Journal, handler: RunJournal, program: Program, numbers: range) -> None:
    """Run a program again and again, each in a context of its own, letting the worker keep up."""
    for n in numbers:
        copy_context().run(program, handler, n)
        if n % CHUNK == 0:
            journal.flush()
    journal.flush()
    journal.recorder.sweep()
    journal.flush()


# Looking at it --------------------------------------------------------------------------------


def tables(root: object) -> dict[str, int]:
    """Return the size of every container that can be reached from `root` through our objects."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, object]] = [(type(root).__name__, root)]
    while waiting:
        path, value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (dict, list, set, deque, weakref.WeakKeyDictionary)):
            found[path] = len(value)
            if len(value) <= LIMIT and isinstance(value, (dict, list)):
                inside = value.values() if isinstance(value, dict) else value
                waiting += [(f"{path}[]", element) for element in inside]
        waiting += [(f"{path}.{name}", part) for name, part in _parts(value)]
    return found


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an object of ours, and what a function of ours closes over."""
    if isinstance(value, functools.partial):
        yield from enumerate_named("argument", value.args)
    if not type(value).__module__.startswith("otel_journal"):
        owner = getattr(value, "__self__", None)
        if owner is not None:
            yield "__self__", owner
        for name, cell in zip(
            getattr(getattr(value, "__code__", None), "co_freevars", ()),
            getattr(value, "__closure__", None) or (),
            strict=False,
        ):
            yield name, cell.cell_contents
        return
    names = set(getattr(value, "__dict__", ()))
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names |= {slots} if isinstance(slots, str) else set(slots)
        fields = kind.__dict__.get("__struct_fields__", ())
        names |= set(fields if isinstance(fields, tuple) else ())
    for name in sorted(names):
        if hasattr(value, name):
            yield name, getattr(value, name)


def enumerate_named(what: str, values: tuple[object, ...]) -> Iterator[tuple[str, object]]:
    """Yield values with numbered names."""
    for number, value in enumerate(values):
        yield f"{what}{number}", value


def largest(sizes: dict[str, int]) -> dict[str, int]:
    """Return the largest size of each kind of table: `a[].b` may be there many times."""
    found: dict[str, int] = {}
    for path, size in sizes.items():
        found[path] = max(size, found.get(path, 0))
    return found


def rss_kib() -> int:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // KIB


# Tests ----------------------------------------------------------------------------------------


class TestTables:
    """Every table has a cap."""

    @pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
    def test_no_table_grows_with_runs(self, journal, program):
        """After the caps are reached no container grows, however many runs follow."""
        handler = journal.handler()
        drive(journal, handler, program, range(2 * LIMIT))
        gc.collect()
        before = largest(tables(handler))
        drive(journal, handler, program, range(2 * LIMIT, 5 * LIMIT))
        gc.collect()
        after = largest(tables(handler))

        assert len(after) > 30, "the walk found no tables"
        assert {
            path: (before.get(path, 0), size)
            for path, size in after.items()
            if size > max(LIMIT, before.get(path, 0))
        } == {}

    def test_the_walk_sees_a_leak(self, journal):
        """A list that somebody adds to a part of the journal is found."""
        journal.ledger.added_later = [1, 2, 3]

        assert 3 in [
            size for path, size in tables(journal).items() if path.endswith("ledger.added_later")
        ]

    def test_every_cache_of_a_module_is_bounded(self):
        """No function of the package remembers without a limit."""
        unbounded = [
            f"{name}.{attribute}"
            for name, module in _modules()
            for attribute, value in vars(module).items()
            if hasattr(value, "cache_info") and value.cache_info().maxsize is None
        ]
        assert unbounded == []

    def test_no_module_collects(self, journal):
        """Tables of modules are constants: runs add nothing to them."""

        def sizes() -> dict[str, int]:
            return {
                f"{name}.{attribute}": len(value)
                for name, module in _modules()
                for attribute, value in vars(module).items()
                if isinstance(value, (dict, list, set, deque)) and not attribute.startswith("__")
            }

        handler = journal.handler()
        before = sizes()
        for program in PROGRAMS:
            drive(journal, handler, program, range(50))

        assert sizes() == before


def _modules() -> list[tuple[str, Any]]:
    found = pkgutil.walk_packages(otel_journal.__path__, "otel_journal.")
    names = [module.name for module in found if "__main__" not in module.name]
    return [(name, importlib.import_module(name)) for name in names]


def _forget() -> None:
    """Empty the bounded caches of functions, so that only tables are left to be measured."""
    for _, module in _modules():
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    gc.collect()


class TestRuns:
    """Memory of the process."""

    def test_ended_runs_leave_nothing(self, journal):
        """Whole runs after the caps are reached add nothing to the process."""
        handler = journal.handler()
        drive(journal, handler, complete, range(2 * LIMIT))
        gc.collect()
        before = rss_kib()
        drive(journal, handler, complete, range(2 * LIMIT, 10 * LIMIT))
        gc.collect()

        assert rss_kib() - before < MOST_KIB
        assert journal.ledger.stats.operations_open == 0

    @pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
    def test_no_bytes_per_run(self, registry, request, program):
        """Counted by the allocator a run leaves nothing."""
        few = LIMIT // 4
        caps = dict.fromkeys(("max_open_operations", "max_remembered", "max_summaries"), few)
        journal = open_journal(registry, request, **caps)
        handler = journal.handler()
        drive(journal, handler, program, range(LIMIT))
        window, sizes = LIMIT // 2, []
        tracemalloc.start()
        try:
            drive(journal, handler, program, range(LIMIT, 3 * LIMIT))
            for n in range(3 * LIMIT, 5 * LIMIT, window):
                _forget()
                sizes.append(tracemalloc.get_traced_memory()[0])
                drive(journal, handler, program, range(n, n + window))
        finally:
            tracemalloc.stop()
        growth = [after - before for before, after in pairwise(sizes)]

        # A leak grows each time; a table that doubles its room does not.
        assert min(growth) / window < MOST_BYTES

    def test_runs_that_never_end_stay_under_the_cap(self, journal, sample):
        """Starts without an end: the oldest are closed, counted, and let go."""
        handler = journal.handler()
        drive(journal, handler, never_end, range(5 * LIMIT))
        gc.collect()
        before = rss_kib()
        drive(journal, handler, never_end, range(5 * LIMIT, 40 * LIMIT))
        gc.collect()

        assert rss_kib() - before < MOST_KIB
        assert sample("otel_journal_operations_open") == LIMIT
        assert sample("otel_journal_operations_limit") == LIMIT
        assert sample("otel_journal_operations_closed_total", reason="cap") == 39 * LIMIT

    def test_abandoned_streams_leave_nothing(self, journal, sample):
        """Streams that nobody reads to the end: clocks and calls are let go."""
        handler = journal.handler()
        drive(journal, handler, abandon_stream, range(5 * LIMIT))
        gc.collect()
        before = rss_kib()
        drive(journal, handler, abandon_stream, range(5 * LIMIT, 20 * LIMIT))
        gc.collect()

        assert rss_kib() - before < MOST_KIB
        assert len(journal.ledger.streams) <= LIMIT
        still_open = sample("otel_journal_operations_open")
        assert still_open <= LIMIT
        with_run = sample("otel_journal_operations_closed_total", reason="parent_end")
        assert 0 < with_run <= 10 * LIMIT  # on a slow machine the cap is quicker than the grace
        closed = sample("otel_journal_operations_closed_total", reason="cap")
        assert closed + with_run + still_open == 20 * LIMIT

    def test_calls_that_never_end_do_not_nest(self, registry, request):
        """In one context, too: what the caps have closed no longer hides what was around it.

        Each start walks what is current; if that grows, callbacks get slower with every run.
        """
        few = 16
        journal = open_journal(registry, request, max_open_operations=few, max_remembered=few)
        handler = journal.handler()

        def depth() -> int:
            for n in range(20 * few):
                never_end(handler, n)
                journal.flush()
            span, found = trace.get_current_span(), 0
            while isinstance(span, OperationSpan):
                span, found = trace.get_current_span(span.around), found + 1
            return found

        assert copy_context().run(depth) <= 2 * few


class TestPayloads:
    """What was said is let go when its operation has ended."""

    @pytest.fixture
    def captured(self, registry, request) -> Journal:
        """Provide a journal that captures content."""
        return open_journal(registry, request, capture_content=True)

    def test_ended_calls_keep_no_content(self, captured):
        """A thousand remembered calls do not hold a thousand prompts."""
        handler = captured.handler()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for n in range(LIMIT):
                run = uuid4()
                handler.on_chat_model_start({}, [[HumanMessage(f"{n}" * 3_000)]], run_id=run)
                handler.on_llm_end(answer(f"c-{n}"), run_id=run)
            captured.flush()
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()

        assert grown / LIMIT < 5_000

    def test_live_payloads_are_let_go(self, captured):
        """Once a callback has returned nothing of ours keeps messages, results or errors alive."""

        class Result(Exception):  # noqa: N818 - one class for both
            """Something a tool returns or raises."""

        handler, run = captured.handler(), uuid4()
        message, result, error = HumanMessage("q"), Result(), Result("no")
        alive = [weakref.ref(message), weakref.ref(result), weakref.ref(error)]
        handler.on_chat_model_start({}, [[message]], run_id=uuid4())
        handler.on_tool_start({"name": "t"}, "", run_id=run)
        handler.on_tool_end(result, run_id=run)
        handler.on_tool_error(error, run_id=run)
        del message, result, error
        captured.flush()
        gc.collect()

        assert [ref() for ref in alive] == [None, None, None]

    def test_custom_events_keep_no_payload(self, journal):
        """An event's data is let go when its run has ended."""

        class Data(dict):  # type: ignore[type-arg]
            """A mapping that can be watched."""

        handler, run, data = journal.handler(), uuid4(), Data()
        alive = weakref.ref(data)
        handler.on_chain_start({}, {}, run_id=run, name="g")
        handler.on_custom_event("told", data, run_id=run)
        handler.on_chain_end({}, run_id=run)
        del data
        journal.flush()
        gc.collect()

        assert alive() is None

    def test_repeated_starts_without_an_end_are_forgotten(self, journal):
        """Roots that seem to begin again, and do nothing more, are not waited for without end."""
        handler = journal.handler()
        for _ in range(2 * LIMIT):
            run = uuid4()
            handler.on_chain_start({}, {}, run_id=run, name="g")
            handler.on_chain_end({}, run_id=run)
            handler.on_chain_start({}, {}, run_id=run, name="g")
        journal.flush()

        assert max(tables(journal).values()) <= LIMIT

    def test_kinds_of_failures_are_remembered_up_to_a_cap(self, journal):
        """Exception classes can be made at run time; what was logged is remembered, bounded."""
        for n in range(2 * LIMIT):
            journal.handler_failed("hook", type(f"E{n}", (Exception,), {})())

        assert max(tables(journal).values()) <= LIMIT


def test_streams_of_any_length_are_bounded(journal):
    """A stream of a million tokens keeps no reading of each."""
    handler, run = journal.handler(), uuid4()
    handler.on_chat_model_start({}, [[]], run_id=run)
    journal.flush()
    for _ in range(200_000):
        handler.on_llm_new_token("a", run_id=run, chunk=SimpleNamespace())  # type: ignore[arg-type]

    assert max(tables(journal).values()) <= 5_000
