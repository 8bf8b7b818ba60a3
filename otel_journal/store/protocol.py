"""What every durable journal can do: the one small protocol behind `open_store`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from otel_journal.events import Event


class Store(Protocol):
    """A journal of events; thread-safe.

    Events that go in and come out are values: a reader cannot change the store. `seq` is
    store-wide, strictly increasing and never used again, not even after a deletion or a restart;
    gaps are allowed. Cursors are exclusive and may fall into gaps. A limit of 0 gives nothing,
    a negative one raises ValueError, and filters apply before the limit. What is written by one
    call is there as a whole or not at all, also after ``kill -9``.
    """

    name: str
    """``memory``, ``sqlite`` or ``postgresql``."""

    @property
    def epoch(self) -> str:
        """Identity of this journal, made with it: a cursor is only valid within its epoch."""
        ...

    def append(self, events: Sequence[Event]) -> list[Event]:
        """Add events in order, all or nothing; those whose `event_id` is known are skipped.

        A batch may hold events of any runs and threads. The `seq` of what is given is ignored.

        Returns:
            What was new, numbered, in order.

        Raises:
            StoreError: an event is not allowed (`checks.checked` says why), or the store is
                full, damaged, away or closed; nothing was written.
        """
        ...

    def put_if_absent(self, event: Event) -> tuple[Event, bool]:
        """Add an event unless its run has one of the same type in the same thread.

        Returns:
            The event that the store holds now, and whether this call wrote it.
        """
        ...

    def read(self, after: int = 0, limit: int = 500) -> list[Event]:
        """Events with ``seq > after`` in the order they were committed, skipping none."""
        ...

    def events(
        self,
        run_id: str,
        types: Collection[str] | None = None,
        after: int = 0,
        limit: int = 500,
    ) -> list[Event]:
        """Events of one run in order; an empty `types` gives nothing."""
        ...

    def messages(
        self,
        thread_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of a thread (category ``message``), ascending.

        With `after` the first ones of the open interval (after, before), else the last ones.
        """
        ...

    def run_messages(
        self,
        run_id: str,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Event]:
        """The feed of one run, paged as `messages`."""
        ...

    def count_messages(self, thread_id: str) -> int:
        """How many messages a thread's feed holds."""
        ...

    def runs(
        self, before: int | None = None, limit: int = 50, thread_id: str | None = None
    ) -> list[Event]:
        """``run.start`` events, newest first, with ``seq < before``; of one thread if given."""
        ...

    def watermark(self) -> int:
        """Highest `seq` given so far, from 0: who cached "not there" asks again when it grew."""
        ...

    def delete_thread(self, thread_id: str) -> int:
        """Delete all events of a thread; return how many."""
        ...

    def delete_run(self, run_id: str) -> int:
        """Delete all events of a run; return how many."""
        ...

    def prune(self, up_to: int) -> int:
        """Delete all events with ``seq <= up_to``; return how many."""
        ...

    def close(self) -> None:
        """Release resources; safe to repeat. Afterwards every other call raises StoreError."""
        ...
