"""Parse patches into operations on files: unified diffs, plain or from git, and the apply_patch format.

    diff --git a/x b/x           *** Begin Patch
    --- a/x                      *** Update File: x          (Add File, Delete File, Move File: x -> y)
    +++ b/x                      *** Move to: y
    @@ -1,2 +1,2 @@              @@ def anchor():
     kept                         kept
    -old                         -old
    +new                         +new
                                 *** End Patch

Parsed lines end with LF, since a file keeps its own endings; a new file keeps the endings of the patch. A code fence or a
here-document around a patch is removed. A diff of one file applies to the `path` it comes with: two made-up names, or a
name from another folder of the same tree, mean that file. A patch that is not certain is refused, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from perdure.protocol.envelope import ToolError
from perdure.text.patch_errors import make_syntax_error

Operation = Literal["create", "update", "delete"]

_HUNK_HEADER = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_WRAPPER = re.compile(r"```\w*|(?:apply_patch\s*)?<<-?\s*['\"]?(\w+)['\"]?")
_IGNORED_PREFIXES = ("diff ", "Index: ", "===", "Only in ", "From ", "index ")
_EXECUTABLE_BY_MODE = {"100644": False, "100755": True}
_BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_END_OF_FILE = "*** End of File"


class Hunk(msgspec.Struct, frozen=True):
    """The old lines of the file and the lines that replace them, with their line ends."""

    number: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int = 0  # the number, from one, of the first old line, according to the patch
    has_trailing_context: bool = True  # a diff lacks it only at the end of a file


class HunkLine(NamedTuple):
    """A line of a hunk: " " keeps it, "-" removes it, "+" adds it. The text has no line ending."""

    mark: str
    text: str


class AnchoredHunk(msgspec.Struct, frozen=True):
    """A hunk of the apply_patch format. It has no line numbers, only lines before it (`@@` anchors) and around it."""

    number: int
    lines: tuple[HunkLine, ...]
    anchors: tuple[str, ...] = ()
    at_end: bool = False


class FilePatch(msgspec.Struct, frozen=True):
    """An operation on one file; with `to`, the file is moved there as well.

    An update has `hunks` of a unified diff or `anchored` hunks of the apply_patch format, never both.
    """

    op: Operation
    path: str
    to: str | None = None
    hunks: tuple[Hunk, ...] = ()
    executable: bool | None = None
    anchored: tuple[AnchoredHunk, ...] = ()


def parse(patch: str, path: str | None = None) -> tuple[FilePatch, ...]:
    """Return the operations of a patch, in order. Hunks without a file header belong to `path`."""
    lines, start = _strip_wrapper(patch.removesuffix("\n").split("\n"))
    reader = _Reader(lines, start)
    is_apply_patch = lines[start].strip() == _BEGIN
    files = _parse_apply_patch(reader) if is_apply_patch else _parse_unified_diff(reader, path)
    if not files:
        raise reader.syntax_error("it changes no file")
    return tuple(files)


def _strip_wrapper(lines: list[str]) -> tuple[list[str], int]:
    """Remove code fences and here-documents; return the lines up to the end of the patch, and its first index."""
    start = 0
    while True:
        filled = [index for index in range(start, len(lines)) if lines[index].strip()]
        start = filled[0] if filled else start
        wrapper = _WRAPPER.fullmatch(lines[start].strip())
        if wrapper is None or len(filled) < 2 or lines[filled[-1]].strip() != (wrapper[1] or "```"):
            return lines, start
        lines, start = lines[: filled[-1]], start + 1


class _Reader:
    """The lines of a patch, and the index of the next one."""

    def __init__(self, lines: Sequence[str], index: int) -> None:
        self.lines = lines
        self.index = index

    def peek(self, ahead: int = 0) -> str | None:
        """Return a line without its carriage return; None behind the end."""
        index = self.index + ahead
        return self.lines[index].removesuffix("\r") if index < len(self.lines) else None

    def syntax_error(self, problem: str) -> ToolError:
        return make_syntax_error(min(self.index + 1, len(self.lines)), problem)


# --- unified diff ------------------------------------------------------------------------------------------


def _parse_unified_diff(reader: _Reader, path: str | None) -> list[FilePatch]:
    files: list[FilePatch] = []
    name_error: ToolError | None = None
    is_outside = True  # a commit message may come first, and a signature last
    while (line := reader.peek()) is not None:
        if line.startswith("diff --git "):
            files.append(_read_git_file(reader))
        elif line.startswith("--- ") and (reader.peek(1) or "").startswith("+++ "):
            old, new = _read_names(reader)
            if old is not None and new is not None and old != new:
                name_error = reader.syntax_error("two different names and no rename")
                old = new = ""
            files.append(_read_plain_file(reader, old, new))
        elif line.startswith("@@ ") and path is not None and not files:
            files.append(FilePatch("update", path, hunks=_read_hunks(reader)))
        elif line.startswith("@@ -"):
            raise reader.syntax_error("a hunk without a file header")
        elif line == "-- ":
            is_outside = True
            reader.index += 1
            continue
        elif is_outside or not line.strip() or line.startswith(_IGNORED_PREFIXES):
            reader.index += 1
            continue
        else:
            raise reader.syntax_error("this line belongs to no hunk; a count may be wrong")
        is_outside = False
    if len(files) == 1 and path is not None:
        return [_assign_path(reader, files[0], path)]
    if name_error is not None:
        raise name_error
    return files


def _assign_path(reader: _Reader, file: FilePatch, path: str) -> FilePatch:
    """Give the only file of a diff the path that the caller names, if both can mean the same file."""
    name = file.path
    if file.to is not None or name == path:
        return file
    if not name or f"/{path}".endswith(f"/{name}") or f"/{name}".endswith(f"/{path}"):
        return msgspec.structs.replace(file, path=path)
    raise reader.syntax_error("it names another file than path does")


def _read_names(reader: _Reader) -> tuple[str | None, str | None]:
    """Read the `---` and `+++` lines; None stands for /dev/null."""
    old, new = (_parse_name(reader, (reader.peek(ahead) or "")[4:]) for ahead in (0, 1))
    reader.index += 2
    if old is not None and new is not None:
        has_prefixes = old.startswith("a/") and new.startswith("b/")
        return (old[2:], new[2:]) if has_prefixes else (old, new)
    return old and old.removeprefix("a/"), new and new.removeprefix("b/")


def _parse_name(reader: _Reader, text: str) -> str | None:
    """Return a path of a header without quotes and date; None for /dev/null."""
    name = _unquote(reader, text) if text.startswith('"') else text.split("\t")[0].rstrip()
    return None if name == "/dev/null" else name


def _unquote(reader: _Reader, text: str) -> str:
    """Undo git's C-style quoting of a path."""
    inner = text[1 : text.rfind('"')]
    try:
        octets = _ESCAPE.sub(
            lambda m: chr(int(m[1], 8) if len(m[1]) == 3 else _ESCAPES[m[1]]),
            inner.encode().decode("latin-1"),
        )
        return octets.encode("latin-1").decode()
    except (KeyError, UnicodeError):
        raise reader.syntax_error("a quoted name that cannot be read") from None


def _read_plain_file(reader: _Reader, old: str | None, new: str | None) -> FilePatch:
    hunks = _read_hunks(reader)
    if not hunks:
        raise reader.syntax_error("a file header without a hunk")
    if old is None or new is None:
        return _make_file_patch(reader, "create" if old is None else "delete", old or new, hunks)
    return _make_file_patch(reader, "update", old, hunks)


def _read_git_file(reader: _Reader) -> FilePatch:
    names = _split_git_names(reader, (reader.peek() or "").removeprefix("diff --git "))
    reader.index += 1
    op: Operation = "update"
    source = target = None
    executable: bool | None = None
    hunks: tuple[Hunk, ...] = ()
    while (line := reader.peek()) is not None:
        if line.startswith(("new file mode ", "deleted file mode ", "new mode ", "old mode ")):
            mode = line.rsplit(" ", 1)[1]
            if mode not in _EXECUTABLE_BY_MODE:
                raise reader.syntax_error("only regular files can be patched")
            op = "create" if line.startswith("new f") else "delete" if line.startswith("d") else op
            if line.startswith("new mode ") or (op == "create" and _EXECUTABLE_BY_MODE[mode]):
                executable = _EXECUTABLE_BY_MODE[mode]
        elif line.startswith("rename from "):
            source = _parse_name(reader, line.removeprefix("rename from "))
        elif line.startswith("rename to "):
            target = _parse_name(reader, line.removeprefix("rename to "))
        elif line.startswith(("copy ", "GIT binary patch", "Binary files ")):
            raise reader.syntax_error("copies and binary files cannot be patched")
        elif line.startswith("--- ") and (reader.peek(1) or "").startswith("+++ "):
            old, new = _read_names(reader)
            if "" in (old, new):
                raise reader.syntax_error("a file without a name")
            names = source or old or new, target or new or old
            op = "create" if old is None else "delete" if new is None else op
            hunks = _read_hunks(reader)
            break
        elif not line.startswith(("index ", "similarity ", "dissimilarity ")):
            break
        reader.index += 1
    if (source is None) != (target is None):
        raise reader.syntax_error("half a rename")
    old, new = (source, target) if source and target else names
    if old is None or new is None or (old != new and source is None):
        raise reader.syntax_error("two different names and no rename")
    if op == "update" and not hunks and source is None and executable is None:
        raise reader.syntax_error("a file header without a change")
    return _make_file_patch(reader, op, old, hunks, to=new if new != old else None, executable=executable)


def _split_git_names(reader: _Reader, text: str) -> tuple[str | None, str | None]:
    """Split the names of a `diff --git` line if they are equal. Otherwise other header lines have the names."""
    half = len(text) // 2
    try:
        old, new = (_parse_name(reader, part) or "" for part in (text[:half], text[half + 1 :]))
    except ToolError:
        return None, None  # split inside a quoted name: the names differ
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    return (old, new) if old and old == new else (None, None)


def _make_file_patch(
    reader: _Reader,
    op: Operation,
    path: str | None,
    hunks: tuple[Hunk, ...],
    *,
    to: str | None = None,
    executable: bool | None = None,
) -> FilePatch:
    if path is None:
        raise reader.syntax_error("a file without a name")
    if op == "create" and (len(hunks) > 1 or any(hunk.old for hunk in hunks)):
        raise reader.syntax_error("a new file has no old lines")
    if op == "delete" and any(hunk.new for hunk in hunks):
        raise reader.syntax_error("a deleted file has no new lines")
    return FilePatch(op, path, to, hunks, executable)


def _read_hunks(reader: _Reader) -> tuple[Hunk, ...]:
    hunks: list[Hunk] = []
    while (line := reader.peek()) is not None and line.startswith("@@"):
        header = _HUNK_HEADER.match(line)
        if header is None:
            raise reader.syntax_error("a hunk header must be @@ -start,count +start,count @@")
        reader.index += 1
        start, old, _, new = (1 if part is None else int(part) for part in header.groups())
        hunks.append(_read_hunk(reader, len(hunks) + 1, start, old, new))
    return tuple(hunks)


def _read_hunk(reader: _Reader, number: int, start: int, old_count: int, new_count: int) -> Hunk:
    first = reader.index
    old: list[str] = []
    new: list[str] = []
    last_mark = ""
    # A new file keeps the line endings of the patch, unless the whole patch has CRLF.
    keeps_endings = old_count == 0 and not reader.lines[first - 1].endswith("\r")
    while len(old) < old_count or len(new) < new_count or (reader.peek() or "").startswith("\\"):
        line = (
            reader.lines[reader.index]
            if keeps_endings and reader.index < len(reader.lines)
            else reader.peek()
        )
        mark, text = (line[:1] or " ", line[1:] + "\n") if line is not None else ("", "")
        if mark == "\\":
            _strip_last_newline(reader, first, old, new)
        elif mark in ("-", " ", "+"):
            if mark != "+":
                old.append(text)
            if mark != "-":
                new.append(text)
            last_mark = mark
        if mark not in ("-", " ", "+", "\\") or len(old) > old_count or len(new) > new_count:
            raise reader.syntax_error(
                f"hunk {number} says {old_count} old and {new_count} new lines and has others"
            )
        reader.index += 1
    if any(not line.endswith("\n") for line in (*old[:-1], *new[:-1])):
        raise reader.syntax_error("only the last line of a file has no newline")
    if old == new and any(line.endswith("\r") for line in reader.lines[first : reader.index]):
        raise reader.syntax_error("a patch cannot change line endings; write the file whole")
    return Hunk(number, tuple(old), tuple(new), start, has_trailing_context=last_mark == " ")


def _strip_last_newline(reader: _Reader, first: int, old: list[str], new: list[str]) -> None:
    """Apply "\\ No newline at end of file" to the line before it."""
    previous_mark = reader.lines[reader.index - 1][:1] if reader.index > first else ""
    for mark, side in (("-", old), ("+", new)):
        if previous_mark in (mark, " ", "") and side:
            side[-1] = side[-1].removesuffix("\n")


# --- apply_patch format ------------------------------------------------------------------------------------


def _parse_apply_patch(reader: _Reader) -> list[FilePatch]:
    """Markers may have spaces around them, except inside a hunk, where a leading space makes a context line."""
    last = max(index for index, line in enumerate(reader.lines) if line.strip())
    if reader.lines[last].strip() == _END:
        reader.lines = [*reader.lines[:last], _END, *reader.lines[last + 1 :]]
    reader.index += 1
    files: list[FilePatch] = []
    while (line := reader.peek()) is not None:
        verb, _, path = line.strip().partition(": ")
        path = path.strip()
        if line.strip() == _END:
            if any(line.strip() for line in reader.lines[reader.index + 1 :]):
                raise reader.syntax_error("something stands behind End Patch")
            return files
        if verb not in ("*** Add File", "*** Update File", "*** Delete File", "*** Move File") or not path:
            raise reader.syntax_error("expected Add, Update, Delete or Move File, or End Patch")
        reader.index += 1
        if verb == "*** Add File":
            added = tuple(line[1:] + "\n" for line in _read_lines_with_prefix(reader, "+"))
            files.append(FilePatch("create", path, hunks=(Hunk(1, (), added),) if added else ()))
        elif verb == "*** Delete File":
            files.append(FilePatch("delete", path))
        else:
            files.append(_read_update(reader, path, moves=verb == "*** Move File"))
    raise reader.syntax_error("it ends without End Patch; part of it may be missing")


def _read_lines_with_prefix(reader: _Reader, prefix: str) -> list[str]:
    lines: list[str] = []
    while (line := reader.peek()) is not None and line.startswith(prefix):
        lines.append(line)
        reader.index += 1
    return lines


def _read_update(reader: _Reader, path: str, *, moves: bool) -> FilePatch:
    to: str | None = None
    if moves and " -> " in path:
        path, to = path.split(" -> ", 1)
    elif (reader.peek() or "").startswith("*** Move to: "):
        to = (reader.peek() or "").removeprefix("*** Move to: ").strip()
        reader.index += 1
    hunks: list[AnchoredHunk] = []
    while (line := reader.peek()) is not None and not line.startswith("*** "):
        hunks.append(_read_anchored_hunk(reader, len(hunks) + 1))
    if (moves and not to) or not (to or hunks):
        raise reader.syntax_error("a file header without a change")
    return FilePatch("update", path, to, anchored=tuple(hunks))


def _read_anchored_hunk(reader: _Reader, number: int) -> AnchoredHunk:
    anchors: list[str] = []
    for header in _read_lines_with_prefix(reader, "@@"):
        anchor = header.removeprefix("@@").removesuffix("@@").strip()
        if anchor and not _HUNK_HEADER.match(header):
            anchors.append(anchor)
    lines: list[HunkLine] = []
    while (line := reader.peek()) is not None and not line.startswith(("@@", "*** ")):
        mark = line[:1] or " "
        if mark not in ("-", " ", "+"):
            raise reader.syntax_error("a line of a hunk begins with a space, a minus or a plus")
        lines.append(HunkLine(mark, line[1:]))
        reader.index += 1
    if not lines:
        raise reader.syntax_error("a hunk without lines")
    at_end = (reader.peek() or "").rstrip() == _END_OF_FILE
    if at_end:
        reader.index += 1
        while reader.peek() == "":
            reader.index += 1
    return AnchoredHunk(number, tuple(lines), tuple(anchors), at_end)
