-- `seq` is the rowid: every index ends with it, so none needs to name it.

CREATE TABLE journal (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    epoch TEXT NOT NULL,
    -- Highest seq given so far: it outlives the rows, so that no seq is given twice.
    watermark INTEGER NOT NULL
) STRICT;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL UNIQUE,
    run_id TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    category TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;

CREATE INDEX events_by_run ON events (run_id);
-- Serves the feed of a thread and the deletion of a thread.
CREATE INDEX events_by_thread ON events (thread_id, category);
CREATE INDEX messages_by_run ON events (run_id) WHERE category = 'message';
CREATE INDEX runs ON events (event_type) WHERE event_type = 'run.start';
CREATE INDEX runs_by_thread ON events (thread_id) WHERE event_type = 'run.start';
