"""Observations, made of what callbacks said: the half of capture that is off the agent's path.

Pure functions of values that are no longer live (`capture` has copied or read them). They run
where the ledger runs: on the worker, or on the thread that needs an exact answer at once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from . import ids
from . import semconv as sc
from .events import LEAD_AGENT, Kind, Usage
from .foreign import identifier
from .observations import Ambient, Ended, Human, Started
from .request_parameters import Parameters, model_attributes

if TYPE_CHECKING:
    from collections.abc import Mapping

_CACHED: Final = 1_024
"""Sets of tags and task paths remembered: an application has a handful, each read per node."""

_THREAD_KEYS: Final = ("thread_id", "session_id", "conversation_id")
_MAX_TRIGGERS: Final = 128
"""Triggers listed of one step; a fan-in of more says nothing by their names."""

MAX_DESCRIPTION: Final = 4_096
"""Longest description of a tool or agent on a span, in characters."""

_NO_TAGS: Final = (False, "", 1)
CHAT: Final = "chat"
COMPLETION: Final = "text_completion"
"""`gen_ai.operation.name` of the two kinds of model calls."""

_STEP_TAG: Final = "graph:step:"
_RETRY_TAG: Final = "retry:attempt:"
_CALLER_TAGS: Final = ("subagent:", "middleware:")


class Where(msgspec.Struct, frozen=True, gc=False):
    """Ids and surroundings of one start callback; nothing in it is live."""

    run_id: UUID
    parent_run_id: UUID | None
    tags: tuple[object, ...]
    metadata: dict[str, Any]
    at: int
    ambient: Ambient | None = None
    bound_run_id: str = ""
    bound_thread_id: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a response says, read in the callback: the objects behind it may change later."""

    attributes: dict[str, Any]
    usage: Usage | None
    cached: bool
    asked: tuple[str, ...]
    generations: int
    text: str = ""
    rows: tuple[Any, ...] = ()


def chain_started(
    where: Where, name: str, content: object, attributes: dict[str, Any] | None
) -> Started:
    """A graph, a node, or any other runnable began."""
    md = where.metadata
    run_id, parent = where.run_id, where.parent_run_id
    op_id = str(run_id)
    described: dict[str, Any] = {sc.LANGCHAIN_RUN_ID: op_id}
    node = md.get("langgraph_node") or ""
    graph_step, caller, retry = _tags(where.tags) if where.tags else _NO_TAGS
    if node and name == node:
        _describe_node(described, md)
    given = _describe_root(described, md) if parent is None else ""
    if attributes:
        described.update(attributes)
    return Started(
        run_id.int,
        op_id,
        parent.int if parent is not None else None,
        where.at,
        "chain",
        name,
        described,
        md.get("ls_integration") or "",
        md.get("lc_agent_name") or "",
        given,
        _thread(md),
        node,
        md.get("langgraph_checkpoint_ns") or "",
        graph_step,
        retry,
        caller,
        "",
        where.ambient,
        None,
        content,
        where.bound_run_id,
        where.bound_thread_id,
    )


def model_started(
    where: Where,
    operation: str,
    parameters: Parameters,
    structured: bool,  # noqa: FBT001
    endpoint: object,
    human: Human | None,
    attributes: dict[str, Any] | None,
) -> Started:
    """A chat or completion model was called."""
    md = where.metadata
    op_id = str(where.run_id)
    described: dict[str, Any] = {sc.OPERATION_NAME: operation, sc.LANGCHAIN_RUN_ID: op_id}
    model = model_attributes(described, parameters, md, endpoint)
    if structured:
        described[sc.OUTPUT_TYPE] = "json"
    if attributes:
        described.update(attributes)
    kind: Kind = "chat" if operation == CHAT else "completion"
    name = f"{operation} {model}" if model else operation
    return _call_started(where, kind, op_id, name, described, human=human)


def tool_started(
    where: Where,
    name: str,
    description: str,
    call_id: str,
    content: object,
    attributes: dict[str, Any] | None,
) -> Started:
    """A tool was called."""
    op_id = str(where.run_id)
    described: dict[str, Any] = {
        sc.OPERATION_NAME: "execute_tool",
        sc.TOOL_NAME: name,
        sc.TOOL_TYPE: "function",
        sc.LANGCHAIN_RUN_ID: op_id,
    }
    if description:
        described[sc.TOOL_DESCRIPTION] = description
    if call_id:
        described[sc.TOOL_CALL_ID] = call_id
    described[sc.CALL_ID] = known = call_id or ids.call_id(op_id)
    if attributes:
        described.update(attributes)
    if content is not None:
        step = where.metadata.get("langgraph_step")
        content = {"call_id": known, "name": name, "arguments": content, "step": step}
    named = f"execute_tool {name}"
    return _call_started(where, "tool", op_id, named, described, call_id=call_id, content=content)


def retrieval_started(where: Where, attributes: dict[str, Any] | None) -> Started:
    """A retriever was called."""
    md = where.metadata
    op_id = str(where.run_id)
    described: dict[str, Any] = {sc.OPERATION_NAME: "retrieval", sc.LANGCHAIN_RUN_ID: op_id}
    if name := md.get("ls_retriever_name"):
        described[sc.RETRIEVER_NAME] = identifier(name)
    if model := md.get("ls_embedding_model"):
        described[sc.REQUEST_MODEL] = identifier(model)
    if attributes:
        described.update(attributes)
    return _call_started(where, "retrieval", op_id, "retrieval", described)


def _call_started(
    where: Where,
    kind: Kind,
    op_id: str,
    name: str,
    attributes: dict[str, Any],
    *,
    call_id: str = "",
    human: Human | None = None,
    content: object = None,
) -> Started:
    md, parent = where.metadata, where.parent_run_id
    _, caller, retry = _tags(where.tags) if where.tags else _NO_TAGS
    return Started(
        where.run_id.int,
        op_id,
        parent.int if parent is not None else None,
        where.at,
        kind,
        name,
        attributes,
        "",
        "",
        "",
        _thread(md),
        "",
        md.get("langgraph_checkpoint_ns") or "",
        False,
        retry,
        caller,
        call_id,
        where.ambient,
        human,
        content,
        where.bound_run_id,
        where.bound_thread_id,
    )


def chain_ended(
    run_id: UUID, at: int, content: object = None, attributes: dict[str, Any] | None = None
) -> Ended:
    """A chain ended well."""
    if attributes is None:
        return Ended(run_id.int, at, "node", content=content)
    return Ended(run_id.int, at, "node", attributes=attributes, content=content)


def model_ended(run_id: UUID, at: int, answer: Answer | None) -> Ended:
    """A model call ended with a response; None when it could not be read."""
    if answer is None:
        return Ended(run_id.int, at, "llm")
    return Ended(
        run_id.int,
        at,
        "llm",
        attributes=answer.attributes,
        usage=answer.usage,
        cached=answer.cached,
        responded=answer.generations > 0,
        asked=answer.asked,
        generations=answer.generations,
        text=answer.text,
        rows=answer.rows,
    )


def _tags(tags: tuple[object, ...]) -> tuple[bool, str, int]:
    """Whether a tag marks a graph step, the caller a tag names, and the number of the attempt."""
    try:
        return _read_tags(tags)
    except TypeError:  # somebody tagged with an unhashable object
        return _read_tags(tuple(tag for tag in tags if isinstance(tag, str)))


@lru_cache(maxsize=_CACHED)
def _read_tags(tags: tuple[object, ...]) -> tuple[bool, str, int]:
    graph_step, caller, retry = False, "", 1
    for tag in tags:
        if not isinstance(tag, str):
            continue
        if tag.startswith(_STEP_TAG):
            graph_step = True
        elif tag.startswith(_RETRY_TAG):
            number = tag[len(_RETRY_TAG) :]
            retry = int(number) if number.isdecimal() else 1
        elif not caller and (tag == LEAD_AGENT or tag.startswith(_CALLER_TAGS)):
            caller = tag
    return graph_step, caller, retry


def _thread(md: Mapping[str, Any]) -> str:
    for name in _THREAD_KEYS:
        found = md.get(name)
        if found is not None and (thread_id := identifier(found)):
            return thread_id
    return ""


def _describe_root(attributes: dict[str, Any], md: Mapping[str, Any]) -> str:
    """Add what the user says about the agent; return the name the user gives it."""
    if description := md.get("agent_description"):
        attributes[sc.AGENT_DESCRIPTION] = identifier(description, MAX_DESCRIPTION)
    return identifier(md.get("agent_name") or md.get("workflow_name") or "")


def _describe_node(attributes: dict[str, Any], md: Mapping[str, Any]) -> None:
    attributes[sc.NODE] = md["langgraph_node"]
    step = md.get("langgraph_step")
    if isinstance(step, int):
        attributes[sc.STEP] = step
    if namespace := md.get("langgraph_checkpoint_ns"):
        attributes[sc.CHECKPOINT_NS] = namespace
    if triggers := md.get("langgraph_triggers"):
        attributes[sc.TRIGGERS] = _texts(triggers)
    if path := md.get("langgraph_path"):
        attributes[sc.PATH] = _path(path)


def _texts(values: object) -> tuple[str, ...]:
    if type(values) is tuple and len(values) == 1 and type(values[0]) is str:
        return values
    found = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(map(identifier, found[:_MAX_TRIGGERS]))


def _path(path: object) -> str:
    try:
        return _flat_cached(path)
    except TypeError:  # unhashable
        return _flat(path)


@lru_cache(maxsize=_CACHED)
def _flat_cached(path: object) -> str:
    return _flat(path)


def _flat(path: object) -> str:
    """A nested tuple of mixed types, which no attribute may be, as one text."""
    if isinstance(path, (tuple, list)):
        return "/".join(map(_flat, path))
    return identifier(path)
