-- A change is written to as few pages as it can be: each page of a commit has its price before the sync.

-- All sums in one tree: its last minute stands beside everything else that a change counts in.
CREATE TABLE rollup (
    kind   INTEGER NOT NULL,            -- 0 a minute, 1 all, 2 a mode, 3 a client, 4 the busiest minute, 5 kept contents
    name   NOT NULL,                    -- of the minute, the mode, the client
    writes INTEGER NOT NULL,
    bytes  INTEGER NOT NULL,
    mark   INTEGER NOT NULL,            -- 0: its first row; 1: how many paths; 4: the minute; 5: see sums.retired
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
INSERT INTO rollup SELECT 0, minute, writes, bytes, first FROM minutes
    JOIN (SELECT ts / 60000000 AS of, min(seq) AS first FROM journal GROUP BY 1) ON of = minute;
INSERT INTO rollup SELECT 1, '', writes, bytes, paths FROM sums;
INSERT INTO rollup SELECT CASE kind WHEN 'mode' THEN 2 ELSE 3 END, name, writes, 0, 0 FROM totals;
INSERT INTO rollup SELECT 4, '', peak_writes, 0, coalesce(peak_minute, 0) FROM sums;
INSERT INTO rollup SELECT 5, '', 0, stored, retired FROM sums;
DROP TABLE minutes;
DROP TABLE totals;
DROP TABLE sums;
CREATE VIEW minutes AS SELECT name AS minute, writes, bytes, mark AS first FROM rollup WHERE kind = 0;
CREATE VIEW totals AS
    SELECT CASE kind WHEN 2 THEN 'mode' ELSE 'client' END AS kind, name, writes FROM rollup WHERE kind IN (2, 3);
CREATE VIEW sums AS
    SELECT everything.writes, everything.mark AS paths, everything.bytes,
        CASE WHEN peak.writes > 0 THEN peak.mark END AS peak_minute, peak.writes AS peak_writes,
        kept.bytes AS stored,           -- bytes of all contents, as they are kept
        kept.mark AS retired            -- the row up to which replaced contents were dropped
    FROM rollup AS everything, rollup AS peak, rollup AS kept
    WHERE everything.kind = 1 AND peak.kind = 4 AND kept.kind = 5;

-- Times rise with the rows, but for a clock that was set back: a minute's first row is enough to begin at.
DROP INDEX journal_by_time;

-- Most files are written once; those are listed after the others anyway, by name.
DROP INDEX paths_by_writes;
CREATE INDEX paths_by_writes ON paths (writes DESC, path) WHERE writes > 1;

-- Answers in the order they were given, which is the order in which they are forgotten.
ALTER TABLE invocations RENAME TO former_invocations;
DROP INDEX invocations_by_time;
CREATE TABLE invocations (
    id          INTEGER PRIMARY KEY,
    key         TEXT NOT NULL UNIQUE,
    tool        TEXT NOT NULL,
    fingerprint BLOB NOT NULL,
    first_seq   INTEGER,
    last_seq    INTEGER,
    render      TEXT NOT NULL,
    detail      TEXT NOT NULL,
    result      BLOB NOT NULL,
    ts          INTEGER NOT NULL
);
INSERT INTO invocations
    SELECT NULL, key, tool, fingerprint, first_seq, last_seq, render, detail, result, ts
    FROM former_invocations ORDER BY ts;
DROP TABLE former_invocations;

-- What a session wrote stands in its rows; here is what it read, and which row it read that after.
ALTER TABLE seen ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
UPDATE seen SET seq = (SELECT coalesce(max(seq), 0) FROM journal);
