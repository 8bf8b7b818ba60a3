"""Which processes are dead, and the ends that the sidecar makes for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from otel_journal import semconv as sc
from otel_journal.errors import SidecarError
from otel_journal.events import NS_PER_S, Event, Kind, SpanBlock
from otel_journal.sidecar.liveness import DatedSigns, Signs, end_id, made_ends, process_of
from otel_journal.sidecar.shard import MAX_SHARDS, Shard
from otel_journal.store.sqlite import SqliteStore

DEAD_AFTER = 10.0
LAST_SIGN_NS = 5_000
NOW_NS = 9_000


def start(op: str, parent: str = "", kind: Kind = "node", **fields: object) -> Event:
    """Return the start event of an operation below the span `parent`."""
    block = SpanBlock(op, kind, op, "a" * 32, op, 1_000, {"x": 1}, parent, root=not parent)
    return Event(
        event_id=f"{op}/0/start",
        run_id="run",
        event_type="run.start" if not parent else "node.start",
        category="trace",
        created_ns=1_000,
        thread_id="thread",
        content={"prompt": "secret"},
        span=block,
        **{"process": "p1", **fields},
    )


def test_a_process_is_dead_after_so_much_silence() -> None:
    """Silence counts from the moment at which the last sign was read."""
    signs = Signs(DEAD_AFTER, 0.0)
    signs.heard("p1", 1, 3.0)
    for now in range(0, 13, 2):
        signs.caught_up(float(now))
        assert signs.dead(["p1"], float(now)) == []
    signs.caught_up(13.0)
    assert signs.dead(["p1"], 13.0) == ["p1"]
    assert signs.dead(["p1", "p2"], 13.0) == ["p1", "p2"]
    assert signs.dead([], 13.0) == []


def test_signs_of_an_earlier_life_give_everybody_the_full_time() -> None:
    """However long ago the process wrote: what counts is since when the sidecar listens."""
    signs = Signs(DEAD_AFTER, 1_000.0)
    signs.heard("p1", 1, 1_000.0)
    assert signs.dead(["p1", "never heard of"], 1_009.9) == []
    assert signs.made_ns("p1") == 1
    assert signs.made_ns("never heard of") == 0


def test_who_reads_once_judges_by_dates() -> None:
    """It does not stay long enough to hear silence."""
    now_ns = 1_764_500_000 * NS_PER_S
    signs = DatedSigns(DEAD_AFTER, 5.0, now_ns)
    signs.heard("old", now_ns - int((DEAD_AFTER + 1) * NS_PER_S), 5.0)
    signs.heard("young", now_ns - int((DEAD_AFTER - 1) * NS_PER_S), 5.0)

    assert signs.dead(["old", "young"], 5.0) == ["old"]


@pytest.mark.parametrize("pause", [DEAD_AFTER / 2, 10 * DEAD_AFTER])
def test_after_a_pause_silence_begins_anew(pause: float) -> None:
    """While the store was away, or a backlog was read, nobody could be heard."""
    signs = Signs(DEAD_AFTER, 0.0)
    signs.heard("p1", 1, 0.0)
    signs.caught_up(1.0)
    signs.caught_up(1.0 + pause)
    assert signs.dead(["p1"], 1.0 + pause) == []
    for step in range(1, 4):
        signs.caught_up(1.0 + pause + step * DEAD_AFTER / 3)
    assert signs.dead(["p1"], 1.0 + pause + DEAD_AFTER) == ["p1"]


def test_the_last_sign_never_steps_back() -> None:
    """Events are not read in the order of their clocks."""
    signs = Signs(DEAD_AFTER, 0.0)
    signs.heard("p1", 7, 1.0)
    signs.heard("p1", 5, 2.0)
    assert signs.made_ns("p1") == 7


def test_silent_processes_without_work_are_forgotten() -> None:
    """Else the table would grow with every start of a process."""
    signs = Signs(DEAD_AFTER, 0.0)
    signs.heard("idle", 1, 0.0)
    signs.heard("busy", 2, 0.0)
    signs.heard("young", 3, 9.0)
    signs.forget_silent(["busy"], DEAD_AFTER)
    assert [signs.made_ns(name) for name in ("idle", "busy", "young")] == [0, 2, 3]


def test_an_operation_belongs_to_the_process_that_made_it_else_to_that_of_its_root() -> None:
    """Events of older releases, and those made by hand, name no process."""
    root = start("root")
    other = replace(start("other", process="p2"), run_id="another run")
    unnamed = start("child", "root", process="")
    assert process_of(start("child", "root", process="p9"), [root]) == "p9"
    assert process_of(unnamed, [other, root]) == "p1"
    assert process_of(unnamed, [other]) == ""
    assert process_of(replace(root, process=""), [replace(root, process="")]) == ""


def test_children_end_before_their_parents() -> None:
    """In whatever order the starts come, also when ids lead in a circle."""
    tree = [
        start("root"),
        start("leaf", "middle"),
        start("middle", "root"),
        start("lonely", "never seen"),
        start("egg", "hen"),
        start("hen", "egg"),
    ]
    for starts in (tree, tree[::-1]):
        names = [end.span.name for end in made_ends(starts, "p1", LAST_SIGN_NS, NOW_NS)]
        assert names.index("leaf") < names.index("middle") < names.index("root")
        assert sorted(names) == sorted(one.span.name for one in tree)


def test_deep_nesting_is_no_recursion() -> None:
    """Operations that nobody ends can nest without limit."""
    chain = [start("0"), *(start(str(n), str(n - 1)) for n in range(1, 20_000))]
    ends = made_ends(chain, "p1", LAST_SIGN_NS, NOW_NS)
    assert [ends[0].span.name, ends[-1].span.name] == ["19999", "0"]


def test_a_made_end_says_what_is_known_and_no_content() -> None:
    """Same id as the real one; outcome, closer and end time as the journal would write them."""
    begun = start("child", "root", "tool")
    begun = replace(begun, span=replace(begun.span, attempt=2))
    (end,) = made_ends([begun], "p1", LAST_SIGN_NS, NOW_NS)
    assert end == Event(
        event_id="child/0/end",
        run_id="run",
        event_type="tool_call.completed",
        category="trace",
        created_ns=NOW_NS,
        thread_id="thread",
        process="p1",
        span=replace(
            begun.span,
            end_ns=LAST_SIGN_NS,
            outcome="unknown",
            closed_by="process_died",
            attributes={
                "x": 1,
                sc.OUTCOME: "unknown",
                sc.CLOSED_BY: "process_died",
                sc.ATTEMPT: 2,
            },
        ),
    )
    assert end_id(begun) == end.event_id


@pytest.mark.parametrize(
    ("kind", "root", "event_type", "category"),
    [
        ("agent", True, "run.end", "outputs"),
        ("node", True, "run.end", "outputs"),
        ("chat", True, "llm.end", "trace"),
        ("agent", False, "node.end", "trace"),
        ("completion", False, "llm.end", "trace"),
        ("retrieval", False, "retrieval.end", "trace"),
    ],
)
def test_the_type_of_an_end_follows_its_kind(
    kind: Kind,
    root: bool,  # noqa: FBT001 - pytest gives it
    event_type: str,
    category: str,
) -> None:
    """Only roots that are graphs end runs; a root says its run id."""
    (end,) = made_ends([start("op", "" if root else "up", kind)], "p1", 1, NOW_NS)
    assert (end.event_type, end.category) == (event_type, category)
    assert end.span.attributes.get(sc.RUN_ID) == ("run" if root else None)


def test_nothing_ends_before_its_start() -> None:
    """The last sign may be of another thread's older event."""
    (end,) = made_ends([start("op")], "p1", 10, NOW_NS)
    assert end.span.end_ns == end.span.start_ns == 1_000


INLINE = """
import sys, threading, time
sys.path.insert(0, {apps!r})
from agent import waiting, QUESTION
from otel_journal import Journal, Settings, open_store
journal = Journal(Settings(max_operation_age=0.2), store=open_store({url!r}))
waiting(lambda: time.sleep(2)).invoke(QUESTION, {{"callbacks": [journal.handler()]}})
journal.shutdown()
"""


def test_made_ends_look_like_those_that_the_journal_makes_itself(tmp_path: Path) -> None:
    """Of a real run that was closed by age: same ids, types, names and attributes.

    Except for who closed it and as what, and the tokens and counts of the whole run.
    """
    store = SqliteStore(tmp_path / "journal.db")
    program = INLINE.format(
        apps=str(Path(__file__).parents[1] / "integration" / "apps"),
        url=f"sqlite:///{tmp_path / 'journal.db'}",
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100)  # noqa: S603
    events = store.read(0, 100)
    store.close()
    starts = [event for event in events if event.event_type.endswith("start")]
    real = {event.event_id: event for event in events if event.event_id.endswith("/end")}
    made = made_ends(starts, starts[0].process, 1, NOW_NS)

    assert len(made) == len(real) == 2
    for end in made:
        twin = real[end.event_id]
        assert twin.span.closed_by == "age"
        assert (end.event_type, end.category, end.run_id, end.process) == (
            twin.event_type,
            twin.category,
            twin.run_id,
            twin.process,
        )
        closer = {sc.OUTCOME: "abandoned", sc.CLOSED_BY: "age"}
        assert {**end.span.attributes, **closer} == twin.span.attributes
        assert (
            replace(
                end.span,
                attributes=twin.span.attributes,
                end_ns=twin.span.end_ns,
                outcome="abandoned",
                closed_by="age",
            )
            == twin.span
        )


@pytest.mark.parametrize("text", ["0/1", " 3/4 ", f"{MAX_SHARDS - 1}/{MAX_SHARDS}"])
def test_shards_are_read(text: str) -> None:
    """INDEX/COUNT, from 0."""
    index, count = text.split("/")
    assert Shard.parse(text) == Shard(int(index), int(count))
    assert str(Shard.parse(text)) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "1", "1/1", "2/1", "-1/2", "0/0", "0/65", "a/b", "0/2/3", "\u0660/\u0662"]
)
def test_a_shard_that_cannot_be_is_refused_in_one_line(text: str) -> None:
    """The message names the value and what is allowed."""
    with pytest.raises(SidecarError, match="is not allowed; allowed: INDEX/COUNT") as caught:
        Shard.parse(text)
    assert repr(text) in str(caught.value)


def test_every_run_is_in_one_shard_and_beats_are_in_all() -> None:
    """Whatever the number of shards, and evenly enough."""
    shards = [Shard(index, 4) for index in range(4)]
    events = [replace(start("op"), run_id=f"run {n}") for n in range(400)]
    owners = [[shard.index for shard in shards if shard.owns(event)] for event in events]
    assert all(len(found) == 1 for found in owners)
    assert min(sum(found == [index] for found in owners) for index in range(4)) > 50
    beat = Event("p/1/beat", "p", "process.beat", "trace", 1, process="p")
    assert all(shard.owns(beat) for shard in shards)


def test_a_killed_process_left_its_signs(tmp_path: Path) -> None:
    """A process that is killed in a node has beaten, and its operations name it."""
    store = SqliteStore(tmp_path / "journal.db")
    program = INLINE.format(
        apps=str(Path(__file__).parents[1] / "integration" / "apps"),
        url=f"sqlite:///{tmp_path / 'journal.db'}",
    ).replace("time.sleep(2)", "time.sleep(100)")
    program = program.replace("max_operation_age=0.2", "max_operation_age=1000")
    child = subprocess.Popen([sys.executable, "-c", program])  # noqa: S603
    try:
        deadline = time.monotonic() + 100
        while len(store.read(0, 100)) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    events = store.read(0, 100)
    store.close()
    assert [event.event_type for event in events] == ["process.beat", "run.start", "node.start"]
    assert len({event.process for event in events}) == 1
    ends = made_ends(events[1:], events[0].process, events[-1].created_ns, NOW_NS)
    assert [end.event_type for end in ends] == ["node.end", "run.end"]
