"""The threads of a sidecar: each repeats one step, and says when it cannot go on."""

from __future__ import annotations

import gc
import logging
import threading
from typing import TYPE_CHECKING, Final

from otel_journal.errors import SidecarError, StoreError

from .state_schema import StateDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable

IDLE_S: Final = 0.02
"""Pause after a step that found nothing: what a new event waits, as long as a commit's linger."""
AGAIN_S: Final = 1.0
"""Pause after a step that failed, for example because the store is away."""

NEW_OBJECTS: Final = 100_000
"""Objects made between two looks of the garbage collector for cycles; Python's own choice of 700
costs a quarter of all time here, because a batch is some ten thousand objects without any."""

_logger: Final = logging.getLogger("otel_journal")


def look_for_cycles_less() -> None:
    """Tell the garbage collector of this process that batches of events have no cycles."""
    gc.set_threshold(NEW_OBJECTS)


class Worker:
    """A thread that repeats a step until it is told to finish."""

    def __init__(
        self, name: str, step: Callable[[], bool], *, finish: threading.Event, halt: threading.Event
    ) -> None:
        """Repeat `step`, which returns False when it found nothing to do.

        After `finish` it goes on while there is something to do, after `halt` not at all. It
        sets both itself when the state file is lost: only a new start helps.
        """
        self.name = name
        self._step = step
        self._finish = finish
        self._halt = halt
        self.problem = ""
        """Why the last step failed; empty when it worked."""
        self.finished = False
        """True once there was nothing left to do after `finish`."""
        self._thread = threading.Thread(target=self._run, name=f"otel-journal-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait up to `timeout` seconds for the end; return whether it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._halt.is_set():
            busy = self._try()
            if busy:
                continue
            if self._finish.is_set():
                self.finished = not self.problem and not self._halt.is_set()
                return
            self._finish.wait(AGAIN_S if self.problem else IDLE_S)

    def _try(self) -> bool:
        try:
            busy = self._step()
        except StateDamagedError as error:
            self._failed(str(error))
            self._finish.set()
            self._halt.set()  # the next start sets the file aside, or uses the one in its place
        except (StoreError, SidecarError) as error:
            self._failed(str(error))
        except Exception as error:  # noqa: BLE001 - the other threads must not stay alone, unseen
            self._failed(f"unexpected {type(error).__name__}", error)
        else:
            if self.problem:
                _logger.warning("%s goes on", self.name)
            self.problem = ""
            return busy
        return False

    def _failed(self, problem: str, unexpected: Exception | None = None) -> None:
        if problem != self.problem:
            _logger.error("%s waits: %s", self.name, problem, exc_info=unexpected)
        self.problem = problem
