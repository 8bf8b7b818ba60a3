"""Files of SQLite across a fork: closed before it, opened again by whoever needs them.

SQLite keeps its locks per process and file, so that even a new connection in a child would trust
locks that only the parent holds.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Forkable(Protocol):
    """Something with connections that must not be inherited."""

    def before_fork(self) -> None:
        """Wait for the calls in progress, keep others from beginning, and disconnect."""
        ...

    def after_fork(self) -> None:
        """Let calls begin again, in the parent and in the child."""
        ...


_files: Final[weakref.WeakSet[Forkable]] = weakref.WeakSet()
_held: Final[list[Forkable]] = []
"""Files whose locks the forking thread holds."""


def guard(file: Forkable) -> None:
    """Disconnect `file` before every fork, as long as somebody keeps it."""
    _files.add(file)


def _before_fork() -> None:
    for file in sorted(_files, key=id):
        file.before_fork()
        _held.append(file)


def _after_fork() -> None:
    while _held:
        _held.pop().after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
