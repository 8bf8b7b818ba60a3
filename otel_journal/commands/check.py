"""``otel-journal check``: read a whole store and say whether it is sound."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click
import msgspec

from otel_journal.errors import StoreError
from otel_journal.events import NS_PER_S

from . import terminal
from .reading import EXIT_FAILED, PAGE, json_option, opened, store_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from otel_journal.events import Event
    from otel_journal.store.protocol import Store

MAX_TOLD: Final = 10
"""Problems told of one check; the rest is counted."""

_SETTLED_NS: Final = 60 * NS_PER_S
"""Time after which a run has closed what its ended operations left open; see `Settings.grace`."""


class CheckResult(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    """What was seen, in a few words."""
    problems: tuple[str, ...] = ()
    """What is wrong, at most `MAX_TOLD` and a line that says how many more."""
    notes: tuple[str, ...] = ()
    """What is worth knowing and not wrong."""


def check_store(store: Store, now_ns: int) -> Iterator[CheckResult]:
    """Read everything and check it; `now_ns` is the Unix time in nanoseconds.

    Raises:
        StoreError: the store cannot be asked at all.
    """
    integrity = getattr(store, "integrity", None)
    if integrity is not None:
        yield _result("integrity", "file is sound", list(integrity()))
    unreadable: list[str] = []
    sequence, ids, feeds, operations = _Sequence(), _Ids(), _Feeds(), _Operations()
    for event in readable(store, unreadable.append):
        for part in (sequence, ids, feeds, operations):
            part.take(event)
    yield _result("events", f"{sequence.count:,} can be read", unreadable)
    yield _result("sequence", f"up to {sequence.last:,}, rising", sequence.problems)
    yield _result("event ids", f"{len(ids.seen):,} different", ids.problems)
    yield operations.result(now_ns)
    yield feeds.result(store, sequence.last)


def readable(store: Store, unreadable: Callable[[str], None]) -> Iterator[Event]:
    """Yield every event that can be decoded; tell why others cannot."""
    after = 0
    limit = PAGE
    while True:
        try:
            page = store.read(after, limit)
        except StoreError as error:
            if limit > 1:
                limit = 1  # the damaged event is somewhere in this page
                continue
            unreadable(str(error))
            after = _behind(store, after, str(error))
            continue
        if not page:
            return
        yield from page
        after = page[-1].seq
        limit = min(PAGE, 2 * limit)


def _behind(store: Store, after: int, message: str) -> int:
    """`seq` of the damaged event that `message` is about: the first one behind `after`."""
    low, high = after, max(after, store.watermark())
    while low < high:
        middle = (low + high) // 2
        if _fails(store, middle, message):
            low = middle + 1
        else:
            high = middle
    return low


def _fails(store: Store, after: int, message: str) -> bool:
    try:
        store.read(after, 1)
    except StoreError as error:
        return str(error) == message
    return False


class _Sequence:
    def __init__(self) -> None:
        self.last = self.count = 0
        self.problems: list[str] = []

    def take(self, event: Event) -> None:
        self.count += 1
        if event.seq <= self.last:
            self.problems.append(f"event {event.seq} comes after event {self.last}")
        self.last = max(self.last, event.seq)


class _Ids:
    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.problems: list[str] = []

    def take(self, event: Event) -> None:
        if event.event_id in self.seen:
            self.problems.append(f"event {event.seq} has the known id {event.event_id}")
        self.seen.add(event.event_id)


class _Feeds:
    """Messages per thread, counted by hand."""

    def __init__(self) -> None:
        self._counted: dict[str, int] = {}

    def take(self, event: Event) -> None:
        if event.category == "message":
            self._counted[event.thread_id] = self._counted.get(event.thread_id, 0) + 1

    def result(self, store: Store, last: int) -> CheckResult:
        problems = []
        for thread_id, counted in self._counted.items():
            said = store.count_messages(thread_id)
            # A store that was written to meanwhile may have more.
            if said < counted or (said > counted and store.watermark() == last):
                problems.append(f"thread {thread_id!r}: feed has {said} of {counted} messages")
        threads = len(self._counted)
        total = sum(self._counted.values())
        return _result("feeds", f"{total:,} messages in {threads:,} threads", problems)


class _Operations:
    """Starts without an end, and the ends of all others."""

    def __init__(self) -> None:
        self._open: dict[str, Event] = {}
        self._ended: dict[str, int] = {}
        """Span id -> end of every ended operation."""
        self._ended_keys: set[str] = set()

    def take(self, event: Event) -> None:
        key, _, phase = event.event_id.rpartition("/")
        if event.span is None:
            return
        if phase == "start" and key not in self._ended_keys:
            self._open[key] = event
        elif phase == "end":
            self._open.pop(key, None)
            self._ended_keys.add(key)
            self._ended[event.span.span_id] = event.span.end_ns

    def result(self, now_ns: int) -> CheckResult:
        problems, notes = [], []
        for event in self._open.values():
            span = event.span
            if span is None:
                continue
            since = terminal.moment(span.start_ns)
            told = f"{span.name} of run {event.run_id}, since {since}"
            above = self._ended.get(span.parent_span_id)
            left = above is not None and span.start_ns <= above < now_ns - _SETTLED_NS
            if left:
                problems.append(f"has no end, but what it belongs to has: {told}")
            else:
                notes.append(f"open: {told}")
        ended, open_ = len(self._ended_keys), len(self._open)
        return _result("operations", f"{ended:,} ended, {open_:,} open", problems, notes)


def _result(
    name: str, detail: str, problems: list[str], notes: list[str] | None = None
) -> CheckResult:
    return CheckResult(name, not problems, detail, _bounded(problems), _bounded(notes or []))


def _bounded(told: list[str]) -> tuple[str, ...]:
    more = len(told) - MAX_TOLD
    return (*told[:MAX_TOLD], f"and {more:,} more") if more > 0 else tuple(told)


def lines(result: CheckResult) -> Iterator[str]:
    """Yield one check as text: a line, and one for each problem or note."""
    mark = terminal.styled("ok" if result.ok else "error", "ok    " if result.ok else "FAILED")
    yield f"{mark}  {result.name:<10}  {terminal.safe(result.detail)}"
    for told in (*result.problems, *result.notes):
        yield f"        {terminal.safe(told)}"


@click.command()
@store_option
@json_option
def check(*, url: str, as_json: bool) -> int:
    """Read a whole store and check it; the exit code is 1 when something is wrong."""
    sound = True
    with opened(url) as store:
        for result in check_store(store, time.time_ns()):
            sound = sound and result.ok
            if as_json:
                terminal.echo_json(result)
                continue
            for line in lines(result):
                terminal.echo(line)
    return 0 if sound else EXIT_FAILED
