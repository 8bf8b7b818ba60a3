"""The spans projection: end events of the store become OTLP spans at a collector.

The cursor is committed only after every span before it was delivered or has become a dead letter.
A death in between sends a batch again, with the same ids.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from otel_journal.spans import END_EVENTS

from .following import BATCH, Follower
from .otlp.delivery import Outgoing
from .otlp.encoding import resource
from .state import Change, Process
from .trail import BEAT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from otel_journal.events import Event
    from otel_journal.store import Store

    from .following import Batch
    from .otlp.delivery import Delivery
    from .otlp.encoding import SpanEncoder
    from .shard import Shard
    from .state import State

PROJECTION: Final = "spans"
"""Name of the cursor."""

HANDLED: Final = "spans_handled"
"""Durable counter of events that were read and need nothing more: delivered, or no span."""
REJECTED: Final = "spans_rejected"
"""Durable counter of spans that the collector took note of and threw away."""
DELIVERED: Final = "spans_delivered"
"""Durable counter of spans that the collector took, rejected ones of a partial success included."""
EXPORTED_INLINE: Final = "spans_exported_inline"
"""Durable counter of spans left to their processes, which export themselves."""
DEAD_LETTERS: Final = "spans_dead_"
"""Durable counters of spans set aside, by reason."""

PROCESSES_KEPT: Final = 2 * BATCH
"""Processes whose encoded resource is remembered, more than one batch can introduce; those of
others are looked up in the state."""

_UNKNOWN: Final[Mapping[str, Any]] = {"service.name": "unknown_service"}
"""Resource of a process whose description was never seen."""


class _Origin(NamedTuple):
    """What a span needs to know of its process."""

    resource: bytes
    inline: bool
    """True when the process sends its spans itself."""


class Relay:
    """Sends the spans of one store, each once unless a death comes in between; one thread."""

    def __init__(
        self,
        store: Store,
        state: State,
        delivery: Delivery,
        encoder: SpanEncoder,
        *,
        shard: Shard | None = None,
    ) -> None:
        """Go on where `state` says."""
        self.follower = Follower(store, state, PROJECTION, shard)
        self._store = store
        self._state = state
        self._delivery = delivery
        self._encoder = encoder
        self._unknown = _Origin(resource(_UNKNOWN), inline=False)
        self._origins: dict[str, _Origin] = {}

    def step(self, limit: int = BATCH) -> bool:
        """Deliver and commit one batch; blocks as long as the collector is away.

        Returns:
            False when there was nothing to do, or the delivery was stopped: then nothing is
            committed, and the next step begins with the same batch.

        Raises:
            StoreError: the store is away, closed or damaged as a whole.
            SidecarError: the state cannot be read or written.
        """
        batch = self.follower.next(limit)
        made = self._state.made(limit)
        if not batch.moved and not made:
            return False
        introduced = self._introduced(batch.events)
        outgoing, inline = self._outgoing(batch, made)
        rejected = self._delivery.rejected
        dead_letters = self._delivery.deliver(outgoing) if outgoing else []
        if dead_letters is None:
            return False
        counted = Counter(batch.counted(PROJECTION))
        counted[DELIVERED] = len(outgoing) - len(dead_letters)
        rejected = self._delivery.rejected - rejected
        seen = batch.passed + len(made) - sum(batch.lost_rows.values())
        counted[REJECTED] = rejected
        counted[HANDLED] = seen - rejected - len(dead_letters)
        counted[EXPORTED_INLINE] = inline
        counted.update(DEAD_LETTERS + letter.reason for letter in dead_letters)
        self._state.commit(
            Change(
                PROJECTION,
                batch.cursor,
                processes=introduced,
                made_sent=[event.event_id for event in made],
                dead_letters=dead_letters,
                counted=+counted,
            )
        )
        self.follower.took(batch)
        return True

    def _introduced(self, events: Iterable[Event]) -> list[Process]:
        """Learn who the processes are; return those that nobody has written down yet.

        The counters may be behind: after a death here, their description would be behind the
        cursor and not in the state.
        """
        found = {}
        for event in events:
            known = self._origins.get(event.process, self._unknown)
            if event.event_type == BEAT and known is self._unknown:
                process = _process_of(event)
                found[process.id] = process
                self._remember(process.id, process)
        if not found:
            return []
        written = {process.id for process in self._state.processes() if process.resource}
        return [process for process in found.values() if process.id not in written]

    def _outgoing(self, batch: Batch, made: Sequence[Event]) -> tuple[list[Outgoing], int]:
        """Return what to send, and how many spans their processes send themselves.

        What the sidecar made is sent for every process, unless the real end came meanwhile.
        """
        spans = list(filter(_is_span, batch.events))
        real = {event.event_id for event in spans}
        waiting = [event for event in made if event.event_id not in real and _is_span(event)]
        origins = self._origins_of([*waiting, *spans])
        theirs = [event for event in spans if not origins[event.process].inline]
        outgoing = [
            Outgoing(event, origins[event.process].resource, self._encoder.span(event.span))
            for event in (*waiting, *theirs)
            if event.span is not None
        ]
        return outgoing, len(spans) - len(theirs)

    def _origins_of(self, events: Iterable[Event]) -> dict[str, _Origin]:
        """Find the processes of events: among the remembered ones, else in the state."""
        wanted = {event.process for event in events}
        found = {name: self._origins[name] for name in wanted if name in self._origins}
        missing = wanted - found.keys()
        if missing:
            written = {process.id: process for process in self._state.processes()}
            for name in missing:
                found[name] = self._remember(name, written.get(name) or self._told(name))
        return found

    def _told(self, name: str) -> Process | None:
        """Ask the journal itself: the state has forgotten who was idle for a day."""
        beats = self._store.events(name, (BEAT,), limit=1) if name else []
        return _process_of(beats[0]) if beats else None

    def _remember(self, name: str, process: Process | None) -> _Origin:
        """Keep what is known of a process; one that nobody described is unknown."""
        origin = self._unknown
        if process is not None and process.resource:
            origin = _Origin(resource(process.resource), process.export == "inline")
        while len(self._origins) >= PROCESSES_KEPT:
            del self._origins[next(iter(self._origins))]
        self._origins[name] = origin
        return origin


def _process_of(beat: Event) -> Process:
    described = beat.metadata.get("resource")
    return Process(
        beat.process,
        described if isinstance(described, dict) else {},
        beat.created_ns,
        str(beat.metadata.get("export", "")),
    )


def _is_span(event: Event) -> bool:
    """Tell whether an event is the end of an operation that the sampler wants to see."""
    span = event.span
    return span is not None and span.sampled and span.recording and event.event_type in END_EVENTS
