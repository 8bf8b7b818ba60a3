"""How the sidecar's log lines look: for people, or one JSON object a line for programs."""

from __future__ import annotations

import logging
import sys
from datetime import datetime, timezone
from typing import Final

import msgspec

LOGGER: Final = "otel_journal"
"""The logger of the whole package."""

_TEXT: Final = "%(asctime)s %(levelname)s %(message)s"


class JsonLines(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception's type is told, its traceback is not."""
        moment = datetime.fromtimestamp(record.created, tz=timezone.utc)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return msgspec.json.encode(line).decode()


def set_up(log_format: str) -> None:
    """Write the package's log to stderr, from INFO, as ``text`` or ``json``.

    A second call replaces what the first one set up.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(_TEXT))
    logger = logging.getLogger(LOGGER)
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
