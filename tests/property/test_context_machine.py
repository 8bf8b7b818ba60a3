"""What is current in any context, whatever began and ended in whichever order and place.

The machine keeps, for every context, the chain of operations that were entered in it: a copy of a
context has a copy of the chain. Code in a context is inside the last operation of its chain that
is still open. The propagation must agree, without ever undoing by token.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_journal.propagation import SUPPRESS_PROVIDERS, Propagation

T = TypeVar("T")

USER = trace.SpanContext(
    7, 7, is_remote=False, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED)
)
"""A span of the application, around some of the contexts."""

TRACER = TracerProvider(shutdown_on_exit=False).get_tracer("app")


@dataclass(eq=False)
class Operation:
    """One operation."""

    key: int
    model: bool
    recorded: bool
    """False: a sampler dropped its trace, or its spans are switched off."""
    ended: bool = False
    """Its end was told."""
    closed: bool = False
    """The journal has closed it, told or not."""


@dataclass(eq=False)
class Place:
    """A context, what it is inside of by right, and what was there before anything of ours."""

    context: Context
    base: trace.SpanContext
    chain: list[Operation] = field(default_factory=list)

    def run(self, function: Callable[..., T], *args: object) -> T:
        """Run a function there."""
        return self.context.run(function, *args)

    @property
    def inside(self) -> int:
        """Span id that is by right current there; 0 for none."""
        found = [op.key for op in self.chain if op.recorded and not op.closed]
        return found[-1] if found else self.base.span_id

    @property
    def adopts(self) -> int | None:
        """Key of the operation that a parentless one there belongs to."""
        found = [op.key for op in self.chain if not op.ended and not op.model]
        return found[-1] if found else None


class ContextMachine(RuleBasedStateMachine):
    """Begins, ends, streams, cancels and copies, anywhere."""

    places = Bundle("places")
    operations = Bundle("operations")

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, Operation] = {}
        self.all_places: list[Place] = []
        self.propagation = Propagation(self.span_context, limit=10_000)

    def span_context(self, key: int) -> trace.SpanContext | None:
        """What the journal answers: the span of an operation that is open and recorded."""
        op = self.known[key]
        if op.closed or not op.recorded:
            return None
        return trace.SpanContext(1, key, is_remote=False, trace_flags=USER.trace_flags)

    @rule(target=places, user=st.booleans())
    def begin(self, user: bool) -> Place:  # noqa: FBT001 - hypothesis passes keywords
        """A thread or task begins, with or without a span of the application."""
        base = USER if user else trace.INVALID_SPAN_CONTEXT
        empty = otel_context.Context()
        given = trace.set_span_in_context(trace.NonRecordingSpan(USER), empty) if user else empty
        place = Place(copy_context(), base)
        place.run(otel_context.attach, given)
        self.all_places.append(place)
        return place

    @rule(target=places, place=places)
    def copy(self, place: Place) -> Place:
        """A task, or a pool of LangChain's, copies a context."""
        copied = Place(place.context.copy(), place.base, list(place.chain))
        self.all_places.append(copied)
        return copied

    @rule(
        target=operations,
        place=places,
        model=st.booleans(),
        recorded=st.sampled_from([True, True, True, False]),
    )
    def start(self, place: Place, model: bool, recorded: bool) -> Operation:  # noqa: FBT001
        """An operation begins."""
        op = Operation(100 + len(self.known), model, recorded)
        self.known[op.key] = op
        place.run(lambda: self.propagation.enter(op.key, model=op.model))
        place.chain.append(op)
        return op

    @rule(op=operations, place=places)
    def start_again(self, op: Operation, place: Place) -> None:
        """A second handler of the same journal tells of an open operation once more."""
        if not op.ended:
            place.run(lambda: self.propagation.enter(op.key, model=op.model))

    @rule(op=consumes(operations), place=places)
    def end(self, op: Operation, place: Place) -> None:
        """An operation ends, in any context: in a task's copy, or in the garbage collector's."""
        op.ended = op.closed = True
        place.run(self.propagation.leave, op.key)

    @rule(op=operations, place=places)
    def chunk(self, op: Operation, place: Place) -> None:
        """A first chunk arrives: where the call is what is current, the reader goes on outside."""
        place.run(self.propagation.first_chunk, op.key)
        if op in place.chain:
            position = place.chain.index(op)
            if all(later.ended for later in place.chain[position + 1 :]):
                del place.chain[position:]

    @rule(op=operations)
    def close(self, op: Operation) -> None:
        """The journal closes what was cancelled and never ends, or comes late."""
        op.closed = True

    @invariant()
    def code_is_inside_the_last_open_operation(self) -> None:
        """Spans made anywhere are children of what is by right current there."""
        for place in self.all_places:
            current = place.run(lambda: trace.get_current_span().get_span_context())
            assert current.span_id == place.inside
            span = place.run(TRACER.start_span, "GET")
            parent = span.parent  # type: ignore[attr-defined]
            assert (parent.span_id if parent else 0) == place.inside

    @invariant()
    def parentless_operations_are_adopted(self) -> None:
        """What LangChain gives no parent belongs to what it was called in."""
        for place in self.all_places:
            ambient = place.run(self.propagation.ambient)
            assert (ambient.op_key if ambient else None) == place.adopts

    @invariant()
    def provider_calls_are_hidden_only_in_model_calls(self) -> None:
        """The mark for provider instrumentations holds as long as a model call around it."""
        for place in self.all_places:
            hidden = bool(place.run(otel_context.get_value, SUPPRESS_PROVIDERS))
            assert hidden == any(op.model and not op.ended for op in place.chain)

    def teardown(self) -> None:
        """After everything has ended, every context is as it was before."""
        for op in self.known.values():
            op.ended = op.closed = True
            self.propagation.leave(op.key)
        for place in self.all_places:
            current = place.run(lambda: trace.get_current_span().get_span_context())
            assert current == place.base
            assert not place.run(otel_context.get_value, SUPPRESS_PROVIDERS)
            assert place.run(self.propagation.ambient) is None or place.base is USER
        assert not self.propagation._current


ContextMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
TestContextMachine = ContextMachine.TestCase


def test_first_chunk_looks_through_what_ended_elsewhere() -> None:
    """A call that ended in another task does not keep the reader inside the streaming one."""

    def scenario() -> None:
        propagation = Propagation(lambda key: trace.SpanContext(1, key, is_remote=False), limit=10)
        otel_context.attach(otel_context.Context())
        propagation.enter(1)
        propagation.enter(2)
        copy_context().run(propagation.leave, 2)
        propagation.first_chunk(1)
        assert trace.get_current_span() is trace.INVALID_SPAN

    copy_context().run(scenario)
