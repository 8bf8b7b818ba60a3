"""What one run came to: totals that are exact the moment a callback returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from .events import Outcome, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SUMMARY_TEXT: Final = 2_000
"""Longest first or last message kept in a summary, in characters (contract 17)."""


class Spender(NamedTuple):
    """Who spent tokens on what."""

    agent: str
    caller: str
    provider: str
    model: str


@dataclass(slots=True)
class Spent:
    """Model calls and tokens of one `Spender`."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    details: dict[str, int] = field(default_factory=dict)
    """Subsets of input or output such as ``cache_read``; never added to them."""

    def book(self, usage: Usage) -> None:
        """Add one call's usage."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        for name, count in usage.details.items():
            self.details[name] = self.details.get(name, 0) + count


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Totals of one run, a copy that later events do not change."""

    run_id: str
    thread_id: str
    trace_id: str
    """Trace of the newest root operation of the run."""
    outcome: Outcome | None
    """None while a root operation is open."""
    tokens: Mapping[Spender, Spent]
    llm_calls: int
    usage_missing: int
    tool_calls: int
    messages: int
    """Human inputs, answers (one per generation) and tool results."""
    first_human_message: str = field(repr=False)
    last_ai_message: str = field(repr=False)

    @property
    def input_tokens(self) -> int:
        """Input tokens of all callers."""
        return sum(spent.input_tokens for spent in self.tokens.values())

    @property
    def output_tokens(self) -> int:
        """Output tokens of all callers."""
        return sum(spent.output_tokens for spent in self.tokens.values())

    @property
    def total_tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens

    def by(self, dimension: str) -> dict[str, Spent]:
        """Totals per ``agent``, ``caller``, ``provider`` or ``model``.

        Raises:
            ValueError: any other dimension.
        """
        if dimension not in Spender._fields:
            msg = f"dimension {dimension!r} is not allowed; allowed: {', '.join(Spender._fields)}"
            raise ValueError(msg)
        folded: dict[str, Spent] = {}
        for spender, spent in self.tokens.items():
            into = folded.setdefault(getattr(spender, dimension), Spent())
            into.calls += spent.calls
            into.book(Usage(spent.input_tokens, spent.output_tokens, spent.details))
        return folded


@dataclass(slots=True)
class Totals:
    """The ledger's running account of one run id; `freeze` makes the public copy."""

    run_id: str
    thread_id: str = ""
    trace_id: str = ""
    open_roots: int = 0
    outcome: Outcome | None = None
    tokens: dict[Spender, Spent] = field(default_factory=dict)
    llm_calls: int = 0
    llm_index: int = 0
    """Number given to the newest model call, from 1, in order of their starts."""
    usage_missing: int = 0
    tool_calls: int = 0
    messages: int = 0
    human_seen: bool = False
    resumed: bool = False
    first_human_message: str = ""
    last_ai_message: str = ""

    def freeze(self) -> RunSummary:
        """Copy the account."""
        return RunSummary(
            run_id=self.run_id,
            thread_id=self.thread_id,
            trace_id=self.trace_id,
            outcome=None if self.open_roots else self.outcome,
            tokens={
                spender: dataclasses.replace(spent, details=dict(spent.details))
                for spender, spent in self.tokens.items()
            },
            llm_calls=self.llm_calls,
            usage_missing=self.usage_missing,
            tool_calls=self.tool_calls,
            messages=self.messages,
            first_human_message=self.first_human_message,
            last_ai_message=self.last_ai_message,
        )
