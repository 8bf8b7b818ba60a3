"""What happens to journals when their process forks or ends.

A forked child gets consistent tables and no events of its parent. Every way to end that runs code
of Python delivers what is there: the end of the interpreter, and of a `multiprocessing` child,
which leaves by ``os._exit``. SIGKILL, a signal without a handler and a bare ``os._exit`` do not.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import Final, Protocol

FORK_WAIT_S: Final = 2.0
"""Longest wait of a fork for a lock of ours: an import of gRPC by the worker, and some more."""

_AFTER_CHILDREN: Final = -100
"""Priority of our finalizer in `multiprocessing`: below zero, so after its own children ended."""


class Living(Protocol):
    """What a journal is asked at the turning points of a process."""

    def forked(self) -> None:
        """Start over in a forked child."""
        ...

    def exit(self) -> None:
        """Deliver what is there, in bounded time: the interpreter is about to end."""
        ...


class Holdable(Protocol):
    """A lock, or what is used like one."""

    def acquire(self, *, timeout: float) -> bool:
        """Take it within `timeout` seconds; False when that was not possible."""
        ...

    def release(self) -> object:
        """Give it back."""
        ...


_living: Final[weakref.WeakSet[Living]] = weakref.WeakSet()
"""Every open journal of this process."""
_outer: Final[weakref.WeakSet[Holdable]] = weakref.WeakSet()
_inner: Final[weakref.WeakSet[Holdable]] = weakref.WeakSet()
_held: Final[list[Holdable]] = []
"""Locks that the thread which forks holds now."""
_finalized: Final[set[int]] = set()
"""Ids of processes whose `multiprocessing` knows of us."""


def register(journal: Living) -> None:
    """Take care of a journal until `forget`."""
    _living.add(journal)
    _finalize()


def forget(journal: Living) -> None:
    """A journal has shut down."""
    _living.discard(journal)


def living() -> list[Living]:
    """Every journal of this process that has not shut down."""
    return list(_living)


def hold_at_fork(lock: Holdable, *, outer: bool = False) -> None:
    """Let forks wait until nobody holds `lock`: in the child it is free, what it guards whole.

    `outer` says that other such locks may be taken while it is held. Only for locks that are held
    briefly; after `FORK_WAIT_S` the process forks all the same. The lock is not kept alive.
    """
    (_outer if outer else _inner).add(lock)


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_WAIT_S
    for lock in (*_outer, *_inner):
        if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _held.append(lock)


def _after_fork() -> None:
    while _held:
        _held.pop().release()


def _forked() -> None:
    _after_fork()
    for journal in living():
        journal.forked()
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # a child of it empties its list of finalizers next, then calls us
        util.register_after_fork(_living, _finalize)


def _finalize(_: object = None) -> None:
    """Have `_exit` called at the end of this process, if it is a child of `multiprocessing`."""
    process = sys.modules.get("multiprocessing.process")
    util = sys.modules.get("multiprocessing.util")
    if process is None or util is None or process.parent_process() is None:
        return
    if os.getpid() not in _finalized:
        _finalized.add(os.getpid())
        util.Finalize(None, _exit, exitpriority=_AFTER_CHILDREN)


@atexit.register
def _exit() -> None:
    for journal in living():
        journal.exit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forked)
