-- Contents kept under a name and out of the tree: pieces of a file to be, scratch material, checkpoints.
CREATE TABLE shelf (
    kind    TEXT NOT NULL,              -- chunk, scratch, checkpoint
    name    TEXT NOT NULL,
    at      INTEGER NOT NULL,           -- which of several under one name
    sha     BLOB NOT NULL,
    size    INTEGER NOT NULL,
    meta    TEXT NOT NULL,
    client  TEXT NOT NULL,
    session TEXT NOT NULL,
    created INTEGER NOT NULL,           -- microseconds since 1970
    updated INTEGER NOT NULL,
    expires INTEGER,                    -- NULL: never
    PRIMARY KEY (kind, name, at)
) WITHOUT ROWID;
CREATE INDEX shelf_by_content ON shelf (sha);
CREATE INDEX shelf_by_expiry ON shelf (expires) WHERE expires IS NOT NULL;
