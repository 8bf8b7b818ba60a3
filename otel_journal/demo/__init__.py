"""The demo: a real agent, a misbehaving delivery, and the proof that every account agrees.

It needs no network, no key and no package beyond those the journal itself needs.
"""

from __future__ import annotations

from .report import Report
from .stage import Stage
from .text import ASCII, UNICODE, render

__all__ = ["ASCII", "UNICODE", "Report", "Stage", "render"]
