"""Life of a tool call, reported by hand and by callbacks: every odd order has one answer.

The rows are those of the reference's probes (contract 14) with the answers this journal gives.
"""

# ruff: noqa: ARG001 - tools get arguments they need not read

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_journal import Journal, Settings, open_store
from otel_journal.testing import ai, tool_call

ULID_LENGTH = 26
TIMEOUT_S = 5.0


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    """Let no span that another test left current be around this one, nor ours around others."""
    token = otel_context.attach(otel_context.Context())
    yield
    otel_context.detach(token)


class Run:
    """An open run with a store, to report tool calls into."""

    def __init__(self, journal: Journal, spans: InMemorySpanExporter) -> None:
        """Open a run of `journal`, which exports to `spans`."""
        self.journal = journal
        self.handler = journal.handler(thread_id="t-1")
        self.id = uuid4()
        self._spans = spans
        self.handler.on_chain_start({}, {}, run_id=self.id, name="adapter")

    def start(self, name: str = "get", arguments: object = None, call_id: Any = None) -> str:
        """Report a start."""
        return self.journal.tool_call_started(self.id, name, arguments, call_id)

    def complete(self, name: str = "get", call_id: Any = None, **how: Any) -> None:
        """Report a completion."""
        self.journal.tool_call_completed(self.id, name, call_id, **how)

    def finish(self) -> None:
        """End the run and wait for the sinks."""
        self.handler.on_chain_end({}, run_id=self.id)
        assert self.journal.flush()

    def events(self, *types: str) -> list[Any]:
        """Events of these types."""
        assert self.journal.flush()
        return self.journal.store.events(str(self.id), types=types or None)

    def completions(self) -> list[dict[str, Any]]:
        """Contents of all completions, in order."""
        return [event.content for event in self.events("tool_call.completed")]

    def by_id(self) -> dict[str, dict[str, Any]]:
        """Completions by call id, which starts and completions share."""
        started = {
            e.span.op_id: e.content["call_id"]
            for e in self.events("tool_call.started")
            if e.span is not None
        }
        return {
            started[e.span.op_id]: e.content
            for e in self.events("tool_call.completed")
            if e.span is not None
        }

    def pending(self) -> set[str]:
        """Call ids that were started and not completed."""
        return {e.content["call_id"] for e in self.events("tool_call.started")} - set(self.by_id())

    def tool_spans(self) -> list[dict[str, Any]]:
        """Attributes of the exported tool spans."""
        assert self.journal.flush()
        found = [dict(span.attributes or {}) for span in self._spans.get_finished_spans()]
        return [a for a in found if a.get("gen_ai.operation.name") == "execute_tool"]


@pytest.fixture
def journal(tracer_provider: Any, registry: Any) -> Iterator[Journal]:
    """Provide a journal with a store; children left open are closed at once."""
    settings = Settings(grace=0.0, linger=0.0)
    with Journal(
        settings, tracer_provider=tracer_provider, registry=registry, store=open_store("memory:")
    ) as journal:
        yield journal


@pytest.fixture
def run(journal: Journal, spans: InMemorySpanExporter) -> Run:
    """Provide an open run."""
    return Run(journal, spans)


# By hand ------------------------------------------------------------------------------------


def test_started_and_completed_share_the_id(run: Run) -> None:
    """A call without an id gets a ULID, which its start returns and both events carry."""
    call = run.start("get", {"q": 1})
    run.complete(call_id=call, result="r")

    assert len(call) == ULID_LENGTH
    (started,) = run.events("tool_call.started")
    assert started.content == {"call_id": call, "name": "get", "arguments": {"q": 1}}
    assert run.by_id()[call]["result"] == "r"
    assert run.by_id()[call]["outcome"] == "ok"
    assert isinstance(run.by_id()[call]["latency_ms"], int)


def test_completion_names_the_call(run: Run) -> None:
    """A completion carries the call's id and name: a reader needs no start event."""
    call = run.start("get")
    run.complete(call_id=call, result="r")
    (content,) = run.completions()

    assert content["call_id"] == call
    assert content["name"] == "get"


@pytest.mark.parametrize("call_id", [None, "", 7], ids=["none", "empty", "no text"])
def test_missing_id_is_made_up(run: Run, call_id: Any) -> None:
    """Whatever is no id is replaced by one, never shared by two calls."""
    first, second = run.start(call_id=call_id), run.start(call_id=call_id)

    assert first != second
    assert len(first) == len(second) == ULID_LENGTH


def test_unknown_id_completes_no_other_call(run: Run) -> None:
    """A completion with an unknown id is kept as an orphan; the pending call stays pending."""
    call = run.start("get")
    run.complete(call_id="other", result="theirs")

    assert run.pending() == {call}
    (orphan,) = run.events("tool_call.completed")
    assert orphan.content["call_id"] == "other"
    assert orphan.content["result"] == "theirs"
    assert orphan.metadata["orphan"] is True
    run.complete(call_id=call, result="mine")
    assert run.by_id()[call]["result"] == "mine"


def test_second_completion_changes_nothing(run: Run, sample: Any) -> None:
    """The first completion wins, in the store, the span and the counters."""
    call = run.start()
    run.complete(call_id=call, result="first")
    run.complete(call_id=call, error="second")
    run.complete(call_id=call, result="third")
    run.finish()

    assert [c["result"] for c in run.completions()] == ["first"]
    assert [s["otel_journal.outcome"] for s in run.tool_spans()] == ["ok"]
    assert sample("otel_journal_tool_calls_total") == 1
    assert sample("otel_journal_replays_dropped_total", kind="tool") == 2
    assert run.journal.summary(run.id).tool_calls == 1


@pytest.mark.parametrize("call_id", ["never-started", None], ids=["with id", "without id"])
def test_completion_without_start_is_kept(run: Run, call_id: str | None) -> None:
    """A completion nobody announced is a fact all the same."""
    run.complete(call_id=call_id, result="r")

    (orphan,) = run.events("tool_call.completed")
    assert orphan.content["result"] == "r"
    assert orphan.content["name"] == "get"
    assert orphan.metadata["orphan"] is True
    assert orphan.content["call_id"] == call_id or call_id is None


def test_orphan_is_kept_once(run: Run) -> None:
    """The same orphan completion delivered twice is one event."""
    run.complete(call_id="x", result="r")
    run.complete(call_id="x", result="r")

    assert len(run.completions()) == 1


def test_completion_after_the_orphan_of_the_same_id(run: Run) -> None:
    """A start that comes after its orphaned completion opens a call of its own."""
    run.complete(call_id="x", result="early")
    run.start(call_id="x")

    assert run.pending() == {"x"}


def test_second_start_changes_nothing(run: Run, sample: Any) -> None:
    """A repeated start neither raises nor opens a second call."""
    assert run.start(arguments={"n": 1}, call_id="x") == "x"
    assert run.start(arguments={"n": 2}, call_id="x") == "x"
    run.complete(call_id="x", result="r")
    run.finish()

    (started,) = run.events("tool_call.started")
    assert started.content["arguments"] == {"n": 1}
    assert len(run.tool_spans()) == 1
    assert sample("otel_journal_tool_calls_total") == 1


def test_start_after_completion_changes_nothing(run: Run) -> None:
    """A start that is repeated after the end does not reopen the call."""
    run.start(call_id="x")
    run.complete(call_id="x", result="r")
    run.start(call_id="x")

    assert run.pending() == set()
    assert len(run.events("tool_call.started")) == 1


def test_start_repeated_after_completion_is_not_found_by_name(run: Run) -> None:
    """A completed call whose start is repeated does not catch completions without id."""
    run.start(call_id="done")
    run.complete(call_id="done", result="r")
    run.start(call_id="done")
    pending = run.start()
    run.complete(result="for the pending one")

    assert run.by_id()[pending]["result"] == "for the pending one"


def test_null_result_completes(run: Run) -> None:
    """Null is a result: the call is over and a later completion does not touch it."""
    call = run.start()
    run.complete(call_id=call, result=None)
    run.complete(result="legacy, without id")

    assert run.by_id()[call]["result"] is None
    assert run.by_id()[call]["outcome"] == "ok"
    assert run.pending() == set()


@pytest.mark.parametrize("how", ["cancelled", "error", "text"])
def test_failed_completions(run: Run, sample: Any, how: str) -> None:
    """A cancelled call is cancelled, no error; exceptions and texts are errors."""
    error: dict[str, BaseException | str] = {
        "cancelled": asyncio.CancelledError(),
        "error": LookupError("gone"),
        "text": "gone",
    }
    expected = {
        "cancelled": ("cancelled", None, "UNSET"),
        "error": ("error", "LookupError", "ERROR"),
        "text": ("error", "tool_error", "ERROR"),
    }[how]
    call = run.start()
    run.complete(call_id=call, error=error[how])
    run.finish()

    (span,) = run.tool_spans()
    assert (span["otel_journal.outcome"], span.get("error.type")) == expected[:2]
    (exported,) = (s for s in run._spans.get_finished_spans() if s.name == "execute_tool get")
    assert exported.status.status_code.name == expected[2]
    assert run.by_id()[call]["outcome"] == expected[0]
    assert sample("otel_journal_tool_calls_total", outcome=expected[0]) == 1


def test_oldest_pending_by_start_order(run: Run) -> None:
    """Without an id the oldest pending call of that name ends, others of the name wait."""
    first, other, second = run.start("get"), run.start("put"), run.start("get")
    run.complete("get", result="one")

    assert run.by_id()[first]["result"] == "one"
    assert run.pending() == {other, second}
    run.complete("get", result="two")
    assert run.by_id()[second]["result"] == "two"


def test_oldest_pending_skips_completed_calls(run: Run) -> None:
    """A call completed by its id is no longer the oldest pending one."""
    first, second = run.start(), run.start()
    run.complete(call_id=first, result="by id")
    run.complete(result="by name")

    assert run.by_id()[second]["result"] == "by name"


def test_oldest_pending_of_this_run_only(journal: Journal, spans: InMemorySpanExporter) -> None:
    """Two runs that use one tool name at once do not end each other's calls."""
    one, two = Run(journal, spans), Run(journal, spans)
    theirs, mine = one.start(), two.start()
    two.complete(result="mine")

    assert one.pending() == {theirs}
    assert two.by_id()[mine]["result"] == "mine"


def test_same_id_in_two_runs(journal: Journal, spans: InMemorySpanExporter) -> None:
    """Providers repeat ids: the same one in another run is another call."""
    one, two = Run(journal, spans), Run(journal, spans)
    for each, result in ((one, "first"), (two, "second")):
        each.start(call_id="call_0")
        each.complete(call_id="call_0", result=result)

    assert one.by_id()["call_0"]["result"] == "first"
    assert two.by_id()["call_0"]["result"] == "second"


@pytest.mark.parametrize("length", [64, 65])
def test_longest_id(run: Run, length: int) -> None:
    """An id may have 64 characters; a longer one is refused and leaves nothing behind."""
    if length == 64:
        assert run.start(call_id="x" * length) == "x" * length
        return
    with pytest.raises(ValueError, match="allowed: 1 to 64"):
        run.start(call_id="x" * length)
    assert run.events("tool_call.started") == []


def test_longest_id_of_a_completion(run: Run) -> None:
    """A completion's id is held to the same limit as a start's."""
    with pytest.raises(ValueError, match="64"):
        run.complete(call_id="x" * 65, result="r")


def test_parallel_calls_of_one_name(run: Run) -> None:
    """Calls of one tool that end in another order keep their own arguments and results."""
    calls = {n: run.start("get", {"n": n}) for n in range(3)}
    for n in (2, 0, 1):
        run.complete("get", calls[n], result=f"r{n}")

    assert {call: c["result"] for call, c in run.by_id().items()} == {
        calls[n]: f"r{n}" for n in range(3)
    }


def test_calls_from_many_threads(run: Run, sample: Any) -> None:
    """Threads that report at once lose nothing and mix nothing up."""
    together = threading.Barrier(4)

    def work(worker: int) -> None:
        together.wait()
        for n in range(10):
            call = run.start("get", {"w": worker, "n": n})
            run.complete("get", call, result=[worker, n])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish()
    arguments = {
        e.content["call_id"]: [e.content["arguments"]["w"], e.content["arguments"]["n"]]
        for e in run.events("tool_call.started")
    }

    assert len(arguments) == 40
    assert {call: c["result"] for call, c in run.by_id().items()} == arguments
    assert sample("otel_journal_tool_calls_total") == 40


def test_only_the_models_id_is_a_provider_id(run: Run) -> None:
    """``gen_ai.tool.call.id`` is never made up; the journal's own id always is there."""
    run.start("given", call_id="call_9")
    run.complete("given", "call_9", result=1)
    made = run.start("made")
    run.complete("made", made, result=2)
    run.finish()
    found = {span["gen_ai.tool.name"]: span for span in run.tool_spans()}

    assert found["given"]["gen_ai.tool.call.id"] == "call_9"
    assert "gen_ai.tool.call.id" not in found["made"]
    assert found["made"]["otel_journal.call_id"] == made


def test_manual_call_is_in_the_runs_trace(run: Run, spans: InMemorySpanExporter) -> None:
    """A call reported by hand hangs below the open root of its run."""
    call = run.start()
    run.complete(call_id=call, result=1)
    run.finish()
    by_name = {span.name: span for span in spans.get_finished_spans()}
    root, called = by_name["invoke_workflow adapter"], by_name["execute_tool get"]

    assert called.parent is not None
    assert called.parent.span_id == root.context.span_id
    assert called.context.trace_id == root.context.trace_id


def test_call_left_pending_ends_with_its_run(run: Run) -> None:
    """A call nobody completes is closed with the run; what became of it is unknown."""
    run.start()
    run.finish()
    run.journal.shutdown()

    (span,) = run.tool_spans()
    assert span["otel_journal.outcome"] == "unknown"
    assert span["otel_journal.closed_by"] == "parent_end"


def test_call_without_an_open_run(journal: Journal) -> None:
    """A call of a run that the journal never saw is kept under its id."""
    call = journal.tool_call_started("elsewhere", "get", {"q": 1})
    journal.tool_call_completed("elsewhere", "get", call, result="r")
    assert journal.flush()

    types = [event.event_type for event in journal.store.events("elsewhere")]
    assert types[:2] == ["tool_call.started", "tool_call.completed"]


@pytest.mark.parametrize("content", [False, True], ids=["private", "captured"])
def test_manual_content_is_private_by_default(
    tracer_provider: Any, registry: Any, spans: InMemorySpanExporter, *, content: bool
) -> None:
    """Arguments and results reach spans only with content capture."""
    settings = Settings(capture_content=content)
    with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
        run = Run(journal, spans)
        call = run.start("get", {"q": "secret-argument"})
        run.complete("get", call, result="secret-result")
        run.finish()
    (span,) = (dict(s.attributes or {}) for s in spans.get_finished_spans() if "get" in s.name)

    assert ("secret-argument" in str(span.get("gen_ai.tool.call.arguments"))) is content
    assert ("secret-result" in str(span.get("gen_ai.tool.call.result"))) is content


# By callbacks -------------------------------------------------------------------------------


def tool_graph(*tools: BaseTool, **options: Any) -> CompiledStateGraph:
    """Compile a graph with nothing but a `ToolNode`."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools, **options))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    return graph.compile()


def _two_gets(journal: Journal) -> tuple[Any, dict[str, Any]]:
    asked = ai("", tool_call("get", {"q": "a"}, "A"), tool_call("get", {"q": "b"}, "B"))
    return {"messages": [asked]}, {"callbacks": [journal.handler()]}


def _calls(journal: Journal) -> dict[str, dict[str, Any]]:
    assert journal.flush()
    found: dict[str, dict[str, Any]] = {}
    for event in journal.store.read(limit=1_000):
        if event.event_type in {"tool_call.started", "tool_call.completed"}:
            known = found.setdefault(event.span.attributes["otel_journal.call_id"], {})
            assert not known.keys() & {event.event_type}, "delivered twice"
            known |= event.content | {event.event_type: True}
    return found


def test_parallel_async_calls_of_one_tool(journal: Journal) -> None:
    """The later of two parallel calls ends first; each keeps its arguments and its result."""

    async def use() -> None:
        b_ended = asyncio.Event()

        @tool
        async def get(q: str) -> str:
            """Get."""
            if q == "a":
                await asyncio.wait_for(b_ended.wait(), TIMEOUT_S)
            else:
                asyncio.get_running_loop().call_later(0.02, b_ended.set)
            return f"for {q}"

        graph = tool_graph(get)
        await graph.ainvoke(*_two_gets(journal))

    asyncio.run(use())
    calls = _calls(journal)

    assert {k: (c["arguments"], c["result"]) for k, c in calls.items()} == {
        "A": ({"q": "a"}, "for a"),
        "B": ({"q": "b"}, "for b"),
    }
    completed = journal.store.read(limit=1_000)
    order = [
        event.span.attributes["otel_journal.call_id"]
        for event in completed
        if event.event_type == "tool_call.completed"
    ]
    assert order == ["B", "A"]


def test_parallel_threads_of_one_tool(journal: Journal) -> None:
    """The same in threads, as a synchronous graph runs them."""
    b_ended = threading.Event()

    @tool
    def get(q: str) -> str:
        """Get."""
        if q == "a":
            assert b_ended.wait(TIMEOUT_S)
        else:
            threading.Timer(0.02, b_ended.set).start()
        return f"for {q}"

    graph = tool_graph(get)
    graph.invoke(*_two_gets(journal))

    assert {k: (c["arguments"], c["result"]) for k, c in _calls(journal).items()} == {
        "A": ({"q": "a"}, "for a"),
        "B": ({"q": "b"}, "for b"),
    }


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("text", "text"),
        (None, None),
        ({"a": [1, 2]}, {"a": [1, 2]}),
        ([1, "two"], [1, "two"]),
        (0, 0),
    ],
    ids=["text", "none", "mapping", "list", "zero"],
)
def test_every_kind_of_result_is_kept(journal: Journal, value: object, stored: object) -> None:
    """A tool called alone returns its value as it is; that is the result."""

    @tool
    def get(q: str) -> Any:
        """Get."""
        return value

    get.invoke({"q": "x"}, {"callbacks": [journal.handler()]})
    (call,) = _calls(journal).values()

    assert call["result"] == stored
    assert call["outcome"] == "ok"


@pytest.mark.parametrize(
    "update",
    [
        {"messages": [ToolMessage("found", tool_call_id="A")]},
        [("messages", [ToolMessage("found", tool_call_id="A")])],
    ],
    ids=["mapping", "pairs"],
)
def test_results_inside_commands_are_in_the_feed(journal: Journal, update: Any) -> None:
    """A tool that answers with a Command has its messages in the feed."""

    @tool
    def get(q: str) -> Command[Any]:
        """Get."""
        return Command(update=update)

    handler = journal.handler(thread_id="t-1")
    handler.on_tool_start({"name": "get"}, "x", run_id=(call := uuid4()), inputs={"q": "x"})
    handler.on_tool_end(get.invoke({"q": "x"}), run_id=call)
    assert journal.flush()

    rows = journal.store.messages("t-1")
    assert [row.content["content"] for row in rows] == ["found"]
    assert rows[0].event_type == "llm.tool.result"


@pytest.mark.parametrize("update", [None, {}, {"other": 1}], ids=["none", "empty", "no messages"])
def test_commands_without_messages_complete_the_call(journal: Journal, update: Any) -> None:
    """A Command may update nothing: the call is over all the same."""
    handler = journal.handler()
    handler.on_tool_start({"name": "get"}, "x", run_id=(call := uuid4()), inputs={})
    handler.on_tool_end(Command(update=update), run_id=call)

    (found,) = _calls(journal).values()
    assert found["outcome"] == "ok"


def test_repeated_tool_end_is_one_result(journal: Journal, sample: Any) -> None:
    """A second delivery of a tool's end adds no row and counts no message."""
    handler = journal.handler(thread_id="t-1")
    handler.on_chain_start({}, {}, run_id=(root := uuid4()), name="graph")
    handler.on_tool_start({"name": "get"}, "x", run_id=(call := uuid4()), parent_run_id=root)
    for _ in range(2):
        handler.on_tool_end(ToolMessage("r", tool_call_id="A"), run_id=call, parent_run_id=root)
    handler.on_chain_end({}, run_id=root)
    assert journal.flush()

    assert journal.store.count_messages("t-1") == 1
    assert journal.summary(root).messages == 1
    assert sample("otel_journal_tool_calls_total") == 1


@pytest.mark.parametrize("failed", [False, True], ids=["ok", "error"])
def test_completion_by_callback_names_the_call(journal: Journal, *, failed: bool) -> None:
    """A completion carries the call's id and name in the automatic path too."""
    handler, call = journal.handler(), uuid4()
    handler.on_tool_start({"name": "get"}, "x", run_id=call, inputs={}, tool_call_id="A")
    if failed:
        handler.on_tool_error(LookupError("gone"), run_id=call, tool_call_id="A")
    else:
        handler.on_tool_end("r", run_id=call)
    assert journal.flush()
    completed = [e for e in journal.store.read() if e.event_type == "tool_call.completed"]

    assert completed[0].content["call_id"] == "A"
    assert completed[0].content["name"] == "get"


def test_unhandled_tool_error_completes_the_call(journal: Journal) -> None:
    """A tool that raises leaves a completion with the error, not a pending call."""
    handler = journal.handler()
    handler.on_tool_start(
        {"name": "get"}, "x", run_id=(call := uuid4()), inputs={"q": 1}, tool_call_id="A"
    )
    handler.on_tool_error(LookupError("gone"), run_id=call, tool_call_id="A")

    assert _calls(journal)["A"]["error"] == "gone"
    assert _calls(journal)["A"]["outcome"] == "error"


def test_cancelled_tool_completes_as_cancelled(
    journal: Journal, spans: InMemorySpanExporter
) -> None:
    """A tool whose task is cancelled is over, and is no error."""
    started = asyncio.Event()

    async def use() -> None:
        @tool
        async def get(q: str) -> str:
            """Get."""
            started.set()
            await asyncio.sleep(TIMEOUT_S)
            return q

        graph = tool_graph(get)
        asked = {"messages": [ai("", tool_call("get", {"q": "a"}, "A"))]}
        work = graph.ainvoke(asked, {"callbacks": [journal.handler()]})
        task = asyncio.create_task(work)
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())
    journal.shutdown()

    assert _calls(journal)["A"]["outcome"] == "cancelled"
    (span,) = (s for s in spans.get_finished_spans() if s.name == "execute_tool get")
    assert not span.status.description
    assert span.status.status_code.name == "UNSET"


def test_one_id_in_two_turns_is_two_calls(journal: Journal) -> None:
    """Some providers use the tool's name as id: keyed by operation, turns do not collide."""

    @tool
    def get(q: str) -> str:
        """Get."""
        return f"for {q}"

    graph = tool_graph(get)
    handler = journal.handler()
    for q in ("one", "two"):
        asked = {"messages": [ai("", tool_call("get", {"q": q}, "get"))]}
        graph.invoke(asked, {"callbacks": [handler]})
    assert journal.flush()
    completed = [e for e in journal.store.read(limit=99) if e.event_type == "tool_call.completed"]

    assert [event.content["result"] for event in completed] == ["for one", "for two"]
    assert [e.span.attributes["gen_ai.tool.call.id"] for e in completed] == ["get", "get"]


def test_run_ids_may_be_text_or_uuid(journal: Journal) -> None:
    """A run may be named by the UUID of its root or by its text."""
    run = UUID(int=7)
    call = journal.tool_call_started(run, "get")
    journal.tool_call_completed(str(run), "get", call, result=1)
    assert journal.flush()

    assert [e.event_type for e in journal.store.events(str(run))][:2] == [
        "tool_call.started",
        "tool_call.completed",
    ]
