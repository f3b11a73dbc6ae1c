"""What separates two contents, as a unified diff that is bounded and says where it was cut."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.model.envelope import ToolError
from perdure.surfaces.write.hunks import MAX_BYTES, bounded, unified_body
from perdure.surfaces.write.text import Text, decode


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
    body = [*_styles(before, after), *unified_body(before.body, after.body)]
    shown, was_cut = bounded([f"--- {old_name}\n", f"+++ {new_name}\n"], body, max_bytes)
    return Diff(shown, changed=True, truncated=was_cut)


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
