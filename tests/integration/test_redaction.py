"""What the application takes out of payloads, and off spans, before anything is recorded.

Payloads are planted one per place; a hook replaces each by the name of its place, so that what is
recorded tells which place the hook was told, and that it was asked at all.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.callbacks import GraphInterruptEvent
from langgraph.errors import GraphInterrupt, ParentCommand
from langgraph.types import Command, Interrupt, Send
from opentelemetry import _logs
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest

from otel_journal import Journal, RunJournal, Settings, SettingsError, open_store
from otel_journal.payload import Place

CARD = "4111-1111-1111-1111"
PLACES = set(get_args(Place))


class Hook:
    """Replaces what it is given; remembers what that was."""

    def __init__(self, replace: Callable[[str, object], object]) -> None:
        """Replace by `replace`."""
        self.seen: list[tuple[str, object]] = []
        self._replace = replace

    def __call__(self, place: str, value: object) -> object:
        """Be the hook."""
        self.seen.append((place, value))
        return self._replace(place, value)


def named(place: str, _value: object) -> object:
    """Replace a payload by the name of its place."""
    return f"<{place}>"


def fail(_place: str, _value: object) -> object:
    """Fail, and say what nobody may read."""
    raise LookupError(CARD)


Start = Callable[..., Journal]


@pytest.fixture
def start(tracer_provider: TracerProvider, registry: CollectorRegistry, request: Any) -> Start:
    """Provide a function that opens a journal with a hook: ``start(hook, content=, store=)``."""

    def open_journal(hook: Any, *, content: bool = True, store: bool = True) -> Journal:
        journal = Journal(
            Settings(capture_content=content, grace=0.0),
            tracer_provider=tracer_provider,
            registry=registry,
            store=open_store("memory:") if store else None,
            redact=hook,
        )
        request.addfinalizer(journal.shutdown)
        return journal

    return open_journal


def say_everything(handler: RunJournal) -> dict[str, UUID]:
    """Hand the secret to every hook that takes a payload; return the runs by what they are."""
    run = {name: uuid4() for name in ("graph", "chat", "tool", "retriever", "broken", "asking")}
    below: dict[str, Any] = {"parent_run_id": run["graph"]}
    said = {"messages": [HumanMessage(CARD)]}
    handler.on_chain_start({}, said, run_id=run["graph"], name="graph")
    handler.on_chat_model_start({}, [said["messages"]], run_id=run["chat"], **below)
    answer = ChatGeneration(message=AIMessage(CARD))
    handler.on_llm_end(LLMResult(generations=[[answer]]), run_id=run["chat"], **below)
    given: Any = {"inputs": {"card": CARD}, "tool_call_id": "c1"}
    handler.on_tool_start({"name": "pay"}, CARD, run_id=run["tool"], **below, **given)
    handler.on_tool_end(ToolMessage(CARD, tool_call_id="c1"), run_id=run["tool"], **below)
    handler.on_retriever_start({}, CARD, run_id=run["retriever"], **below)
    found = [Document(CARD, id=CARD, metadata={"score": 0.5})]
    handler.on_retriever_end(found, run_id=run["retriever"], **below)
    handler.on_custom_event("told", {"card": CARD}, run_id=run["graph"])
    handler.on_tool_start({"name": "broken"}, "", run_id=run["broken"], **below)
    handler.on_tool_error(ValueError(CARD), run_id=run["broken"], **below)
    handler.on_chain_end({"messages": [AIMessage(CARD)]}, run_id=run["graph"])
    handler.on_chain_start({}, {}, run_id=run["asking"], name="asking")
    handler.on_interrupt(interrupted(run["asking"]))
    handler.on_chain_end({}, run_id=run["asking"])
    return run


def interrupted(run: UUID, question: str = CARD) -> GraphInterruptEvent:
    """Return the event of a graph that asks."""
    return GraphInterruptEvent(
        run_id=run,
        status="interrupt_after",
        checkpoint_id="1f0",
        checkpoint_ns=(),
        interrupts=(Interrupt(value={"question": question}, id="i1"),),
    )


def recorded(journal: Journal, spans: InMemorySpanExporter) -> str:
    """Return everything that was recorded, as text."""
    assert journal.flush()
    told = [f"{span.to_json()}" for span in spans.get_finished_spans()]
    rows = list(journal.store.read(limit=1_000)) if journal.store is not None else []
    told += [f"{event.content} {event.metadata} {event.span}" for event in rows]
    for run in {event.run_id for event in rows}:
        if (summary := journal.summary(run)) is not None:
            told.append(f"{summary.first_human_message} {summary.last_ai_message}")
    return "\n".join(told)


def span_of(spans: InMemorySpanExporter, run: UUID) -> ReadableSpan:
    """Return the span of an operation."""
    (found,) = (
        span
        for span in spans.get_finished_spans()
        if (span.attributes or {})["langchain.run_id"] == str(run)
    )
    return found


class TestHook:
    """`Journal(redact=...)`."""

    def test_everything_said_is_seen_by_the_hook(self, start, spans):
        """Nothing planted in any hook is recorded once the hook replaces it."""
        journal = start(named)
        say_everything(journal.handler())

        text = recorded(journal, spans)
        assert CARD not in text
        assert text.count("<") > 15

    def test_without_a_hook_the_same_search_finds_it(self, start, spans):
        """The search above is not blind."""
        journal = start(None)
        say_everything(journal.handler())

        assert recorded(journal, spans).count(CARD) > 15

    def test_places_are_a_closed_set(self, start):
        """The hook is told the documented places, all of them, and no other."""
        hook = Hook(named)
        say_everything(start(hook).handler())

        assert {place for place, _ in hook.seen} == PLACES

    @pytest.mark.parametrize(
        ("operation", "attribute", "value"),
        [
            ("chat", "gen_ai.input.messages", "<input>"),
            ("graph", "gen_ai.input.messages", "<input>"),
            ("chat", "gen_ai.output.messages", "<output>"),
            ("graph", "gen_ai.output.messages", "<output>"),
            ("tool", "gen_ai.tool.call.arguments", "<tool.arguments>"),
            ("tool", "gen_ai.tool.call.result", "<tool.result>"),
            ("retriever", "gen_ai.retrieval.documents", "<documents>"),
        ],
    )
    def test_attributes_are_what_the_hook_returned(self, start, spans, operation, attribute, value):
        """What goes onto a span is the JSON of the hook's answer."""
        journal = start(named)
        run = say_everything(journal.handler())[operation]
        journal.flush()

        assert json.loads((span_of(spans, run).attributes or {})[attribute]) == value

    def test_texts_are_what_the_hook_returned(self, start, spans):
        """A query and the message of an exception are texts, not JSON."""
        journal = start(named)
        run = say_everything(journal.handler())
        journal.flush()

        query = (span_of(spans, run["retriever"]).attributes or {})["gen_ai.retrieval.query.text"]
        assert query == "<query>"
        assert span_of(spans, run["broken"]).status.description == "<error>"

    @pytest.mark.parametrize(
        ("event_type", "expected"),
        [
            ("llm.human.input", "<input>"),
            ("llm.ai.response", "<output>"),
            ("llm.tool.result", "<tool.result>"),
            ("annotation:told", "<custom>"),
            ("run.end", "<state>"),
        ],
    )
    def test_rows_are_what_the_hook_returned(self, start, event_type, expected):
        """The feed's rows, and what the events keep, are the hook's answers."""
        journal = start(named)
        run = say_everything(journal.handler())["graph"]
        journal.flush()
        row = next(iter(journal.store.events(str(run), types=[event_type])))

        assert row.content == expected

    def test_interrupts_and_errors_keep_their_frame(self, start):
        """Around what the hook returned the content says what it is."""
        journal = start(named)
        run = say_everything(journal.handler())
        journal.flush()
        (paused,) = journal.store.events(str(run["asking"]), types=["run.interrupted"])
        tools = journal.store.events(str(run["graph"]), types=["tool_call.completed"])

        assert paused.content == {"status": "interrupt_after", "interrupts": "<interrupt>"}
        assert tools[0].content["result"] == "<tool.result>"
        assert tools[1].content["error"] == "<error>"

    def test_arguments_in_the_feed_have_their_place(self, start):
        """Arguments of a tool are told as such for the feed too."""
        journal = start(named)
        run = say_everything(journal.handler())["graph"]
        journal.flush()
        started = journal.store.events(str(run), types=["tool_call.started"])

        assert started[0].content["arguments"] == "<tool.arguments>"

    def test_summaries_are_made_of_what_the_hook_returned(self, start):
        """First question and last answer of a summary are redacted as well."""
        journal = start(named)
        run = say_everything(journal.handler())["graph"]
        summary = journal.summary(run)

        assert summary.first_human_message == "<input>"
        assert summary.last_ai_message == "<output>"

    def test_messages_may_be_changed_in_place_of_being_replaced(self, start, spans):
        """For messages the hook gets a copy of their form: lists and mappings, no live message."""

        def mask(place: str, value: Any) -> object:
            if place == "input" and isinstance(value, list):
                return [{**m, "parts": [{"type": "text", "content": "****"}]} for m in value]
            return value

        journal = start(mask, store=False)
        run = say_everything(journal.handler())["chat"]
        journal.flush()
        shown = json.loads((span_of(spans, run).attributes or {})["gen_ai.input.messages"])

        assert shown == [{"role": "user", "parts": [{"type": "text", "content": "****"}]}]

    def test_the_agent_keeps_its_own_objects(self, start):
        """What the hook returns is recorded, never handed on."""
        handler = start(named).handler()
        arguments, result = {"card": CARD}, {"paid": CARD}
        run = uuid4()
        handler.on_tool_start({"name": "pay"}, "", run_id=run, inputs=arguments)
        handler.on_tool_end(result, run_id=run)

        assert arguments == {"card": CARD}
        assert result == {"paid": CARD}

    def test_it_sees_whole_texts(self, start, spans):
        """The hook comes before the cut: half a card number is no card number."""
        hook = Hook(lambda _place, value: str(value).replace(CARD, "****"))
        journal = start(hook, store=False)
        handler, run = journal.handler(), uuid4()
        handler.on_retriever_start({}, "x" * 32_760 + CARD, run_id=run)
        handler.on_retriever_end([], run_id=run)
        journal.flush()

        assert (span_of(spans, run).attributes or {})["gen_ai.retrieval.query.text"].endswith(
            "****"
        )

    @pytest.mark.parametrize("value", [None, 7, {"a": [1]}, object(), "\ud800", "x" * 100_000])
    def test_it_may_return_anything(self, start, spans, value):
        """Whatever a hook returns is bounded and serialised like a payload."""
        journal = start(lambda _place, _value: value)
        run = say_everything(journal.handler())
        text = recorded(journal, spans)

        assert CARD not in text
        for attribute in (span_of(spans, run["chat"]).attributes or {}).values():
            assert len(str(attribute)) <= journal.settings.max_content_chars
            str(attribute).encode()

    @pytest.mark.parametrize(("content", "store"), [(True, False), (False, True), (False, False)])
    def test_it_is_asked_for_what_is_recorded_only(self, start, content, store):
        """With neither content nor a store the hook costs nothing: it is never called."""
        hook = Hook(named)
        say_everything(start(hook, content=content, store=store).handler())
        places = {place for place, _ in hook.seen}

        if not content and not store:
            assert not places
        elif content:
            assert places == PLACES - {"interrupt", "custom", "state"}
        else:
            assert places == PLACES - {"query", "documents"}

    def test_calls_reported_by_hand(self, start, spans):
        """Tool calls and notes of adapters without LangChain pass the hook too."""
        journal = start(named)
        call = journal.tool_call_started("r", "pay", {"card": CARD})
        journal.tool_call_completed("r", "pay", call, result={"card": CARD})
        journal.tool_call_completed("r", "pay", "orphan", error=ValueError(CARD))
        journal.annotate("r", "note", card=CARD)

        text = recorded(journal, spans)
        assert CARD not in text
        for place in ("tool.arguments", "tool.result", "error"):
            assert f"<{place}>" in text
        attributes = spans.get_finished_spans()[0].attributes
        assert attributes["gen_ai.tool.call.arguments"] == '"<tool.arguments>"'
        assert attributes["gen_ai.tool.call.result"] == '"<tool.result>"'

    def test_notes_are_custom(self, start, spans):
        """A note of the application is told as such."""
        journal = start(named, content=False)
        journal.annotate("r", "note", card=CARD)

        assert "<custom>" in recorded(journal, spans)

    def test_results_reported_by_hand_have_their_place(self, start, spans):
        """A result is told as such for the feed too."""
        journal = start(named, content=False)
        call = journal.tool_call_started("r", "pay", {})
        journal.tool_call_completed("r", "pay", call, result={"card": CARD})

        assert "<tool.result>" in recorded(journal, spans)


PLANTED = {
    name: f"zq-{number:02}-planted"
    for number, name in enumerate((
        "constructor", "repr", "key", "header", "user", "url", "option", "tag", "metadata",
        "standard metadata", "prompt block", "token", "event", "text", "partial answer",
        "response metadata", "llm output", "generation info", "tool arguments of the answer",
        "artifact", "command", "goto", "handoff", "interrupt", "cause", "context", "note",
        "group", "sub exception", "completion prompt", "completion", "custom", "input text",
        "additional", "property", "manual arguments", "manual error", "annotation", "state",
    ))
}  # fmt: skip
"""Place beyond those of test_privacy -> what is planted there."""


class Telltale:
    """Fails with a secret when it is read."""

    @property
    def content(self) -> str:
        """Fail."""
        raise ValueError(PLANTED["property"])

    type = update = content


def plant(handler: RunJournal) -> UUID:
    """Put every secret of `PLANTED` where LangChain or an application would put it."""
    root = uuid4()
    metadata = {"customer": PLANTED["metadata"], "ls_secret": PLANTED["standard metadata"]}
    tags = [PLANTED["tag"]]
    given: dict[str, Any] = {"parent_run_id": root, "tags": tags, "metadata": metadata}
    handler.on_chain_start({}, {"x": PLANTED["state"]}, run_id=root, name="run-name", tags=tags)
    _plant_models(handler, given)
    _plant_tools(handler, given)
    for error in _telling_errors():
        run = uuid4()
        at = {"metadata": {**metadata, "langgraph_node": "node"}, "tags": [*tags, "graph:step:1"]}
        handler.on_chain_start({}, {}, run_id=run, name="node", **{**given, **at})
        handler.on_chain_error(error, run_id=run, parent_run_id=root)
    handler.on_custom_event("told", {"x": PLANTED["custom"]}, run_id=root)
    handler.on_text(PLANTED["text"], run_id=root)
    handler.on_interrupt(interrupted(root, PLANTED["interrupt"]))
    handler.on_chain_end(Telltale(), run_id=root)  # type: ignore[arg-type]
    journal = handler.journal
    call = journal.tool_call_started(root, "by-hand", PLANTED["manual arguments"])
    journal.tool_call_completed(root, "by-hand", call, error=PLANTED["manual error"])
    journal.annotate(root, "note", text=PLANTED["annotation"])
    return root


def _plant_models(handler: RunJournal, given: dict[str, Any]) -> None:
    serialized = {
        "id": ["x"],
        "kwargs": {"api_key": PLANTED["constructor"]},
        "repr": PLANTED["repr"],
    }
    parameters = {
        "model": "model-name",
        "api_key": PLANTED["key"],
        "extra_headers": {"authorization": PLANTED["header"]},
        "user": PLANTED["user"],
        "base_url": f"https://me:{PLANTED['url']}@host:8443/v1?key={PLANTED['url']}",
        "tools": [{"type": "function", "function": {"name": "look", "description": "Looks."}}],
    }
    prompt = [HumanMessage([{"type": "text", "text": PLANTED["prompt block"]}])]
    prompt[0].additional_kwargs["x"] = PLANTED["additional"]
    run = uuid4()
    more = {"invocation_params": parameters, "options": {"x": PLANTED["option"]}}
    handler.on_chat_model_start(serialized, [prompt], run_id=run, **given, **more)
    handler.on_llm_new_token(PLANTED["token"], run_id=run)
    delta = {"event": "content-block-delta", "delta": {"text": PLANTED["event"]}}
    handler.on_stream_event(delta, run_id=run)
    call = {"name": "look", "args": {"q": PLANTED["tool arguments of the answer"]}, "id": "c1"}
    answer = AIMessage("", tool_calls=[call])
    answer.response_metadata = {"x": PLANTED["response metadata"], "headers": {"x": "y"}}
    said = ChatGeneration(message=answer, generation_info={"x": PLANTED["generation info"]})
    result = LLMResult(generations=[[said]], llm_output={"x": PLANTED["llm output"]})
    handler.on_llm_end(result, run_id=run)
    run = uuid4()
    handler.on_llm_start(serialized, [PLANTED["completion prompt"]], run_id=run, **given, **more)
    partial = ChatGeneration(message=AIMessage(PLANTED["partial answer"]))
    response = LLMResult(generations=[[partial]])
    handler.on_llm_error(ValueError(PLANTED["completion"]), run_id=run, response=response)


def _plant_tools(handler: RunJournal, given: dict[str, Any]) -> None:
    message = ToolMessage("", tool_call_id="c1", artifact=PLANTED["artifact"])
    command = Command(update={"x": PLANTED["command"]}, goto=Send("n", PLANTED["goto"]))
    for output in (message, command, Telltale()):
        run = uuid4()
        handler.on_tool_start({"name": "look"}, PLANTED["input text"], run_id=run, **given)
        handler.on_tool_end(output, run_id=run)


def _telling_errors() -> list[BaseException]:
    chained = ValueError()
    chained.__cause__ = KeyError(PLANTED["cause"])
    chained.__context__ = KeyError(PLANTED["context"])
    noted = ValueError()
    noted.__notes__ = [PLANTED["note"]]  # add_note() of Python 3.11
    group = RuntimeError(PLANTED["group"], [ValueError(PLANTED["sub exception"])])
    handoff = ParentCommand(Command(graph=Command.PARENT, update={"x": PLANTED["handoff"]}))
    paused = GraphInterrupt((Interrupt(value=PLANTED["interrupt"], id="i1"),))
    return [chained, noted, group, handoff, paused]


class TestNothingLeaves:
    """Capture is off: secrets stay in, identifiers go out."""

    @pytest.fixture
    def output(self, request, tracer_provider, registry, spans, caplog) -> Callable[..., str]:
        """Provide a function that plants everything and returns all that can be read after it."""

        def run(*, content: bool = False, store: bool = False) -> str:
            caplog.set_level(logging.DEBUG)
            exporter = InMemoryLogRecordExporter()
            provider = LoggerProvider(shutdown_on_exit=False)
            provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
            before, _logs._internal._LOGGER_PROVIDER = _logs._internal._LOGGER_PROVIDER, provider
            request.addfinalizer(lambda: setattr(_logs._internal, "_LOGGER_PROVIDER", before))
            with Journal(
                Settings(capture_content=content, grace=0.0),
                tracer_provider=tracer_provider,
                registry=registry,
                store=open_store("memory:") if store else None,
            ) as journal:
                handler = journal.handler()
                root = plant(handler)
                assert journal.flush()
                metrics = generate_latest(registry).decode()
                public = (journal, handler, journal.settings, journal.capture, journal.store)
                shown = [repr(part) for part in public]
                if not store:
                    shown.append(repr(journal.summary(root)))
            told = [span.to_json() for span in spans.get_finished_spans()]
            told += [record.to_json() for record in exporter.get_finished_logs()]
            logs = [logging.Formatter().format(record) for record in caplog.records]
            return "\n".join([*told, metrics, *logs, *shown])

        return run

    @pytest.mark.parametrize("store", [False, True])
    def test_no_secret_is_told(self, output, store):
        """Nothing of `PLANTED` is in a span, metric, label, log record, log or repr."""
        text = output(store=store)

        assert [name for name, planted in PLANTED.items() if planted in text] == []
        assert "host" in text
        assert "8443" in text

    def test_the_search_is_not_blind(self, output):
        """With capture on the same search finds what was said."""
        text = output(content=True)
        found = {name for name, planted in PLANTED.items() if planted in text}

        assert {"prompt block", "tool arguments of the answer", "completion prompt"} <= found
        assert {"input text", "completion", "group", "command"} <= found

    def test_what_nobody_said_never_leaves(self, output):
        """Configuration and free metadata are no content: they stay in even with capture on."""
        text = output(content=True)
        never = (
            "constructor", "repr", "key", "header", "user", "url", "option", "tag", "metadata",
            "standard metadata", "additional", "response metadata", "llm output",
            "generation info", "artifact", "cause", "context", "note", "property", "token",
        )  # fmt: skip

        assert [name for name in never if PLANTED[name] in text] == []

    def test_identifiers_are_told(self, output):
        """Names of runs, nodes, tools, models and agents are identifiers, not content."""
        text = output()

        for name in ("run-name", "node", "look", "by-hand", "model-name"):
            assert name in text

    @pytest.mark.parametrize("what", ["summary", "event"])
    def test_the_feed_is_not_in_any_repr(self, start, what):
        """With a store the messages are kept; what one logs by accident does not show them."""
        journal = start(None, content=False)
        run = say_everything(journal.handler())["graph"]
        journal.flush()
        shown = journal.summary(run) if what == "summary" else list(journal.store.read(limit=99))

        assert CARD not in repr(shown)


class TestFailingHook:
    """A hook that raises costs the content, nothing else."""

    def test_every_operation_has_its_span(self, start, spans):
        """All spans are there, with outcome and error type, and without any content."""
        journal = start(fail)
        run = say_everything(journal.handler())

        assert CARD not in recorded(journal, spans)
        assert len(spans.get_finished_spans()) == len(run)
        broken = span_of(spans, run["broken"])
        assert (broken.attributes or {})["error.type"] == "ValueError"
        assert broken.status.description is None
        assert (span_of(spans, run["asking"]).attributes or {})["otel_journal.outcome"] == (
            "interrupted"
        )
        content = ("gen_ai.input", "gen_ai.output.m", "gen_ai.tool.call.a", "gen_ai.tool.call.r")
        for span in spans.get_finished_spans():
            assert not [name for name in span.attributes or {} if name.startswith(content)]

    def test_every_row_is_there(self, start):
        """The feed has its rows, empty, and the counts of a summary are right."""
        journal = start(fail)
        run = say_everything(journal.handler())["graph"]
        journal.flush()
        rows = journal.store.events(str(run), types=["llm.human.input", "llm.ai.response"])

        assert [row.content for row in rows] == [None, None]
        assert journal.summary(run).llm_calls == 1

    def test_it_is_counted_and_logged_once(self, start, sample, caplog):
        """Every failure counts; one is logged, by type and place, without its message."""
        hook = Hook(fail)
        journal = start(hook)
        with caplog.at_level(logging.ERROR):
            say_everything(journal.handler())
            say_everything(journal.handler())
        (logged,) = caplog.records

        assert sample("otel_journal_handler_errors_total") == len(hook.seen)
        assert "redact failed" in logged.getMessage()
        assert "LookupError" in logged.getMessage()
        assert "in fail" in logged.getMessage()
        assert CARD not in caplog.text

    def test_the_agent_hears_nothing(self, start):
        """Nothing is raised into the agent."""
        say_everything(start(fail).handler())


class TestSpanAttributes:
    """`Settings.span_attributes`: what may go onto spans."""

    @pytest.fixture
    def shown(self, tracer_provider, registry, spans) -> Callable[..., dict[str, Any]]:
        """Provide a function that runs everything and returns the attributes of the broken tool."""

        def run(names: str, operation: str = "broken", **settings: Any) -> dict[str, Any]:
            with Journal(
                Settings(span_attributes=names, grace=0.0, **settings),
                tracer_provider=tracer_provider,
                registry=registry,
            ) as journal:
                found = say_everything(journal.handler())[operation]
            spans_of = {str(s.attributes.get("langchain.run_id")): s for s in named_spans(spans)}
            return dict(spans_of[str(found)].attributes or {})

        return run

    def test_all_by_default(self, shown):
        """Without the setting every attribute is there."""
        attributes = shown("")
        assert {"gen_ai.tool.name", "otel_journal.call_id", "error.type"} <= set(attributes)

    def test_only_named_ones(self, shown):
        """Names and prefixes are kept, and what says how the operation ended; nothing else is."""
        attributes = shown("langchain.run_id, gen_ai.tool.*")
        assert set(attributes) == {
            "langchain.run_id",
            "gen_ai.tool.name",
            "gen_ai.tool.type",
            "otel_journal.outcome",
            "error.type",
        }

    def test_a_name_is_no_prefix(self, shown):
        """Without a star the whole name must match."""
        assert "gen_ai.tool.name" not in shown("langchain.run_id,gen_ai.tool")

    def test_a_star_alone_keeps_all(self, shown):
        """The prefix of everything is the empty one."""
        assert shown("*").keys() == shown("").keys()

    def test_names_are_those_on_the_span(self, shown):
        """In the 1.41 generation the new names are meant."""
        attributes = shown("langchain.run_id,gen_ai.provider.name", "chat", semconv="1.41")
        assert "gen_ai.provider.name" in attributes

    def test_metrics_do_not_depend_on_it(self, tracer_provider, registry, sample):
        """Labels come from the operation, not from what is left on its span."""
        settings = Settings(span_attributes="langchain.run_id", grace=0.0)
        with Journal(settings, tracer_provider=tracer_provider, registry=registry) as journal:
            say_everything(journal.handler())
            journal.flush()
            failed = {"gen_ai_tool_name": "broken", "error_type": "ValueError"}

            assert sample("gen_ai_execute_tool_duration_seconds_count", **failed) == 1
            assert sample("otel_journal_tool_calls_total", gen_ai_tool_name="pay") == 1

    def test_each_name_is_decided_once(self):
        """The decision is remembered: a span costs no search through the list."""
        from otel_journal.exceptions_log import _allowed  # noqa: PLC0415 - only here

        allowed = _allowed(("gen_ai.*",))
        for _ in range(3):
            assert allowed("gen_ai.tool.name")
            assert not allowed("other")
        assert allowed.cache_info().misses == 2

    @pytest.mark.parametrize("bad", ["gen_ai tool", "gen_*_x", "1a", "a,b;c", "é"])
    def test_bad_names(self, bad):
        """What is no attribute name is refused when the settings are made."""
        with pytest.raises(SettingsError, match="span_attributes"):
            Settings(span_attributes=bad)

    def test_environment(self):
        """The variable has the setting's name."""
        found = Settings.from_env({"OTEL_JOURNAL_SPAN_ATTRIBUTES": " gen_ai.* ,, langgraph.node "})
        assert found.span_attributes == "gen_ai.*,langgraph.node"


def named_spans(spans: InMemorySpanExporter) -> list[Any]:
    """Return the spans, as objects that tests may read without checks."""
    return [SimpleNamespace(attributes=span.attributes) for span in spans.get_finished_spans()]
