-- The journal: one row per change, chained by hash, never updated.
CREATE TABLE journal (
    seq     INTEGER PRIMARY KEY,
    prev    BLOB NOT NULL,
    hash    BLOB NOT NULL,
    ts      INTEGER NOT NULL,           -- microseconds since 1970
    path    TEXT NOT NULL,
    op      TEXT NOT NULL,              -- write, edit, patch, move, delete, undo, redo, restore, compose …
    mode    TEXT NOT NULL,              -- create, overwrite, append, replace, delete, move
    old_sha BLOB,                       -- NULL: there was no file
    new_sha BLOB,                       -- NULL: there is none any more
    bytes   INTEGER NOT NULL,           -- of the whole file after the change
    client  TEXT NOT NULL,
    session TEXT NOT NULL,
    key     TEXT,                       -- invocation key
    txn     TEXT,                       -- changes that belong together
    undoes  INTEGER,                    -- the row that this one takes back
    detail  TEXT NOT NULL DEFAULT '{}'  -- file mode, other end of a move, message
);
CREATE INDEX journal_by_path ON journal (path, seq);
CREATE INDEX journal_by_session ON journal (session, seq);
CREATE INDEX journal_by_client ON journal (client, seq);
CREATE INDEX journal_by_mode ON journal (mode, seq);
CREATE INDEX journal_by_time ON journal (ts);
CREATE INDEX journal_by_txn ON journal (txn) WHERE txn IS NOT NULL;
CREATE INDEX journal_by_undoes ON journal (undoes) WHERE undoes IS NOT NULL;

-- Rows whose change is not yet known to be on disk for good. Recovery settles them.
CREATE TABLE intents (
    seq  INTEGER PRIMARY KEY,
    boot TEXT NOT NULL                  -- the boot in which it was written: another one means the power went
);

-- Rows that did not become what they intended. No entry: committed.
CREATE TABLE outcomes (
    seq   INTEGER PRIMARY KEY,
    state TEXT NOT NULL,                -- aborted, conflict
    draft TEXT
);

-- Contents by hash: small ones here, large ones as files beside the database.
CREATE TABLE contents (
    sha   BLOB PRIMARY KEY,
    size  INTEGER NOT NULL,
    codec INTEGER NOT NULL,             -- 0 as it is, 1 zlib, 2 a file in blobs/
    data  BLOB,
    seq   INTEGER NOT NULL,             -- the last row that names it, or the next one after a draft did
    by_row INTEGER NOT NULL             -- 0: only drafts ever did
);

-- Contents that the last change of a file needs, although all else of its age was dropped.
CREATE TABLE pins (
    path TEXT NOT NULL,
    sha  BLOB NOT NULL,
    seq  INTEGER NOT NULL,              -- the change
    live INTEGER NOT NULL,              -- 0: the file has changed since
    PRIMARY KEY (path, sha)
) WITHOUT ROWID;
CREATE INDEX pins_by_content ON pins (sha);
CREATE INDEX pins_stale ON pins (path) WHERE live = 0;

-- What a call answered, committed with its effect, so that a lost call can be asked about.
CREATE TABLE invocations (
    key         TEXT PRIMARY KEY,
    tool        TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    first_seq   INTEGER,
    last_seq    INTEGER,
    render      TEXT NOT NULL,
    detail      TEXT NOT NULL,
    result      BLOB NOT NULL,
    ts          INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX invocations_by_time ON invocations (ts);

-- Payloads that were not written, kept so that they need not be sent again.
CREATE TABLE drafts (
    id      TEXT PRIMARY KEY,
    sha     BLOB NOT NULL,
    size    INTEGER NOT NULL,
    path    TEXT NOT NULL,
    reason  TEXT NOT NULL,
    client  TEXT NOT NULL,
    session TEXT NOT NULL,
    ts      INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX drafts_by_time ON drafts (ts);
CREATE INDEX drafts_by_content ON drafts (sha);

-- How often the same content may still be tried at the same path.
CREATE TABLE budgets (
    path TEXT NOT NULL,
    sha  BLOB NOT NULL,
    left INTEGER NOT NULL,
    ts   INTEGER NOT NULL,
    PRIMARY KEY (path, sha)
) WITHOUT ROWID;
CREATE INDEX budgets_by_time ON budgets (ts);

-- What each session last read or wrote at a path.
CREATE TABLE seen (
    session TEXT NOT NULL,
    path    TEXT NOT NULL,
    sha     BLOB,
    ts      INTEGER NOT NULL,
    PRIMARY KEY (session, path)
) WITHOUT ROWID;
CREATE INDEX seen_by_time ON seen (ts);

-- Sums kept in the same transaction as the rows they count.
CREATE TABLE minutes (
    minute INTEGER PRIMARY KEY,
    writes INTEGER NOT NULL,
    bytes  INTEGER NOT NULL
);
CREATE TABLE totals (
    kind   TEXT NOT NULL,               -- mode or client
    name   TEXT NOT NULL,
    writes INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE paths (
    path     TEXT PRIMARY KEY,
    writes   INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,
    last_seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX paths_by_writes ON paths (writes DESC, path);
CREATE TABLE sums (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    writes INTEGER NOT NULL,
    paths  INTEGER NOT NULL,
    bytes  INTEGER NOT NULL,
    first  INTEGER,
    last   INTEGER,
    peak_minute INTEGER,
    peak_writes INTEGER NOT NULL,
    stored  INTEGER NOT NULL,           -- bytes of all contents, as they are kept
    retired INTEGER NOT NULL            -- the row up to which replaced contents were dropped
);
INSERT INTO sums VALUES (1, 0, 0, 0, NULL, NULL, NULL, 0, 0, 0);
