"""Calls into the SDK that must not take longer than they are told."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class BoundedCall:
    """Runs SDK calls that ignore their own timeout, one at a time, no longer than told.

    The thread is a daemon: a call that hangs is left behind and cannot hold up the exit.
    """

    def __init__(self) -> None:
        """Start nothing yet."""
        self._thread: threading.Thread | None = None

    def __call__(self, call: Callable[[], object], timeout: float) -> bool:
        """Run `call` and wait up to `timeout` seconds; True if it returned, and not False."""
        deadline = time.monotonic() + timeout
        previous = self._thread
        if previous is not None:
            previous.join(timeout)
            if previous.is_alive():
                return False
        results: list[object] = []
        thread = threading.Thread(
            target=lambda: results.append(call()), name="otel-journal-flush", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter is ending and starts no threads any more
            return call() is not False
        self._thread = thread
        thread.join(max(0.0, deadline - time.monotonic()))
        return bool(results) and results[0] is not False
