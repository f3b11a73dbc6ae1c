"""Escape characters of a path that a person cannot see, or that control a terminal."""

from __future__ import annotations

from typing import Final

_MAX_CHARACTERS: Final = 120
# Default_Ignorable_Code_Point of Unicode 16; the bidirectional controls are among them.
_IGNORABLE: Final = tuple(
    range(first, last + 1)
    for first, last in (
        (0x00AD, 0x00AD),
        (0x034F, 0x034F),
        (0x061C, 0x061C),
        (0x115F, 0x1160),
        (0x17B4, 0x17B5),
        (0x180B, 0x180F),
        (0x200B, 0x200F),
        (0x202A, 0x202E),
        (0x2060, 0x206F),
        (0x3164, 0x3164),
        (0xFE00, 0xFE0F),
        (0xFEFF, 0xFEFF),
        (0xFFA0, 0xFFA0),
        (0xFFF0, 0xFFF8),
        (0x1BCA0, 0x1BCA3),
        (0x1D173, 0x1D17A),
        (0xE0000, 0xE0FFF),
    )
)


def is_ignorable(character: str) -> bool:
    """Whether a character has no glyph: zero-width, a bidirectional control, a variation selector."""
    code_point = ord(character)
    return any(code_point in block for block in _IGNORABLE)


def make_printable(path: str) -> str:
    """Escape and truncate a path for an error message."""
    text = "".join(
        c if c.isprintable() and not is_ignorable(c) else c.encode("unicode_escape", "surrogatepass").decode()
        for c in path[:_MAX_CHARACTERS]
    )
    return text + ("…" if len(path) > _MAX_CHARACTERS else "")
