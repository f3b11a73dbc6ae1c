-- Shared state. Values stand last, so that reading the rest of a row never walks through a large one.
CREATE TABLE store (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    revision  INTEGER NOT NULL              -- of the last change; never reused
);
INSERT INTO store VALUES (1, 0);

CREATE TABLE entries (
    space     TEXT NOT NULL,                -- key, lease, once
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    version   INTEGER NOT NULL,             -- goes on after a delete
    revision  INTEGER NOT NULL,
    updated   INTEGER NOT NULL,             -- microseconds since 1970
    expires   INTEGER,                      -- NULL: never
    value     TEXT,                         -- NULL: deleted
    PRIMARY KEY (space, namespace, key)
);
CREATE INDEX entries_by_expiry ON entries (expires) WHERE expires IS NOT NULL;

CREATE TABLE changes (
    revision  INTEGER NOT NULL,
    space     TEXT NOT NULL,
    namespace TEXT NOT NULL,
    key       TEXT NOT NULL,
    version   INTEGER NOT NULL,
    updated   INTEGER NOT NULL,
    client    TEXT NOT NULL,
    session   TEXT NOT NULL,
    tool      TEXT NOT NULL,
    value     TEXT,
    PRIMARY KEY (space, namespace, key, revision)
);
CREATE INDEX changes_by_revision ON changes (revision);

CREATE TABLE namespaces (
    namespace TEXT PRIMARY KEY,
    keys      INTEGER NOT NULL,
    bytes     INTEGER NOT NULL
) WITHOUT ROWID;

-- Results of calls, for whoever asks what became of one.
CREATE TABLE answers (
    key       TEXT PRIMARY KEY,
    at        INTEGER NOT NULL,
    tool      TEXT NOT NULL,
    render    TEXT NOT NULL,
    detail    TEXT NOT NULL,
    result    BLOB NOT NULL
);
CREATE INDEX answers_by_age ON answers (at);
