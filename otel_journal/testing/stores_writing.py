"""Cases of the store suite: what goes in, and what comes back of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING

import msgspec
import pytest

from otel_journal.errors import EventError, StoreError

from .stores_samples import CONTENTS, SPAN, Opaque, fact, facts, refusal, unnumbered

if TYPE_CHECKING:
    from otel_journal.events import Event
    from otel_journal.store.protocol import Store

THREADS = 8
"""Writers at once."""


class ValueCases:
    """Events are values: what comes out equals what went in, and nobody can change it there."""

    def test_append_returns_the_batch_numbered(self, store: Store) -> None:
        """All of it, in order, with `seq` from 1 upwards and nothing else changed."""
        given = facts(50)
        written = store.append(given)
        seqs = [event.seq for event in written]
        assert unnumbered(written) == given
        assert seqs[0] >= 1
        assert seqs == sorted(set(seqs))
        assert store.read() == written

    def test_content_of_every_kind_comes_back(self, store: Store) -> None:
        """With the same types: no flag becomes a number, no whole float an int."""
        given = [fact(name, content=content) for name, content in CONTENTS.items()]
        store.append(given)
        found = {event.event_id: event.content for event in store.read()}
        for event in given:
            assert found[event.event_id] == event.content, event.event_id
            assert repr(found[event.event_id]) == repr(event.content), event.event_id

    def test_every_field_comes_back(self, store: Store) -> None:
        """Metadata, moment to the nanosecond, and a span block without a default in it."""
        given = msgspec.structs.replace(
            fact("whole", "llm.end", content={"a": 1}),
            metadata={"caller": "lead_agent", "deep": [{"\u2028": None}], "content_is_json": True},
            span=SPAN,
        )
        store.append([given])
        (found,) = store.events("run-1")
        assert unnumbered([found]) == [given]
        assert repr(found.span) == repr(SPAN)

    def test_every_reading_gives_the_whole_event(self, store: Store) -> None:
        """The envelope does not depend on the question."""
        given = msgspec.structs.replace(
            fact("1", "run.start", content=[1]), category="message", metadata={"a": 1}, span=SPAN
        )
        store.append([given])
        held = store.read()
        assert unnumbered(held) == [given]
        assert store.events("run-1") == held
        assert store.messages("thread-1") == held
        assert store.run_messages("run-1") == held
        assert store.runs() == held
        assert store.put_if_absent(given) == (held[0], False)

    def test_an_event_without_thread_or_span(self, store: Store) -> None:
        """An empty thread id and empty content stay empty."""
        written = store.append([fact("bare", thread_id="")])
        assert store.read() == written
        assert unnumbered(written) == [fact("bare", thread_id="")]

    def test_the_writer_cannot_change_what_is_stored(self, store: Store) -> None:
        """Content, metadata and attributes that the writer changes later are its own copies."""
        content, metadata, attributes = {"a": [1]}, {"b": [2]}, {"c": ["x"]}
        span = msgspec.structs.replace(SPAN, attributes=attributes)
        written = store.append(
            [msgspec.structs.replace(fact("1", content=content), metadata=metadata, span=span)]
        )
        first = fact("2", "run.start", content=content)
        kept, _ = store.put_if_absent(first)
        for given in (content["a"], metadata["b"]):
            given.append(9)
        attributes["c"].append("y")
        content["later"] = metadata["later"] = [9]
        self._check_unchanged(store)
        assert written[0].content == kept.content == {"a": [1]}

    def test_a_reader_cannot_change_what_is_stored(self, store: Store) -> None:
        """Whatever call the event came from (X52)."""
        span = msgspec.structs.replace(SPAN, attributes={"c": ["x"]})
        event = msgspec.structs.replace(
            fact("1", content={"a": [1]}), metadata={"b": [2]}, span=span, category="message"
        )
        first = fact("2", "run.start", content={"a": [1]})
        given = [*store.append([event]), store.put_if_absent(first)[0]]
        again = store.put_if_absent(first)[0]
        read = [*store.read(), *store.events("run-1"), *store.runs()]
        feeds = [*store.messages("thread-1"), *store.run_messages("run-1")]
        for found in [*given, again, *read, *feeds]:
            found.content["a"].append(9)
            found.metadata["later"] = 9
            if found.span is not None:
                found.span.attributes["c"].append("y")
        self._check_unchanged(store)

    @staticmethod
    def _check_unchanged(store: Store) -> None:
        event, first = store.read()
        assert event.span is not None
        assert event.content == first.content == {"a": [1]}
        assert event.metadata == {"b": [2]}
        assert first.metadata == {}
        assert event.span.attributes == {"c": ["x"]}


class AppendCases:
    """Idempotent, all or nothing, and numbered once."""

    def test_nothing_gives_nothing(self, store: Store) -> None:
        """An empty batch is allowed."""
        assert store.append([]) == []
        assert store.watermark() == 0

    def test_the_seq_of_what_is_given_is_ignored(self, store: Store) -> None:
        """Events read from another journal can be written into this one."""
        (first,) = store.append([msgspec.structs.replace(fact(1), seq=1000)])
        (second,) = store.append([msgspec.structs.replace(fact(2), seq=first.seq)])
        assert store.read() == [first, second]
        assert second.seq > first.seq

    def test_a_batch_over_runs_and_threads(self, store: Store) -> None:
        """Each event belongs to its own run and thread, in one order."""
        given = [
            fact(number, "llm.ai.response", run_id=f"run-{number % 3}", thread_id=f"t-{number % 2}")
            for number in range(12)
        ]
        written = store.append(given)
        assert unnumbered(written) == given
        for number in range(3):
            mine = [event for event in written if event.run_id == f"run-{number}"]
            assert store.events(f"run-{number}") == mine
        assert store.messages("t-1") == [event for event in written if event.thread_id == "t-1"]

    def test_a_big_batch(self, store: Store) -> None:
        """More values than a statement of SQL may have parameters."""
        given = facts(5000)
        assert len(store.append(given)) == len(given)
        assert unnumbered(store.read(limit=6000)) == given
        assert store.append(given) == []

    def test_the_same_batch_twice(self, store: Store) -> None:
        """The second time writes nothing, and says so."""
        written = store.append(facts(5))
        assert store.append(facts(5)) == []
        assert store.append(written) == []
        assert store.read() == written

    def test_an_event_twice_in_a_batch(self, store: Store) -> None:
        """The first one counts."""
        again = fact(1, content="second")
        written = store.append([fact(1, content="first"), fact(2), again, fact(2)])
        assert unnumbered(written) == [fact(1, content="first"), fact(2)]
        assert store.read() == written

    def test_a_batch_that_is_known_in_part(self, store: Store) -> None:
        """Only what is new comes back, in its order; what was there stays as it was."""
        known = store.append([fact(2, content="first"), fact(4)])
        other = fact(2, content="second")
        new = store.append([fact(1), other, fact(3), fact(4), fact(5)])
        assert unnumbered(new) == [fact(1), fact(3), fact(5)]
        assert store.read() == [*known, *new]

    def test_event_ids_are_known_across_runs(self, store: Store) -> None:
        """An id is one event, whatever run and thread a second delivery claims."""
        written = store.append([fact(1)])
        claim = msgspec.structs.replace(fact(1), run_id="run-2", thread_id="thread-2")
        assert store.append([claim]) == []
        assert store.read() == written
        assert store.events("run-2") == []

    def test_ids_differ_by_every_character(self, store: Store) -> None:
        """No folding of letter case, accents or blanks; and any printable text is an id."""
        names = ["a", "A", "a ", " a", "\u00e9", "e\u0301", "../x", "a b", "it's", '"', "%", "_"]
        names += ["a\\", "\U0001f600", "\u2028", "?1", "$1", "*"]
        given = [
            msgspec.structs.replace(fact(1, "llm.ai.response", run_id=name), thread_id=name)
            for name in names
        ]
        written = store.append(given)
        assert unnumbered(written) == given
        for event in written:
            assert store.events(event.run_id) == [event]
            assert store.messages(event.thread_id) == [event]
            assert store.count_messages(event.thread_id) == 1
        assert store.delete_run("a") == 1
        assert store.delete_thread("A") == 1
        assert store.read() == written[2:]

    def test_the_longest_names_are_allowed(self, store: Store) -> None:
        """Limits count characters, not bytes."""
        longest = msgspec.structs.replace(
            fact(1),
            event_id="\u00e4" * 64,
            run_id="\U0001f600" * 64,
            thread_id="\u00fc" * 64,
            event_type="t" * 32,
        )
        store.append([msgspec.structs.replace(longest, category="c" * 16)])
        (found,) = store.events("\U0001f600" * 64)
        assert found.event_id == longest.event_id
        assert (found.thread_id, found.event_type) == (longest.thread_id, longest.event_type)
        assert found.category == "c" * 16

    def test_what_is_not_allowed_is_refused_with_its_whole_batch(self, store: Store) -> None:
        """Limits of contract 17 and content that is no JSON; whatever place it has in the batch."""
        before = store.append([fact("known")])
        for name, event in _not_allowed().items():
            for batch in ([event], [event, fact(1)], [fact(1), event], [fact(1), event, fact(2)]):
                assert isinstance(refusal(partial(store.append, batch)), EventError), name
            assert isinstance(refusal(partial(store.put_if_absent, event)), EventError), name
            assert store.read() == before, name

    def test_a_refused_batch_leaves_no_trace(self, store: Store) -> None:
        """Its good events can be written afterwards, once; `seq` may have a gap, not a twin."""
        (first,) = store.append([fact(0)])
        with pytest.raises(StoreError):
            store.append([fact(1, "run.start"), fact(2), fact(3, content=Opaque())])
        assert store.runs() == []
        assert store.events("run-1") == [first]
        written = store.append([fact(1, "run.start"), fact(2), fact(3)])
        assert unnumbered(written) == [fact(1, "run.start"), fact(2), fact(3)]
        assert store.read() == [first, *written]
        assert store.append([fact(1, "run.start"), fact(2), fact(3)]) == []

    def test_writers_at_once(self, store: Store) -> None:
        """Every batch is there, whole and in one piece, and a follower misses nothing."""
        batches = 10
        barrier = Barrier(THREADS)

        def write(writer: int) -> None:
            barrier.wait()
            for number in range(batches):
                mine = [fact(f"{number}/{part}", run_id=f"run-{writer}") for part in range(3)]
                assert len(store.append(mine)) == len(mine)

        with ThreadPoolExecutor(THREADS) as pool:
            writers = [pool.submit(write, writer) for writer in range(THREADS)]
            seen: list[Event] = []
            while True:
                over = all(writer.done() for writer in writers)
                new = store.read(after=seen[-1].seq if seen else 0, limit=7)
                seen += new
                if over and not new:
                    break
            for done in writers:
                done.result()
        assert len(seen) == THREADS * batches * 3
        assert seen == store.read(limit=1000)
        assert [event.seq for event in seen] == sorted({event.seq for event in seen})
        for writer in range(THREADS):
            ids = [event.event_id for event in store.events(f"run-{writer}")]
            assert ids == [
                f"run-{writer}/{number}/{part}" for number in range(batches) for part in range(3)
            ]

    def test_the_same_batch_from_writers_at_once(self, store: Store) -> None:
        """Each event is written by one of them."""
        barrier = Barrier(THREADS)

        def write(_: int) -> list[Event]:
            barrier.wait()
            return store.append(facts(20))

        with ThreadPoolExecutor(THREADS) as pool:
            new = [event for part in pool.map(write, range(THREADS)) for event in part]
        assert sorted(new, key=_seq) == store.read()
        assert unnumbered(store.read()) == facts(20)


class PutIfAbsentCases:
    """Facts that a run has once."""

    def test_the_first_one_stays(self, store: Store) -> None:
        """A later one gets the first back, and writes nothing."""
        first, created = store.put_if_absent(fact(1, "run.end", content="first"))
        assert created
        assert first.seq >= 1
        assert unnumbered([first]) == [fact(1, "run.end", content="first")]
        again = store.put_if_absent(fact(2, "run.end", content="second"))
        assert again == (first, False)
        assert store.read() == [first]
        assert store.watermark() == first.seq

    def test_it_is_one_per_thread_run_and_type(self, store: Store) -> None:
        """Another thread, run or type has its own."""
        given = [
            fact(1, "run.end"),
            fact(2, "run.error"),
            fact(3, "run.end", run_id="run-2"),
            fact(4, "run.end", thread_id="thread-2"),
        ]
        found = [store.put_if_absent(event) for event in given]
        assert [created for _, created in found] == [True] * 4
        assert store.read() == [event for event, _ in found]
        assert unnumbered(store.read()) == given

    def test_it_sees_what_append_wrote(self, store: Store) -> None:
        """Of several events of the type it returns the first one."""
        written = store.append([fact(1, "llm.start"), fact(2, "llm.end"), fact(3, "llm.end")])
        assert store.put_if_absent(fact(4, "llm.end")) == (written[1], False)
        assert store.read() == written

    def test_append_sees_what_it_wrote(self, store: Store) -> None:
        """The id is known; another event of the type still may be appended."""
        first, _ = store.put_if_absent(fact(1, "llm.end"))
        (second,) = store.append([fact(1, "llm.end"), fact(2, "llm.end")])
        assert store.read() == [first, second]

    def test_a_known_id_is_not_written_again(self, store: Store) -> None:
        """The event behind the id comes back, also when it is of another type."""
        (known,) = store.append([fact(1, "llm.start")])
        assert store.put_if_absent(fact(1, "llm.end")) == (known, False)
        assert store.read() == [known]

    def test_it_writes_again_after_a_deletion(self, store: Store) -> None:
        """What was deleted is absent."""
        first, _ = store.put_if_absent(fact(1, "run.end"))
        store.delete_run("run-1")
        second, created = store.put_if_absent(fact(1, "run.end"))
        assert created
        assert second.seq > first.seq

    def test_one_of_many_writers_wins(self, store: Store) -> None:
        """Threads that put at once agree on one event, in every round."""
        for turn in range(5):
            barrier = Barrier(THREADS)

            def put(
                writer: int, turn: int = turn, barrier: Barrier = barrier
            ) -> tuple[Event, bool]:
                barrier.wait()
                return store.put_if_absent(fact(writer, "run.end", run_id=f"run-{turn}"))

            with ThreadPoolExecutor(THREADS) as pool:
                found = list(pool.map(put, range(THREADS)))
            held = store.events(f"run-{turn}")
            assert len(held) == 1
            assert [event for event, _ in found] == held * THREADS
            assert [created for _, created in found].count(True) == 1


def _not_allowed() -> dict[str, Event]:
    good = fact("bad")
    texts = {"nothing": "", "a newline": "a\nb", "a zero": "a\0", "a delete": "a\x7f"}
    bad = {
        f"{name} with {what}": msgspec.structs.replace(good, **{name: text})
        for name in ("event_id", "run_id", "thread_id", "event_type", "category")
        for what, text in texts.items()
        if name != "thread_id" or text
    }
    for name, most in {"event_type": 32, "category": 16}.items():
        bad[f"a long {name}"] = msgspec.structs.replace(good, **{name: "x" * (most + 1)})
    for name in ("event_id", "run_id", "thread_id"):
        bad[f"a long {name}"] = msgspec.structs.replace(good, **{name: "x" * 65})
    bad["an object"] = msgspec.structs.replace(good, content={"a": [Opaque()]})
    bad["an object in the metadata"] = msgspec.structs.replace(good, metadata={"a": Opaque()})
    bad["a lone surrogate"] = msgspec.structs.replace(good, content="\ud800")
    return bad


def _seq(event: Event) -> int:
    return event.seq
