"""The quick copy gives what the careful walk gives, or leaves it to the walk."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_journal import payload
from otel_journal.builtin_json import MAX_DEPTH, OddValueError, copied

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=8), inner, max_size=5)
    ),
    max_leaves=30,
)


@given(value=JSON)
def test_the_copy_is_what_the_walk_gives(value: object) -> None:
    """Where the quick way answers, it answers the same, within the limit."""
    try:
        found = copied(value, 1_000)
    except OddValueError:
        return
    tree, text, truncated = payload._fit(value, 6_000)

    assert repr(found) == repr(tree)
    assert not truncated
    assert len(text) <= 6_000


@given(value=JSON, room=st.integers(0, 200))
def test_the_room_is_kept_to(value: object, room: int) -> None:
    """What is copied has at most `room` characters before escapes, six times that after."""
    try:
        found = copied(value, room)
    except OddValueError:
        return

    assert len(payload.encode(found, limit=1_000_000).text) <= 6 * room


def test_a_copy_is_not_the_original() -> None:
    """Later changes of the original do not show."""
    original = {"a": [{"b": 1}]}
    found = copied(original, 100)
    original["a"][0]["b"] = 2

    assert found == {"a": [{"b": 1}]}


def nested(depth: int) -> object:
    """Return lists inside lists."""
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


CYCLE: list[object] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        2**53,
        float("nan"),
        float("inf"),
        {1: 2},
        {"ä": 1},
        {1, 2},
        b"x",
        object(),
        "x" * 100,
        ["x"] * 100,
        nested(MAX_DEPTH + 1),
        CYCLE,
    ],
    ids=str,
)
def test_what_is_odd_is_left_to_the_walk(value: object) -> None:
    """Anything that is not plainly JSON, or is too long or deep."""
    with pytest.raises(OddValueError):
        copied(value, 100)
