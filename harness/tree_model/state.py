"""A tree of files with its journal as plain data: what is on disk, what was written down, what each session saw.

`Model` is the whole of it, `View` what one call makes of it before it counts. `recovered` is what the next process
does with changes that its predecessor may not have finished, in the words of `workspace/recovery.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from harness.tree_model.text import sha256

MODE: Final = 0o644
RETRIES: Final = 3


class File(NamedTuple):
    content: bytes
    mode: int = MODE


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the journal. `group` is its transaction, `file_mode` what a file had that went with this change, or got
    from another that did."""

    seq: int
    path: str
    op: str
    mode: str
    old: bytes | None
    new: bytes | None
    session: str
    client: str
    group: int | None = None
    undoes: int | None = None
    file_mode: int | None = None


class Remembered(msgspec.Struct, frozen=True):
    """What a call under an idempotency key answered. It counts while its last row does."""

    tool: str
    arguments: dict[str, Any]
    last: int
    payload: dict[str, Any]


Seen = dict[tuple[str, str], bytes | None]
"""By session and path."""


class Model:
    """What a session saw is in memory (`seen`), is
    written down with the next change (`unsaved`), and then outlives the process (`saved`). `tries` holds how often a
    content may still be tried at a path; several numbers where a kill left that open."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.folders: set[str] = set()
        self.entries: list[Entry] = []
        self.times: dict[int, str] = {}
        self.head = 0
        self.groups = 0
        self.seen: Seen = {}
        self.unsaved: Seen = {}
        self.saved: Seen = {}
        self.drafts: dict[str, bytes] = {}
        self.tries: dict[tuple[str, bytes], tuple[set[int], int]] = {}
        self.keys: dict[str, Remembered] = {}

    def copy(self) -> Model:
        made = Model()
        for name, value in vars(self).items():
            setattr(made, name, value if isinstance(value, int) else value.copy())
        return made

    # --- asking ---------------------------------------------------------------------------------------------

    def content(self, path: str) -> bytes | None:
        return self.files[path].content if path in self.files else None

    def entry(self, seq: int | str, path: str | None = None) -> Entry | None:
        """By its number. With a path: the entry of that file in the change that the number belongs to."""
        entry = next((one for one in self.entries if str(one.seq) == str(seq)), None)
        if entry is None or path in (None, entry.path):
            return entry
        of_file = [one for one in self.entries if one.path == path and one.group == entry.group]
        return of_file[-1] if entry.group is not None and of_file else None

    def of(self, path: str) -> list[Entry]:
        return [one for one in self.entries if one.path == path]

    def is_effective(self, entry: Entry) -> bool:
        """Not taken back, or taken back and then again."""
        by = [one for one in self.entries if one.undoes == entry.seq]
        return not by or not self.is_effective(by[-1])

    def left(self, payload: tuple[str, bytes]) -> set[int]:
        """How many tries of a content at a path were left; written there, it has all of them again."""
        left, head = self.tries.get(payload, ({RETRIES + 1}, 0))
        path, content = payload
        is_written = any(one.new == content for one in self.of(path) if one.seq > head)
        return {RETRIES + 1} if is_written else left

    def tried(self, payload: tuple[str, bytes], left: set[int]) -> None:
        self.tries[payload] = (left, self.head)

    def last_seen(self, session: str, path: str) -> tuple[bytes | None] | None:
        for known in (self.seen, self.saved):
            if (session, path) in known:
                return (known[session, path],)
        return None

    # --- what others do ---------------------------------------------------------------------------------------

    def put(self, path: str, file: File | None) -> None:
        """Anybody's file, or none."""
        if file is None:
            self.files.pop(path, None)
            return
        self.files[path] = file
        self.folders.update(_parents(path))

    def read(self, session: str, path: str) -> None:
        self.seen[session, path] = self.unsaved[session, path] = self.content(path)

    def abandoned(self, session: str, after: Model) -> None:
        """A call that would have made `after` was decided and then taken back: its rows count for nothing."""
        changed = {one.path for one in after.entries if one.seq > self.head}
        self.head = after.head
        self.saved |= self.unsaved
        self.unsaved.clear()
        self.saved |= {(session, path): self.content(path) for path in changed}

    def ended(self) -> None:
        """The process is gone, and what it only had in mind."""
        self.seen.clear()
        self.unsaved.clear()

    def recovered(self, undecided: list[Entry]) -> None:
        """Another process opens the workspace. Of the call that was killed, and not known to have landed, every file
        is made what it should be; but if one is another program's by now, it stays, and the whole call is none."""
        lasts = {one.path: one for one in undecided}
        if not all(self._is_ours(path, undecided) for path in lasts):
            for one in undecided:
                self.entries.remove(one)
                if one.new is not None:
                    self.drafts[draft_of(one.new)] = one.new
            return
        for path, last in lasts.items():
            if self.content(path) != last.new:
                there = [self.files[path].mode] if path in self.files else []
                gone = [one.file_mode for one in undecided if one.path == path and one.file_mode is not None]
                mode = last.file_mode or next(iter((*there, *gone)), MODE)
                self.put(path, File(last.new, mode) if last.new is not None else None)

    def _is_ours(self, path: str, undecided: list[Entry]) -> bool:
        known = [content for one in undecided if one.path == path for content in (one.old, one.new)]
        return self.content(path) in known


def draft_of(content: bytes) -> str:
    return "d_" + sha256(content)[:24]


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


class View:
    """The tree as one call sees it and changes it."""

    def __init__(self, model: Model, session: str, client: str) -> None:
        self._model = model
        self._session = session
        self._client = client
        self._now: dict[str, bytes | None] = {}
        self._given: dict[str, int] = {}
        self.entries: list[Entry] = []
        self.group: int | None = None

    def content(self, path: str) -> bytes | None:
        return self._now[path] if path in self._now else self._model.content(path)

    def mode(self, path: str) -> int | None:
        """The mode that a file at this path has or will get; None for that of a new file."""
        there = self._model.files.get(path)
        return self._given.get(path, there.mode if there is not None else None)

    def give_mode(self, path: str, mode: int | None) -> None:
        if mode is not None:
            self._given[path] = mode

    def put(self, path: str, after: bytes | None, op: str, mode: str, *, undoes: int | None = None) -> Entry:
        entry = Entry(
            seq=self._model.head + len(self.entries) + 1,
            path=path,
            op=op,
            mode=mode,
            old=self.content(path),
            new=after,
            session=self._session,
            client=self._client,
            group=self.group,
            undoes=undoes,
            file_mode=self.mode(path) if after is None else self._given.get(path),
        )
        self.entries.append(entry)
        self._now[path] = after
        return entry

    def together(self) -> None:
        """What follows is one transaction."""
        self._model.groups += 1
        self.group = self._model.groups

    def land(self) -> None:
        """All of it counts: files, rows, and that the session has seen what it wrote."""
        model = self._model
        for path, after in self._now.items():
            mode = self.mode(path)
            there = model.files.get(path)
            if after is not None and there == File(after, MODE if mode is None else mode):
                pass  # a file that ends as it was is left alone
            elif after is not None or there is not None:
                model.put(path, File(after, MODE if mode is None else mode) if after is not None else None)
            model.seen[self._session, path] = after
        model.saved |= model.unsaved
        model.unsaved.clear()
        model.saved |= {(self._session, path): after for path, after in self._now.items()}
        model.entries += self.entries
        model.head += len(self.entries)
