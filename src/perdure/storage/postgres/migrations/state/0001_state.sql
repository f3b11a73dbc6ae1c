-- Shared state. Keys sort by their bytes, as they do everywhere else; JSON is kept as the text it was sent as.
CREATE TABLE perdure.store (
    id        integer PRIMARY KEY CHECK (id = 1),
    format    integer NOT NULL,
    revision  bigint NOT NULL               -- of the last change; never reused
);
INSERT INTO perdure.store VALUES (1, 0, 0);

CREATE TABLE perdure.entries (
    space     text COLLATE "C" NOT NULL,    -- key, lease, once
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    version   bigint NOT NULL,              -- goes on after a delete
    revision  bigint NOT NULL,
    updated   bigint NOT NULL,              -- microseconds since 1970
    expires   bigint,                       -- NULL: never
    value     text,                         -- NULL: deleted
    PRIMARY KEY (space, namespace, key)
);
CREATE INDEX entries_by_expiry ON perdure.entries (expires) WHERE expires IS NOT NULL;

CREATE TABLE perdure.changes (
    revision  bigint NOT NULL,
    space     text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    version   bigint NOT NULL,
    updated   bigint NOT NULL,
    client    text NOT NULL,
    session   text NOT NULL,
    tool      text NOT NULL,
    value     text,
    PRIMARY KEY (space, namespace, key, revision)
);
CREATE INDEX changes_by_revision ON perdure.changes (revision);

CREATE TABLE perdure.namespaces (
    namespace text COLLATE "C" PRIMARY KEY,
    keys      bigint NOT NULL,
    bytes     bigint NOT NULL
);

-- Results of calls, for whoever asks what became of one.
CREATE TABLE perdure.answers (
    key       text COLLATE "C" PRIMARY KEY,
    at        bigint NOT NULL,
    tool      text NOT NULL,
    render    text NOT NULL,
    detail    text NOT NULL,
    result    bytea NOT NULL
);
CREATE INDEX answers_by_age ON perdure.answers (at);
