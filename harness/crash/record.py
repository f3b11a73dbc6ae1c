"""What a session left behind: every row of the journal, every kept content, every file.

It reads the database with statements of its own, so that the judge does not believe what it judges.
"""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import Final

import apsw
import msgspec

from harness.crash.place import Place
from harness.store_location import store_of
from perdure.storage.files import temp_names

_FILE_CODEC: Final = 2
_ROWS: Final = """
SELECT seq, path, op, old_sha, new_sha, key, txn, undoes, state, draft
FROM journal LEFT JOIN outcomes USING (seq) ORDER BY seq
"""


class Row(msgspec.Struct, frozen=True):
    """`state` is empty for a change that was made."""

    seq: int
    path: str
    op: str
    old: bytes | None
    new: bytes | None
    key: str | None
    txn: str | None
    undoes: int | None
    state: str | None
    draft: str | None


class Record:
    def __init__(self, place: Place) -> None:
        self._folder = store_of(place.roots[0], place.home)
        connection = apsw.Connection(str(self._folder / "journal.db"))
        try:
            self.rows = [Row(*found) for found in connection.execute(_ROWS)]
            self.drafts: dict[str, bytes] = dict(connection.execute("SELECT id, sha FROM drafts"))
            self.shelf: list[tuple[str, bytes]] = [
                (f"{kind}/{name}", sha)
                for kind, name, sha in connection.execute("SELECT kind, name, sha FROM shelf")
            ]
            self._kept: dict[bytes, tuple[int, bytes | None]] = {
                sha: (codec, data)
                for sha, codec, data in connection.execute("SELECT sha, codec, data FROM contents")
            }
        finally:
            connection.close()
        self._blobs = {file.name: file for file in (self._folder / "blobs").rglob("*") if file.is_file()}
        self.files: dict[str, bytes] = {}
        self.strays: list[str] = []
        for root in place.roots:
            self._walk(place, root)
        self._lines: dict[bytes, frozenset[str]] = {}

    @property
    def committed(self) -> list[Row]:
        return [row for row in self.rows if row.state is None]

    def content(self, sha: bytes) -> bytes | None:
        """A kept content; None where it is missing or is not what its hash says."""
        codec, data = self._kept.get(sha, (_FILE_CODEC, None))
        if codec == _FILE_CODEC:
            blob = self._blobs.get(sha.hex())
            data = blob.read_bytes() if blob is not None else None
        elif codec == 1 and data is not None:
            data = zlib.decompress(data)
        return data if data is not None and hashlib.sha256(data).digest() == sha else None

    def is_kept(self, sha: bytes) -> bool:
        return sha in self._kept

    def lines(self, sha: bytes | None) -> frozenset[str]:
        """The lines of a content; none where there is no file."""
        if sha is None:
            return frozenset()
        if sha not in self._lines:
            text = (self.content(sha) or b"").decode(errors="replace")
            self._lines[sha] = frozenset(text.splitlines(keepends=True))
        return self._lines[sha]

    def _walk(self, place: Place, root: Path) -> None:
        for file in root.rglob("*"):
            if temp_names.parsed(file.name) is not None:
                self.strays.append(str(file.relative_to(place.folder)))
            elif file.is_file():
                self.files[place.name(file)] = hashlib.sha256(file.read_bytes()).digest()
