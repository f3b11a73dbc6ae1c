"""Apply a unified diff to the content of a file, with LF.

A hunk applies at the line it names, else at the only place where its old lines occur. Nothing is guessed: every old line
must be in the file as the patch has it. A hunk that fits several places is refused, and so is a hunk without trailing
context that fits at its line and at the end of the file. `anchored_patch.py` applies patches in the apply_patch format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from perdure.text import lines
from perdure.text.patch_errors import make_ambiguous_place, make_divergence, make_mismatch
from perdure.text.patch_parser import FilePatch, Hunk, Operation, parse

__all__ = ["FilePatch", "Hunk", "Operation", "apply", "parse"]

_OLD_LINES: Final = "its old lines"


def apply(patch: FilePatch, content: str) -> str:
    """Return the content after the patch; "" for a deleted file. A new file is made from ""."""
    if patch.op == "create":
        if content:
            raise make_mismatch(patch.path, "file_not_empty", "the patch makes a file that is already there")
        return "".join(line for hunk in patch.hunks for line in hunk.new)
    if patch.op == "delete" and not patch.hunks:
        return ""
    result = _apply_hunks(patch, lines.split(content))
    if patch.op == "delete" and result:
        raise make_mismatch(patch.path, "not_all_deleted", "the file has more lines than the patch deletes")
    return result


def _apply_hunks(patch: FilePatch, file_lines: list[str]) -> str:
    result: list[str] = []
    at = offset = 0
    for hunk in patch.hunks:
        expected = hunk.line - (1 if hunk.old else 0) + offset
        start = _locate_hunk(patch.path, hunk, file_lines, at, expected)
        offset += start - expected
        result += file_lines[at:start]
        result += hunk.new
        at = start + len(hunk.old)
    return "".join(result + file_lines[at:])


def _locate_hunk(path: str, hunk: Hunk, file_lines: list[str], at: int, expected: int) -> int:
    """Return the index of the line where a hunk applies. `at` is the end of the hunk before it."""
    if not hunk.old:
        return _locate_without_context(path, hunk, file_lines)
    if expected >= at and _fits(hunk, file_lines, expected):
        end = len(file_lines) - len(hunk.old)
        if not hunk.has_trailing_context and end > expected and _fits(hunk, file_lines, end):
            # Without trailing context the hunk came from the end of a file, but its line number says otherwise.
            raise make_ambiguous_place(path, hunk.number, _OLD_LINES, (expected, end))
        return expected
    places = list(_find_places(hunk, file_lines, at))
    if len(places) > 1:
        raise make_ambiguous_place(path, hunk.number, _OLD_LINES, places)
    if not places:
        raise make_divergence(path, hunk.number, hunk.old, file_lines, max(expected, at), at)
    return places[0]


def _locate_without_context(path: str, hunk: Hunk, file_lines: list[str]) -> int:
    """Lines without any context have a certain place only in an empty file."""
    if file_lines:
        message = f"hunk {hunk.number} has no line that says where it goes"
        raise make_mismatch(path, "no_context", message, hunk=hunk.number)
    return 0


def _find_places(hunk: Hunk, file_lines: Sequence[str], at: int) -> Iterator[int]:
    longest = max(range(len(hunk.old)), key=lambda index: len(hunk.old[index]))
    for index in range(at + longest, len(file_lines)):
        if file_lines[index] == hunk.old[longest] and _fits(hunk, file_lines, index - longest):
            yield index - longest


def _fits(hunk: Hunk, file_lines: Sequence[str], start: int) -> bool:
    end = start + len(hunk.old)
    if hunk.new and not hunk.new[-1].endswith("\n") and end != len(file_lines):
        return False  # only the last line of a file can lack a newline
    return end <= len(file_lines) and all(
        a == b for a, b in zip(file_lines[start:end], hunk.old, strict=True)
    )
