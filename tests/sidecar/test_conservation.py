"""Nothing is lost: workers and sidecar are killed, the collector misbehaves, the books balance."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conservation import FAULTS, Conservation, check


@pytest.mark.timeout(240)
@pytest.mark.parametrize("grpc", [False, True], ids=["http", "grpc"])
def test_everything_in_the_journal_arrives(tmp_path: Path, grpc: bool) -> None:  # noqa: FBT001 - pytest gives it
    """Every event whose commit was seen is at the collector, and counted once.

    ``tests/bench/conservation.py`` is the long form of this test.
    """
    found = Conservation(tmp_path, seed=7 + grpc, grpc=grpc).run(8.0, FAULTS)

    check(found)
    assert found.kills["worker"] >= 3  # two of them at the end
    assert found.kills["sidecar"] >= 1
    assert len(found.received) > 100
