-- The journal itself, one row.
CREATE TABLE otel_journal (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    -- The newest migration that ran.
    schema integer NOT NULL,
    -- Identity of this journal.
    epoch text NOT NULL,
    -- What is added to a transaction id to make the upper bits of seq. It grows when the journal
    -- is restored into a cluster with smaller transaction ids.
    xid_offset bigint NOT NULL DEFAULT 0,
    -- Highest seq that was ever deleted: no seq at or below it is given again.
    deleted_up_to bigint NOT NULL DEFAULT 0
);

INSERT INTO otel_journal (schema, epoch)
VALUES (1, replace(gen_random_uuid()::text, '-', ''));

CREATE TABLE otel_journal_events (
    -- (transaction id + xid_offset) * 65536 + position in the batch.
    seq bigint PRIMARY KEY,
    event_id text NOT NULL UNIQUE,
    run_id text NOT NULL,
    thread_id text NOT NULL,
    event_type text NOT NULL,
    category text NOT NULL,
    created_ns bigint NOT NULL,
    -- JSON as bytes: PostgreSQL's text cannot hold the character U+0000.
    body bytea NOT NULL
);

CREATE INDEX otel_journal_events_run ON otel_journal_events (run_id, seq);
CREATE INDEX otel_journal_events_thread ON otel_journal_events (thread_id, seq);
CREATE INDEX otel_journal_events_feed ON otel_journal_events (thread_id, seq)
WHERE category = 'message';
CREATE INDEX otel_journal_events_run_feed ON otel_journal_events (run_id, seq)
WHERE category = 'message';
CREATE INDEX otel_journal_events_starts ON otel_journal_events (seq)
WHERE event_type = 'run.start';

-- Events below every open transaction: nothing can appear before or between them any more.
CREATE VIEW otel_journal_settled AS
SELECT seq, event_id, run_id, thread_id, event_type, category, created_ns, body
FROM otel_journal_events
WHERE
    seq < (
        SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::bigint + xid_offset) << 16
        FROM otel_journal
    );
