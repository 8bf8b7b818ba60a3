"""What a test of your own agent or store needs: a scripted chat model, and a suite for stores.

The suite is in `otel_journal.testing.stores`, which needs pytest; nothing here does.
"""

from __future__ import annotations

from .models import CHUNKS_BEFORE_FAILURE, DEFAULT_USAGE, ScriptedModel, Step, ai, tool_call

__all__ = [
    "CHUNKS_BEFORE_FAILURE",
    "DEFAULT_USAGE",
    "ScriptedModel",
    "Step",
    "ai",
    "tool_call",
]
