"""Totals per run, kept by the ledger as it goes: bounded and exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import semconv as sc
from .lineage import RecentlyUsed
from .summary import MAX_SUMMARY_TEXT, RunSummary, Spender, Spent, Totals

if TYPE_CHECKING:
    from .events import Usage
    from .observations import Human
    from .operations import Operation


class Accounts:
    """One account per run id. Open runs are never forgotten, ended ones beyond `limit` are."""

    def __init__(self, limit: int, *, track_usage: bool) -> None:
        self._open: dict[str, Totals] = {}
        self._ended: RecentlyUsed[Totals] = RecentlyUsed(limit)
        self._humans: RecentlyUsed[bool] = RecentlyUsed(limit)
        self._track_usage = track_usage

    def of(self, run_id: str) -> Totals:
        """The account of a run, opened on first use."""
        found = self._open.get(run_id) or self._ended.get(run_id)
        if found is None:
            found = Totals(run_id)
            self._ended.remember(run_id, found)
        return found

    def summary(self, run_id: str) -> RunSummary | None:
        """Copy of an account; None when the run is unknown or forgotten."""
        found = self._open.get(run_id) or self._ended.get(run_id)
        return found.freeze() if found is not None else None

    def root_opened(self, run_id: str, thread_id: str) -> Totals:
        """A root operation of the run begins."""
        totals = self.of(run_id)
        self._ended.pop(run_id, None)
        self._open[run_id] = totals
        totals.open_roots += 1
        totals.thread_id = thread_id or totals.thread_id
        return totals

    def root_ended(self, root: Operation) -> None:
        """A root operation of the run has ended."""
        totals = root.run.totals
        totals.open_roots -= 1
        totals.outcome = root.outcome
        if totals.open_roots == 0:
            self._open.pop(totals.run_id, None)
            self._ended.remember(totals.run_id, totals)

    def human(self, op: Operation, human: Human) -> bool:
        """Take a human message once per run, and once per thread by its id; True when new.

        A resumed or retried run repeats the human turn of an earlier one (contract 7).
        """
        totals = op.run.totals
        if totals.human_seen or (totals.resumed and not human.identity):
            return False
        totals.human_seen = True
        totals.first_human_message = human.text[:MAX_SUMMARY_TEXT]
        if human.identity and op.run.thread_id:
            key = (op.run.thread_id, human.identity)
            if key in self._humans:
                return False
            self._humans.remember(key, value=True)
        totals.messages += 1
        return True

    def book_usage(self, op: Operation, usage: Usage) -> bool:
        """Add the usage of a model call; False when usage is not tracked."""
        if not self._track_usage:
            return False
        self._spent(op).book(usage)
        op.run.input_tokens += usage.input_tokens
        op.run.output_tokens += usage.output_tokens
        return True

    def book_call(self, op: Operation) -> None:
        """Add a model call that has ended."""
        op.run.totals.llm_calls += 1
        self._spent(op).calls += 1

    @staticmethod
    def _spent(op: Operation) -> Spent:
        attributes, tokens = op.attributes, op.run.totals.tokens
        spender = Spender(
            op.agent,
            op.caller,
            attributes.get(sc.PROVIDER_NAME, ""),
            attributes.get(sc.REQUEST_MODEL, ""),
        )
        spent = tokens.get(spender)
        if spent is None:
            spent = tokens[spender] = Spent()
        return spent
