"""What a chain is: agent, workflow, node, or plumbing that gets no span (semconv 1.6, trap T2).

LangChain's markers are inherited: any chain inside an agent carries ``ls_integration`` and
``lc_agent_name`` of that agent. So a chain below an agent whose markers say nothing new stays
undecided until its first child starts: a graph shows itself by ``graph:step`` nodes, an agent by
its ``model`` node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from .observations import Started
    from .operations import Operation

ChainClass: TypeAlias = Literal["agent", "workflow", "node", "hidden", "undecided"]

CREATE_AGENT: Final = "langchain_create_agent"
"""``ls_integration`` of graphs built by `langchain.agents.create_agent`."""

_TYPE_NAMES: Final = frozenset({"LangGraph", "Pregel", "CompiledStateGraph"})
_MIDDLEWARE_HOOKS: Final = (
    ".before_agent",
    ".before_model",
    ".after_model",
    ".after_agent",
)


def user_name(name: str) -> str:
    """`name`, or empty when it is only the name of a type (forbidden as agent name)."""
    return "" if name in _TYPE_NAMES or name.startswith("Runnable") else name


def classify_chain(o: Started, parent: Operation | None) -> ChainClass:
    """Decide by what is known when the chain starts."""
    if parent is None:
        return "agent" if o.integration == CREATE_AGENT else "workflow"
    if o.node and o.name == o.node:
        # Tasks of the functional API have no graph:step tag, but a checkpoint namespace of
        # their own, which nothing inside a node has.
        own_step = bool(o.checkpoint_ns) and o.checkpoint_ns != parent.checkpoint_ns
        if o.graph_step or own_step:
            return "node"
    if o.integration != CREATE_AGENT:
        return "hidden"
    around = parent if parent.owns else parent.owner
    if around is None or around.kind != "agent":
        return "agent"
    if o.agent_name and o.agent_name != around.lc_agent_name:
        return "agent"
    return "undecided"


def classify_by_child(child: Started) -> ChainClass:
    """Decide an undecided chain by its first child."""
    if not child.graph_step:
        return "hidden"
    node = child.node
    is_agent = node == "model" or node.endswith((".before_agent", ".before_model"))
    return "agent" if is_agent else "hidden"


def middleware_caller(node: str) -> str:
    """``middleware:{name}`` for a node that create_agent made for a middleware hook."""
    for hook in _MIDDLEWARE_HOOKS:
        if node.endswith(hook):
            return f"middleware:{node.removesuffix(hook)}"
    return ""
