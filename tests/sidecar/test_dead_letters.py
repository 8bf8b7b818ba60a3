"""The command that looks at dead letters, sends them again or drops them."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from otel_journal.commands.dead_letters import VARIABLE, dead_letters
from otel_journal.errors import SidecarError
from otel_journal.events import Event, SpanBlock
from otel_journal.sidecar.otlp.delivery import DeadLetter
from otel_journal.sidecar.state import Change, Cursor, State

EVIL = "red \x1b[31m\nnext \u202e"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A state file with three dead letters, which no sidecar works with."""
    path = tmp_path / "state.db"
    letters = [
        DeadLetter(_end(1), "refused", "400 Bad Request"),
        DeadLetter(_end(2), "too_large", EVIL),
        DeadLetter(_end(3), "refused", "long " * 100),
    ]
    with closing(State(path)) as state:
        state.commit(Change("spans", Cursor("e", 3), dead_letters=letters))
    return path


def _end(number: int) -> Event:
    span = SpanBlock("op", "node", f"node {number}", f"{number:032x}", f"{number:016x}", 1, {})
    return Event(f"op/{number}/end", "run", "node.end", "trace", 1, content="said", span=span)


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(dead_letters, [str(one) for one in arguments])


def _left(path: Path) -> list[int]:
    with closing(State(path)) as state:
        return [letter.id for letter in state.dead_letters()]


def test_list_shows_a_line_for_each(path: Path):
    """Which span, since when and why; nothing takes over the terminal or is endless."""
    ran = _run("list", "--state", path)
    assert ran.exit_code == 0
    head, first, second, third = ran.output.splitlines()
    assert head.split() == ["id", "given", "up", "reason", "span", "trace", "detail"]
    assert all(part in first for part in ("refused", "node 1", f"{1:032x}", "400 Bad Request"))
    assert "red \\x1b[31m next \\u202e" in second
    assert third.endswith("...")
    assert len(third) < 160


def test_list_as_json_is_whole(path: Path):
    """A line for each, with the event."""
    ran = _run("list", "--state", path, "--json")
    lines = [json.loads(line) for line in ran.output.splitlines()]
    assert [line["id"] for line in lines] == [1, 2, 3]
    assert lines[1]["detail"] == EVIL
    assert lines[1]["event"]["event_id"] == "op/2/end"
    assert lines[1]["event"]["content"] == "said"
    assert lines[1]["at_ns"] > 0


def test_list_of_none(path: Path):
    """Says so; as JSON it is empty."""
    assert _run("drop", "--state", path, "--all").output == "3 dead letters dropped.\n"
    assert _run("list", "--state", path).output == "No dead letters.\n"
    assert not _run("list", "--state", path, "--json").output


def test_list_knows_no_page(path: Path, monkeypatch: pytest.MonkeyPatch):
    """However many there are."""
    monkeypatch.setattr("otel_journal.commands.dead_letters.PAGE", 2)
    assert len(_run("list", "--state", path, "--json").output.splitlines()) == 3


def test_retry_gives_them_back_to_the_sidecar(path: Path):
    """With their ids, through what it has to send."""
    ran = _run("retry", "--state", path, "3", "1")
    assert (ran.exit_code, ran.output) == (
        0,
        "2 dead letters will be sent again by the next sidecar.\n",
    )
    with closing(State(path)) as state:
        assert state.made(10) == [_end(1), _end(3)]
        assert state.cursor("spans") == Cursor("e", 3)
    assert _left(path) == [2]


def test_retry_of_all(path: Path):
    """As JSON."""
    ran = _run("retry", "--state", path, "--all", "--json")
    assert json.loads(ran.output) == {"dead_letters": 3}
    assert _left(path) == []


def test_drop_deletes_them(path: Path):
    """Those that are named, once."""
    ran = _run("drop", "--state", path, "2", "2", "--json")
    assert json.loads(ran.output) == {"dead_letters": 1}
    assert _left(path) == [1, 3]


@pytest.mark.parametrize("command", ["retry", "drop"])
def test_an_unknown_id_does_nothing(path: Path, command: str):
    """Not even to the known ones."""
    ran = _run(command, "--state", path, "1", "9", "7")
    assert isinstance(ran.exception, SidecarError)
    assert str(ran.exception) == f"state file {path}: it has no dead letter 7, 9; nothing is done"
    assert _left(path) == [1, 2, 3]


@pytest.mark.parametrize("arguments", [[], ["1", "--all"]], ids=["neither", "both"])
@pytest.mark.parametrize("command", ["retry", "drop"])
def test_which_ones_must_be_said(path: Path, command: str, arguments: list[str]):
    """One way or the other."""
    ran = _run(command, "--state", path, *arguments)
    assert ran.exit_code == 2
    assert "give one of ID... and --all" in ran.output
    assert _left(path) == [1, 2, 3]


@pytest.mark.parametrize("command", [["list"], ["retry", "--all"], ["drop", "--all"]])
def test_a_running_sidecar_is_not_disturbed(path: Path, command: list[str]):
    """The message says who works with the file."""
    with closing(State(path)) as state:
        ran = _run(*command, "--state", path)
        assert isinstance(ran.exception, SidecarError)
        assert "works with it" in str(ran.exception)
        assert "stop it first" in str(ran.exception)
        assert len(state.dead_letters()) == 3


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path):
    """The message names it."""
    path = tmp_path / "no.db"
    ran = _run("list", "--state", path)
    assert isinstance(ran.exception, SidecarError)
    assert str(path) in str(ran.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_file_may_come_from_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch):
    """By the variable of the sidecar; without both the message names both."""
    ran = _run("list")
    assert ran.exit_code == 2
    assert "--state" in ran.output
    assert VARIABLE in ran.output
    monkeypatch.setenv(VARIABLE, str(path))
    assert len(_run("list").output.splitlines()) == 4
