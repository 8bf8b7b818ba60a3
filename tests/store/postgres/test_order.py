"""A reader that follows concurrent writers skips nothing, and numbers are never used again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from otel_journal import StoreError
from otel_journal.events import Event
from otel_journal.store.postgres import MAX_BATCH, PostgresStore
from otel_journal.testing.stores_samples import fact, facts

WRITERS = 8
BATCHES = 40
PATIENCE_S = 60.0


def test_a_follower_skips_nothing(url: str, store: PostgresStore) -> None:
    """Eight writers with stores of their own; what the follower saw is the whole journal."""
    done = threading.Event()

    def write(writer: int) -> None:
        own = PostgresStore(url)
        for batch in range(BATCHES):
            own.append([fact(f"{writer}-{batch}-{n}") for n in range(1 + batch % 5)])
        own.close()

    def follow() -> list[Event]:
        seen: list[Event] = []
        while True:
            finished = done.is_set()  # before reading: what came until then is read
            page = store.read(after=seen[-1].seq if seen else 0, limit=37)
            seen += page
            if finished and not page:
                return seen

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        following = pool.submit(follow)
        writing = [pool.submit(write, writer) for writer in range(WRITERS)]
        try:
            for future in writing:
                future.result(PATIENCE_S)
        finally:
            done.set()
        seen = following.result(PATIENCE_S)

    assert len(seen) == WRITERS * sum(1 + batch % 5 for batch in range(BATCHES))
    assert seen == store.read(limit=10_000)


def test_what_an_open_transaction_can_still_come_before_is_not_read(
    url: str, store: PostgresStore
) -> None:
    """An earlier writer that is not done holds the later one back; then both come in order."""
    columns = "event_id, run_id, thread_id, event_type, category, created_ns, body"
    with psycopg.connect(url) as slow:
        slow.execute(
            f"INSERT INTO otel_journal_events (seq, {columns}) "  # noqa: S608 - constants
            "SELECT (pg_current_xact_id()::text::bigint + xid_offset) << 16, 'slow', 'run', '', "
            "'llm.human.input', 'message', 1, '{}' FROM otel_journal"
        )
        (fast,) = store.append([fact("fast", run_id="run", thread_id="")])
        assert store.read() == []
        assert store.messages("") == []
        assert store.watermark() < fast.seq
        slow.commit()
    assert [event.event_id for event in store.read()] == ["slow", fast.event_id]
    assert store.watermark() == fast.seq


@pytest.mark.parametrize("deleted", [False, True])
def test_numbers_go_on_in_a_cluster_with_smaller_transaction_ids(
    url: str, store: PostgresStore, *, deleted: bool
) -> None:
    """As after a restored dump: new events come after the old ones, deleted ones included."""
    old = store.append(facts(3))
    store.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE otel_journal_events SET seq = seq + (1000000::bigint << 16)")
    restored = PostgresStore(url)
    highest = old[-1].seq + (1_000_000 << 16)
    if deleted:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE otel_journal SET xid_offset = 0")
        restored.prune(highest)
        restored.close()
        restored = PostgresStore(url)
    (new,) = restored.append([fact("new")])
    assert new.seq > highest
    assert restored.read()[-1] == new
    assert restored.watermark() == new.seq
    restored.close()


def test_a_batch_beyond_the_limit_is_refused(store: PostgresStore) -> None:
    """As a whole, and the message names the limit."""
    one = fact("one")
    with pytest.raises(StoreError, match=f"allowed: up to {MAX_BATCH}"):
        store.append([one] * (MAX_BATCH + 1))
    assert store.read() == []
