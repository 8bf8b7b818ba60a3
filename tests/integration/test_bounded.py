"""Whatever the payload, a callback costs bounded time and memory, and its span is there.

Payloads are foreign code: huge, cyclic, raising, waiting for locks. Each goes through every hook,
with content and feed on and off; then the tree must be complete and every attribute exportable.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.callbacks import GraphInterruptEvent
from langgraph.types import Command, Interrupt
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from otel_journal import Journal, RunJournal, Settings, failures, open_store
from otel_journal.payload import shorten

pytestmark = pytest.mark.flaky(reruns=2)  # measures time, on a machine others use too

MB = 1_000_000
TRACED = sys.gettrace() is not None
"""Coverage is measured, which costs every line of Python several times its price."""

MOST_SECONDS = 0.5 if TRACED else 0.05
"""CPU time of one callback, whatever it is given."""
MOST_BYTES = 2 * MB
"""Memory that one callback may need for a while: some copies of `SMALL` characters and their
tree, never one of the payload."""
SMALL = 8_192
"""Limit of content in the tests of memory, which take long."""
ATTEMPTS = 5
"""A callback is slow when it is slow each time: the machine runs other things too."""


# What payloads can do -------------------------------------------------------------------------


class Raising:
    """Raises whatever one asks it."""

    def __str__(self) -> str:
        """Raise."""
        raise ValueError

    __repr__ = __str__
    __len__ = __iter__ = __bool__ = __eq__ = __str__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        """Raise."""
        raise RuntimeError(name)

    @property
    def content(self) -> Any:
        """Raise."""
        raise ValueError

    type = role = update = messages = id = metadata = status = tool_calls = content


class Waiting:
    """Waits for a lock that nobody gives back when it is shown; the wait is noted."""

    waited = False
    _held = threading.Lock()

    def __str__(self) -> str:
        """Wait, as an object would whose agent holds its lock."""
        Waiting.waited = True
        return str(self._held.acquire(timeout=0.2))

    __repr__ = __str__


Waiting._held.acquire()


def _cycle(kind: type) -> Any:
    if kind is dict:
        mapping: dict[str, Any] = {}
        mapping["me"] = mapping
        return mapping
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def _deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):
        found = [found]
    return found


PAYLOADS: dict[str, Callable[[], Any]] = {
    "50 MB of text": lambda: "x" * 50 * MB,
    "50 MB of quotes": lambda: '"' * 50 * MB,
    "emoji": lambda: "\N{GRINNING FACE}" * 12 * MB,
    "surrogates": lambda: "\ud800" * 5 * MB,
    "bytes": lambda: b"x" * 50 * MB,
    "list of a million": lambda: list(range(MB)),
    "set of a million": lambda: set(range(MB)),
    "dict of a million": lambda: {number: number for number in range(MB)},
    "a million texts": lambda: ["x" * 50] * MB,
    "a million messages": lambda: [HumanMessage("hi")] * MB,
    "a million tool messages": lambda: [ToolMessage("hi", tool_call_id="c")] * MB,
    "a million commands": lambda: (
        [Command(update={"messages": [ToolMessage("", tool_call_id="")]})] * MB
    ),
    "a million blocks": lambda: [{"type": "text", "text": "x"}] * MB,
    "blocks of 5 MB": lambda: [{"type": "text", "text": "x" * 5 * MB}] * 10_000,
    "long key": lambda: {"k" * 50 * MB: 1},
    "wide integer": lambda: 10**100_000,
    "cyclic dict": lambda: _cycle(dict),
    "cyclic list": lambda: _cycle(list),
    "deep": _deep,
    "raising": Raising,
    "list of raising": lambda: [Raising()] * MB,
    "waiting": Waiting,
    "list of waiting": lambda: [Waiting()] * 1_000,
    "huge command": lambda: Command(update={"messages": list(range(MB))}),
}


@functools.cache
def payload(name: str) -> Any:
    """Return a payload; building one takes longer than the test of it."""
    return PAYLOADS[name]()


# Every hook that takes one --------------------------------------------------------------------


Call = Callable[[], None]


def _asked(run: UUID, value: Any) -> GraphInterruptEvent:
    return GraphInterruptEvent(
        run_id=run,
        status="interrupt_after",
        checkpoint_id="1",
        checkpoint_ns=(),
        interrupts=(Interrupt(value, id="i"),),
    )


class Tree:
    """One run in which `value` is handed to every hook; `calls` are its callbacks, in order."""

    def __init__(self, handler: RunJournal, value: Any) -> None:
        """Plan the run."""
        self.handler = handler
        self.root = uuid4()
        self.operations = {self.root}
        self.calls: list[tuple[str, Call]] = []
        some = value if isinstance(value, list) else [value]
        self._plan("graph input", "on_chain_start", {"messages": value}, at=self.root, name="g")
        self._models(value, some)
        self._tools(value)
        self._retrievers(value)
        self._plan("custom event", "on_custom_event", "told", value, at=self.root)
        asked = _asked(self.root, value)
        self.calls.append(("interrupt", lambda: handler.on_interrupt(asked)))
        self._plan("graph output", "on_chain_end", value, at=self.root)

    def _plan(self, label: str, hook: str, /, *given: Any, at: UUID, **more: Any) -> None:
        if hook.endswith("start"):
            given = ({"name": "n"}, *given)
            self.operations.add(at)
            more.setdefault("parent_run_id", None if at == self.root else self.root)
        call = functools.partial(getattr(self.handler, hook), *given, run_id=at, **more)
        self.calls.append((label, call))

    def _models(self, value: Any, some: list[Any]) -> None:
        message = SimpleNamespace(type="human", content=value)
        nested = {"more": value} if isinstance(value, dict) else value
        answer = SimpleNamespace(type="ai", content=value, tool_calls=value)
        answer.usage_metadata = answer.response_metadata = nested
        for prompt, said in (
            ([message], [SimpleNamespace(message=answer)]),
            (some, some),
        ):
            run = uuid4()
            self._plan("prompt", "on_chat_model_start", [prompt], at=run)
            response = SimpleNamespace(generations=[said], llm_output=nested)
            self._plan("answer", "on_llm_end", response, at=run)
        run = uuid4()
        self._plan(
            "completion", "on_llm_start", [value], at=run, invocation_params={"tools": value}
        )
        self._plan("model error", "on_llm_error", ValueError(value), at=run, response=value)

    def _tools(self, value: Any) -> None:
        for name, given, result in (
            ("result", {"inputs": {"a": value}}, value),
            (
                "command",
                {"inputs": value if isinstance(value, dict) else None},
                Command(update=value),
            ),
        ):
            run = uuid4()
            self._plan("arguments", "on_tool_start", value, at=run, **given)
            self._plan(name, "on_tool_end", result, at=run)
        run = uuid4()
        self._plan("arguments", "on_tool_start", "", at=run)
        self._plan("tool error", "on_tool_error", KeyError(value, value), at=run)

    def _retrievers(self, value: Any) -> None:
        documents = [Document("d", metadata={"score": 1, "more": value})] * 10
        for found in (value, documents):
            run = uuid4()
            self._plan("query", "on_retriever_start", value, at=run)
            self._plan("documents", "on_retriever_end", found, at=run)


@pytest.fixture
def start(
    tracer_provider: TracerProvider, registry: CollectorRegistry, request: Any
) -> Callable[..., Journal]:
    """Provide a function that opens a journal: ``start(content=, feed=)``."""

    def open_journal(*, content: bool, feed: bool, limit: int = 32_768) -> Journal:
        journal = Journal(
            Settings(capture_content=content, max_content_chars=limit, grace=0.0),
            tracer_provider=tracer_provider,
            registry=registry,
            store=open_store("memory:") if feed else None,
        )
        request.addfinalizer(journal.shutdown)
        return journal

    return open_journal


BOTH, NEITHER = (True, True), (False, False)
MODES = [
    *((mode, name) for mode in (BOTH, NEITHER) for name in PAYLOADS),
    *(
        (mode, name)
        for mode in ((True, False), (False, True))
        for name in ("50 MB of text", "a million messages", "raising", "waiting")
    ),
]


def cpu_seconds(call: Call) -> float:
    """CPU time of this thread for a call, without the garbage collection that falls into it."""
    gc.disable()
    try:
        began = time.thread_time()
        call()
        return time.thread_time() - began
    finally:
        gc.enable()


@pytest.mark.parametrize(("mode", "name"), MODES, ids=lambda v: v if isinstance(v, str) else str(v))
def test_every_hook_is_quick(start, mode, name):
    """No callback takes longer than its share, whatever it is given."""
    content, feed = mode
    journal = start(content=content, feed=feed)
    slow: dict[str, float] = {}
    for attempt in range(ATTEMPTS):
        took: dict[str, float] = {}
        for hook, call in Tree(journal.handler(), payload(name)).calls:
            took[hook] = max(took.get(hook, 0.0), cpu_seconds(call))
        slow = {h: t for h, t in took.items() if t > MOST_SECONDS and (not attempt or h in slow)}
        if not slow:
            break
    assert slow == {}


@pytest.mark.parametrize(("mode", "name"), MODES, ids=lambda v: v if isinstance(v, str) else str(v))
def test_every_span_is_there(start, spans, sample, mode, name):
    """Every operation has its span, with attributes that fit and can be exported."""
    content, feed = mode
    journal = start(content=content, feed=feed)
    Waiting.waited = False
    tree = Tree(journal.handler(), payload(name))
    for _, call in tree.calls:
        call()
    assert journal.flush()
    found = spans.get_finished_spans()

    assert {span.attributes["langchain.run_id"] for span in found} == set(map(str, tree.operations))
    assert len(found) == len(tree.operations)
    assert sample("otel_journal_operations_open") == 0
    assert sample("otel_journal_handler_errors_total") == 0
    assert not Waiting.waited
    outcomes = [span.attributes["otel_journal.outcome"] for span in found]
    assert (outcomes.count("error"), outcomes.count("interrupted")) == (2, 1)
    for span in found:
        for key, value in span.attributes.items():
            assert len(str(value)) <= journal.settings.max_content_chars, key
            str(value).encode()
            if key in JSON:
                json.loads(value)
        span.to_json()


LARGE = (
    "50 MB of text",
    "50 MB of quotes",
    "list of a million",
    "dict of a million",
    "a million messages",
    "blocks of 5 MB",
    "long key",
)
JSON = {
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.retrieval.documents",
}


@pytest.mark.parametrize("name", LARGE)
def test_every_hook_needs_little_memory(start, name):
    """What a callback needs for a while does not grow with the payload."""
    journal = start(content=True, feed=True, limit=SMALL)
    for _, call in Tree(journal.handler(), "warm up").calls:
        call()
    peaks: dict[str, int] = {}
    for hook, call in Tree(journal.handler(), payload(name)).calls:
        tracemalloc.start()
        try:
            call()
            peaks[hook] = max(peaks.get(hook, 0), tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()

    assert {hook: peak for hook, peak in peaks.items() if peak > MOST_BYTES} == {}


# Exceptions -----------------------------------------------------------------------------------


class SilentError(Exception):
    """Has no text that can be had."""

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("short"), "short"),
        (KeyError("key"), "'key'"),
        (ValueError("a", 1), "('a', 1)"),
        (ValueError(), ""),
        (SilentError("x"), ""),
        (ValueError("x" * 100_000), "x" * 1_000),
        (ValueError({"a": 1}), '{"a":1}'),
        (ValueError(Raising()), "Raising>"),
        (ValueError("\ud800"), "\ufffd"),
        (OSError(2, "No such file"), "[Errno 2] No such file"),
    ],
)
def test_texts_of_exceptions(start, spans, error, text):
    """The text of an exception is Python's as long as it is short, and bounded in any case."""
    journal = start(content=True, feed=False)
    handler, run = journal.handler(), uuid4()
    handler.on_tool_start({"name": "t"}, "", run_id=run)
    handler.on_tool_error(error, run_id=run)
    assert journal.flush()
    (span,) = spans.get_finished_spans()
    shown = span.status.description or ""

    assert text in shown
    assert bool(text) == bool(shown)
    assert len(shown) <= journal.settings.max_content_chars
    assert span.attributes["error.type"].endswith(type(error).__name__)


def test_deep_stacks_are_bounded():
    """Of a stack of any depth the innermost frames are kept: the place of the fault."""

    def fall(depth: int) -> None:
        if not depth:
            raise ValueError
        fall(depth - 1)

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - it has no message
        fall(500)
    lines = failures.stack(caught.value.__traceback__).splitlines()

    assert len(lines) == 32
    assert all(line.endswith("in fall") for line in lines)


def test_type_names_are_bounded(start, spans):
    """The class of an exception may have a name of any length; its label may not."""
    journal = start(content=False, feed=False)
    handler, run = journal.handler(), uuid4()
    handler.on_tool_start({"name": "t"}, "", run_id=run)
    handler.on_tool_error(type("E" * 10_000, (Exception,), {})(), run_id=run)
    assert journal.flush()

    assert len(spans.get_finished_spans()[0].attributes["error.type"]) == 200


def test_iterators_are_not_emptied(start):
    """What can be read only once is left to the agent."""
    handler = start(content=True, feed=True).handler()
    documents = iter([Document("d")])
    run = uuid4()
    handler.on_retriever_start({}, "q", run_id=run)
    handler.on_retriever_end(documents, run_id=run)  # type: ignore[arg-type]

    assert len(list(documents)) == 1


def test_left_out_messages_are_counted(start, spans):
    """The mark at the end of a cut prompt tells how many messages are not shown."""
    journal = start(content=True, feed=False)
    handler, run = journal.handler(), uuid4()
    handler.on_chat_model_start({}, [[HumanMessage("hi")] * 100_000], run_id=run)
    handler.on_llm_end(SimpleNamespace(generations=[[]], llm_output=None), run_id=run)
    journal.flush()
    shown = json.loads(spans.get_finished_spans()[0].attributes["gen_ai.input.messages"])

    assert shown[-1] == f"…[cut, {100_000 - (len(shown) - 1)} more]"
    assert shown[0] == {"role": "user", "parts": [{"type": "text", "content": "hi"}]}


def test_one_long_message_does_not_hide_the_others(start, spans):
    """Of a long message the head is shown, and the ones after it as well."""
    journal = start(content=True, feed=False)
    handler, run = journal.handler(), uuid4()
    prompt = [HumanMessage("x" * MB), *[HumanMessage(f"question {n}") for n in range(20)]]
    handler.on_chat_model_start({}, [prompt], run_id=run)
    handler.on_llm_end(SimpleNamespace(generations=[[]], llm_output=None), run_id=run)
    journal.flush()
    shown = json.loads(spans.get_finished_spans()[0].attributes["gen_ai.input.messages"])

    assert len(shown[0]["parts"][0]["content"]) > 10_000
    assert shown[-1]["parts"][0]["content"] == "question 19"


@pytest.mark.parametrize("where", ["content", "tool_calls"])
def test_long_answers_are_converted_as_far_as_they_fit(start, spans, where):
    """The head of a long answer is there in the form of the conventions."""
    call = {"name": "look", "args": {}, "id": "c", "type": "tool_call"}
    block = {"type": "text", "text": "said"}
    answer = (
        {"content": [block] * 50_000} if where == "content" else {"tool_calls": [call] * 50_000}
    )
    message = AIMessage.model_construct(**{"content": "", **answer})
    journal = start(content=True, feed=False)
    handler, run = journal.handler(), uuid4()
    handler.on_chat_model_start({}, [[HumanMessage("hi")]], run_id=run)
    said = [[SimpleNamespace(message=message)]]
    handler.on_llm_end(SimpleNamespace(generations=said, llm_output=None), run_id=run)
    journal.flush()
    (shown,) = json.loads(spans.get_finished_spans()[0].attributes["gen_ai.output.messages"])

    first = shown["parts"][0]
    assert first["type"] == ("text" if where == "content" else "tool_call")
    assert len(shown["parts"]) > 100


def test_a_cut_text_says_so():
    """Texts that are no JSON carry the mark of the cut too, within their limit."""
    assert shorten("abc", limit=64) == ("abc", False)
    text, cut = shorten("x" * 1_000, limit=64)
    assert cut
    assert len(text) == 64
    assert text.endswith("…[cut, 1000 chars]")


# What is no payload ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"metadata": {"thread_id": Raising()}}, id="thread id"),
        pytest.param({"invocation_params": {"stop": [Raising()]}}, id="stop"),
        pytest.param({"invocation_params": {"model": Raising()}}, id="model"),
        pytest.param(
            {"metadata": {"langgraph_node": "n", "langgraph_triggers": [Raising()]}}, id="triggers"
        ),
    ],
)
def test_odd_identifiers_do_not_cost_the_span(start, spans, given):
    """An id or parameter that cannot be read costs itself, not the span."""
    journal = start(content=False, feed=False)
    handler, run = journal.handler(), uuid4()
    if "langgraph_node" in given.get("metadata", {}):
        handler.on_chain_start({}, {}, run_id=run, name="n", **given)
        handler.on_chain_end({}, run_id=run)
    else:
        handler.on_chat_model_start({}, [[]], run_id=run, **given)
        handler.on_llm_end(SimpleNamespace(generations=[[]], llm_output=None), run_id=run)
    journal.flush()

    assert len(spans.get_finished_spans()) == 1


@pytest.mark.parametrize("what", ["name", "description", "thread id", "model"])
def test_identifiers_are_bounded(start, spans, what):
    """Names and ids come from the application and from models; on spans they are bounded too."""
    journal = start(content=False, feed=False)
    handler, run, long = journal.handler(), uuid4(), "x" * MB
    if what == "model":
        handler.on_chat_model_start({}, [[]], run_id=run, invocation_params={"model": long})
        handler.on_llm_end(SimpleNamespace(generations=[[]], llm_output=None), run_id=run)
    else:
        described = {"name": "t", what: long} if what != "thread id" else {"name": "t"}
        metadata = {"thread_id": long if what == "thread id" else "t"}
        handler.on_tool_start(described, "", run_id=run, metadata=metadata)
        handler.on_tool_end("", run_id=run)
    journal.flush()
    (span,) = spans.get_finished_spans()

    assert len(span.name) < 10_000
    assert max(len(str(value)) for value in span.attributes.values()) < 100_000


def test_reasoning_is_not_joined_in_full(start):
    """A summary of reasoning in many pieces is not copied before it is cut."""
    journal = start(content=True, feed=False)
    handler, run = journal.handler(), uuid4()
    handler.on_chat_model_start({}, [[HumanMessage("hi")]], run_id=run)
    block = {"type": "reasoning", "summary": ["x" * MB] * 20}
    answer = SimpleNamespace(type="ai", content=[block])
    said = SimpleNamespace(generations=[[SimpleNamespace(message=answer)]], llm_output=None)
    tracemalloc.start()
    try:
        handler.on_llm_end(said, run_id=run)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < MOST_BYTES


def test_parameters_are_not_copied_in_full(start):
    """Of nested request parameters only what is read is copied."""
    handler = start(content=False, feed=False).handler()
    wide = payload("dict of a million")
    tracemalloc.start()
    try:
        handler.on_chat_model_start({}, [[]], run_id=uuid4(), invocation_params={"reasoning": wide})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < MOST_BYTES
