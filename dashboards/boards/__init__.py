"""The boards as data, and what turns them into Grafana's JSON."""

from __future__ import annotations

from . import health, overview, runs, tokens
from .render import rendered

BOARDS = (overview.BOARD, tokens.BOARD, runs.BOARD, health.BOARD)
"""In the order of the drop-down that links them."""

__all__ = ["BOARDS", "rendered"]
