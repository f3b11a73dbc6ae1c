"""Patches read into operations on files: unified diffs, plain or from git, and the patch envelope.

    diff --git a/x b/x           *** Begin Patch
    --- a/x                      *** Update File: x          (Add File, Delete File, Move File: x -> y)
    +++ b/x                      *** Move to: y
    @@ -1,2 +1,2 @@              @@ def anchor():
     kept                         kept
    -old                         -old
    +new                         +new
                                 *** End Patch

Line endings are LF in what is read, since a file keeps its own; a new file has those it was sent in. A fence or a
here-document around a patch is no part of it. A diff of one file is for the `path` it comes with: two made-up names, or
a name from another folder of the same tree, mean that file. What cannot be read with certainty is refused with the line
of the patch; an error never carries content.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again

Operation = Literal["create", "update", "delete"]

_COUNTS = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_WRAPPER = re.compile(r"```\w*|(?:apply_patch\s*)?<<-?\s*['\"]?(\w+)['\"]?")
_BETWEEN = ("diff ", "Index: ", "===", "Only in ", "From ", "index ")
_MODES = {"100644": False, "100755": True}
_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_END_OF_FILE = "*** End of File"


class Hunk(msgspec.Struct, frozen=True):
    """Lines that stand in the file, and the lines that take their place, with their ends."""

    number: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int = 0  # where the old lines begin, from one, as the patch has it
    ends_bare: bool = False  # no line of context behind its change, as in a diff only at the end of a file


class Row(NamedTuple):
    """A line of a hunk: " " keeps it, "-" removes it, "+" adds it. The text has no line ending."""

    mark: str
    text: str


class AnchoredHunk(msgspec.Struct, frozen=True):
    """A hunk of the envelope: it has no line numbers, only lines that stand before it (`@@`) and around it."""

    number: int
    rows: tuple[Row, ...]
    anchors: tuple[str, ...] = ()
    at_end: bool = False


class FilePatch(msgspec.Struct, frozen=True):
    """What a patch does to one file; with `to`, the file moves there as well.

    An update has `hunks` from a unified diff or `anchored` ones from an envelope, never both.
    """

    op: Operation
    path: str
    to: str | None = None
    hunks: tuple[Hunk, ...] = ()
    executable: bool | None = None
    anchored: tuple[AnchoredHunk, ...] = ()


def parse(patch: str, path: str | None = None) -> tuple[FilePatch, ...]:
    """The operations of a patch, in order. Hunks without a file header belong to `path`."""
    raw, start = _unwrapped(patch.removesuffix("\n").split("\n"))
    reader = _Reader(raw, start)
    found = _envelope(reader) if raw[start].strip() == _BEGIN else _unified(reader, path)
    if not found:
        raise reader.malformed("it changes no file")
    return tuple(found)


def _unwrapped(raw: list[str]) -> tuple[list[str], int]:
    """The lines up to the end of a patch, and where it begins among them."""
    start = 0
    while True:
        filled = [at for at in range(start, len(raw)) if raw[at].strip()]
        start = filled[0] if filled else start
        wrapper = _WRAPPER.fullmatch(raw[start].strip())
        if wrapper is None or len(filled) < 2 or raw[filled[-1]].strip() != (wrapper[1] or "```"):
            return raw, start
        raw, start = raw[: filled[-1]], start + 1


class _Reader:
    """The lines of a patch and how far they are read."""

    def __init__(self, raw: Sequence[str], at: int) -> None:
        self.raw = raw
        self.at = at

    def line(self, ahead: int = 0) -> str | None:
        at = self.at + ahead
        return self.raw[at].removesuffix("\r") if at < len(self.raw) else None

    def malformed(self, why: str) -> ToolError:
        line = min(self.at + 1, len(self.raw))
        return refuse(
            "invalid_input",
            "bad_patch",
            f"the patch cannot be read at its line {line}: {why}.",
            next_step=call_again(ops=FILL),
            reason_hint="syntax",
            suggested_action="fix_syntax",
            patch_line=line,
        )


# --- unified diff ------------------------------------------------------------------------------------------


def _unified(reader: _Reader, path: str | None) -> list[FilePatch]:
    found: list[FilePatch] = []
    unnamed: ToolError | None = None
    preamble = True  # a commit message may come first, and a signature last
    while (line := reader.line()) is not None:
        if line.startswith("diff --git "):
            found.append(_git_file(reader))
        elif line.startswith("--- ") and (reader.line(1) or "").startswith("+++ "):
            old, new = _pair(reader)
            if old is not None and new is not None and old != new:
                unnamed = reader.malformed("two different names and no rename")
                old = new = ""
            found.append(_plain_file(reader, old, new))
        elif line.startswith("@@ ") and path is not None and not found:
            found.append(FilePatch("update", path, hunks=_hunks(reader)))
        elif line.startswith("@@ -"):
            raise reader.malformed("a hunk without a file header")
        elif line == "-- ":
            preamble = True
            reader.at += 1
            continue
        elif preamble or not line.strip() or line.startswith(_BETWEEN):
            reader.at += 1
            continue
        else:
            raise reader.malformed("this line belongs to no hunk; a count may be wrong")
        preamble = False
    return (
        [_meant(reader, found[0], path)] if len(found) == 1 and path is not None else _named(found, unnamed)
    )


def _named(found: list[FilePatch], problem: ToolError | None) -> list[FilePatch]:
    if problem is not None:
        raise problem
    return found


def _meant(reader: _Reader, only: FilePatch, path: str) -> FilePatch:
    """The one file of a diff, where `path` says which."""
    named = only.path
    if only.to is not None or named == path:
        return only
    if not named or f"/{path}".endswith(f"/{named}") or f"/{named}".endswith(f"/{path}"):
        return msgspec.structs.replace(only, path=path)
    raise reader.malformed("it names another file than path does")


def _pair(reader: _Reader) -> tuple[str | None, str | None]:
    old, new = (_name(reader, (reader.line(ahead) or "")[4:]) for ahead in (0, 1))
    reader.at += 2
    if old is not None and new is not None:
        both = old.startswith("a/") and new.startswith("b/")
        return (old[2:], new[2:]) if both else (old, new)
    return old and old.removeprefix("a/"), new and new.removeprefix("b/")


def _name(reader: _Reader, given: str) -> str | None:
    """A path as a diff names it, None for /dev/null: without its date, unquoted."""
    name = _unquoted(reader, given) if given.startswith('"') else given.split("\t")[0].rstrip()
    return None if name == "/dev/null" else name


def _unquoted(reader: _Reader, given: str) -> str:
    inner = given[1 : given.rfind('"')]
    try:
        octets = _ESCAPE.sub(
            lambda m: chr(int(m[1], 8) if len(m[1]) == 3 else _ESCAPES[m[1]]),
            inner.encode().decode("latin-1"),
        )
        return octets.encode("latin-1").decode()
    except (KeyError, UnicodeError):
        raise reader.malformed("a quoted name that cannot be read") from None


def _plain_file(reader: _Reader, old: str | None, new: str | None) -> FilePatch:
    hunks = _hunks(reader)
    if not hunks:
        raise reader.malformed("a file header without a hunk")
    if old is None or new is None:
        return _settled(reader, "create" if old is None else "delete", old or new, hunks)
    return _settled(reader, "update", old, hunks)


def _git_file(reader: _Reader) -> FilePatch:
    names = _git_names(reader, (reader.line() or "").removeprefix("diff --git "))
    reader.at += 1
    op: Operation = "update"
    source = target = None
    executable: bool | None = None
    hunks: tuple[Hunk, ...] = ()
    while (line := reader.line()) is not None:
        if line.startswith(("new file mode ", "deleted file mode ", "new mode ", "old mode ")):
            mode = line.rsplit(" ", 1)[1]
            if mode not in _MODES:
                raise reader.malformed("only regular files can be patched")
            op = "create" if line.startswith("new f") else "delete" if line.startswith("d") else op
            if line.startswith("new mode ") or (op == "create" and _MODES[mode]):
                executable = _MODES[mode]
        elif line.startswith("rename from "):
            source = _name(reader, line.removeprefix("rename from "))
        elif line.startswith("rename to "):
            target = _name(reader, line.removeprefix("rename to "))
        elif line.startswith(("copy ", "GIT binary patch", "Binary files ")):
            raise reader.malformed("copies and binary files cannot be patched")
        elif line.startswith("--- ") and (reader.line(1) or "").startswith("+++ "):
            old, new = _pair(reader)
            if "" in (old, new):
                raise reader.malformed("a file without a name")
            names = source or old or new, target or new or old
            op = "create" if old is None else "delete" if new is None else op
            hunks = _hunks(reader)
            break
        elif not line.startswith(("index ", "similarity ", "dissimilarity ")):
            break
        reader.at += 1
    if (source is None) != (target is None):
        raise reader.malformed("half a rename")
    old, new = (source, target) if source and target else names
    if old is None or new is None or (old != new and source is None):
        raise reader.malformed("two different names and no rename")
    if op == "update" and not hunks and source is None and executable is None:
        raise reader.malformed("a file header without a change")
    return _settled(reader, op, old, hunks, to=new if new != old else None, executable=executable)


def _git_names(reader: _Reader, given: str) -> tuple[str | None, str | None]:
    """Both names where they are the same, which is where no other line would name them."""
    half = len(given) // 2
    try:
        old, new = (_name(reader, part) or "" for part in (given[:half], given[half + 1 :]))
    except ToolError:
        return None, None  # cut in the middle of a name: they differ
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    return (old, new) if old and old == new else (None, None)


def _settled(
    reader: _Reader,
    op: Operation,
    path: str | None,
    hunks: tuple[Hunk, ...],
    *,
    to: str | None = None,
    executable: bool | None = None,
) -> FilePatch:
    if path is None:
        raise reader.malformed("a file without a name")
    if op == "create" and (len(hunks) > 1 or any(hunk.old for hunk in hunks)):
        raise reader.malformed("a new file has no old lines")
    if op == "delete" and any(hunk.new for hunk in hunks):
        raise reader.malformed("a deleted file has no new lines")
    return FilePatch(op, path, to, hunks, executable)


def _hunks(reader: _Reader) -> tuple[Hunk, ...]:
    found: list[Hunk] = []
    while (line := reader.line()) is not None and line.startswith("@@"):
        counts = _COUNTS.match(line)
        if counts is None:
            raise reader.malformed("a hunk header must be @@ -start,count +start,count @@")
        reader.at += 1
        start, old, _, new = (1 if part is None else int(part) for part in counts.groups())
        found.append(_hunk(reader, len(found) + 1, start, old, new))
    return tuple(found)


def _hunk(reader: _Reader, number: int, start: int, old_count: int, new_count: int) -> Hunk:
    first = reader.at
    old: list[str] = []
    new: list[str] = []
    last = ""
    # What fills an empty file is as it was sent, unless the whole patch came in CRLF.
    as_sent = old_count == 0 and not reader.raw[first - 1].endswith("\r")
    while len(old) < old_count or len(new) < new_count or (reader.line() or "").startswith("\\"):
        line = reader.raw[reader.at] if as_sent and reader.at < len(reader.raw) else reader.line()
        mark, said = (line[:1] or " ", line[1:] + "\n") if line is not None else ("", "")
        if mark == "\\":
            _unended(reader, first, old, new)
        elif mark in ("-", " ", "+"):
            if mark != "+":
                old.append(said)
            if mark != "-":
                new.append(said)
            last = mark
        if mark not in ("-", " ", "+", "\\") or len(old) > old_count or len(new) > new_count:
            raise reader.malformed(
                f"hunk {number} says {old_count} old and {new_count} new lines and has others"
            )
        reader.at += 1
    if any(not line.endswith("\n") for line in (*old[:-1], *new[:-1])):
        raise reader.malformed("only the last line of a file has no newline")
    if old == new and any(line.endswith("\r") for line in reader.raw[first : reader.at]):
        raise reader.malformed("a patch cannot change line endings; write the file whole")
    return Hunk(number, tuple(old), tuple(new), start, ends_bare=last != " ")


def _unended(reader: _Reader, first: int, old: list[str], new: list[str]) -> None:
    """ "\\ No newline at end of file" speaks of the line before it."""
    before = reader.raw[reader.at - 1][:1] if reader.at > first else ""
    for mark, side in (("-", old), ("+", new)):
        if before in (mark, " ", "") and side:
            side[-1] = side[-1].removesuffix("\n")


# --- envelope ----------------------------------------------------------------------------------------------


def _envelope(reader: _Reader) -> list[FilePatch]:
    """The markers may have space around them, except inside a hunk, where a leading space makes a line of context."""
    last = max(at for at, line in enumerate(reader.raw) if line.strip())
    if reader.raw[last].strip() == _END:
        reader.raw = [*reader.raw[:last], _END, *reader.raw[last + 1 :]]
    reader.at += 1
    found: list[FilePatch] = []
    while (line := reader.line()) is not None:
        verb, _, path = line.strip().partition(": ")
        path = path.strip()
        if line.strip() == _END:
            if any(left.strip() for left in reader.raw[reader.at + 1 :]):
                raise reader.malformed("something stands behind End Patch")
            return found
        if verb not in ("*** Add File", "*** Update File", "*** Delete File", "*** Move File") or not path:
            raise reader.malformed("expected Add, Update, Delete or Move File, or End Patch")
        reader.at += 1
        if verb == "*** Add File":
            added = tuple(said[1:] + "\n" for said in _while(reader, "+"))
            found.append(FilePatch("create", path, hunks=(Hunk(1, (), added),) if added else ()))
        elif verb == "*** Delete File":
            found.append(FilePatch("delete", path))
        else:
            found.append(_updated(reader, path, moves=verb == "*** Move File"))
    raise reader.malformed("it ends without End Patch; part of it may be missing")


def _while(reader: _Reader, mark: str) -> list[str]:
    found: list[str] = []
    while (line := reader.line()) is not None and line.startswith(mark):
        found.append(line)
        reader.at += 1
    return found


def _updated(reader: _Reader, path: str, *, moves: bool) -> FilePatch:
    to: str | None = None
    if moves and " -> " in path:
        path, to = path.split(" -> ", 1)
    elif (reader.line() or "").startswith("*** Move to: "):
        to = (reader.line() or "").removeprefix("*** Move to: ").strip()
        reader.at += 1
    hunks: list[AnchoredHunk] = []
    while (line := reader.line()) is not None and not line.startswith("*** "):
        hunks.append(_anchored(reader, len(hunks) + 1))
    if (moves and not to) or not (to or hunks):
        raise reader.malformed("a file header without a change")
    return FilePatch("update", path, to, anchored=tuple(hunks))


def _anchored(reader: _Reader, number: int) -> AnchoredHunk:
    anchors: list[str] = []
    for head in _while(reader, "@@"):
        anchor = head.removeprefix("@@").removesuffix("@@").strip()
        if anchor and not _COUNTS.match(head):
            anchors.append(anchor)
    rows: list[Row] = []
    while (line := reader.line()) is not None and not line.startswith(("@@", "*** ")):
        mark = line[:1] or " "
        if mark not in ("-", " ", "+"):
            raise reader.malformed("a line of a hunk begins with a space, a minus or a plus")
        rows.append(Row(mark, line[1:]))
        reader.at += 1
    if not rows:
        raise reader.malformed("a hunk without lines")
    at_end = (reader.line() or "").rstrip() == _END_OF_FILE
    if at_end:
        reader.at += 1
        while reader.line() == "":
            reader.at += 1
    return AnchoredHunk(number, tuple(rows), tuple(anchors), at_end)
