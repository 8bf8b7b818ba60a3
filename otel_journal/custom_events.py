"""Numbers for custom events, which LangChain gives no id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .lineage import RecentlyUsed

if TYPE_CHECKING:
    from uuid import UUID

MAX_OPERATIONS: Final = 1_000
"""Operations whose custom events are numbered at once; each holds the latest payload."""


class CustomEvents:
    """Numbers the custom events of an operation, as this handler receives them.

    Every handler of a journal counts the same events to the same numbers. A handler that stands
    in the list twice receives the very same container twice in a row, which is no new event.
    """

    def __init__(self) -> None:
        """Start with no operation."""
        self._latest: RecentlyUsed[tuple[int, str, object]] = RecentlyUsed(MAX_OPERATIONS)

    def forget(self, run_id: UUID) -> None:
        """Let go of an operation that has ended, and of its latest payload."""
        self._latest.pop(run_id, None)

    def number(self, run_id: UUID, name: str, data: object) -> int:
        """The number of this event, from 1."""
        latest = self._latest.get(run_id)
        if latest is None:
            n = 1
        else:
            n, last_name, last_data = latest
            repeated = data is last_data and name == last_name and isinstance(data, (dict, list))
            n += not repeated
        self._latest.remember(run_id, (n, name, data))
        return n
