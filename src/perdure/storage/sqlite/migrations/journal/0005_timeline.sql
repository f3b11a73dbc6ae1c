-- The time machine: the covered files as they were last seen, and the calls that may change them.

CREATE TABLE tracked_files (
    path     TEXT PRIMARY KEY,
    kind     TEXT NOT NULL,             -- file, link, directory
    size     INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    inode    INTEGER NOT NULL,
    mode     INTEGER NOT NULL,
    sha      BLOB,                      -- of the content, or of a link's target; NULL for a directory, and until it was read
    git_oid  TEXT                       -- the blob in which git has the content of a file that is clean
) WITHOUT ROWID;
CREATE INDEX tracked_files_by_content ON tracked_files (sha) WHERE sha IS NOT NULL;

CREATE TABLE tracked_version (          -- one row: how often tracked_files was changed, for those who keep a copy
    n INTEGER NOT NULL
);
INSERT INTO tracked_version VALUES (0);

-- A call of a tool outside Perdure, as its hooks tell of it. Its rows in the journal have its `txn`.
CREATE TABLE calls (
    id      INTEGER PRIMARY KEY,
    client  TEXT NOT NULL,
    session TEXT NOT NULL,
    agent   TEXT,                       -- NULL: the client's main agent
    turn    INTEGER,                    -- NULL: the client does not tell of prompts
    tool    TEXT NOT NULL,
    call_id TEXT,                       -- the client's own id of the call
    command TEXT,                       -- of a shell, redacted
    paths   TEXT NOT NULL,              -- a JSON list: the files that its input names
    begun   INTEGER NOT NULL,           -- microseconds since 1970
    ended   INTEGER,                    -- NULL: it still runs
    status  TEXT NOT NULL,              -- open, done, unfinished, late
    txn     TEXT,                       -- NULL once it is known that a tool of Perdure made the change, in a row without one
    seq     INTEGER                     -- the first row of its change; NULL: it has changed nothing yet
);
CREATE INDEX calls_open ON calls (id) WHERE ended IS NULL;
CREATE INDEX calls_by_session ON calls (session, turn);
CREATE INDEX calls_by_agent ON calls (agent) WHERE agent IS NOT NULL;
CREATE INDEX calls_by_txn ON calls (txn) WHERE txn IS NOT NULL;
CREATE INDEX calls_by_seq ON calls (seq) WHERE seq IS NOT NULL;

CREATE TABLE turns (                    -- how many prompts of a person a session has had
    client  TEXT NOT NULL,
    session TEXT NOT NULL,
    turn    INTEGER NOT NULL,
    ts      INTEGER NOT NULL,
    PRIMARY KEY (session, client)
) WITHOUT ROWID;

CREATE TABLE not_covered (              -- what the last look at the workspace left out
    path   TEXT PRIMARY KEY,            -- a file or a folder
    reason TEXT NOT NULL,               -- ignored, dependencies, too_large, not_yet …
    files  INTEGER                      -- NULL: not counted
) WITHOUT ROWID;

CREATE TABLE observation (              -- one row: the last look at the workspace
    id   INTEGER PRIMARY KEY CHECK (id = 1),
    ts   INTEGER NOT NULL,
    head TEXT                           -- the commit that git's HEAD stood for; NULL where there was none
);
