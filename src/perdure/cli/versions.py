"""Two versions of a file compared the short way: text in UTF-8 with plain line endings, kept in the journal or on disk.

The same answer as the tool `diff`, which is asked about everything else.
"""

from __future__ import annotations

from perdure.cli.short_way import COMMITTED, NotSimple, blob_path, looked, opened, sha256_for
from perdure.surfaces.write.hunks import bounded, unified_body

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import apsw

    from perdure.cli.whereabouts import Whereabouts

DISK = "disk"
NOTHING = "nothing"
MOST = 1 << 20
MOST_LINES = 1_500
_ROW = f"SELECT seq, old_sha, new_sha FROM journal WHERE path = ? AND {COMMITTED}"


def told(where: Whereabouts, path: str, to: str, as_json: bool, **given: str | None) -> str:
    """What `perdure diff` prints. Raises NotSimple."""
    start = given["from"]
    payload = looked(where, lambda connection: _compared(_Versions(where, connection, path), start, to))
    shown: dict[str, Any] = {name: payload[name] for name in ("from", "to", "changed", "truncated", "diff")}
    if as_json:
        from perdure.cli.plain_json import dumps

        return dumps({"ok": True, "path": path, **shown})
    return _porcelain(path, shown)


class _Versions:
    def __init__(self, where: Whereabouts, connection: apsw.Connection, path: str) -> None:
        self.where = where
        self.connection = connection
        self.path = path

    def row(self, more: str, *values: int) -> Any:
        found: list[Any] = self.connection.execute(
            f"{_ROW} {more} ORDER BY seq DESC LIMIT 1", (self.path, *values)
        ).fetchall()
        return found[0] if found else None

    def named(self, journal_id: str) -> Any:
        is_number = journal_id.isascii() and journal_id.isdigit() and len(journal_id) < 18
        row = self.row("AND seq = ?", int(journal_id)) if is_number else None
        if row is None:
            raise NotSimple
        return row

    def content(self, sha: bytes | None) -> bytes | None:
        from perdure.storage.sqlite.unpacking import unpacked

        if sha is None:
            return None
        found: list[Any] = self.connection.execute(
            "SELECT codec, data FROM contents WHERE sha = ? AND size <= ?", (sha, MOST)
        ).fetchall()
        if not found:
            raise NotSimple
        data = unpacked(*found[0])
        if data is None:
            with open(blob_path(self.where, sha), "rb") as file:
                data = file.read(MOST + 1)
        if sha256_for(len(data))(data).digest() != sha:
            raise NotSimple
        return data

    def on_disk(self) -> bytes | None:
        fd = opened(self.where, self.path)
        if fd is None:
            return None
        with open(fd, "rb") as file:
            return file.read(MOST + 1)


def _compared(versions: _Versions, start: str | None, to: str) -> dict[str, Any]:
    row = versions.named(to) if to != DISK else None
    new = versions.content(row[2]) if row is not None else versions.on_disk()
    if start is None:
        old, start = _before(versions, new, row)
    else:
        old = versions.content(versions.named(start)[2])
    text, was_cut = _unified(old, new, f"{versions.path}@{start}", f"{versions.path}@{to}")
    return {"from": start, "to": to, "changed": old != new, "truncated": was_cut, "diff": text}


def _before(versions: _Versions, data: bytes | None, row: Any) -> tuple[bytes | None, str]:
    """The version before: before that row; or, for the disk, the last one that differs from it."""
    if row is None:
        row = versions.row("")
        if row is None:
            return None, NOTHING
        known = versions.content(row[2])
        if known != data:
            return known, str(row[0])
    older = versions.row("AND seq < ?", row[0])
    return versions.content(row[1]), str(older[0]) if older is not None else NOTHING


def _unified(old: bytes | None, new: bytes | None, old_name: str, new_name: str) -> tuple[str, bool]:
    if old == new:
        return "", False
    before, after = _text(old), _text(new)
    head = [
        f"--- {old_name if old is not None else '/dev/null'}\n",
        f"+++ {new_name if new is not None else '/dev/null'}\n",
    ]
    styles = []
    if before and after and ("\n" in before) != ("\n" in after):
        names = ("none", "lf") if "\n" in after else ("lf", "none")
        styles = [f"# line endings: {names[0]} → {names[1]}\n"]
    return bounded(head, [*styles, *unified_body(before, after)])


def _text(data: bytes | None) -> str:
    """Of what needs no guess about its encoding."""
    if data is None:
        return ""
    if len(data) > MOST or b"\0" in data or b"\r" in data or data.startswith(b"\xef\xbb\xbf"):
        raise NotSimple
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise NotSimple from None


def _porcelain(path: str, shown: dict[str, Any]) -> str:
    """As the tool's own shape says it; what would need quoting there is left to it."""
    text = shown["diff"]
    lines = text.split("\n")[:-1]
    is_bare = path.isascii() and path.isprintable() and not any(mark in path for mark in ' "\\|')
    is_shown = all(
        len(line) < 1000 and line.replace("\t", "").isprintable() and not line.startswith("~~~")
        for line in lines
    )
    if not is_bare or path == "-" or not is_shown or len(lines) > MOST_LINES:
        raise NotSimple
    summary = f"{path}  {shown['from']} to {shown['to']}"
    facts = [f"path: {path}", f"from: {shown['from']}", f"to: {shown['to']}"]
    facts += [f"{name}: {'true' if shown[name] else 'false'}" for name in ("changed", "truncated")]
    if not shown["changed"]:
        return "\n".join([f"{summary}  no difference", *facts, 'diff: ""'])
    return "\n".join([summary, *facts, f"diff: {len(lines):,} lines", "~~~", *lines, "~~~"])
