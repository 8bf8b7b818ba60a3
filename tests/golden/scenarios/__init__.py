"""Seventy-five things LangChain and LangGraph do to callbacks, each as a small real program.

The numbers are those of the recorded callback sequences. Importing the package registers all of
them in `SCENARIOS`.
"""

from . import (
    agents,
    callbacks,
    cancelling,
    failures,
    flow,
    interrupts,
    models,
    restarts,
    retries,
    streaming,
    tools,
)
from .registry import SCENARIOS, Caller, Scenario, Way

__all__ = [
    "SCENARIOS",
    "Caller",
    "Scenario",
    "Way",
    "agents",
    "callbacks",
    "cancelling",
    "failures",
    "flow",
    "interrupts",
    "models",
    "restarts",
    "retries",
    "streaming",
    "tools",
]
