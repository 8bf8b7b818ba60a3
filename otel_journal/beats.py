"""Signs of life: what tells a sidecar that a process with open operations has not died."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

from .events import Event
from .resources import environment_resource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.sdk.resources import Resource

BEAT_S: Final = 5.0
"""Seconds between two signs while operations are open; a sidecar waits for several of them."""

_ID_BYTES: Final = 8


class Beats:
    """Makes the ``process.beat`` events of one process.

    An idle process gives no sign, so that a journal does not grow without work. The first sign
    comes with its first event. Every sign carries the process's OpenTelemetry resource: the
    spans that a sidecar sends for the process have it, whatever was pruned by then.
    """

    def __init__(
        self,
        *,
        export: str,
        resource: Resource | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`export` says who sends the spans, as `Settings.export`.

        `resource` defaults to the one of the environment.
        """
        self._export = export
        self._resource = resource
        self._attributes: Mapping[str, Any] = {}
        self._clock = clock
        self._wall_ns = wall_ns
        self.forked()

    def forked(self) -> None:
        """Be another process, in a forked child."""
        self.process = os.urandom(_ID_BYTES).hex()
        self._given = 0
        self._due = 0.0
        self._started_ns = self._wall_ns()

    def next(self, *, working: bool) -> Event | None:
        """Return the sign that is due, if any; `working` while anything is open or new."""
        now = self._clock()
        if not working or now < self._due:
            return None
        self._due = now + BEAT_S
        if not self._attributes:
            resource = self._resource or environment_resource()
            self._attributes = dict(resource.attributes)
        self._given += 1
        return Event(
            event_id=f"{self.process}/{self._given}/beat",
            run_id=self.process,
            event_type="process.beat",
            category="trace",
            created_ns=self._wall_ns(),
            metadata={
                "resource": self._attributes,
                "export": self._export,
                "started_ns": self._started_ns,
            },
            process=self.process,
        )
