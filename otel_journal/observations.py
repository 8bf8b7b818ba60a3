"""What callbacks said, normalised: the input of the ledger.

Values are already serialised: LangChain hands out live objects that change after the callback.
Times (`at`) are readings of a monotonic clock in nanoseconds.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from .events import Kind, Outcome, Usage


class Ambient(msgspec.Struct, frozen=True, gc=False):
    """The OpenTelemetry span that was current where an operation without a parent began."""

    trace_id: str
    span_id: str
    sampled: bool
    remote: bool
    trace_state: str = ""
    op_key: int | None = None
    """Set when that span belongs to one of our own open operations, which then is the parent."""


class Human(msgspec.Struct, frozen=True, gc=False):
    """The newest human message of a prompt: a candidate for `llm.human.input`."""

    identity: str
    """Message id, empty when the message has none."""
    text: str
    content: Any


class Started(msgspec.Struct, frozen=True, gc=False):
    """An operation began."""

    key: int
    """Integer of LangChain's run id."""
    op_id: str
    parent_key: int | None
    at: int
    kind: Kind
    """``chain`` for every chain; the ledger finds out which are agents, workflows and nodes."""
    name: str
    attributes: dict[str, Any]
    integration: str = ""
    agent_name: str = ""
    """Metadata ``lc_agent_name``: right for agents, inherited (wrong) by chains below them."""
    given_name: str = ""
    """Name the user gave to the agent or workflow by metadata."""
    thread_id: str = ""
    node: str = ""
    checkpoint_ns: str = ""
    graph_step: bool = False
    """The run carries a ``graph:step:N`` tag, as only nodes of a graph do."""
    retry: int = 1
    """N of a ``retry:attempt:N`` tag."""
    caller: str = ""
    """Caller named by a tag; empty when no tag says so."""
    call_id: str = ""
    """Tools: the model's id of the call."""
    ambient: Ambient | None = None
    human: Human | None = None
    content: Any = None
    run_id: str = ""
    """Run id bound to the handler; empty when not bound."""
    bound_thread_id: str = ""


class Ended(msgspec.Struct, frozen=True, gc=False):
    """An operation ended, well or not."""

    key: int
    at: int
    kind: str
    """Observation kind (`stats.OBSERVATION_KINDS`), known even when the operation is not."""
    outcome: Outcome = "ok"
    attributes: dict[str, Any] = {}
    error_type: str = ""
    error_identity: int = 0
    """id() of the exception: tells a propagated exception from a new one."""
    timeout: bool = False
    """The exception is a timeout: an error of a call, a cancellation of a graph or node."""
    error_message: str = ""
    stacktrace: str = ""
    usage: Usage | None = None
    cached: bool = False
    responded: bool = False
    """Model calls: a response came with the callback."""
    asked: tuple[str, ...] = ()
    """Ids of the tool calls a response asks for."""
    generations: int = 0
    text: str = ""
    """Text of the first generation, at most `MAX_SUMMARY_TEXT` characters; only with a store."""
    rows: tuple[Any, ...] = ()
    """Message dumps for the feed: one per generation, or per tool result."""
    messages: int = 0
    """How many messages the operation produced (tool results)."""
    content: Any = None


class Interrupted(msgspec.Struct, frozen=True, gc=False):
    """A graph paused for a human or at a breakpoint."""

    key: int
    at: int
    checkpoint_id: str
    content: Any = None


class Resumed(msgspec.Struct, frozen=True, gc=False):
    """A graph went on from a checkpoint."""

    key: int
    at: int
    checkpoint_id: str


class Annotated(msgspec.Struct, frozen=True, gc=False):
    """Something to keep beside the operations: a custom event or a middleware note."""

    key: int | None
    run_id: str
    at: int
    event_type: str
    identity: str
    """The event id; the same annotation delivered twice has the same one."""
    content: Any = None
    metadata: dict[str, Any] = {}


class ExternalUsage(msgspec.Struct, frozen=True, gc=False):
    """Tokens spent outside the callbacks."""

    run_id: str
    source_id: str
    at: int
    usage: Usage
    model: str = ""
    provider: str = ""
    caller: str = ""


Observation: TypeAlias = Started | Ended | Interrupted | Resumed | Annotated | ExternalUsage
