"""Events that are hard on a store, and the plain reading of what a page of them is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from otel_journal.errors import StoreError
from otel_journal.events import Event, Failure, Link, SpanBlock, StreamTiming, Usage, category_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from otel_journal.store.protocol import Store

CREATED_NS: Final = 1_700_000_000_123_456_789
"""A moment with all nine digits: rounding to microseconds or to a float shows."""

BEYOND: Final = 2**63 - 1
"""The highest cursor that a 64-bit column can hold."""

FOREIGN: Final = "gap-run"
"""The run that `scattered` deletes, which leaves gaps in `seq`."""

_TYPES: Final = ("run.start", "llm.human.input", "llm.ai.response", "node.end", "llm.tool.result")


class Opaque:
    """A value that JSON has no word for."""


CONTENTS: Final[dict[str, Any]] = {
    "none": None,
    "true": True,
    "false": False,
    "zero": 0,
    "negative": -1,
    "64 bits": 2**63 - 1,
    "more bits": -(2**70),
    "float": 0.1,
    "whole float": 1.0,
    "tiny float": 5e-324,
    "text": "plain",
    "no text": "",
    "looks like a number": "007",
    "looks like JSON": '{"a": [1, null]}',
    "quotes": 'it\'s "quoted" \\ %s ? $1 :name --',
    "controls": "\x00\x01\t\r\n\x1f\x7f",
    "line separators": "a\u2028b\u2029c\u0085d",
    "astral": "\U0001f600 \U00010348",
    "combining": "e\u0301 is not \u00e9",
    "no list": [],
    "no object": {},
    "list": [None, True, 1, 1.5, "x", [], {}],
    "object": {"": None, "b": {"c": [{"d": "\u2028"}]}, "a": False},
    "flag of the content": {"content_is_json": True},
    "deep": {"a": {"a": {"a": {"a": {"a": [[[[[["end"]]]]]]}}}}},
    "long": "\u00e4" * 100_000,
}
"""Content of every kind of JSON value, and texts that encodings and query languages stumble on."""

SPAN: Final = SpanBlock(
    op_id="op-1",
    kind="chat",
    name="chat gpt-4o",
    trace_id="0af7651916cd43dd8448eb211c80319c",
    span_id="b7ad6b7169203331",
    start_ns=CREATED_NS - 5_000_000_007,
    attributes={
        "text": "\u2028",
        "flag": True,
        "count": 3,
        "share": 1.0,
        "words": ["a", "b"],
        "none": [],
    },
    parent_span_id="00f067aa0ba902b7",
    root=True,
    remote_parent=True,
    sampled=False,
    trace_state="vendor=1",
    end_ns=CREATED_NS,
    outcome="error",
    error_type="ValueError",
    links=(
        Link("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b8", "resumes"),
        Link("0af7651916cd43dd8448eb211c80319d", "00f067aa0ba902b9", "requested_by"),
    ),
    agent="planner",
    caller="subagent:planner",
    attempt=2,
    usage=Usage(11, 7, {"cache_read": 5, "reasoning": 2}),
    cached=True,
    stream=StreamTiming(12_345, (0, 1, 2, 0), 67_890),
    inference_calls=4,
    tool_calls=5,
    closed_by="age",
    failure=Failure("ValueError", "no \u2029", 'File "a.py", line 1, in f'),
    usage_tracked=False,
)
"""A span block with every field away from its default."""


def fact(
    name: str | int,
    event_type: str = "node.end",
    *,
    run_id: str = "run-1",
    thread_id: str = "thread-1",
    content: object = None,
) -> Event:
    """Return an event of the catalogue; its id is made of `run_id` and `name`."""
    return Event(
        event_id=f"{run_id}/{name}",
        run_id=run_id,
        event_type=event_type,
        category=category_of(event_type),
        created_ns=CREATED_NS,
        thread_id=thread_id,
        content=content,
    )


def facts(count: int, run_id: str = "run-1", thread_id: str = "thread-1") -> list[Event]:
    """Return `count` events of a run: every second one is a message, the first one its start."""
    return [
        fact(
            number,
            "run.start" if not number else "llm.ai.response" if number % 2 else "node.end",
            run_id=run_id,
            thread_id=thread_id,
            content={"number": number},
        )
        for number in range(count)
    ]


def scattered(store: Store, count: int = 60) -> list[Event]:
    """Fill a store with three runs in two threads, interleaved, and gaps between their `seq`.

    Returns:
        What the store holds, as the store numbered it.
    """
    given = [
        fact(
            number,
            _TYPES[number % len(_TYPES)],
            run_id=FOREIGN if number % 7 == 3 else f"run-{number % 3}",
            thread_id=f"thread-{number % 2}",
            content=number,
        )
        for number in range(count)
    ]
    written = store.append(given)
    store.delete_run(FOREIGN)
    return [event for event in written if event.run_id != FOREIGN]


def cursors(held: Sequence[Event]) -> list[int | None]:
    """Return cursors before, on, between and behind the events of `scattered`."""
    gap = held[3].seq - 1  # the event in front of it was deleted
    middle = held[len(held) // 2].seq
    return [None, 0, held[0].seq, gap, held[3].seq, middle, held[-1].seq, held[-1].seq + 1]


def page(rows: Sequence[Event], before: int | None, after: int | None, limit: int) -> list[Event]:
    """Return the page of ascending `rows` that a store has to give, by looking at every one."""
    inside = [
        event
        for event in rows
        if (after is None or event.seq > after) and (before is None or event.seq < before)
    ]
    return inside[:limit] if after is not None else inside[max(0, len(inside) - limit) :]


def refusal(call: Callable[[], object]) -> StoreError | None:
    """Return the error with which a store refuses a call, None when it does not."""
    try:
        call()
    except StoreError as error:
        return error
    return None


def unnumbered(events: Sequence[Event]) -> list[Event]:
    """Return the events as they were before a store numbered them."""
    return [msgspec.structs.replace(event, seq=0) for event in events]
