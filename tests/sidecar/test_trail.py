"""What is open and who is alive, in memory, and how little of it has to be written."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from otel_journal.events import Event, SpanBlock
from otel_journal.sidecar.state import Change, OperationKey, Process, State
from otel_journal.sidecar.trail import FORGET_NS, OPERATIONS_FORGOTTEN, Trail, TrailChange

_NOTHING = TrailChange([], [], [], [], {})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the state of a test lies."""
    return tmp_path / "state.db"


def _block(number: int, **more: Any) -> SpanBlock:
    ids = (f"op-{number}", "node", "node", "0" * 32, f"{number:016x}")
    return SpanBlock(*ids, 1, {"n": number}, **more)


def _start(number: int, process: str = "", event_type: str = "node.start") -> Event:
    event_id = f"op-{number}/1/start"
    return Event(event_id, "run", event_type, "trace", number, span=_block(number), process=process)


def _end(number: int, process: str = "", event_type: str = "node.end") -> Event:
    block = _block(number, end_ns=number, outcome="ok")
    event_id = f"op-{number}/1/end"
    return Event(event_id, "run", event_type, "trace", number, span=block, process=process)


def _key(number: int) -> OperationKey:
    return OperationKey(f"op-{number}", f"{number:016x}")


def _beat(process: str, at_ns: int, resource: dict[str, Any] | None = None) -> Event:
    return Event(
        f"{process}/{at_ns}/beat",
        process,
        "process.beat",
        "trace",
        at_ns,
        metadata={"resource": resource or {}, "export": "sidecar", "started_ns": 0},
        process=process,
    )


def _commit(state: State, trail: Trail) -> None:
    state.commit(Change("counters", None, **trail.pending()._asdict()))
    trail.settle()


@pytest.mark.parametrize(
    ("started", "ended"),
    [
        ("run.start", "run.end"),
        ("run.start", "run.error"),
        ("run.start", "run.interrupted"),
        ("node.start", "node.end"),
        ("llm.start", "llm.end"),
        ("llm.start", "llm.error"),
        ("tool_call.started", "tool_call.completed"),
    ],
)
def test_a_start_and_its_end_in_one_interval_are_never_written(
    path: Path, started: str, ended: str
):
    """For every kind of operation."""
    with closing(State(path)) as state:
        trail = Trail(state)
        trail.note(_start(1, event_type=started))
        assert trail.pending().opened == [_start(1, event_type=started)]
        assert len(trail) == 1
        trail.note(_end(1, event_type=ended))
        assert trail.pending() == _NOTHING
        assert len(trail) == 0


def test_an_operation_that_stays_open_survives_a_restart(path: Path):
    """Until its end comes, whoever reads it."""
    with closing(State(path)) as state:
        trail = Trail(state)
        for number in (1, 2, 3):
            trail.note(_start(number, process="p"))
        _commit(state, trail)
        assert trail.pending() == _NOTHING
    with closing(State(path)) as state:
        trail = Trail(state)
        assert trail.operations() == [_start(n, process="p") for n in (1, 2, 3)]
        assert trail.pending() == _NOTHING
        trail.note(_end(2, process="p"))
        assert trail.pending().ended == [_key(2)]
        _commit(state, trail)
        assert state.open_operations() == [_start(n, process="p") for n in (1, 3)]


def test_a_commit_that_failed_loses_no_difference(path: Path):
    """Batches that are read again, because nothing was committed, change nothing either."""
    with closing(State(path)) as state:
        trail = Trail(state)
        trail.note(_start(1))
        _commit(state, trail)
        batches = [[_start(2), _end(1)], [_end(2), _start(3)]]
        for _ in range(2):
            for event in (event for batch in batches for event in batch):
                trail.note(event)
                trail.pending()  # its commit fails
        assert trail.pending()._replace(counted={}) == TrailChange(
            [_start(3)], [_key(1)], [], [], {}
        )
        _commit(state, trail)
        assert state.open_operations() == [_start(3)]


def test_a_second_delivery_changes_nothing(path: Path):
    """Of a start; what is written already is not written again."""
    with closing(State(path)) as state:
        trail = Trail(state)
        trail.note(_start(1))
        _commit(state, trail)
        trail.note(_start(1))
        assert trail.pending() == _NOTHING


def test_an_operation_that_starts_again_is_open(path: Path):
    """The last word counts, also between two commits."""
    with closing(State(path)) as state:
        trail = Trail(state)
        trail.note(_start(1))
        _commit(state, trail)
        for event in (_end(1), _start(1)):
            trail.note(event)
        _commit(state, trail)
        assert state.open_operations() == trail.operations() == [_start(1)]


def test_ends_without_a_start_are_fine(path: Path):
    """Retrievals have none, and what was forgotten ends too."""
    with closing(State(path)) as state:
        trail = Trail(state)
        trail.note(_end(1, event_type="retrieval.end"))
        trail.note(_end(2))
        trail.note(Event("a", "run", "tool_call.started", "trace", 1))
        trail.note(Event("b", "run", "llm.human.input", "message", 1))
        assert trail.pending() == _NOTHING


def test_operations_belong_to_processes(path: Path):
    """Each process's own, oldest first; those that name none have the empty id."""
    with closing(State(path)) as state:
        trail = Trail(state)
        for number, process in enumerate(("p", "q", "p", "")):
            trail.note(_start(number, process=process))
        assert trail.operations_of("p") == [_start(0, "p"), _start(2, "p")]
        assert trail.operations_of("") == [_start(3)]
        trail.note(_end(1, "q"))
        assert trail.operations_of("q") == []
        assert [process.id for process in trail.processes()] == ["p", "q"]


def test_every_event_is_a_sign_of_life(path: Path):
    """The newest counts, in any order; a beat also describes its process."""
    with closing(State(path)) as state:
        trail = Trail(state)
        trail.note(_start(5, process="p"))
        assert trail.process("p") == Process("p", {}, 5)
        trail.note(_beat("p", 3, {"service.name": "s"}))
        assert trail.process("p") == Process("p", {"service.name": "s"}, 5, "sidecar")
        trail.note(_end(9, process="p"))
        _commit(state, trail)
        known = Process("p", {"service.name": "s"}, 9, "sidecar")
        assert state.processes() == trail.processes() == [known]
        trail.note(_end(4, process="p"))
        assert trail.pending() == _NOTHING
        assert trail.process("q") is None


def test_an_end_that_the_sidecar_made_is_no_sign(path: Path):
    """Nor does a sign come from the clock of who made the event, if the caller says otherwise."""
    with closing(State(path)) as state:
        trail = Trail(state)
        trail.note(_start(1, process="p"))
        trail.note(_start(2, process="q"), 50)
        trail.note(_start(3))
        assert [process.id for process in trail.silent(1)] == []
        assert [process.id for process in trail.silent(2)] == ["p"]
        assert [process.id for process in trail.silent(51)] == ["p", "q"]
        trail.note(_end(1, process="p"), 0)
        assert trail.process("p") == Process("p", {}, 1)
        assert [process.id for process in trail.silent(51)] == ["q"]
        trail.note(_end(4, process="forgotten"), 0)
        assert trail.process("forgotten") is None


def test_silent_processes_are_forgotten(path: Path):
    """After a day, unless something of theirs is open."""
    with closing(State(path)) as state:
        trail = Trail(state)
        trail.note(_start(1, process="busy"))
        trail.note(_beat("idle", 1))
        trail.note(_beat("fresh", 2))
        _commit(state, trail)
        trail.note(_beat("unwritten", 1))
        trail.forget(FORGET_NS + 2)
        assert trail.pending()._replace(gone=[]) == _NOTHING
        assert {"idle"} <= set(trail.pending().gone) <= {"idle", "unwritten"}
        _commit(state, trail)
        assert {process.id for process in state.processes()} == {"busy", "fresh"}
        trail.note(_end(1, process="busy"))
        trail.forget(2 * FORGET_NS)
        trail.note(_beat("fresh", 2 * FORGET_NS))  # it speaks again before the commit
        _commit(state, trail)
        assert [process.id for process in state.processes()] == ["fresh"]


def test_the_trail_is_bounded(path: Path):
    """The oldest goes, is counted, and its end is fine."""
    with closing(State(path)) as state:
        trail = Trail(state, max_open=2, max_processes=1)
        trail.note(_start(0, "p0"))
        _commit(state, trail)
        for number in range(1, 5):
            trail.note(_start(number, f"p{number}"))
        assert trail.operations() == [_start(3, "p3"), _start(4, "p4")]
        assert trail.pending().counted == {OPERATIONS_FORGOTTEN: 3}
        trail.note(_end(1, "p1"))
        trail.forget(5)
        assert {process.id for process in trail.processes()} == {"p2", "p3", "p4"}
        _commit(state, trail)
        assert state.open_operations() == trail.operations()
        assert state.counters() == {OPERATIONS_FORGOTTEN: 3}
        assert {process.id for process in state.processes()} == {"p2", "p3", "p4"}
        _commit(state, trail)
        assert state.counters() == {OPERATIONS_FORGOTTEN: 3}
