"""Durable journals behind one small protocol, and the sink that fills them."""

from __future__ import annotations

from .memory import MemoryStore
from .opening import existing, open_configured, open_store
from .protocol import Store
from .sink import StoreSink

__all__ = ["MemoryStore", "Store", "StoreSink", "existing", "open_configured", "open_store"]
