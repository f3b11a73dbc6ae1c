"""Unified diffs of two contents: bounded for a reader, or complete for `git apply`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import msgspec

from perdure.protocol.envelope import ToolError
from perdure.text import lines
from perdure.text.codec import Text, decode
from perdure.text.lines import Change

MAX_BYTES: Final = 65_536
_CONTEXT_LINES: Final = 3


class Diff(msgspec.Struct, frozen=True):
    """A unified diff; `text` is empty if nothing changed."""

    text: str
    changed: bool
    truncated: bool = False
    binary: bool = False


def unified_diff(
    old: bytes | None, new: bytes | None, *, old_label: str, new_label: str, max_bytes: int = MAX_BYTES
) -> Diff:
    """Compare two contents; None stands for a file that does not exist. A long diff ends with a note that it was cut."""
    if old == new:
        return Diff("", changed=False)
    old_text, new_text = _decode_or_none(old), _decode_or_none(new)
    old_name = "/dev/null" if old is None else old_label
    new_name = "/dev/null" if new is None else new_label
    if old_text is None or new_text is None:
        sizes = f"{len(old or b''):,} and {len(new or b''):,} bytes"
        return Diff(f"Binary files {old_name} and {new_name} differ ({sizes})\n", changed=True, binary=True)
    body = [*_describe_style_changes(old_text, new_text), *_format_hunks(old_text.body, new_text.body)]
    text, is_truncated = _truncate([f"--- {old_name}\n", f"+++ {new_name}\n"], body, max_bytes)
    return Diff(text, changed=True, truncated=is_truncated)


def make_git_patch(
    old: bytes | None,
    new: bytes | None,
    path: str,
    *,
    source: str | None = None,
    old_mode: int | None = None,
    new_mode: int | None = None,
) -> bytes:
    """Return a complete patch, byte for byte, that `git apply` accepts; b"" if nothing changed.

    `source` is the path from which the file was moved. A mode is git's, with the type of the file, where it is known.
    """
    before = source if source is not None else path
    head = _describe_file(before, path, old is None, new is None, old_mode, new_mode)
    if old == new:
        return head
    old_name = "/dev/null" if old is None else _quote_git_name(f"a/{before}")
    new_name = "/dev/null" if new is None else _quote_git_name(f"b/{path}")
    if b"\0" in (old or b"") or b"\0" in (new or b""):
        return head + os.fsencode(f"Binary files {old_name.rstrip()} and {new_name.rstrip()} differ\n")
    old_text, new_text = ((data or b"").decode("utf-8", "surrogateescape") for data in (old, new))
    patch_lines = [f"--- {old_name}\n", f"+++ {new_name}\n", *_format_hunks(old_text, new_text)]
    return head + "".join(patch_lines).encode("utf-8", "surrogateescape")


def _describe_file(
    source: str, path: str, is_new: bool, is_deleted: bool, old_mode: int | None, new_mode: int | None
) -> bytes:
    """The head that git writes for what no line shows: modes and moves. Empty where there is nothing of that."""
    found: list[str] = []
    if is_new and new_mode is not None:
        found.append(f"new file mode {new_mode:06o}")
    elif is_deleted and old_mode is not None:
        found.append(f"deleted file mode {old_mode:06o}")
    elif old_mode is not None and new_mode is not None and old_mode != new_mode:
        found += [f"old mode {old_mode:06o}", f"new mode {new_mode:06o}"]
    if source != path:
        found += [
            f"rename {way} {_quote_git_name(name).rstrip()}" for way, name in (("from", source), ("to", path))
        ]
    if not found:
        return b""
    names = (_quote_git_name(f"{side}/{name}").rstrip("\t") for side, name in (("a", source), ("b", path)))
    return os.fsencode("\n".join([f"diff --git {' '.join(names)}", *found]) + "\n")


def _quote_git_name(name: str) -> str:
    """Write a name as git does: quoted if it has control characters, followed by a tab if it has spaces."""
    if any(c in '"\\' or ord(c) < 32 or ord(c) == 127 for c in name):
        escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
        quoted = "".join(
            escapes.get(c, c if ord(c) >= 32 and ord(c) != 127 else f"\\{ord(c):03o}") for c in name
        )
        return f'"{quoted}"'
    return f"{name}\t" if " " in name else name


def _decode_or_none(data: bytes | None) -> Text | None:
    try:
        return decode(data or b"")
    except ToolError:
        return None


def _describe_style_changes(old: Text, new: Text) -> Iterator[str]:
    """Yield comment lines for changes that no line of a diff can show."""
    if not old.body or not new.body:
        return
    if old.style.encoding != new.style.encoding:
        yield f"# encoding: {old.style.encoding} → {new.style.encoding}\n"
    if old.style.bom != new.style.bom:
        yield f"# byte order mark: {'removed' if old.style.bom else 'added'}\n"
    if old.style.eol != new.style.eol:
        yield f"# line endings: {old.style.eol} → {new.style.eol}\n"


def _format_hunks(old: str, new: str) -> Iterator[str]:
    a, b = lines.split(old), lines.split(new)
    for group in _group_changes(lines.diff(a, b)):
        first, last = group[0], group[-1]
        a_start, a_end = max(first.a_start - _CONTEXT_LINES, 0), min(last.a_end + _CONTEXT_LINES, len(a))
        b_start, b_end = first.b_start - (first.a_start - a_start), last.b_end + (a_end - last.a_end)
        yield f"@@ -{_format_range(a_start, a_end)} +{_format_range(b_start, b_end)} @@\n"
        at = a_start
        for change in group:
            yield from _prefix_lines(" ", a[at : change.a_start])
            yield from _prefix_lines("-", a[change.a_start : change.a_end])
            yield from _prefix_lines("+", b[change.b_start : change.b_end])
            at = change.a_end
        yield from _prefix_lines(" ", a[at:a_end])


def _group_changes(changes: list[Change]) -> Iterator[list[Change]]:
    """Yield changes whose context lines touch or overlap as one group."""
    group: list[Change] = []
    for change in changes:
        if group and change.a_start - group[-1].a_end > 2 * _CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _format_range(start: int, end: int) -> str:
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _prefix_lines(prefix: str, part: list[str]) -> Iterator[str]:
    for line in part:
        yield prefix + line if line.endswith("\n") else f"{prefix}{line}\n\\ No newline at end of file\n"


def _truncate(head: list[str], body: list[str], max_bytes: int) -> tuple[str, bool]:
    """Join whole lines up to `max_bytes` and a note about the rest; return also whether there is a rest."""
    bytes_left = max_bytes - sum(len(line.encode()) for line in head)
    for count, line in enumerate(body):
        bytes_left -= len(line.encode())
        if bytes_left < 0:
            note = f"... diff cut at {max_bytes:,} bytes: {len(body) - count:,} more lines\n"
            return "".join([*head, *body[:count], note]), True
    return "".join(head + body), False
