"""Failures of the journal itself: logged once per place and kind, however often they happen."""

from __future__ import annotations

import logging
from typing import Final

from .errors import StoreError
from .failures import describe

_logger: Final = logging.getLogger("otel_journal")

MAX_REPORTED: Final = 100
"""Kinds of failures that are logged, once each; exception classes can be made at run time."""


class Reports:
    """What has been logged already. Whoever reports also counts: the counters tell how often."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._told: set[tuple[str, type[BaseException]]] = set()

    def failed(self, place: str, error: BaseException) -> None:
        """Log that `place` failed, unless this kind of failure was logged for it before."""
        key = (place, type(error))
        if key in self._told or len(self._told) >= MAX_REPORTED:
            return
        self._told.add(key)
        # Messages of our own errors name no content; those of others may.
        why = str(error) if isinstance(error, StoreError) else describe(error)
        _logger.error("otel-journal: %s failed; counted, not repeated: %s", place, why)
