"""Trace and span ids derived from LangChain's run ids: the same in every process, never random."""

from __future__ import annotations

from typing import Final
from uuid import UUID, uuid5

from ulid import ULID

_128_BITS: Final = (1 << 128) - 1
_64_BITS: Final = (1 << 64) - 1
_ODD: Final = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""2**128 over the golden ratio, odd: multiplying by it spreads every bit upwards."""
_SPAN: Final = 0x5350_414E
_TRACE: Final = 0x5452_4143
"""Keep the two ids of one operation apart."""
_MANUAL: Final = UUID("6f2ab0c4-3a39-5d1c-9d0e-5d1f6f7c1e55")
"""Namespace of operations reported by hand (tool calls without LangChain)."""


def trace_id(key: int, occurrence: int) -> str:
    """32 hex digits for the trace of the root operation `key` (the integer of its run id)."""
    return f"{_mixed(key, occurrence, _TRACE) or 1:032x}"


def span_id(key: int, occurrence: int) -> str:
    """16 hex digits for one occurrence of an operation.

    A hash, not a part of the id: the first 48 bits of LangChain's uuid7 are a clock.
    """
    return f"{_mixed(key, occurrence, _SPAN) & _64_BITS or 1:016x}"


def _mixed(key: int, occurrence: int, salt: int) -> int:
    """A multiply-xorshift hash of 128 bits: a quarter of the price of the fastest digest here."""
    x = key + (occurrence << 32 | salt) * _ODD & _128_BITS
    x = (x ^ x >> 67) * _ODD & _128_BITS
    x = (x ^ x >> 61) * _ODD & _128_BITS
    return x ^ x >> 64


def call_id(op_id: str) -> str:
    """ULID of a tool call the model gave no id: the operation's own 128 bits in ULID spelling."""
    return str(ULID.from_uuid(UUID(op_id)))


def new_call_id() -> str:
    """Fresh 26-character ULID for a tool call reported by hand without one."""
    return str(ULID())


def manual_op_id(run_id: str, call: str) -> UUID:
    """Id of the operation behind a tool call reported by hand."""
    return uuid5(_MANUAL, f"{run_id}/{call}")
