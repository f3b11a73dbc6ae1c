"""Apply a patch in the apply_patch format (`*** Begin Patch`) to the text of a file, with its own line endings.

A hunk has no line numbers. It applies at the only place behind the hunk before it where its old lines occur. An `@@`
line (anchor) says behind which line to search, and the first place there is meant. A hunk that only adds lines applies
at the end of the file.

Models write old lines from memory, so they are compared ever more loosely until they are found:

| comparison | differences allowed |
|---|---|
| exact | line endings |
| line ends | whitespace at the end of a line |
| indentation | an indentation that differs alike on every line; added lines are moved the same way |
| punctuation | typographic dashes, quotes and spaces for ASCII ones |

A line that the patch keeps stays as the file has it, with its line ending. An added line gets the ending of most lines,
also as the last line. A hunk that fits several places is refused.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from perdure.protocol.envelope import ToolError
from perdure.text.edits import get_indentation, reindent
from perdure.text.patch_errors import (
    make_ambiguous_place,
    make_divergence,
    make_mismatch,
    make_missing_place,
)
from perdure.text.patch_parser import AnchoredHunk, FilePatch, HunkLine

Match = Literal["exact", "tolerant"]

# A lone carriage return ends a line, unless the patch itself has one inside a line.
_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_LINE_WITH_RETURNS: Final = re.compile(r"((?:[^\r\n]|\r(?!\n))*)(\r\n|\n|\Z)")
_DASHES: Final = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212"
_SINGLE_QUOTES: Final = "\u2018\u2019\u201a\u201b"
_DOUBLE_QUOTES: Final = "\u201c\u201d\u201e\u201f"
_SPACES: Final = "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_ASCII: Final = {
    ord(character): plain
    for characters, plain in ((_DASHES, "-"), (_SINGLE_QUOTES, "'"), (_DOUBLE_QUOTES, '"'), (_SPACES, " "))
    for character in characters
}
_BLANK_CONTEXT: Final = HunkLine(" ", "")


def _fold_punctuation(text: str) -> str:
    return text.translate(_ASCII).strip()


_COMPARISONS: Final[tuple[Callable[[str], str], ...]] = (str, str.rstrip, str.strip, _fold_punctuation)
_EXACT, _LINE_ENDS, _INDENTATION, _PUNCTUATION = range(len(_COMPARISONS))


class Patched(NamedTuple):
    """The text after a patch; `match` is tolerant if old lines were found by a looser comparison."""

    body: str
    match: Match


class _Line(NamedTuple):
    text: str
    end: str


class _Place(NamedTuple):
    """The index where the old lines of a hunk were found, by which comparison, and the lines of the hunk that count."""

    start: int
    comparison: int
    hunk_lines: tuple[HunkLine, ...]


def apply(patch: FilePatch, body: str) -> Patched:
    """Return the text of a file after its update."""
    has_returns = any("\r" in line.text for hunk in patch.anchored for line in hunk.lines)
    pattern = _LINE_WITH_RETURNS if has_returns else _LINE
    patcher = _Patcher(patch.path, [_Line(*groups) for groups in pattern.findall(body) if any(groups)])
    for hunk in patch.anchored:
        patcher.apply_hunk(hunk)
    return patcher.finish()


class _Patcher:
    """Applies hunks to the lines of a file, from the first line to the last."""

    def __init__(self, path: str, lines: list[_Line]) -> None:
        self._path = path
        self._lines = lines
        ends = Counter(line.end for line in lines if line.end)
        self._newline = max(ends, key=lambda end: ends[end], default="\n")
        self._folded = {_EXACT: [line.text for line in lines]}
        self._at = 0
        self._result: list[_Line] = []
        self._appended: list[_Line] = []  # by hunks that only add
        self._match: Match = "exact"

    def finish(self) -> Patched:
        lines = [*self._result, *self._lines[self._at :], *self._appended]
        # The last line of the file may lack a line end; it needs one if another line follows now.
        ended = [line.text + (line.end or self._newline) for line in lines[:-1]]
        return Patched("".join(ended) + "".join(map("".join, lines[-1:])), self._match)

    def apply_hunk(self, hunk: AnchoredHunk) -> None:
        if all(line.mark == "+" for line in hunk.lines):
            self._append(hunk)
            return
        place = self._locate_by_anchors(hunk) if hunk.anchors else self._locate(hunk)
        hunk_lines = self._reindent(place.start, place.hunk_lines)
        assert hunk_lines is not None
        self._result += self._lines[self._at : place.start]
        self._at = place.start
        for line in hunk_lines:
            if line.mark == "+":
                self._result.append(_Line(line.text, self._newline))
                continue
            if line.mark == " ":
                self._result.append(self._lines[self._at])
            self._at += 1
        if place.comparison != _EXACT:
            self._match = "tolerant"

    def _append(self, hunk: AnchoredHunk) -> None:
        if hunk.anchors and not hunk.at_end:
            message = f"hunk {hunk.number} only adds, and an @@ line does not say where behind it; give a line of context"
            raise make_mismatch(self._path, "no_context", message, hunk=hunk.number)
        self._appended += [_Line(line.text, self._newline) for line in hunk.lines]

    # --- where a hunk applies ------------------------------------------------------------------------------

    def _locate(self, hunk: AnchoredHunk) -> _Place:
        places = self._find_places(hunk, self._at)
        if len(places) > 1:
            starts = [place.start for place in places]
            raise make_ambiguous_place(self._path, hunk.number, "its old lines", starts)
        if not places:
            raise self._make_divergence(hunk, self._at)
        return places[0]

    def _locate_by_anchors(self, hunk: AnchoredHunk) -> _Place:
        """Return the first place behind the last anchor; each anchor is the first match behind the one before it.

        If the first anchor matches several lines, all of them must lead to the same place.
        """
        first_matches, *later_matches = (self._find_anchor(anchor, self._at) for anchor in hunk.anchors)
        if not first_matches:
            raise make_missing_place(self._path, hunk.number, "its @@ line")
        places = self._find_places(hunk, first_matches[0])
        starts = [place.start for place in places]
        anchor_of_start: dict[int, int] = {}  # the first line of the first anchor that leads to each place
        for first in first_matches:
            reached: int | None = first
            for matches in later_matches:
                reached = _find_next(matches, reached + 1) if reached is not None else None
            start = _find_next(starts, reached) if reached is not None else None
            if start is not None:
                anchor_of_start.setdefault(start, first)
        if len(anchor_of_start) > 1:
            raise make_ambiguous_place(self._path, hunk.number, "its @@ line", list(anchor_of_start.values()))
        if not anchor_of_start:
            raise self._make_divergence(hunk, first_matches[0])
        return places[starts.index(next(iter(anchor_of_start)))]

    def _find_anchor(self, anchor: str, at: int) -> list[int]:
        """Return the lines that an anchor names: those that are equal, else those that begin with it."""
        for comparison in (_INDENTATION, _PUNCTUATION):
            folded, folded_anchor = self._fold(comparison), _COMPARISONS[comparison](anchor)
            if equal := [index for index in range(at, len(folded)) if folded[index] == folded_anchor]:
                return equal
        return [index for index in range(at, len(folded)) if folded[index].startswith(folded_anchor)]

    def _find_places(self, hunk: AnchoredHunk, at: int) -> list[_Place]:
        """Use the strictest comparison that finds a place. Blank context lines at the end of a hunk may be dropped."""
        hunk_lines = hunk.lines
        while any(line.mark != "+" for line in hunk_lines):
            for comparison in range(len(_COMPARISONS)):
                places = [
                    _Place(start, comparison, hunk_lines)
                    for start in self._find_starts(hunk_lines, at, comparison, at_end=hunk.at_end)
                    if comparison < _INDENTATION or self._reindent(start, hunk_lines) is not None
                ]
                if places:
                    return places
            if hunk_lines[-1] != _BLANK_CONTEXT:
                break
            hunk_lines = hunk_lines[:-1]
        return []

    def _find_starts(
        self, hunk_lines: Sequence[HunkLine], at: int, comparison: int, *, at_end: bool
    ) -> Iterator[int]:
        folded = self._fold(comparison)
        old = [_COMPARISONS[comparison](line.text) for line in hunk_lines if line.mark != "+"]
        last = len(folded) - len(old)
        longest = max(range(len(old)), key=lambda index: len(old[index]))
        for start in range(max(at, last) if at_end else at, last + 1):
            if folded[start + longest] == old[longest] and folded[start : start + len(old)] == old:
                yield start

    @functools.cached_property
    def _indentations(self) -> list[str]:
        return [_get_ascii_indentation(line.text) for line in self._lines]

    def _fold(self, comparison: int) -> list[str]:
        """Return the lines of the file as a comparison sees them."""
        if comparison not in self._folded:
            fold = _COMPARISONS[comparison]
            self._folded[comparison] = [fold(line.text) for line in self._lines]
        return self._folded[comparison]

    def _reindent(self, start: int, hunk_lines: Sequence[HunkLine]) -> Sequence[HunkLine] | None:
        """Indent the added lines like the file; None if the indentation is not certain."""
        old = [line.text for line in hunk_lines if line.mark != "+"]
        indentations = self._indentations[start : start + len(old)]
        pairs = [
            (_get_ascii_indentation(text), indentation)
            for text, indentation in zip(old, indentations, strict=True)
            if text.strip()
        ]
        added = [line.text for line in hunk_lines if line.mark == "+"]
        if not added or all(patch == file for patch, file in pairs):
            return hunk_lines
        moved = reindent("\n".join(added), pairs)
        if moved is None:
            return None
        texts = iter(moved.split("\n"))
        return [HunkLine("+", next(texts)) if line.mark == "+" else line for line in hunk_lines]

    def _make_divergence(self, hunk: AnchoredHunk, at: int) -> ToolError:
        file_lines = [line.text + "\n" for line in self._lines]
        old = [line.text + "\n" for line in hunk.lines if line.mark != "+"]
        if hunk.at_end:
            expected = max(at, len(file_lines) - len(old))
            return make_divergence(self._path, hunk.number, old, file_lines, expected)
        return make_divergence(self._path, hunk.number, old, file_lines, at, at)


def _get_ascii_indentation(text: str) -> str:
    return get_indentation(text.translate(_ASCII))


def _find_next(indexes: Sequence[int], at: int) -> int | None:
    """Return the first of the sorted indexes from `at` on."""
    position = bisect_left(indexes, at)
    return indexes[position] if position < len(indexes) else None
