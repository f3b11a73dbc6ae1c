"""Bringing a store on PostgreSQL up to date, one numbered file at a time; a newer one is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from perdure.storage.errors import UnusableStore
from perdure.storage.postgres.pool import Connection

LOCK: Final = 0x50645374  # "PdSt"


def prepare(connection: Connection) -> None:
    steps = list(migrations())
    newest = steps[-1][0]
    if _format(connection) == newest:
        return
    # Under one lock: of several that open a new store at once, one does the work.
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        found = _format(connection)
        if found > newest:
            raise UnusableStore(
                f"the store was written by a newer version (format {found}, this one knows {newest})"
            )
        encoding = connection.execute("SHOW server_encoding").fetchone()
        if encoding is None or encoding[0] != "UTF8":
            raise UnusableStore("the database is not in UTF-8")
        if found == 0:
            connection.execute("CREATE SCHEMA IF NOT EXISTS perdure")
        for number, text in steps:
            if number > found:
                connection.execute(text.encode())
        connection.execute("UPDATE perdure.store SET format = %s", (newest,))


def _format(connection: Connection) -> int:
    # Asked of the catalog's rows: what a name stands for is cached through a transaction.
    row = connection.execute(
        "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = 'perdure' AND tablename = 'store'"
    ).fetchone()
    if row is None:
        return 0
    row = connection.execute("SELECT format FROM perdure.store").fetchone()
    return int(row[0]) if row is not None else 0


def migrations() -> Iterator[tuple[int, str]]:
    folder = files("perdure.storage.postgres") / "migrations" / "state"
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if match := re.fullmatch(r"(\d{4})_\w+\.sql", entry.name):
            yield int(match.group(1)), entry.read_text()
