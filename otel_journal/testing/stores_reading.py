"""Cases of the store suite: pages, cursors, filters, counts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from .stores_samples import BEYOND, cursors, fact, facts, page, scattered, unnumbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_journal.events import Event
    from otel_journal.store.protocol import Store

LIMITS = (0, 1, 3, 100)
"""None, one, a page, everything."""


class ReadingCases:
    """Every page equals what a look at every event gives."""

    def test_an_empty_store(self, store: Store) -> None:
        """Has nothing, and says so without an error."""
        assert store.read() == []
        assert store.events("run-1") == []
        assert store.messages("thread-1") == []
        assert store.run_messages("run-1") == []
        assert store.runs() == []
        assert store.runs(thread_id="thread-1") == []
        assert store.count_messages("thread-1") == 0
        assert store.watermark() == 0

    def test_unknown_names(self, store: Store) -> None:
        """Give nothing beside others that are known; a run is no thread."""
        store.append(facts(5))
        assert store.events("thread-1") == []
        assert store.run_messages("thread-1") == []
        assert store.messages("run-1") == []
        assert store.count_messages("run-1") == 0
        assert store.runs(thread_id="run-1") == []

    def test_read_equals_a_scan(self, store: Store) -> None:
        """For cursors on events, in gaps and outside, and for every limit."""
        held = scattered(store)
        assert store.read() == held
        for after in (-1, *filter(None, cursors(held)), BEYOND):
            for limit in LIMITS:
                expected = page(held, None, after, limit)
                assert store.read(after=after, limit=limit) == expected, (after, limit)

    def test_events_of_a_run_equal_a_scan(self, store: Store) -> None:
        """Filters apply before the limit."""
        held = scattered(store)
        messages = ("llm.human.input", "llm.ai.response", "llm.tool.result")
        for types in (None, ("node.end", "node.end"), {"node.end", "nobody.knows"}, list(messages)):
            for run in ("run-0", "run-1", "run-2"):
                mine = [event for event in held if event.run_id == run]
                mine = [event for event in mine if types is None or event.event_type in types]
                for after in (0, *filter(None, cursors(held)), BEYOND):
                    for limit in LIMITS:
                        found = store.events(run, types, after=after, limit=limit)
                        assert found == page(mine, None, after, limit), (run, types, after, limit)

    def test_types_none_and_empty(self, store: Store) -> None:
        """None is every type, no type is nothing."""
        written = store.append(facts(6))
        assert store.events("run-1", types=None) == written
        assert store.events("run-1", types=[]) == []
        assert store.events("run-1", types=set()) == []
        assert store.events("run-1", types=["nobody.knows"]) == []

    def test_a_run_in_two_threads(self, store: Store) -> None:
        """Belongs to both feeds, in part, and is one run."""
        written = store.append(
            [fact(n, "llm.ai.response", thread_id=f"thread-{n % 2}") for n in range(6)]
        )
        assert store.events("run-1") == written
        assert store.run_messages("run-1") == written
        assert store.messages("thread-0") == written[0::2]
        assert store.messages("thread-1") == written[1::2]

    def test_the_feed_of_a_thread_equals_a_scan(self, store: Store) -> None:
        """For every pair of cursors and limit."""
        held = _messages(scattered(store))
        for thread in ("thread-0", "thread-1"):
            mine = [event for event in held if event.thread_id == thread]
            _check_feed(partial(store.messages, thread), mine)
            assert store.count_messages(thread) == len(mine)

    def test_the_feed_of_a_run_equals_a_scan(self, store: Store) -> None:
        """For every pair of cursors and limit."""
        held = _messages(scattered(store))
        for run in ("run-0", "run-1", "run-2"):
            mine = [event for event in held if event.run_id == run]
            _check_feed(partial(store.run_messages, run), mine)

    def test_pages_of_a_feed(self, store: Store) -> None:
        """The last ones by default and before a cursor, the first ones after one."""
        store.append([fact("other", "llm.ai.response", run_id="run-2")])
        feed = store.append([fact(n, "llm.ai.response") for n in range(1, 11)])
        for read in (store.messages, store.run_messages):
            name = "thread-1" if read == store.messages else "run-1"
            assert read(name, limit=3) == feed[7:]
            assert read(name, before=feed[5].seq, limit=3) == feed[2:5]
            assert read(name, after=feed[6].seq, limit=3) == feed[7:]
            assert read(name, before=feed[8].seq, after=feed[1].seq, limit=3) == feed[2:5]
            assert read(name, before=feed[3].seq, after=feed[1].seq) == feed[2:3]
            assert read(name, before=feed[2].seq, after=feed[1].seq) == []
            assert read(name, before=feed[1].seq, after=feed[5].seq) == []

    def test_default_limits(self, store: Store) -> None:
        """500 events, 50 messages, 50 runs."""
        written = store.append([fact(n, "llm.ai.response") for n in range(501)])
        started = store.append([fact(n, "run.start", run_id=f"r-{n}") for n in range(51)])
        assert store.read() == written[:500]
        assert store.events("run-1") == written[:500]
        assert store.messages("thread-1") == written[-50:]
        assert store.run_messages("run-1") == written[-50:]
        assert store.runs() == started[:0:-1]

    def test_a_negative_limit_is_an_error(self, store: Store) -> None:
        """Whether or not there is something to give."""
        for run, thread in (("run-1", "thread-1"), ("nobody", "nowhere")):
            calls: tuple[Callable[..., object], ...] = (
                store.read,
                partial(store.events, run),
                partial(store.events, run, []),
                partial(store.messages, thread),
                partial(store.run_messages, run),
                store.runs,
                partial(store.runs, thread_id=thread),
            )
            for call in calls:
                with pytest.raises(ValueError, match="limit"):
                    call(limit=-1)
            store.append(facts(3))

    def test_paging_forward_gives_everything_once(self, store: Store) -> None:
        """The journal, a run and a feed, by three at a time."""
        held = scattered(store)
        run = [event for event in held if event.run_id == "run-1"]
        feed = _messages([event for event in held if event.thread_id == "thread-1"])
        assert _forward(lambda after: store.read(after=after, limit=3)) == held
        assert _forward(lambda after: store.events("run-1", after=after, limit=3)) == run
        assert _forward(lambda a: store.messages("thread-1", after=a, limit=3)) == feed
        mine = _messages(run)
        assert _forward(lambda a: store.run_messages("run-1", after=a, limit=3)) == mine

    def test_paging_backward_gives_everything_once(self, store: Store) -> None:
        """The feeds and the runs, by two at a time, from the end."""
        held = scattered(store)
        feed = _messages([event for event in held if event.thread_id == "thread-1"])
        mine = _messages([event for event in held if event.run_id == "run-1"])
        started = [event for event in held if event.event_type == "run.start"]
        assert _backward(lambda b: store.messages("thread-1", before=b, limit=2)) == feed
        assert _backward(lambda b: store.run_messages("run-1", before=b, limit=2)) == mine
        assert _backward(lambda b: store.runs(before=b, limit=2)[::-1]) == started

    def test_runs_equal_a_scan(self, store: Store) -> None:
        """Starts of runs, newest first, of all threads or of one."""
        held = [event for event in scattered(store) if event.event_type == "run.start"]
        for thread in (None, "thread-0", "thread-1", "nowhere"):
            mine = [event for event in held if thread in {None, event.thread_id}]
            for before in (*cursors(held), BEYOND):
                for limit in LIMITS:
                    found = store.runs(before=before, limit=limit, thread_id=thread)
                    expected = page(mine, before, None, limit)[::-1]
                    assert found == expected, (thread, before, limit)

    def test_the_empty_thread_is_a_thread(self, store: Store) -> None:
        """Runs without a thread are not the runs of all threads."""
        bare, other = store.append(
            [fact(1, "run.start", thread_id=""), fact(2, "run.start", run_id="run-2")]
        )
        (message,) = store.append([fact(3, "llm.ai.response", thread_id="")])
        assert store.runs(thread_id="") == [bare]
        assert store.runs() == [other, bare]
        assert store.messages("") == [message]
        assert store.count_messages("") == 1

    def test_messages_are_what_the_category_says(self, store: Store) -> None:
        """Not the event type; traces, errors and outputs are in no feed."""
        given = [fact(n, kind) for n, kind in enumerate(("run.start", "run.end", "run.error"))]
        written = store.append([*given, fact(9, "llm.tool.result"), fact(10, "middleware:x")])
        assert store.messages("thread-1") == written[3:4]
        assert store.run_messages("run-1") == written[3:4]
        assert store.count_messages("thread-1") == 1

    def test_reading_does_not_change_anything(self, store: Store) -> None:
        """The same question has the same answer."""
        held = scattered(store)
        mark = store.watermark()
        for _ in range(2):
            assert store.read() == held
            store.events("nobody")
            store.messages("nowhere")
        assert store.watermark() == mark
        assert unnumbered(store.read()) == unnumbered(held)


def _messages(events: list[Event]) -> list[Event]:
    return [event for event in events if event.category == "message"]


def _check_feed(
    read: Callable[[int | None, int | None, int], list[Event]], feed: list[Event]
) -> None:
    for before in (*cursors(feed), BEYOND):
        for after in cursors(feed):
            for limit in LIMITS:
                found = read(before, after, limit)
                assert found == page(feed, before, after, limit), (before, after, limit)


def _forward(read: Callable[[int], list[Event]]) -> list[Event]:
    found: list[Event] = []
    while new := read(found[-1].seq if found else 0):
        found += new
    return found


def _backward(read: Callable[[int | None], list[Event]]) -> list[Event]:
    found: list[Event] = []
    while new := read(found[0].seq if found else None):
        found = new + found
    return found
