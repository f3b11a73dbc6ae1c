"""The SQLite backends, through apsw: WAL, synchronous FULL, one writer, group commit."""
