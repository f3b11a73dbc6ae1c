"""The body of a unified diff of two texts, and cutting it where it grows too long. Loads fast, as `shared_lines.py`."""

from __future__ import annotations

from perdure.surfaces.write.shared_lines import changes, split

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.surfaces.write.shared_lines import Change

MAX_BYTES = 65_536
_CONTEXT = 3


def unified_body(old: str, new: str) -> Iterator[str]:
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


def bounded(head: list[str], body: list[str], max_bytes: int = MAX_BYTES) -> tuple[str, bool]:
    """Whole lines while they fit, then how many were left off; and whether any was."""
    room = max_bytes - sum(len(line.encode()) for line in head)
    for shown, line in enumerate(body):
        room -= len(line.encode())
        if room < 0:
            note = f"... diff cut at {max_bytes:,} bytes: {len(body) - shown:,} more lines\n"
            return "".join([*head, *body[:shown], note]), True
    return "".join(head + body), False
