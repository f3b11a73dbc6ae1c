"""What separates two contents, as a unified diff that is bounded and says where it was cut."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import msgspec

from perdure.protocol.envelope import ToolError
from perdure.text.codec import Text, decode
from perdure.text.lines import Change, changes, split

MAX_BYTES: Final = 65_536
_CONTEXT: Final = 3


class Diff(msgspec.Struct, frozen=True):
    """A unified diff, "" where nothing changed."""

    text: str
    changed: bool
    truncated: bool = False
    binary: bool = False


def unified(
    old: bytes | None, new: bytes | None, *, old_label: str, new_label: str, max_bytes: int = MAX_BYTES
) -> Diff:
    """The difference of two contents; None stands for a file that is not there."""
    if old == new:
        return Diff("", changed=False)
    before, after = _text(old), _text(new)
    old_name = "/dev/null" if old is None else old_label
    new_name = "/dev/null" if new is None else new_label
    if before is None or after is None:
        sizes = f"{len(old or b''):,} and {len(new or b''):,} bytes"
        return Diff(f"Binary files {old_name} and {new_name} differ ({sizes})\n", changed=True, binary=True)
    body = [*_styles(before, after), *_unified_body(before.body, after.body)]
    shown, was_cut = _bounded([f"--- {old_name}\n", f"+++ {new_name}\n"], body, max_bytes)
    return Diff(shown, changed=True, truncated=was_cut)


def patch(old: bytes | None, new: bytes | None, path: str) -> bytes:
    """The same whole and byte for byte, so that `git apply` takes it; b"" where nothing changed."""
    if old == new:
        return b""
    old_name = "/dev/null" if old is None else _git_name(f"a/{path}")
    new_name = "/dev/null" if new is None else _git_name(f"b/{path}")
    if b"\0" in (old or b"") or b"\0" in (new or b""):
        return os.fsencode(f"Binary files {old_name.rstrip()} and {new_name.rstrip()} differ\n")
    before, after = ((data or b"").decode("utf-8", "surrogateescape") for data in (old, new))
    lines = [f"--- {old_name}\n", f"+++ {new_name}\n", *_unified_body(before, after)]
    return "".join(lines).encode("utf-8", "surrogateescape")


def _git_name(name: str) -> str:
    """As git writes a name in a diff: quoted where it has control characters, with a tab behind one with spaces."""
    if any(c in '"\\' or ord(c) < 32 or ord(c) == 127 for c in name):
        escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
        shown = "".join(
            escapes.get(c, c if ord(c) >= 32 and ord(c) != 127 else f"\\{ord(c):03o}") for c in name
        )
        return f'"{shown}"'
    return f"{name}\t" if " " in name else name


def _text(data: bytes | None) -> Text | None:
    try:
        return decode(data or b"")
    except ToolError:
        return None


def _styles(before: Text, after: Text) -> Iterator[str]:
    """What no line of a diff can show."""
    if not before.body or not after.body:
        return
    if before.style.encoding != after.style.encoding:
        yield f"# encoding: {before.style.encoding} → {after.style.encoding}\n"
    if before.style.bom != after.style.bom:
        yield f"# byte order mark: {'removed' if before.style.bom else 'added'}\n"
    if before.style.eol != after.style.eol:
        yield f"# line endings: {before.style.eol} → {after.style.eol}\n"


def _unified_body(old: str, new: str) -> Iterator[str]:
    a, b = split(old), split(new)
    for group in _grouped(changes(a, b)):
        a0, a1 = max(group[0].a0 - _CONTEXT, 0), min(group[-1].a1 + _CONTEXT, len(a))
        b0, b1 = group[0].b0 - (group[0].a0 - a0), group[-1].b1 + (a1 - group[-1].a1)
        yield f"@@ -{_range(a0, a1)} +{_range(b0, b1)} @@\n"
        at = a0
        for change in group:
            yield from _marked(" ", a[at : change.a0])
            yield from _marked("-", a[change.a0 : change.a1])
            yield from _marked("+", b[change.b0 : change.b1])
            at = change.a1
        yield from _marked(" ", a[at:a1])


def _grouped(changes: list[Change]) -> Iterator[list[Change]]:
    """Changes whose context would touch, together."""
    group: list[Change] = []
    for change in changes:
        if group and change.a0 - group[-1].a1 > 2 * _CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _range(start: int, end: int) -> str:
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _marked(mark: str, part: list[str]) -> Iterator[str]:
    for line in part:
        yield mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"


def _bounded(head: list[str], body: list[str], max_bytes: int = MAX_BYTES) -> tuple[str, bool]:
    """Whole lines while they fit, then how many were left off; and whether any was."""
    room = max_bytes - sum(len(line.encode()) for line in head)
    for shown, line in enumerate(body):
        room -= len(line.encode())
        if room < 0:
            note = f"... diff cut at {max_bytes:,} bytes: {len(body) - shown:,} more lines\n"
            return "".join([*head, *body[:shown], note]), True
    return "".join(head + body), False
