"""A workspace checked against itself the short way. It only ever answers for a sound one, drift included.

Whatever else is found is left to the worker's own check, which knows how to say it; the chain and the contents are
checked by the same functions either way.
"""

from __future__ import annotations

import os

from perdure.cli.short_way import COMMITTED, NotSimple, blob_path, digest_of, hash_of, looked, sha256_for
from perdure.storage.places import state_dir
from perdure.storage.sqlite import chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    import apsw

    from perdure.cli.whereabouts import Whereabouts

    Watch = Callable[[str, int, int], None]

_LATEST = f"SELECT seq, new_sha FROM journal WHERE path = ? AND {COMMITTED} ORDER BY seq DESC LIMIT 1"


def checked(where: Whereabouts, watch: Watch) -> tuple[int, list[dict[str, Any]]]:
    """How many changes there are, and which files drifted. Raises NotSimple."""

    def look(connection: apsw.Connection) -> dict[str, Any]:
        rows: list[Any] = connection.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchall()
        writes: list[Any] = connection.execute(
            "SELECT coalesce((SELECT max(seq) FROM journal), 0) - (SELECT count(*) FROM outcomes)"
        ).fetchall()
        anchor = os.path.join(state_dir(), "anchors", chain.anchor_name(where.workspace))
        sha256 = sha256_for(os.path.getsize(where.journal) if os.path.exists(where.journal) else 0)
        anchored, total = chain.read_anchor(anchor), rows[0][0]
        for _ in chain.problems(connection, anchored, lambda seq: watch("journal", seq, total), sha256):
            raise NotSimple
        _check_contents(where, connection, watch, sha256)
        return {"writes": writes[0][0], "drift": list(_drift(where, connection, watch))}

    found = looked(where, look)
    return found["writes"], found["drift"]


def _check_contents(where: Whereabouts, connection: apsw.Connection, watch: Watch, sha256: Any) -> None:
    for number, (sha, data) in enumerate(chain.contents(connection), 1):
        watch("contents", number, 0)
        found = sha256(data).digest() if data is not None else _hash_of_blob(where, sha)
        if found != sha:
            raise NotSimple


def _hash_of_blob(where: Whereabouts, sha: bytes) -> bytes:
    try:
        fd = os.open(blob_path(where, sha), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        raise NotSimple from None
    try:
        return digest_of(fd)
    finally:
        os.close(fd)


def _drift(where: Whereabouts, connection: apsw.Connection, watch: Watch) -> Iterator[dict[str, Any]]:
    for number, (path,) in enumerate(
        connection.execute("SELECT DISTINCT path FROM journal ORDER BY path"), 1
    ):
        watch("files", number, 0)
        last: list[Any] = connection.execute(_LATEST, (path,)).fetchall()
        if not last:
            continue
        seq, wanted = last[0]
        found = hash_of(where, path)
        if found != wanted:
            what = "is gone" if found is None else "is there again" if wanted is None else "was changed"
            yield {"kind": "drift", "detail": f"{path} {what} since change {seq}", "seq": seq}
