"""Which part of the runs a sidecar takes when several share one store."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

from otel_journal.errors import SidecarError

if TYPE_CHECKING:
    from otel_journal.events import Event

MAX_SHARDS: Final = 64
"""Most sidecars on one store: each reads every row, which the store has to serve."""

_FORM: Final = re.compile(r"(\d{1,3})/(\d{1,3})", re.ASCII)


class ShardError(SidecarError, ValueError):
    """What should name a shard does not."""


@dataclass(frozen=True)
class Shard:
    """The runs whose hash leaves `index` when divided by `count`."""

    index: int
    """From 0."""
    count: int
    """How many sidecars share the store."""

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``INDEX/COUNT``, e.g. ``0/4``.

        Raises:
            ShardError: it is something else.
        """
        found = _FORM.fullmatch(text.strip())
        if found is not None:
            shard = cls(int(found[1]), int(found[2]))
            if shard.index < shard.count <= MAX_SHARDS:
                return shard
        msg = (
            f"shard {text!r} is not allowed; allowed: INDEX/COUNT with "
            f"0 <= INDEX < COUNT <= {MAX_SHARDS}, such as 0/4"
        )
        raise ShardError(msg)

    def __str__(self) -> str:
        """As `parse` reads it."""
        return f"{self.index}/{self.count}"

    def owns(self, event: Event) -> bool:
        """Tell whether this sidecar takes an event: every sign of life, and its own runs.

        A run is whole in one shard, so that its operations find each other.
        """
        if event.event_type == "process.beat":
            return True
        return crc32(event.run_id.encode()) % self.count == self.index
