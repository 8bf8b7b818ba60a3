"""Repeated and late answers of a model, as one table: what is kept, what is counted, and where.

The rows are those of the reference journal's contract (5.3), with this design's answers: the feed
row waits for usage until the next event of its run, the end event until the grace is over, and
usage that comes later still is booked by ``usage.amended``. Everything is driven through the
callbacks of a real handler with real LangChain objects.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from opentelemetry import context as otel_context
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_journal import Journal, Settings, open_store

DETAILS = {"cache_read": 40, "cache_creation": 10}
NEVER_S = 600.0
"""A grace that no test outlives: only a callback, a parent's end or a flush settles."""
DEADLINE_S = 5.0


@pytest.fixture(autouse=True)
def _own_context() -> Iterator[None]:
    """Let no span that another test left current be around this one, nor ours around others."""
    token = otel_context.attach(otel_context.Context())
    yield
    otel_context.detach(token)


def usage(tokens: int, output: int = 20) -> dict[str, Any]:
    """Return usage as LangChain's messages carry it."""
    return {
        "input_tokens": tokens,
        "output_tokens": output,
        "total_tokens": tokens + output,
        "input_token_details": dict(DETAILS) if tokens else {},
        "output_token_details": {"reasoning": 8} if tokens else {},
    }


def answer(text: str = "first", tokens: dict[str, Any] | None = None, **more: Any) -> AIMessage:
    """Return a real answer."""
    metadata = {"model_name": "m-1", "finish_reason": "stop"}
    return AIMessage(text, usage_metadata=tokens, response_metadata=metadata, **more)


def response(*messages: AIMessage, **llm_output: Any) -> LLMResult:
    """Return a real response with one generation per message."""
    generations = [ChatGeneration(message=message) for message in messages]
    return LLMResult(generations=[generations], llm_output=llm_output or None)


class Drive:
    """A run with any number of model calls below its root."""

    def __init__(self, journal: Journal) -> None:
        """Open the root."""
        self.journal = journal
        self.handler = journal.handler(thread_id="t-1")
        self.root = uuid4()
        self.calls: dict[str, UUID] = {}
        self.handler.on_chain_start({}, {}, run_id=self.root, name="graph")

    def start(self, call: str = "c1", **options: Any) -> None:
        """Begin a call, or deliver its start once more."""
        self.handler.on_chat_model_start(
            {},
            [[HumanMessage("question", id="h-1")]],
            run_id=self.calls.setdefault(call, uuid4()),
            parent_run_id=self.root,
            metadata={"ls_provider": "openai", "ls_model_name": "m-1"},
            **options,
        )

    def end(self, *messages: AIMessage, call: str = "c1", **options: Any) -> None:
        """Deliver an end with one generation per message."""
        self.handler.on_llm_end(
            response(*messages), run_id=self.calls[call], parent_run_id=self.root, **options
        )

    def fail(self, error: BaseException) -> None:
        """Deliver an error."""
        self.handler.on_llm_error(error, run_id=self.calls["c1"], parent_run_id=self.root)

    def other_event(self) -> None:
        """Let something else happen in the run."""
        self.journal.annotate(self.root, "note")

    def finish(self) -> None:
        """End the run and wait for all sinks."""
        self.handler.on_chain_end({}, run_id=self.root)
        assert self.journal.flush()

    def stored(self, *types: str) -> list[Any]:
        """Events of these types, in the order in which they were written."""
        return self.journal.store.events(str(self.root), types=types or None)

    def rows(self) -> list[Any]:
        """Answers in the feed."""
        return self.stored("llm.ai.response")

    def wait_for_end_event(self) -> None:
        """Wait until the journal itself has settled the call."""
        deadline = time.monotonic() + DEADLINE_S
        while not self.stored("llm.end"):
            assert time.monotonic() < deadline, "the grace never ended"
            time.sleep(0.01)


@dataclass(frozen=True)
class Expected:
    """What must be seen after a row of the table; tokens are input tokens."""

    rows: tuple[int | None, ...] = (100,)
    """Usage of each answer in the feed, None for the empty usage."""
    total: int = 100
    spans: tuple[int | None, ...] = (100,)
    """Usage of each exported model call."""
    messages: int = 2
    """The human turn and the answers."""
    texts: tuple[str, ...] = ("first",)
    calls: int = 1
    conflicts: int = 0
    amended: int = 0
    missing: int = 0
    outcome: str = "ok"


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    program: Callable[[Drive], None]
    expected: Expected = Expected()
    settings: dict[str, Any] = field(default_factory=dict)


def _same_twice(run: Drive) -> None:
    run.end(answer(tokens=usage(100)))
    run.end(answer(tokens=usage(100)))


def _nothing_twice(run: Drive) -> None:
    run.end(answer())
    run.end(answer())


def _late(run: Drive) -> None:
    run.end(answer())
    run.end(answer(tokens=usage(100)))


def _late_and_again(run: Drive) -> None:
    _late(run)
    run.end(answer(tokens=usage(100)))
    run.end(answer())


def _then_nothing(run: Drive) -> None:
    run.end(answer(tokens=usage(100)))
    run.end(answer())


def _then_other_usage(run: Drive) -> None:
    run.end(answer(tokens=usage(100)))
    run.end(answer(tokens=usage(999)))


def _late_then_other_usage(run: Drive) -> None:
    _late(run)
    run.end(answer(tokens=usage(999)))


def _late_after_another_event(run: Drive) -> None:
    run.end(answer())
    run.other_event()
    run.end(answer(tokens=usage(100)))


def _late_after_flush(run: Drive) -> None:
    run.end(answer())
    run.journal.flush()
    run.end(answer(tokens=usage(100)))


def _zero_then_late(run: Drive) -> None:
    run.end(answer(tokens=usage(0, 0)))
    run.end(answer(tokens=usage(100)))


def _late_after_grace(run: Drive) -> None:
    run.end(answer())
    run.wait_for_end_event()
    run.other_event()
    run.end(answer(tokens=usage(100)))


def _late_after_grace_before_any_event(run: Drive) -> None:
    run.end(answer())
    run.wait_for_end_event()
    run.end(answer(tokens=usage(100)))


def _other_payload(run: Drive) -> None:
    run.end(answer("first", tool_calls=[tool_call(name="a", args={}, id="t1")], id="m1"))
    run.end(
        answer(
            "second",
            usage(100),
            tool_calls=[tool_call(name="b", args={}, id="t2")],
            additional_kwargs={"failed": True},
            id="m2",
        )
    )


def _other_caller(run: Drive) -> None:
    run.end(answer(), tags=["lead_agent"])
    run.start(tags=["middleware:summary"])
    run.end(answer(tokens=usage(100)), tags=["middleware:summary"])


def _fewer_generations(run: Drive) -> None:
    run.end(answer("first"), answer("second"))
    run.end(answer("other", usage(100)))


def _more_generations(run: Drive) -> None:
    run.end(answer("first"))
    run.end(answer("first", usage(100)), answer("extra", usage(100)))


def _mutated_before_and_after(run: Drive) -> None:
    message = answer("first")
    run.end(message)
    message.content = "changed"
    message.usage_metadata = usage(100)  # type: ignore[assignment]
    run.end(message)
    message.usage_metadata["input_tokens"] = 999
    message.usage_metadata["input_token_details"]["cache_read"] = 999
    message.content = "changed again"


def _mutated_blocks(run: Drive) -> None:
    message = answer()
    message.content = [{"type": "text", "text": "first"}]
    run.end(message)
    message.content[0]["text"] = "changed"  # type: ignore[index]
    message.usage_metadata = usage(100)  # type: ignore[assignment]
    run.end(message)


def _two_calls(run: Drive) -> None:
    run.start("c2")
    run.end(answer("first", usage(100)))
    run.end(answer("second", usage(50)), call="c2")


def _two_calls_late(run: Drive) -> None:
    run.start("c2")
    run.end(answer("first"))
    run.end(answer("second"), call="c2")
    run.end(answer("second", usage(50)), call="c2")
    run.end(answer("first", usage(100)))


def _error_then_end(run: Drive) -> None:
    run.fail(ValueError("no"))
    run.end(answer(tokens=usage(100)))


def _start_twice(run: Drive) -> None:
    run.start()
    run.end(answer(tokens=usage(100)))


NOT_TRACKED = {"track_token_usage": False}
QUICK = {"grace": 0.0, "linger": 0.0}

TABLE = {
    "01 usage, then the same": Row(_same_twice),
    "02 none, then none": Row(
        _nothing_twice, Expected(rows=(None,), total=0, spans=(None,), missing=1)
    ),
    "03 none, then usage": Row(_late),
    "03b none, usage, both again": Row(_late_and_again),
    "04 usage, then none": Row(_then_nothing),
    "05 usage, then another": Row(_then_other_usage, Expected(conflicts=1)),
    "05b none, usage, another": Row(_late_then_other_usage, Expected(conflicts=1)),
    "06 none, another event, then usage": Row(_late_after_another_event, Expected(rows=(None,))),
    "07 none, flush, then usage": Row(
        _late_after_flush, Expected(rows=(None,), spans=(None,), amended=1, missing=1)
    ),
    "08 zero, then usage": Row(_zero_then_late),
    "09 none, the grace and an event pass, then usage": Row(
        _late_after_grace,
        Expected(rows=(None,), spans=(None,), amended=1, missing=1),
        QUICK,
    ),
    "09b none, only the grace passes, then usage": Row(
        _late_after_grace_before_any_event, Expected(spans=(None,), amended=1, missing=1), QUICK
    ),
    "10 the repeat says other things": Row(_other_payload),
    "11 the repeat names another caller": Row(_other_caller),
    "12 the repeat has fewer generations": Row(
        _fewer_generations, Expected(rows=(100, None), messages=3, texts=("first", "second"))
    ),
    "13 the repeat has more generations": Row(_more_generations),
    "14 the message is changed in between": Row(_mutated_before_and_after),
    "14b a nested block is changed in between": Row(
        _mutated_blocks, Expected(texts=([{"type": "text", "text": "first"}],))  # type: ignore[arg-type]
    ),
    "15 two calls": Row(
        _two_calls,
        Expected(
            rows=(100, 50), total=150, spans=(100, 50), messages=3, calls=2,
            texts=("first", "second"),
        ),
    ),
    "15b two calls, both late, crosswise": Row(
        _two_calls_late,
        Expected(
            rows=(100, 50), total=150, spans=(50, 100), messages=3, calls=2,
            texts=("first", "second"),
        ),
    ),
    "16 not tracked, late": Row(_late, Expected(total=0, spans=(None,)), NOT_TRACKED),
    "16b not tracked, at once": Row(_same_twice, Expected(total=0, spans=(None,)), NOT_TRACKED),
    "17 an error, then an answer": Row(
        _error_then_end, Expected(spans=(None,), amended=1, outcome="error")
    ),
    "18 the start is repeated": Row(_start_twice),
}  # fmt: skip


class Seen:
    """A row of the table, run once; each test looks at one projection of it."""

    def __init__(self, row: Row, run: Drive, spans: InMemorySpanExporter) -> None:
        """Run `row`, look at the totals, and end the run."""
        row.program(run)
        self.expected = row.expected
        self.at_once = run.journal.summary(run.root)
        run.finish()
        self.run = run
        self.summary = run.journal.summary(run.root)
        self.model_spans = [
            dict(span.attributes or {})
            for span in spans.get_finished_spans()
            if (span.attributes or {}).get("gen_ai.operation.name") == "chat"
        ]


@pytest.fixture
def make(tracer_provider: Any, registry: Any) -> Iterator[Callable[..., Drive]]:
    """Provide a factory of runs with their own journal, all on `spans` and `registry`."""
    opened: list[Journal] = []

    def build(**settings: Any) -> Drive:
        journal = Journal(
            Settings(**{"grace": NEVER_S, **settings}),
            tracer_provider=tracer_provider,
            registry=registry,
            store=open_store("memory:"),
        )
        opened.append(journal)
        return Drive(journal)

    yield build
    for journal in opened:
        journal.shutdown()


@pytest.fixture(params=TABLE)
def seen(
    request: pytest.FixtureRequest, make: Callable[..., Drive], spans: InMemorySpanExporter
) -> Seen:
    """Run a row of the table."""
    row = TABLE[request.param]
    run = make(**row.settings)
    run.start()
    return Seen(row, run, spans)


def _tokens(found: dict[str, Any] | None) -> int | None:
    return None if not found else found["input_tokens"]


def test_rows_in_the_feed(seen: Seen) -> None:
    """The first delivery makes the rows; all a repeat can add is usage, while they wait."""
    rows = seen.run.rows()

    assert [row.content["content"] for row in rows] == list(seen.expected.texts)
    assert [_tokens(row.metadata["usage"]) for row in rows] == list(seen.expected.rows)


def test_the_dumped_message_has_the_usage_of_its_row(seen: Seen) -> None:
    """``content.usage_metadata`` and ``metadata.usage`` say the same."""
    for row in seen.run.rows():
        dumped = row.content.get("usage_metadata")
        assert _tokens(dumped) == _tokens(row.metadata["usage"])


def test_summary_totals(seen: Seen) -> None:
    """A call counts once, with its first positive usage, whenever that came."""
    summary = seen.summary

    assert summary.input_tokens == seen.expected.total
    assert summary.llm_calls == seen.expected.calls
    assert summary.usage_missing == seen.expected.missing
    assert {spender.caller for spender in summary.tokens} == {"lead_agent"}


def test_tokens_are_in_the_summary_at_once(seen: Seen) -> None:
    """The total is exact when the callback returns, before any flush."""
    assert seen.at_once.input_tokens == seen.expected.total


def test_messages_are_counted_at_once(seen: Seen) -> None:
    """The message count is exact when the callback returns and never changes after."""
    assert seen.at_once.messages == seen.expected.messages
    assert seen.summary.messages == seen.expected.messages


def test_calls_are_counted_at_once(seen: Seen) -> None:
    """The number of calls is exact when the callback returns."""
    assert seen.at_once.llm_calls == seen.expected.calls


def test_model_spans(seen: Seen) -> None:
    """One span per call, with usage if it came before the end event had to be written."""
    found = [span.get("gen_ai.usage.input_tokens") for span in seen.model_spans]

    assert found == list(seen.expected.spans)
    assert seen.model_spans[0]["otel_journal.outcome"] == seen.expected.outcome


def test_counters(seen: Seen, sample: Any) -> None:
    """Official and own token counters agree with the summary."""
    total = seen.expected.total
    official = "gen_ai_client_inference_usage_input_tokens_total"

    assert (sample("otel_journal_tokens_total", type="input") or 0) == total
    assert (sample(official) or 0) == total
    assert sample("otel_journal_llm_calls_total") == seen.expected.calls
    assert (sample("otel_journal_usage_amended_total") or 0) == seen.expected.amended
    assert (sample("otel_journal_usage_missing_total") or 0) == seen.expected.missing


def test_conflicts_are_counted(seen: Seen, sample: Any) -> None:
    """A second, different positive usage is a conflict; nothing else is."""
    assert sample("otel_journal_usage_conflicts_total") == seen.expected.conflicts


def test_end_events_and_amendments_sum_to_the_total(seen: Seen) -> None:
    """Whoever adds up the journal's rows gets the run's total."""
    ends = seen.run.stored("llm.end", "llm.error")
    amended = seen.run.stored("usage.amended")
    booked = [event.span.usage for event in ends + amended if event.span.usage is not None]

    assert len(ends) == seen.expected.calls
    assert len(amended) == seen.expected.amended
    assert sum(found.input_tokens for found in booked) == seen.expected.total


def test_details_are_subsets_counted_once(seen: Seen, sample: Any) -> None:
    """Cache and reasoning counts follow the usage they are part of."""
    calls_with_usage = {0: 0, 100: 1, 150: 2}[seen.expected.total]
    spent = list(seen.summary.tokens.values())

    assert sum(one.details.get("cache_read", 0) for one in spent) == 40 * calls_with_usage
    assert (
        sample("otel_journal_token_details_total", detail="cache_read") or 0
    ) == 40 * calls_with_usage


# What the table cannot say ------------------------------------------------------------------


def test_a_row_waits_for_usage_in_its_place(make: Callable[..., Drive]) -> None:
    """A waiting answer is written before the event that ends its wait."""
    run = make()
    run.start()
    run.end(answer())
    run.other_event()
    run.finish()
    order = [event.event_type for event in run.stored()]

    assert order.index("llm.ai.response") < order.index("middleware:note")


def test_an_answer_behind_a_waiting_one_keeps_its_place(make: Callable[..., Drive]) -> None:
    """Two answers keep the order of their arrival, whichever gets its usage first."""
    run = make()
    run.start("c1")
    run.start("c2")
    run.end(answer("one"), call="c1")
    run.end(answer("two"), call="c2")
    run.end(answer("two", usage(5)), call="c2")
    run.end(answer("one", usage(7)), call="c1")
    run.finish()

    assert [row.content["content"] for row in run.rows()] == ["one", "two"]
    assert [row.metadata["usage"]["input_tokens"] for row in run.rows()] == [7, 5]


def test_a_waiting_answer_is_not_in_the_store_yet(make: Callable[..., Drive]) -> None:
    """An answer without usage is staged, one with usage is written without delay."""
    run = make(linger=0.0)
    run.start("c1")
    run.start("c2")
    run.end(answer("waits"))
    time.sleep(0.1)
    assert run.rows() == []

    run.end(answer("does not", usage(1)), call="c2")
    deadline = time.monotonic() + DEADLINE_S
    while len(run.rows()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)

    assert [row.content["content"] for row in run.rows()] == ["waits", "does not"]


def test_late_usage_looks_like_usage_that_came_in_time(make: Callable[..., Drive]) -> None:
    """A reader of the feed cannot tell from a row when its usage came."""
    run = make()
    run.start("late")
    run.end(answer(), call="late")
    run.end(answer(tokens=usage(100)), call="late")
    run.start("in time")
    run.end(answer(tokens=usage(100)), call="in time")
    run.finish()
    late, in_time = run.rows()

    assert late.metadata["usage"] == in_time.metadata["usage"]
    assert late.content["usage_metadata"] == in_time.content["usage_metadata"]


def test_shutdown_writes_what_waits(make: Callable[..., Drive]) -> None:
    """An answer that still waits when the journal closes is in the feed, once."""
    run = make()
    run.start()
    run.end(answer())
    run.journal.shutdown()

    assert [row.content["content"] for row in run.rows()] == ["first"]
    assert len(run.stored("llm.end")) == 1


def test_only_the_first_answer_decides_who_pays(make: Callable[..., Drive]) -> None:
    """Tokens of a late delivery go to the caller of the start, whatever the end's tags say."""
    run = make()
    run.start(tags=["subagent:helper"])
    run.end(answer(), tags=["subagent:helper"])
    run.end(answer(tokens=usage(100)), tags=["lead_agent"])
    run.finish()

    assert {
        name: spent.input_tokens
        for name, spent in run.journal.summary(run.root).by("caller").items()
    } == {"subagent:helper": 100}
    assert run.rows()[0].metadata["caller"] == "subagent:helper"


def test_first_text_and_calls_survive_a_repeat(make: Callable[..., Drive]) -> None:
    """Text, tool calls, extra fields and id of the row and the summary are the first delivery's."""
    run = make()
    run.start()
    _other_payload(run)
    run.finish()
    (row,) = run.rows()

    assert row.content["id"] == "m1"
    assert [call["id"] for call in row.content["tool_calls"]] == ["t1"]
    assert not row.content.get("additional_kwargs")


def test_last_text_is_the_first_deliverys(make: Callable[..., Drive]) -> None:
    """``last_ai_message`` does not change with a repeat."""
    run = make()
    run.start()
    run.end(answer("first", usage(1)))
    run.end(answer("second", usage(1)))

    assert run.journal.summary(run.root).last_ai_message == "first"


@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_usage_in_llm_output_counts_alike(
    make: Callable[..., Drive], spans: InMemorySpanExporter, *, late: bool
) -> None:
    """Usage that the provider puts beside the message is the same usage."""
    run = make()
    run.start()
    if late:
        run.end(answer())
    found = response(answer(), token_usage={"prompt_tokens": 100, "completion_tokens": 20})
    run.handler.on_llm_end(found, run_id=run.calls["c1"], parent_run_id=run.root)
    run.finish()

    assert run.journal.summary(run.root).total_tokens == 120
    assert run.rows()[0].metadata["usage"]["input_tokens"] == 100
    chat = next(s for s in spans.get_finished_spans() if s.name == "chat m-1")
    assert (chat.attributes or {})["gen_ai.usage.output_tokens"] == 20


@pytest.mark.parametrize(
    "garbage",
    [
        {"input_tokens": "many", "output_tokens": [], "total_tokens": None},
        {"input_tokens": -5, "output_tokens": -1, "total_tokens": -6},
        {"input_tokens": float("nan"), "output_tokens": float("inf"), "total_tokens": 0},
        {"input_tokens": None, "output_tokens": None, "total_tokens": None},
    ],
    ids=["words", "negative", "not finite", "none"],
)
def test_garbage_usage_is_not_positive(
    make: Callable[..., Drive], sample: Any, garbage: dict[str, Any]
) -> None:
    """Unreadable counts cost nothing but themselves: the answer is kept, a later usage counts."""
    run = make()
    run.start()
    message = answer()
    message.usage_metadata = garbage  # type: ignore[assignment]
    run.end(message)
    run.end(answer(tokens=usage(100)))
    run.finish()

    assert len(run.rows()) == 1
    assert run.journal.summary(run.root).input_tokens == 100
    assert sample("otel_journal_handler_errors_total") == 0


def test_a_completion_without_message_is_kept_as_text(make: Callable[..., Drive]) -> None:
    """A text completion has no message; its text is the row, and it is counted."""
    run = make()
    call = uuid4()
    run.handler.on_llm_start({}, ["prompt"], run_id=call, parent_run_id=run.root)
    done = LLMResult(generations=[[Generation(text="told")]])
    run.handler.on_llm_end(done, run_id=call, parent_run_id=run.root)
    run.finish()

    assert [row.content["content"] for row in run.rows()] == ["told"]
    assert run.journal.summary(run.root).messages == 1


def test_a_response_without_generations_changes_nothing(make: Callable[..., Drive]) -> None:
    """An empty response makes no row, and the real answer after it makes one."""
    run = make()
    run.start()
    empty = LLMResult(generations=[])
    run.handler.on_llm_end(empty, run_id=run.calls["c1"], parent_run_id=run.root)
    run.end(answer("real", usage(100)))
    run.finish()

    assert [row.content["content"] for row in run.rows()] == ["real"]
    assert run.journal.summary(run.root).input_tokens == 100


def test_an_end_without_start_changes_nothing(make: Callable[..., Drive], sample: Any) -> None:
    """The end of a call nobody saw begin costs no exception and no tokens of the run."""
    run = make()
    run.calls["ghost"] = uuid4()
    run.end(answer(tokens=usage(100)), call="ghost")
    run.finish()

    assert run.journal.summary(run.root).total_tokens == 0
    assert sample("otel_journal_handler_errors_total") == 0


def test_generations_share_one_number_and_latency(make: Callable[..., Drive]) -> None:
    """All rows of one call have its index and its latency."""
    run = make()
    run.start("c1")
    run.start("c2")
    run.end(answer("b1", usage(1)), answer("b2"), call="c2")
    run.end(answer("a", usage(1)), call="c1")
    run.finish()
    rows = run.rows()

    assert [row.metadata["llm_call_index"] for row in rows] == [2, 2, 1]
    assert rows[0].metadata["latency_ms"] == rows[1].metadata["latency_ms"]
    assert all(isinstance(row.metadata["latency_ms"], int) for row in rows)


def test_rows_of_several_generations_sum_to_one_usage(make: Callable[..., Drive]) -> None:
    """Whoever adds up the usage of the rows books a call with two generations once."""
    run = make()
    run.start()
    run.end(answer("one", usage(100)), answer("two", usage(100)))
    run.finish()

    rows = run.rows()
    assert len(rows) == 2
    assert sum(row.metadata["usage"].get("input_tokens", 0) for row in rows) == 100
