"""Any interleaving of starts, ends, errors, repeats, late usage, cancels and sweeps."""

from __future__ import annotations

from uuid import UUID

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
)

from otel_journal.events import Event, Usage
from otel_journal.ledger import Ledger, Limits, Switches
from otel_journal.observations import (
    Annotated,
    Ended,
    ExternalUsage,
    Interrupted,
    Observation,
    Started,
)

END_TYPES = {
    "run.end",
    "run.error",
    "run.interrupted",
    "node.end",
    "llm.end",
    "llm.error",
    "tool_call.completed",
    "retrieval.end",
}
MAX_OPEN = 12
SECOND = 1_000_000_000

usages = st.one_of(
    st.none(),
    st.just(Usage(0, 0)),
    st.builds(Usage, st.integers(1, 9), st.integers(0, 9), st.just({"cache_read": 1})),
)
outcomes = st.sampled_from(["ok", "ok", "ok", "error", "cancelled", "abandoned", "interrupted"])


def ledger() -> Ledger:
    """A ledger with small caps, a fixed wall clock, and everything switched on."""
    return Ledger(
        wall=lambda at: 10**18 + at,
        limits=Limits(
            max_open=MAX_OPEN,
            max_remembered=10_000,
            max_age_ns=600 * SECOND,
            grace_ns=2 * SECOND,
        ),
        switches=Switches(feed=True),
    )


def booked(events: list[Event]) -> tuple[int, int]:
    """Input and output tokens that projections would count."""
    spans = [e.span for e in events if e.event_type in END_TYPES | {"usage.amended"}]
    found = [s.usage for s in spans if s is not None and s.usage is not None]
    return sum(u.input_tokens for u in found), sum(u.output_tokens for u in found)


class LedgerMachine(RuleBasedStateMachine):
    """Drives one ledger with repeats and a twin without them."""

    operations = Bundle("operations")
    calls = Bundle("calls")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.keys = 0
        self.noisy, self.clean = ledger(), ledger()
        self.noisy_events: list[Event] = []
        self.clean_events: list[Event] = []
        self.said: list[Observation] = []
        self.started: dict[int, Started] = {}
        self.ended: set[int] = set()
        self.expected: dict[int | str, Usage] = {}
        self.answered: dict[str, str] = {}

    def tell(self, o: Observation) -> None:
        """Say something new to both ledgers."""
        self.noisy.observe(o)
        self.clean.observe(o)
        self.take()
        self.said.append(o)

    def take(self) -> None:
        """Collect what both ledgers have to say."""
        self.noisy_events += self.noisy.take()
        self.clean_events += self.clean.take()

    def start(self, kind: str, parent: int | None, **more: object) -> int:
        """Begin an operation with a new key."""
        self.keys += 1
        self.now += 1
        o = Started(
            key=self.keys,
            op_id=str(UUID(int=self.keys)),
            parent_key=parent,
            at=self.now,
            kind=kind,
            name=f"{kind}-{self.keys}",
            attributes={},
            thread_id="t",
            **more,
        )
        self.started[o.key] = o
        self.tell(o)
        return o.key

    @rule(target=operations)
    def root(self) -> int:
        """A graph begins."""
        return self.start("chain", None)

    @rule(target=operations, parent=operations, node=st.booleans())
    def chain(self, parent: int, node: bool) -> int:  # noqa: FBT001 - drawn
        """A node, or plumbing, begins below something that may have ended."""
        if not node:
            return self.start("chain", parent)
        name = f"chain-{self.keys + 1}"
        return self.start("chain", parent, node=name, graph_step=True, checkpoint_ns=f"{name}:1")

    @rule(target=calls, parent=st.one_of(st.none(), operations))
    def call(self, parent: int | None) -> int:
        """A model is called."""
        return self.start("chat", parent)

    @rule(target=operations, parent=operations, call_id=st.sampled_from(["", "c1", "c2"]))
    def tool(self, parent: int, call_id: str) -> int:
        """A tool is called, with or without an id that may repeat."""
        return self.start("tool", parent, call_id=call_id)

    @rule(target=operations, unseen=st.integers(10**6, 10**6 + 3))
    def orphan(self, unseen: int) -> int:
        """Something begins below a parent that was never seen."""
        return self.start("retrieval", unseen)

    @rule(operation=consumes(operations), outcome=outcomes)
    def end(self, operation: int, outcome: str) -> None:
        """A chain, tool or retrieval ends; some never do."""
        self.now += 1
        kind = {"chain": "node"}.get(self.started[operation].kind, self.started[operation].kind)
        error = outcome == "error"
        self.tell(
            Ended(
                operation,
                self.now,
                kind,
                outcome,
                error_type="ValueError" if error else "",
                error_identity=self.now if error else 0,
            )
        )
        self.ended.add(operation)

    @rule(target=calls, call=consumes(calls), usage=usages, failed=st.booleans())
    def answer(self, call: int, usage: Usage | None, failed: bool) -> object:  # noqa: FBT001
        """A call ends, or its end is delivered once more with other usage."""
        self.now += 1
        first = call not in self.ended
        outcome = "error" if failed and first else "ok"
        if first and call in self.noisy._state.table.open:
            self.answered[self.started[call].op_id] = outcome
        self.tell(
            Ended(
                call,
                self.now,
                "llm",
                outcome,
                error_type="ValueError" if outcome == "error" else "",
                usage=usage,
                responded=outcome == "ok",
                generations=int(outcome == "ok"),
                rows=({"type": "ai", "content": "x"},) if outcome == "ok" else (),
            )
        )
        self.ended.add(call)
        if usage is not None and usage.positive and str(UUID(int=call)) not in self.expected:
            self.expected.setdefault(call, usage)
        return call

    @rule(operation=operations)
    def interrupt(self, operation: int) -> None:
        """A graph pauses."""
        self.now += 1
        self.tell(Interrupted(operation, self.now, f"checkpoint-{self.now}"))

    @rule(run=st.sampled_from(["r1", "r2"]), n=st.integers(1, 3))
    def annotate(self, run: str, n: int) -> None:
        """Somebody leaves a note, perhaps twice."""
        self.tell(Annotated(None, run, self.now, "middleware:x", f"{run}/note/{n}", {"n": n}))

    @rule(call=calls, source=st.sampled_from(["s1", "s2", "call"]), tokens=st.integers(1, 9))
    def external_usage(self, call: int, source: str, tokens: int) -> None:
        """Usage comes from outside, perhaps of a call whose callback has reported it."""
        source_id = str(UUID(int=call)) if source == "call" else source
        known = source == "call" and call in self.expected
        self.tell(ExternalUsage("r1", source_id, self.now, Usage(tokens, 0)))
        if not known and source_id not in self.expected:
            self.expected[source_id] = Usage(tokens, 0)

    @rule(seconds=st.sampled_from([0, 1, 3, 1000]))
    def sweep(self, seconds: int) -> None:
        """Time passes."""
        self.now += seconds * SECOND
        self.noisy.sweep(self.now)
        self.clean.sweep(self.now)
        self.take()

    @rule()
    def flush(self) -> None:
        """Somebody flushes."""
        self.noisy.flush()
        self.clean.flush()
        self.take()

    @precondition(lambda self: self.said)
    @rule(data=st.data(), times=st.integers(1, 3))
    def repeat(self, data: st.DataObject, times: int) -> None:
        """Anything said before is delivered again, to one ledger only."""
        o = data.draw(st.sampled_from(self.said))
        closed_root = (
            isinstance(o, Started)
            and o.kind == "chain"
            and o.parent_key is None
            and o.key not in {op.key for op in self.open_operations()}
        )
        for _ in range(times):
            self.noisy.observe(o)
            if closed_root:
                # A replay brings both halves; a start alone may be a reused run id.
                again = Ended(o.key, self.now, "node")
                self.noisy.observe(again)
        self.take()

    def open_operations(self) -> list[object]:
        """Operations the noisy ledger holds open."""
        return list(self.noisy._state.table.open.values())

    @invariant()
    def repeats_change_nothing(self) -> None:
        """Both ledgers say the same, whatever was repeated."""
        assert self.noisy_events == self.clean_events

    @invariant()
    def tables_are_bounded(self) -> None:
        """No table outgrows its cap."""
        assert len(self.open_operations()) <= MAX_OPEN

    def teardown(self) -> None:
        """Every operation ended once, and all sums agree."""
        self.noisy.close(self.now)
        self.take()
        events = self.noisy_events
        ids = [e.event_id for e in events]
        assert len(ids) == len(set(ids))
        ends = [e for e in events if e.event_type in END_TYPES]
        starts = {e.event_id.removesuffix("/start") for e in events if e.event_id.endswith("start")}
        ended = {e.event_id.removesuffix("/end") for e in ends}
        assert starts <= ended
        assert all(e.span and e.span.outcome and e.span.end_ns >= e.span.start_ns for e in ends)
        outcomes = {e.span.op_id: e.span.outcome for e in ends if e.span is not None}
        assert {op_id: outcomes[op_id] for op_id in self.answered} == self.answered
        expected = (
            sum(u.input_tokens for u in self.expected.values()),
            sum(u.output_tokens for u in self.expected.values()),
        )
        assert booked(events) == expected
        runs = {e.run_id for e in events} | {"r1"}
        summaries = [s for s in map(self.noisy.summary, runs) if s is not None]
        assert expected == (
            sum(s.input_tokens for s in summaries),
            sum(s.output_tokens for s in summaries),
        )
        for event in events:
            written = msgspec.json.encode(event)
            assert msgspec.json.encode(msgspec.json.decode(written, type=Event)) == written


LedgerMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase
