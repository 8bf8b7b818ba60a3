"""The suite of stores notices what it is there to notice: each store here has one fault."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from otel_journal.errors import StoreError
from otel_journal.store.memory import MemoryStore
from otel_journal.testing.stores import DurableStoreConformance

from .faulty_stores import DURABLE_FAULTS, FAULTS, Durable

CAUGHT = (AssertionError, pytest.fail.Exception, StoreError)
"""A wrong answer, no error where one is due, and an error where none is."""


class Suite(DurableStoreConformance):
    """Runs cases by hand, on stores of any class."""

    def __init__(self, kind: type[MemoryStore]) -> None:
        """Make stores of this kind."""
        self.kind = kind

    def make_store(self, tmp_path: Path) -> MemoryStore:  # noqa: ARG002 - needs no directory
        """Return an empty store."""
        return self.kind()

    def reopen(self, store: Durable) -> Durable:
        """Close and reopen."""
        return store.reopened()

    def run(self, case: str) -> None:
        """Run one case on a new store, and on a second one if it takes one."""
        method = getattr(self, case)
        method(*(self.kind() for _ in inspect.signature(method).parameters))


def _cases(suite: type) -> list[str]:
    return sorted(name for name in dir(suite) if name.startswith("test_"))


@pytest.mark.parametrize("case", _cases(DurableStoreConformance))
def test_a_store_without_a_fault_passes(case: str) -> None:
    """The stores with faults below are this one, but for the fault."""
    Suite(Durable).run(case)


@pytest.mark.parametrize(("kind", "case"), FAULTS.items())
def test_a_fault_is_caught(kind: type[MemoryStore], case: str) -> None:
    """By the case that is about it."""
    with pytest.raises(CAUGHT):
        Suite(kind).run(case)


@pytest.mark.parametrize(("kind", "case"), DURABLE_FAULTS.items())
def test_a_fault_on_reopening_is_caught(kind: type[MemoryStore], case: str) -> None:
    """By the case that is about it."""
    with pytest.raises(CAUGHT):
        Suite(kind).run(case)
