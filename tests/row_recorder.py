"""A small recorder for tests: what differs between two looks at a folder, as rows of the journal."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from perdure.storage.journal import NewRow
from perdure.storage.timeline import NewCall
from perdure.workspace.workspace import Workspace, new_transaction_id


class Entry(NamedTuple):
    kind: str
    content: bytes
    mode: int | None


def look(root: Path) -> dict[str, Entry]:
    """Every file, link and directory beneath a folder, but for git's."""
    found: dict[str, Entry] = {}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name != ".git"]
        for name in (*names, *files):
            path = os.path.join(folder, name)
            info = os.lstat(path)
            mode = stat.S_IMODE(info.st_mode)
            if stat.S_ISLNK(info.st_mode):
                entry = Entry("link", os.fsencode(os.readlink(path)), None)
            elif stat.S_ISDIR(info.st_mode):
                entry = Entry("directory", b"", mode)
            else:
                entry = Entry("file", Path(path).read_bytes(), mode)
            found[os.path.relpath(path, root)] = entry
    return found


class RowRecorder:
    """Rows as the time machine writes them, but for their order: sorted by path, which undo must not depend on."""

    def __init__(self, workspace: Workspace, root: Path) -> None:
        self._workspace = workspace
        self._root = root

    @contextmanager
    def change(self, **call: Any) -> Iterator[list[int]]:
        """What happens inside is one change. Yields a list that gets the numbers of its rows."""
        before = look(self._root)
        rows: list[int] = []
        yield rows
        after = look(self._root)
        self._workspace.committer.transact(lambda: rows.extend(self._record(before, after, call)))

    def _record(self, before: dict[str, Entry], after: dict[str, Entry], call: dict[str, Any]) -> list[int]:
        journal = self._workspace.journal
        txn = new_transaction_id()
        head = {"head": call.pop("head")} if "head" in call else {}
        settings = {"client": "shell", "session": "s1", "tool": "Bash"} | call
        record = journal.begin_call(NewCall(txn=txn, **settings))
        seqs = []
        for path in sorted({*before, *after}):
            old, new = before.get(path), after.get(path)
            if old == new:
                continue
            for entry in (old, new):
                if entry is not None and entry.kind != "directory":
                    self._workspace.store.record(self._workspace.store.take(entry.content))
            row = journal.append(
                NewRow(
                    path=path,
                    op="native",
                    mode="create" if old is None else "delete" if new is None else "overwrite",
                    old_sha=_sha(old),
                    new_sha=_sha(new),
                    bytes=len(new.content) if new is not None else 0,
                    client=settings["client"],
                    session=settings["session"],
                    txn=txn,
                    detail={**_detail(old, new), **head},
                )
            )
            journal.settle([row.seq])
            seqs.append(row.seq)
        journal.update_call(record.id, status="done", seq=seqs[0] if seqs else None)
        return seqs


def _sha(entry: Entry | None) -> bytes | None:
    return hashlib.sha256(entry.content).digest() if entry is not None else None


def _detail(old: Entry | None, new: Entry | None) -> dict[str, Any]:
    now = new or old
    assert now is not None
    detail: dict[str, Any] = {"kind": now.kind} if now.kind != "file" else {}
    if old is not None and old.kind != now.kind:
        detail["kind_before"] = old.kind
    if now.mode is not None and (old is None or new is None or old.mode != new.mode):
        detail["file_mode"] = now.mode
    if old is not None and new is not None and old.mode is not None and old.mode != new.mode:
        detail["mode_before"] = old.mode
    return detail
