"""Bounded serialisation: always valid JSON, never too long, never a raise."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import math
import threading
import time
import tracemalloc
from collections import OrderedDict, UserDict, defaultdict, deque
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from otel_journal.payload import MAX_DEPTH, MIN_LIMIT, encode, plain

LIMIT = 32_768


def shown(value: object, limit: int = LIMIT) -> Any:
    """Encode, check the promises, decode."""
    encoded = encode(value, limit=limit)
    assert len(encoded.text) <= limit
    tree, truncated = plain(value, limit=limit)
    decoded = json.loads(encoded.text)
    assert tree == decoded
    assert truncated == encoded.truncated
    return decoded


class Colour(enum.Enum):
    """An enumeration of texts."""

    RED = "red"


class Level(enum.IntEnum):
    """An enumeration of numbers."""

    HIGH = 3


class Word(str):
    """A text whose own methods lie, as LangChain's TextAccessor could."""

    __slots__ = ()

    def __str__(self) -> str:
        """Raise."""
        raise RuntimeError

    __len__ = __repr__ = __str__  # type: ignore[assignment]


@dataclasses.dataclass
class Point:
    """A dataclass with a field that must not be shown."""

    x: int
    secret: str = dataclasses.field(default="hunter2", repr=False)


class Row(NamedTuple):
    """A named tuple."""

    a: int
    b: str


class Packet(msgspec.Struct):
    """A msgspec structure."""

    name: str


class Model(BaseModel):
    """A pydantic model with secrets and an extra field."""

    model_config = ConfigDict(extra="allow")
    name: str
    key: SecretStr = SecretStr("hunter2")
    hidden: str = Field(default="hunter2", repr=False)
    excluded: str = Field(default="hunter2", exclude=True)


class Hostile:
    """An object whose every method raises, reading an attribute included."""

    def _explode(self, *_: object) -> Any:
        msg = "hunter2"
        raise RuntimeError(msg)

    __getattribute__ = __repr__ = __str__ = __eq__ = __iter__ = __len__ = _explode
    __hash__ = object.__hash__


@dataclasses.dataclass
class Half:
    """A dataclass one of whose fields cannot be read."""

    good: int = 1
    bad: int = 2

    def __getattribute__(self, name: str) -> Any:
        """Raise for the bad field."""
        if name == "bad":
            msg = "hunter2"
            raise RuntimeError(msg)
        return object.__getattribute__(self, name)


class TestValues:
    """What values look like."""

    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            False,
            0,
            -7,
            2**63 - 1,
            1.5,
            1e300,
            "",
            "text",
            "grüße, 世界 \U0001f600",
            'tab\t quote" slash\\ nul\x00 \x1f \x7f \u2028',
            [],
            {},
            [1, "a", None, [2.5, {"b": []}]],
            {"a": 1, "b": {"c": [True, False, None]}},
        ],
    )
    def test_json_values_stay(self, value: object) -> None:
        """What JSON knows is not changed."""
        assert shown(value) == value

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ((1, 2), [1, 2]),
            ({1}, [1]),
            (frozenset({1}), [1]),
            (deque([1, 2]), [1, 2]),
            (Row(1, "x"), [1, "x"]),
            (OrderedDict(a=1), {"a": 1}),
            (defaultdict(list, a=[1]), {"a": [1]}),
            (MappingProxyType({"a": 1}), {"a": 1}),
            (math.nan, "NaN"),
            (math.inf, "Infinity"),
            (-math.inf, "-Infinity"),
            (2**63, "9223372036854775808"),
            (b"\xff\xfe", "<bytes 2>"),
            (bytearray(3), "<bytes 3>"),
            (date(2026, 11, 30), "2026-11-30"),
            (datetime(2026, 11, 30, 1, 2, tzinfo=timezone.utc), "2026-11-30T01:02:00+00:00"),
            (timedelta(seconds=90), "0:01:30"),
            (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (Decimal("1.50"), "1.50"),
            (PurePosixPath("/a/b"), "/a/b"),
            (Colour.RED, "red"),
            (Level.HIGH, 3),
            ("lone \ud800 surrogate", "lone \ufffd surrogate"),
            ("paired \ud83d\ude00", "paired \U0001f600"),
            (Point(1), {"x": 1}),
            (Packet("p"), {"name": "p"}),
            (object(), "<builtins.object>"),
            (threading.Lock(), "<_thread.lock>"),
            (int, "<builtins.int>"),
            (SimpleNamespace(a="hunter2"), "<types.SimpleNamespace>"),
            (UserDict(a=1), "<collections.UserDict>"),
            (ValueError("hunter2"), "<builtins.ValueError>"),
            (iter([1]), "<builtins.list_iterator>"),
        ],
    )
    def test_other_values_become_json(self, value: object, expected: object) -> None:
        """Everything else has one fixed form; unknown objects are named by type only."""
        assert shown(value) == expected
        assert shown({"key": [value]}) == {"key": [expected]}

    def test_huge_integers_and_lying_texts(self) -> None:
        """Very wide integers are described; a text subclass is what it holds, not what it says."""
        assert shown([10**5_000, -(10**5_000)]) == ["<int of 16610 bits>"] * 2
        assert shown([Word("word"), {Word("key"): 1}]) == ["word", {"key": 1}]

    def test_models_show_declared_fields(self) -> None:
        """A model shows its fields and extras, not its secrets."""
        assert shown(Model(name="n", more=[1])) == {
            "name": "n",
            "key": "<pydantic.types.SecretStr>",
            "more": [1],
        }

    def test_langchain_objects(self) -> None:
        """Messages and documents are models."""
        found = shown({"messages": [HumanMessage("hi", id="1")], "docs": [Document("text")]})
        assert found["messages"][0]["content"] == "hi"
        assert found["messages"][0]["type"] == "human"
        assert found["docs"][0]["page_content"] == "text"

    def test_hostile_objects(self) -> None:
        """An object whose methods raise is named; a raising field is null; no secret escapes."""
        text = encode([Hostile(), {"k": Hostile()}, Half()], limit=LIMIT).text
        assert "hunter2" not in text
        assert json.loads(text)[1:] == [
            {"k": f"<{__name__}.Hostile>"},
            {"good": 1, "bad": None},
        ]

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ({1: "a", 2.5: "b", None: "c"}, {"1": "a", "2.5": "b", "null": "c"}),
            ({True: "a", math.nan: "b"}, {"true": "a", "NaN": "b"}),
            ({(1, 2): "t"}, {"<builtins.tuple>": "t"}),
            ({Colour.RED: 1, date(2026, 1, 2): 2}, {"red": 1, "2026-01-02": 2}),
            ({"1": "a", 1: "b"}, {"1": "a", "1~1": "b"}),
            ({"1~2": 0, "1": 1, 1: 2}, {"1~2": 0, "1": 1, "1~2~": 2}),
        ],
    )
    def test_keys(self, value: dict[Any, object], expected: dict[str, object]) -> None:
        """Keys become text; keys that look alike stay apart."""
        assert shown(value) == expected

    def test_cycles_and_shared_references(self) -> None:
        """A cycle is named where it closes; a shared value is shown each time."""
        cycle: dict[str, Any] = {"a": 1}
        cycle["me"] = cycle
        cycle["list"] = [cycle]
        shared = [1]
        assert shown(cycle) == {"a": 1, "me": "<cycle>", "list": ["<cycle>"]}
        assert shown([shared, shared]) == [[1], [1]]

    def test_case_20(self) -> None:
        """The value that keeps spans open elsewhere is nothing special here."""
        cycle: dict[str, Any] = {}
        cycle["me"] = cycle
        value = {
            "when": date(2026, 1, 2),
            "lock": threading.Lock(),
            "c": cycle,
            "b": b"\xff",
            "nan": math.nan,
        }
        assert shown(value) == {
            "when": "2026-01-02",
            "lock": "<_thread.lock>",
            "c": {"me": "<cycle>"},
            "b": "<bytes 1>",
            "nan": "NaN",
        }


class TestLimit:
    """What is cut, and where."""

    def test_exact_fit_is_whole(self) -> None:
        """A value whose JSON is exactly as long as the limit is not cut; one more is."""
        value = {"a": ["x" * 50, "\n" * 10, "ü" * 10], "b": {"c": 1, "d": None}}
        size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
        assert encode(value, limit=size).truncated is False
        assert shown(value, size) == value
        assert encode(value, limit=size - 1).truncated is True

    def test_text_is_cut_with_its_length(self) -> None:
        """A text keeps its beginning and says how long it was."""
        cut = shown("x" * 123_456, 100)
        assert cut.startswith("xxx")
        assert cut.endswith("…[cut, 123456 chars]")
        assert len(encode("x" * 123_456, limit=100).text) == 100

    @pytest.mark.parametrize("character", ['"', "\x00", "\\", "ü", "\U0001f600", "\ud800"])
    def test_escapes_count(self, character: str) -> None:
        """Characters that JSON writes longer are counted as written, and the room is used."""
        text = encode(character * 10_000, limit=1_000).text
        assert 990 <= len(text) <= 1_000
        json.loads(text)

    def test_list_says_how_many_are_missing(self) -> None:
        """A shortened list ends in a marker that counts the rest."""
        cut = shown(list(range(1_000)), 200)
        assert cut[-1] == f"…[cut, {1_000 - len(cut) + 1} more]"
        assert cut[:-1] == list(range(len(cut) - 1))

    def test_object_says_how_many_are_missing(self) -> None:
        """A shortened object has a marker entry that counts the rest."""
        cut = shown({f"key{n}": n for n in range(1_000)}, 300)
        assert cut["…"] == f"[cut, {1_000 - len(cut) + 1} more]"

    def test_huge_value_leaves_room_for_the_next(self) -> None:
        """One huge element does not hide the ones after it."""
        cut = shown({"messages": ["x" * 10_000, "y" * 10_000, "last"], "other": 1}, 4_000)
        assert cut["other"] == 1
        assert [element[0] for element in cut["messages"]] == ["x", "y", "l"]

    def test_long_keys_are_cut(self) -> None:
        """A key is a text like any other, and its value still has room."""
        cut = shown({"k" * 10_000: "value"}, 200)
        assert list(cut.values()) == ["value"]
        assert "…[cut, 10000 chars]" in next(iter(cut))

    @pytest.mark.parametrize("limit", range(4, MIN_LIMIT))
    def test_tiny_limit(self, limit: int) -> None:
        """Below the smallest useful limit the value is whole or null."""
        assert shown("x" * 100, limit) is None
        assert shown([1], limit) == ([1])
        assert encode("x" * 100, limit=limit).truncated is True

    def test_cut_keys_stay_apart(self) -> None:
        """Keys that look alike once they are cut are told apart, at what that costs."""
        value = {"\x00" * 40 + str(n): "v" * 1_000 for n in range(10, 99)}
        for limit in range(MIN_LIMIT, 1_000):
            shown(value, limit)
        assert len(shown(value, 4_000)) == 7

    def test_nested_objects(self) -> None:
        """Markers inside cut objects inside cut objects are counted as well."""
        value: dict[str, Any] = {"a": 1}
        for _ in range(12):
            value = {str(n): value for n in range(9)}
        for limit in range(MIN_LIMIT, 2_000, 13):
            shown(value, limit)


class TestBounds:
    """Time and memory do not depend on the value."""

    @pytest.mark.parametrize(
        "make",
        [
            lambda: "x" * 50_000_000,
            lambda: '"\u2028' * 10_000_000,
            lambda: list(range(1_000_000)),
            lambda: {n: n for n in range(300_000)},
            lambda: set(range(300_000)),
            lambda: {"a": ["x" * 1_000_000] * 1_000},
            lambda: Word("x" * 10_000_000),
        ],
        ids=["text", "escapes", "list", "dict", "set", "shared", "subclass"],
    )
    def test_huge_values(self, make: Any) -> None:
        """Serialising a huge value needs little time and little memory."""
        value = make()
        tracemalloc.start()
        start = time.perf_counter()
        encoded = encode(value, limit=LIMIT)
        seconds = time.perf_counter() - start
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        json.loads(encoded.text)
        assert LIMIT * 0.9 < len(encoded.text) <= LIMIT
        assert encoded.truncated
        assert seconds < 1.0  # tracing allocations is slow; untraced it is about 10 ms
        assert peak < 4_000_000

    def test_deep_nesting(self) -> None:
        """Containers deeper than the limit are named."""
        value: list[Any] = []
        for _ in range(10_000):
            value = [value]
        encoded = encode(value, limit=LIMIT)
        assert encoded.truncated
        assert encoded.text.count("[") == MAX_DEPTH + 1  # one is the marker's
        assert "…[cut, too deep]" in encoded.text

    def test_exponential_sharing(self) -> None:
        """A value that is small in memory and astronomic as JSON is cut."""
        value: list[Any] = ["lol"]
        for _ in range(30):
            value = [value] * 10
        shown(value, 2_000)

    def test_hardly_any_stack_left(self) -> None:
        """At the recursion limit the result is null, not an error."""
        value: Any = "end"
        for _ in range(30):
            value = [value]
        answers: list[str] = []

        def dive() -> None:
            with contextlib.suppress(RecursionError):  # also when encode() cannot be entered
                dive()
            if len(answers) < 200:
                answers.append(encode(value, limit=LIMIT).text)

        dive()
        assert answers[0] == "null"
        assert "end" in answers[-1]
        assert all(answer == "null" or "end" in answer for answer in answers)

    def test_changing_while_reading(self) -> None:
        """A dict that another thread changes meanwhile is still serialised."""
        value = {str(n): n for n in range(500)}
        stop = threading.Event()

        def change() -> None:
            n = 0
            while not stop.is_set():
                n += 1
                value[f"extra{n % 50}"] = n
                value.pop(f"extra{(n + 25) % 50}", None)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            for _ in range(200):
                shown_size = len(json.loads(encode(value, limit=LIMIT).text))
                assert shown_size >= 1
        finally:
            stop.set()
            thread.join()

    def test_result_is_independent(self) -> None:
        """Later changes of the value do not reach the result, nor is the value changed."""
        inner = {"a": [1]}
        value = {"inner": inner, "message": AIMessage("text", additional_kwargs={"k": [1]})}
        tree, _ = plain(value, limit=LIMIT)
        before = json.dumps(tree)
        inner["a"].append(2)
        value["message"].additional_kwargs["k"].append(2)
        value["new"] = 1
        assert json.dumps(tree) == before
        assert inner == {"a": [1, 2]}


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text(st.sampled_from('\x00"\\\n\ud83d\ude00ü'), max_size=200)
    | st.binary()
    | st.dates()
    | st.datetimes()
    | st.uuids()
    | st.decimals()
    | st.sampled_from([Colour.RED, Level.HIGH, int, math, Point(3), Model(name="m"), Packet("x")])
    | st.builds(object)
)
keys = (
    st.text(max_size=80)
    | st.integers()
    | st.floats()
    | st.none()
    | st.booleans()
    | st.binary(max_size=5)
    | st.tuples(st.integers())
    | st.builds(object)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=8)
        | st.dictionaries(keys, inner, max_size=8)
        | st.tuples(inner, inner)
        | st.builds(deque, st.lists(inner, max_size=3))
        | st.builds(AIMessage, st.text(max_size=20), artifact=inner)
    ),
    max_leaves=40,
)


class TestProperties:
    """What holds for any value and any limit."""

    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(value=values, limit=st.integers(4, 2_000))
    def test_any_value(self, value: object, limit: int) -> None:
        """Any value gives valid JSON within any limit, equal to its plain form."""
        shown(value, limit)

    @settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(value=values)
    def test_what_fits_is_whole(self, value: object) -> None:
        """A value that fits is whole at exactly its size, and never marked."""
        whole = encode(value, limit=10_000_000)
        size = max(len(whole.text), 4)
        assert encode(value, limit=size) == whole
        assert whole.truncated is False
