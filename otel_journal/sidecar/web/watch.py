"""One look at the store for all streams: has it grown?"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

from otel_journal.errors import StoreError

from .problems import ProblemError

if TYPE_CHECKING:
    from otel_journal.store.protocol import Store

    from .store_reads import StoreReads

LOOK_EVERY_S: Final = 0.25
"""Seconds between two looks: what a reader hardly notices, and four small queries a second."""


class Mark(NamedTuple):
    """How far a journal has come."""

    epoch: str
    seq: int


def mark_of(store: Store) -> Mark:
    """Return how far the journal of a store has come."""
    return Mark(store.epoch, store.watermark())


class Watch:
    """Asks for the mark while somebody waits for it to change, once for all of them."""

    def __init__(self, reads: StoreReads, look_every_s: float = LOOK_EVERY_S) -> None:
        """Know no mark yet; `run` looks for it."""
        self._reads = reads
        self._look_every_s = look_every_s
        self._mark: Mark | None = None
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._waiting = 0

    async def run(self) -> None:
        """Look, until cancelled. While the store is away the mark stays what it was."""
        while True:
            await self._wanted.wait()
            mark = self._mark
            with contextlib.suppress(StoreError, ProblemError):
                mark = await self._reads(mark_of)
            if mark != self._mark:
                self._mark = mark
                self._changed.set()
                self._changed = asyncio.Event()
            await anyio.sleep(self._look_every_s)

    async def other_than(self, seen: Mark | None, timeout_s: float) -> Mark | None:
        """Return the mark as soon as it is not `seen`; None when that took too long.

        Who reads the store after this returned misses nothing by calling it again with what
        it returned: whatever comes behind that read changes the mark.
        """
        self._waiting += 1
        self._wanted.set()
        try:
            with anyio.move_on_after(timeout_s):
                while self._mark in {None, seen}:
                    await self._changed.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._wanted.clear()
        return None if self._mark == seen else self._mark
