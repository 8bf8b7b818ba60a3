"""Reading the store off the event loop, by few threads, and no longer than a bound."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from .problems import not_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_journal.store.protocol import Store

_T = TypeVar("_T")

THREADS: Final = 8
"""Reads at a time; a read that hangs holds one of them, and never more of the process."""
PATIENCE_S: Final = 10.0
"""Seconds for which a reader waits for an answer: below the time-outs of usual HTTP clients."""


class StoreReads:
    """Calls into a store, from coroutines.

    A pool of its own, not the event loop's: a thread that hangs in a read stays counted in it
    after its reader gave up, so that a store that hangs costs eight threads and not all.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        *,
        threads: int = THREADS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Read what `store` returns; it may raise StoreError while there is none."""
        self._store = store
        self.patience_s = patience_s
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="otel-journal-web")

    async def __call__(self, work: Callable[[Store], _T]) -> _T:
        """Do `work` with the store in a thread and return what it returns.

        Raises:
            StoreError: the store cannot be read.
            ProblemError: it did not answer in time.
        """
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._pool, lambda: work(self._store()))
        try:
            return await asyncio.wait_for(future, self.patience_s)
        except asyncio.TimeoutError:
            msg = f"the journal's store did not answer within {self.patience_s:g} s"
            raise not_now(msg) from None

    def close(self) -> None:
        """Begin no further read; those that run end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)
