"""A lifespan for ASGI applications that delivers what is recorded before the server ends.

uvicorn raises SIGTERM again once it has shut down, so the interpreter's exit functions never run;
the end of the application's lifespan is the last moment there is.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from . import process_life
from .instrumentation import renew
from .model_hooks import process_journal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from .journal import Journal

    Lifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Any]]


def lifespan(app_lifespan: Lifespan | None = None, journal: Journal | None = None) -> Lifespan:
    """Return a lifespan for Starlette, FastAPI and others that shuts journals down at its end.

    ``FastAPI(lifespan=lifespan())``, or ``lifespan(mine)`` around one of your own, whose state is
    passed on and which ends first. Shutting down takes up to ``OTEL_JOURNAL_SHUTDOWN_TIMEOUT``
    seconds per journal, in a thread of its own: the event loop goes on.

    Args:
        app_lifespan: a lifespan of the application.
        journal: the journal to shut down; default every open one of the process. A process-wide
            journal is made anew when it is needed after that; others stay closed.
    """

    @asynccontextmanager
    async def around(app: object) -> AsyncIterator[Any]:
        renew()
        try:
            if app_lifespan is None:
                yield None
            else:
                async with app_lifespan(app) as state:
                    yield state
        finally:
            await _off_the_loop(lambda: _shut_down(journal))

    return around


def _shut_down(journal: Journal | None) -> None:
    for ending in process_life.living() if journal is None else [journal]:
        ending.exit()
    if process_journal.cache_info().currsize and process_journal() not in process_life.living():
        process_journal.cache_clear()


async def _off_the_loop(work: Callable[[], None]) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # another event loop than asyncio's: nothing else runs by now
        work()
        return
    # Not the loop's own executor: the application may have filled it with calls that block.
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="otel-journal-shutdown")
    try:
        await loop.run_in_executor(executor, work)
    finally:
        executor.shutdown(wait=False)
