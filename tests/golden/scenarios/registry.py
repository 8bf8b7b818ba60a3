"""What a scenario is, how one is registered, and what it gets to work with."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import Runnable, RunnableConfig

Way: TypeAlias = Literal["sync", "async"]

GRACE_SHORT = 0.05
"""Seconds. Operations whose end never comes are closed soon after their parent."""
GRACE_LONG = 5.0
"""Seconds. For scenarios in which an end comes late, but does come."""


class Caller:
    """Calls runnables the sync or the async way, each time with a handler of the journal."""

    def __init__(self, handlers: Callable[[], BaseCallbackHandler], way: Way) -> None:
        """Take a factory of handlers; they may differ, their journal is one."""
        self.handler = handlers
        self.way = way
        self.kept: list[Any] = []
        """Objects that must outlive the journal, such as generators nobody closes."""

    def config(self, *, thread_id: str | None = None, **config: Any) -> RunnableConfig:
        """Return a config with a new handler, unless it brings its own callbacks."""
        if thread_id is not None:
            config["configurable"] = {"thread_id": thread_id, **config.get("configurable", {})}
        return {"callbacks": [self.handler()], **config}

    def invoke(
        self,
        runnable: Runnable[Any, Any],
        value: Any,
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> Any:
        """Call ``invoke`` or ``ainvoke``, the latter in an event loop of its own."""
        config = self.config() if config is None else config
        if self.way == "sync":
            return runnable.invoke(value, config, **options)
        return asyncio.run(_await(runnable.ainvoke(value, config, **options)))

    def stream(
        self,
        runnable: Runnable[Any, Any],
        value: Any,
        config: RunnableConfig | None = None,
        **options: Any,
    ) -> list[Any]:
        """Consume ``stream`` or ``astream`` to its end."""
        config = self.config() if config is None else config
        if self.way == "sync":
            return list(runnable.stream(value, config, **options))

        async def consume() -> list[Any]:
            return [chunk async for chunk in runnable.astream(value, config, **options)]

        return asyncio.run(consume())


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


Program: TypeAlias = Callable[[Caller], None] | Callable[[Caller], Awaitable[None]]


@dataclass
class Scenario:
    """A program that can run the sync way, the async way, or both: the tree is the same."""

    number: str
    name: str
    grace: float = GRACE_SHORT
    programs: dict[Way, Program] = field(default_factory=dict)

    @property
    def purpose(self) -> str:
        """First line of the first program's docstring."""
        docstring = inspect.getdoc(next(iter(self.programs.values()))) or ""
        return docstring.partition("\n")[0]

    @property
    def slug(self) -> str:
        """Number and name, as a file name."""
        return f"{self.number}_{self.name}"

    def run(self, way: Way, handlers: Callable[[], BaseCallbackHandler]) -> Caller:
        """Run the program to its end and return its caller, which keeps what must stay alive."""
        caller = Caller(handlers, way)
        awaitable = self.programs[way](caller)
        if awaitable is not None:
            asyncio.run(_await(awaitable))
        return caller


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    number: str, *, way: Way | None = None, grace: float = GRACE_SHORT
) -> Callable[[Program], Program]:
    """Register a program under its number.

    A coroutine function runs the async way only, any other both ways, unless `way` says which.
    A second program with the same number adds the other way.
    """

    def register(program: Program) -> Program:
        entry = SCENARIOS.setdefault(number, Scenario(number, program.__name__, grace))
        if inspect.iscoroutinefunction(program):
            ways: tuple[Way, ...] = ("async",)
        else:
            ways = ("sync", "async") if way is None else (way,)
        if entry.programs.keys() & set(ways):
            msg = f"scenario {number} is registered twice"
            raise ValueError(msg)
        entry.programs.update(dict.fromkeys(ways, program))
        return program

    return register
