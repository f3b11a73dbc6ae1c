"""A patch in the apply_patch format (`*** Begin Patch`), applied to a file's text with its own line endings.

A hunk has no line numbers. It goes to the only place behind the hunk before it where its old lines stand; an `@@` line
says behind which line to look, and the first place there is the one that is meant. A hunk that only adds goes to the
end of the file.

Models write old lines from memory, so they are compared ever more loosely, until they stand somewhere:

| compared | what may differ |
|---|---|
| exact | nothing but line endings |
| line ends | whitespace at the end of a line |
| indentation | an indentation that differs alike on every line; added lines are moved the same way |
| punctuation | typographic dashes, quotes and spaces for ASCII ones |

A line that the patch keeps stays as the file has it, with its line ending. A line that it adds has the ending of most
lines, also as the last one. A hunk that fits several places is refused: nothing is guessed.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

from perdure.protocol.envelope import ToolError
from perdure.text import unified_patch
from perdure.text.edits import get_indentation, reindent
from perdure.text.patch_parser import AnchoredHunk, FilePatch, Row

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
_BLANK: Final = Row(" ", "")


def _plain(text: str) -> str:
    return text.translate(_ASCII).strip()


_COMPARISONS: Final[tuple[Callable[[str], str], ...]] = (str, str.rstrip, str.strip, _plain)
_EXACT, _LINE_ENDS, _INDENTATION, _PUNCTUATION = range(len(_COMPARISONS))


class Patched(NamedTuple):
    """The text after a patch; `tolerant` if old lines were found by a looser comparison."""

    body: str
    match: Match


class _Line(NamedTuple):
    text: str
    end: str


class _Place(NamedTuple):
    """Where the old lines of a hunk stand, by which comparison, and the rows of the hunk that are meant."""

    start: int
    comparison: int
    rows: tuple[Row, ...]


def apply(patch: FilePatch, body: str) -> Patched:
    """The text of a file after its update."""
    has_returns = any("\r" in row.text for hunk in patch.anchored for row in hunk.rows)
    split = _LINE_WITH_RETURNS if has_returns else _LINE
    file = _File([_Line(*found) for found in split.findall(body) if any(found)])
    for hunk in patch.anchored:
        file.change(patch, hunk)
    return file.finish()


class _File:
    """The lines of a file, and what became of them so far."""

    def __init__(self, lines: list[_Line]) -> None:
        self._lines = lines
        ends = Counter(line.end for line in lines if line.end)
        self._newline = max(ends, key=lambda end: ends[end], default="\n")
        self._folded = {_EXACT: [line.text for line in lines]}
        self._at = 0
        self._done: list[_Line] = []
        self._added: list[_Line] = []  # by hunks that only add: they come last
        self._match: Match = "exact"

    def finish(self) -> Patched:
        whole = [*self._done, *self._lines[self._at :], *self._added]
        # The last line of a file may have no ending; where another one follows, it needs one.
        ended = [line.text + (line.end or self._newline) for line in whole[:-1]]
        return Patched("".join(ended) + "".join(map("".join, whole[-1:])), self._match)

    def change(self, patch: FilePatch, hunk: AnchoredHunk) -> None:
        if all(row.mark == "+" for row in hunk.rows):
            self._add(patch, hunk)
            return
        place = self._anchored(patch, hunk) if hunk.anchors else self._only(patch, hunk)
        rows = self._reindent(place.start, place.rows)
        assert rows is not None
        self._done += self._lines[self._at : place.start]
        self._at = place.start
        for row in rows:
            if row.mark == "+":
                self._done.append(_Line(row.text, self._newline))
                continue
            if row.mark == " ":
                self._done.append(self._lines[self._at])
            self._at += 1
        if place.comparison != _EXACT:
            self._match = "tolerant"

    def _add(self, patch: FilePatch, hunk: AnchoredHunk) -> None:
        if hunk.anchors and not hunk.at_end:
            raise unified_patch.stale(
                patch,
                "no_context",
                f"hunk {hunk.number} only adds, and an @@ line does not say where behind it; give a line of context",
                hunk=hunk.number,
            )
        self._added += [_Line(row.text, self._newline) for row in hunk.rows]

    # --- where a hunk goes ---------------------------------------------------------------------------------

    def _only(self, patch: FilePatch, hunk: AnchoredHunk) -> _Place:
        places = self._places(hunk, self._at)
        if len(places) > 1:
            starts = [place.start for place in places]
            raise unified_patch.misplaced(patch, hunk.number, starts, "its old lines")
        if not places:
            raise self._diverging(patch, hunk, self._at)
        return places[0]

    def _anchored(self, patch: FilePatch, hunk: AnchoredHunk) -> _Place:
        """The first place behind the last anchor; each anchor is the first such line behind the one before it.

        Where the first anchor stands several times, all of them must lead to the same place.
        """
        first, *further = (self._anchors(anchor, self._at) for anchor in hunk.anchors)
        if not first:
            raise unified_patch.misplaced(patch, hunk.number, (), "its @@ line")
        places = self._places(hunk, first[0])
        starts = [place.start for place in places]
        leading: dict[int, int] = {}  # the first anchor that leads to a place
        for anchor in first:
            reached: int | None = anchor
            for lines in further:
                reached = _next(lines, reached + 1) if reached is not None else None
            start = _next(starts, reached) if reached is not None else None
            if start is not None:
                leading.setdefault(start, anchor)
        if len(leading) > 1:
            raise unified_patch.misplaced(patch, hunk.number, list(leading.values()), "its @@ line")
        if not leading:
            raise self._diverging(patch, hunk, first[0])
        return places[starts.index(next(iter(leading)))]

    def _anchors(self, anchor: str, at: int) -> list[int]:
        """The lines that an anchor names: those that are the same, else those that begin so."""
        for comparison in (_INDENTATION, _PUNCTUATION):
            folded, want = self._fold(comparison), _COMPARISONS[comparison](anchor)
            if same := [line for line in range(at, len(folded)) if folded[line] == want]:
                return same
        return [line for line in range(at, len(folded)) if folded[line].startswith(want)]

    def _places(self, hunk: AnchoredHunk, at: int) -> list[_Place]:
        """By the strictest comparison that finds any. Blank lines that end a hunk may stand only in the patch."""
        rows = hunk.rows
        while any(row.mark != "+" for row in rows):
            for comparison in range(len(_COMPARISONS)):
                found = [
                    _Place(start, comparison, rows)
                    for start in self._starts(rows, at, comparison, at_end=hunk.at_end)
                    if comparison < _INDENTATION or self._reindent(start, rows) is not None
                ]
                if found:
                    return found
            if rows[-1] != _BLANK:
                break
            rows = rows[:-1]
        return []

    def _starts(self, rows: Sequence[Row], at: int, comparison: int, *, at_end: bool) -> Iterator[int]:
        folded = self._fold(comparison)
        old = [_COMPARISONS[comparison](row.text) for row in rows if row.mark != "+"]
        end = len(folded) - len(old)
        key = max(range(len(old)), key=lambda index: len(old[index]))
        for start in range(max(at, end) if at_end else at, end + 1):
            if folded[start + key] == old[key] and folded[start : start + len(old)] == old:
                yield start

    @functools.cached_property
    def _indentations(self) -> list[str]:
        return [_indentation(line.text) for line in self._lines]

    def _fold(self, comparison: int) -> list[str]:
        if comparison not in self._folded:
            fold = _COMPARISONS[comparison]
            self._folded[comparison] = [fold(line.text) for line in self._lines]
        return self._folded[comparison]

    def _reindent(self, start: int, rows: Sequence[Row]) -> Sequence[Row] | None:
        """The rows with what they add indented as the file is; None where that is not clear."""
        old = [row.text for row in rows if row.mark != "+"]
        have = self._indentations[start : start + len(old)]
        pairs = [(_indentation(text), indent) for text, indent in zip(old, have, strict=True) if text.strip()]
        added = [row.text for row in rows if row.mark == "+"]
        if not added or all(want == have for want, have in pairs):
            return rows
        moved = reindent("\n".join(added), pairs)
        if moved is None:
            return None
        texts = iter(moved.split("\n"))
        return [Row("+", next(texts)) if row.mark == "+" else row for row in rows]

    def _diverging(self, patch: FilePatch, hunk: AnchoredHunk, at: int) -> ToolError:
        have = [line.text + "\n" for line in self._lines]
        old = [row.text + "\n" for row in hunk.rows if row.mark != "+"]
        if hunk.at_end:
            return unified_patch.diverging(patch, hunk.number, old, have, max(at, len(have) - len(old)))
        return unified_patch.diverging(patch, hunk.number, old, have, at, at)


def _indentation(text: str) -> str:
    return get_indentation(text.translate(_ASCII))


def _next(lines: Sequence[int], at: int) -> int | None:
    """The first of the sorted line numbers from `at` on."""
    index = bisect_left(lines, at)
    return lines[index] if index < len(lines) else None
