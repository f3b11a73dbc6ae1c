-- Sums over the rows up to a point, for analytics. Newer rows are counted by the reader; a write touches none of this.
CREATE TABLE cached_sums (              -- one row
    last_seq INTEGER NOT NULL,          -- the rows up to here are counted in all cached tables
    paths    INTEGER NOT NULL,
    bytes    INTEGER NOT NULL
);
CREATE TABLE cached_totals (
    kind   TEXT NOT NULL,               -- mode or client
    name   TEXT NOT NULL,
    writes INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE cached_paths (
    path   TEXT PRIMARY KEY,
    writes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE cached_minutes (
    minute    INTEGER PRIMARY KEY,
    writes    INTEGER NOT NULL,
    first_seq INTEGER NOT NULL
);

-- A row from the first open intent on may still fail, so it is taken out of the sums: the cache ends before it.
CREATE TEMP VIEW unsettled AS
    SELECT * FROM main.journal NOT INDEXED WHERE seq >= (SELECT min(seq) FROM main.intents)
        AND NOT EXISTS (SELECT 1 FROM main.outcomes WHERE outcomes.seq = journal.seq);
INSERT INTO cached_paths SELECT path, writes FROM paths WHERE writes > 0;
INSERT INTO cached_paths SELECT path, -count(*) FROM unsettled GROUP BY 1
    ON CONFLICT (path) DO UPDATE SET writes = writes + excluded.writes;
DELETE FROM cached_paths WHERE writes = 0;
INSERT INTO cached_minutes SELECT minute, writes, first FROM minutes WHERE writes > 0;
INSERT INTO cached_minutes SELECT ts / 60000000, -count(*), 0 FROM unsettled GROUP BY 1
    ON CONFLICT (minute) DO UPDATE SET writes = writes + excluded.writes;
DELETE FROM cached_minutes WHERE writes = 0;
INSERT INTO cached_totals SELECT kind, name, writes FROM totals WHERE writes > 0;
INSERT INTO cached_totals SELECT 'mode', mode, -count(*) FROM unsettled GROUP BY 2
    UNION ALL SELECT 'client', client, -count(*) FROM unsettled GROUP BY 2
    ON CONFLICT (kind, name) DO UPDATE SET writes = writes + excluded.writes;
DELETE FROM cached_totals WHERE writes = 0;
INSERT INTO cached_sums SELECT
    coalesce((SELECT min(seq) - 1 FROM intents), (SELECT max(seq) FROM journal), 0),
    (SELECT count(*) FROM cached_paths),
    bytes - (SELECT coalesce(sum(bytes), 0) FROM unsettled) FROM sums;
DROP VIEW temp.unsettled;

-- Files written once are listed after the others, by name: the primary key has them in order.
CREATE INDEX cached_paths_by_writes ON cached_paths (writes DESC, path) WHERE writes > 1;
CREATE INDEX cached_minutes_by_writes ON cached_minutes (writes DESC, minute);

-- What retention has done, and how much is kept.
CREATE TABLE retention (                -- one row
    last_seq   INTEGER NOT NULL,        -- contents replaced by rows up to here were dropped
    kept_bytes INTEGER NOT NULL,        -- size as stored of all contents up to kept_rowid
    kept_rowid INTEGER NOT NULL         -- in contents, where a new one gets a higher rowid
);
CREATE VIEW kept AS                     -- the size as stored of all contents
    SELECT kept_bytes + coalesce(
        (SELECT sum(coalesce(length(data), size)) FROM contents WHERE rowid > kept_rowid), 0
    ) AS bytes FROM retention;
INSERT INTO retention SELECT retired, stored, (SELECT coalesce(max(rowid), 0) FROM contents) FROM sums;
DROP VIEW minutes;
DROP VIEW totals;
DROP VIEW sums;
DROP TABLE rollup;
DROP TABLE paths;
