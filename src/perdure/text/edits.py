"""Apply several replacements to a content in order, all of them or none.

| match | tried |
|---|---|
| exact | always first |
| tolerant | only without an exact match: whole lines that differ in trailing whitespace, or in an indentation that |
|          | differs alike on every line; `new` is then indented the same way |
| tolerant | only without either: the spacing inside the lines differs (`spacing.py`) |

A text must occur as often as `count` says (-1: any number of times, all are replaced). Content, `old` and `new` are
compared with LF; the file's own line endings come back when it is encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Annotated, Final, Literal

import msgspec

from perdure.protocol.tools import arg
from perdure.text import lines, spacing
from perdure.text.spacing import Replacement

Match = Literal["exact", "tolerant"]

MAX_LISTED_MATCHES: Final = 100  # places that a mismatch lists
_BLANK: Final = " \t\r\f\v"
_MAX_PREFILTER_LINES: Final = 32  # lines that the content must hold before blocks are compared
_MAX_COMPARISONS: Final = 200_000  # lines compared before a tolerant search in a repetitive file gives up


class Edit(msgspec.Struct, frozen=True):
    old: Annotated[str, arg(aliases=("old_string",))]
    new: Annotated[str, arg(aliases=("new_string",))]
    count: Annotated[int, arg("How often it must occur; -1: replace all.")] = 1


class AppliedEdit(msgspec.Struct, frozen=True):
    """The result of one edit; `line` is the first line it changed, in the content it was applied to."""

    match: Match
    replacements: int
    line: int


class EditedText(msgspec.Struct, frozen=True):
    """The content after all edits. `match` is tolerant if any edit was."""

    content: str
    replacements: int
    match: Match
    applied: tuple[AppliedEdit, ...]

    @property
    def warnings(self) -> list[str]:
        """One warning for each edit that matched only apart from whitespace."""
        return [
            f"edit {number} matched line {edit.line} apart from whitespace; the file's own whitespace is kept"
            for number, edit in enumerate(self.applied, 1)
            if edit.match == "tolerant"
        ]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One edit, with LF, and the content it is applied to. `original` is the content before all edits."""

    number: int
    original: str
    content: str
    old: str
    new: str
    count: int


class EditError(Exception):
    """No edit was applied."""


class InvalidEdit(EditError):
    """Edit `number`, from one, cannot apply to any content; number 0: there is no edit."""

    def __init__(
        self,
        reason: Literal[
            "no_edits", "empty_old_string", "nothing_to_change", "count_cannot_be_zero", "bad_count"
        ],
        number: int = 0,
        count: int = 0,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.number = number
        self.count = count


class EditMismatch(EditError):
    """The text of an edit does not occur as often as its count says. `starts` are the offsets of the first places."""

    def __init__(
        self,
        reason: Literal["old_string_not_found", "ambiguous_match", "insufficient_matches"],
        attempt: Attempt,
        starts: Iterable[int] = (),
        actual_count: int = 0,
    ) -> None:
        super().__init__(reason)
        listed = list(islice(starts, MAX_LISTED_MATCHES + 1))
        self.reason = reason
        self.attempt = attempt
        self.starts = listed[:MAX_LISTED_MATCHES]
        self.has_more = len(listed) > MAX_LISTED_MATCHES
        self.actual_count = actual_count


def apply(content: str, edits: Sequence[Edit]) -> EditedText:
    """Apply each edit to the result of the one before. Raises EditError if one does not apply."""
    if not edits:
        raise InvalidEdit("no_edits")
    original = content
    applied: list[AppliedEdit] = []
    for number, edit in enumerate(edits, 1):
        attempt = Attempt(
            number=number,
            original=original,
            content=content,
            old=_to_lf(edit.old),
            new=_to_lf(edit.new),
            count=edit.count,
        )
        _check_edit(attempt)
        match: Match = "exact"
        replacements = _find_exact(attempt)
        if not replacements:
            match = "tolerant"
            replacements = _find_tolerant(attempt)
        line = lines.number_at(content, replacements[0].start)
        applied.append(AppliedEdit(match, len(replacements), line))
        content = _replace(content, replacements)
    is_tolerant = any(edit.match == "tolerant" for edit in applied)
    count = sum(edit.replacements for edit in applied)
    return EditedText(content, count, "tolerant" if is_tolerant else "exact", tuple(applied))


def _to_lf(text: str) -> str:
    return text.replace("\r\n", "\n")


def _check_edit(attempt: Attempt) -> None:
    if not attempt.old:
        raise InvalidEdit("empty_old_string", attempt.number)
    if attempt.old == attempt.new:
        raise InvalidEdit("nothing_to_change", attempt.number)
    if attempt.count == 0:
        raise InvalidEdit("count_cannot_be_zero", attempt.number)
    if attempt.count < -1:
        raise InvalidEdit("bad_count", attempt.number, attempt.count)


def _replace(content: str, replacements: Sequence[Replacement]) -> str:
    parts: list[str] = []
    at = 0
    for replacement in replacements:
        parts += (content[at : replacement.start], replacement.text)
        at = replacement.end
    parts.append(content[at:])
    return "".join(parts)


# --- exact -------------------------------------------------------------------------------------------------


def _find_exact(attempt: Attempt) -> list[Replacement]:
    """Return the exact matches, or none. Raises EditMismatch if there are some, but not `count`."""
    content, old, count = attempt.content, attempt.old, attempt.count
    if count == -1:
        starts = list(_find_starts(content, old, len(old)))
        return [Replacement(start, start + len(old), attempt.new) for start in starts]
    # Overlapping matches count as well: it is not certain which "aa" in "aaa" is meant.
    starts = list(islice(_find_starts(content, old, 1), min(count, len(content)) + 1))
    if len(starts) > count:
        raise EditMismatch("ambiguous_match", attempt, _find_starts(content, old, 1), content.count(old))
    if any(later - start < len(old) for start, later in pairwise(starts)):
        raise EditMismatch("ambiguous_match", attempt, starts, len(starts))
    if 0 < len(starts) < count:
        raise EditMismatch("insufficient_matches", attempt, starts, len(starts))
    return [Replacement(start, start + len(old), attempt.new) for start in starts]


def _find_starts(content: str, old: str, step: int) -> Iterator[int]:
    start = content.find(old)
    while start >= 0:
        yield start
        start = content.find(old, start + step)


# --- tolerant ----------------------------------------------------------------------------------------------


def _find_tolerant(attempt: Attempt) -> list[Replacement]:
    """Return the matches with other whitespace. Raises EditMismatch if there are not `count`."""
    matches = list(_find_reindented(attempt))
    matches = matches or spacing.find_replacements(attempt.content, attempt.old, attempt.new)
    if attempt.count == -1:
        matches = _drop_overlapping(matches)
    if not matches:
        raise EditMismatch("old_string_not_found", attempt)
    starts = [match.start for match in matches]
    overlap = any(later.start < match.end for match, later in pairwise(matches))
    if attempt.count != -1 and (len(matches) > attempt.count or overlap):
        raise EditMismatch("ambiguous_match", attempt, starts, len(matches))
    if len(matches) < attempt.count:
        raise EditMismatch("insufficient_matches", attempt, starts, len(matches))
    return matches


def _drop_overlapping(matches: list[Replacement]) -> list[Replacement]:
    """Drop each match that overlaps the one before."""
    kept: list[Replacement] = []
    for match in matches:
        if not kept or kept[-1].end <= match.start:
            kept.append(match)
    return kept


def _find_reindented(attempt: Attempt) -> Iterator[Replacement]:
    """Yield matches of whole lines that differ in their indentation, or in trailing whitespace."""
    content, old = attempt.content, attempt.old
    old_lines = old.removesuffix("\n").split("\n")
    for start, block in _find_blocks(content, [line.strip(_BLANK) for line in old_lines]):
        match = _fit_replacement(content, start, block, old_lines, old.endswith("\n"), attempt.new)
        if match is not None:
            yield match


def _find_blocks(content: str, stripped_lines: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the offset and the lines of each block that has these lines, apart from the whitespace around them."""
    longest = max(range(len(stripped_lines)), key=lambda index: len(stripped_lines[index]))
    needle = stripped_lines[longest]
    compared = at = 0
    if any(line not in content for line in sorted(set(stripped_lines), key=len)[-_MAX_PREFILTER_LINES:]):
        return
    while needle and compared < _MAX_COMPARISONS and (hit := content.find(needle, at)) >= 0:
        start = max(content.rfind("\n", at, hit) + 1, at)
        end = lines.find_end(content, hit)
        at = end + 1
        if content[start:end].strip(_BLANK) != needle:
            continue
        for line in reversed(stripped_lines[:longest]):
            compared += 1
            previous = content.rfind("\n", 0, start - 1) + 1 if start else 0
            if start == 0 or content[previous : start - 1].strip(_BLANK) != line:
                break
            start = previous
        else:
            block: list[str] = []
            line_start = start
            for line in stripped_lines:
                compared += 1
                end = lines.find_end(content, line_start)
                block.append(content[line_start:end])
                if line_start >= len(content) or block[-1].strip(_BLANK) != line:
                    break
                line_start = end + 1
            else:
                yield start, block


def _fit_replacement(
    content: str, start: int, block: list[str], old_lines: list[str], has_newline: bool, new: str
) -> Replacement | None:
    """Return the replacement of a block, indented like the block; None if the indentation is not certain."""
    end = start + sum(len(line) for line in block) + len(block) - 1
    pairs = [
        (get_indentation(old_line), get_indentation(line))
        for old_line, line in zip(old_lines, block, strict=True)
        if old_line.strip()
    ]
    if old_lines[0].strip() and not pairs[0][0] and all(old == file for old, file in pairs[1:]):
        start += len(get_indentation(block[0]))  # `old` begins behind the indentation of its first line
        text: str | None = new
    else:
        text = reindent(new, pairs)
    if text is None:
        return None
    if has_newline and end < len(content):
        end += 1
    elif has_newline:
        text = text.removesuffix("\n")  # the file has no final newline and keeps none
    return Replacement(start, end, text)


# --- indentation -------------------------------------------------------------------------------------------


def get_indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def reindent(text: str, pairs: list[tuple[str, str]]) -> str | None:
    """Move the lines of a text like the lines of `pairs`: from the first indentation to the second.

    None if the pairs do not agree on one change.
    """
    old, file = pairs[0]
    if all(old == file for old, file in pairs):
        return text
    if file.endswith(old):
        added = file[: len(file) - len(old)]
        if all(added + a == b for a, b in pairs):
            return _map_indentation(text, lambda indent: added + indent)
    if old.endswith(file):
        removed = old[: len(old) - len(file)]
        if all(removed + b == a for a, b in pairs):
            return _map_indentation(
                text, lambda indent: indent.removeprefix(removed) if indent.startswith(removed) else None
            )
    for old_character, file_character in ((" ", "\t"), ("\t", " ")):
        if all(not a.strip(old_character) and not b.strip(file_character) for a, b in pairs):
            return _convert_tabs(text, pairs, old_character, file_character)
    return None


def _convert_tabs(
    text: str, pairs: list[tuple[str, str]], old_character: str, file_character: str
) -> str | None:
    """Replace tabs by spaces, or spaces by tabs; None if not every line has the same width of a tab."""
    old_width, file_width = max(((len(a), len(b)) for a, b in pairs), default=(0, 0))
    if not old_width or not file_width or any(len(a) * file_width != len(b) * old_width for a, b in pairs):
        return None

    def convert(indent: str) -> str | None:
        if indent.strip(old_character) or len(indent) * file_width % old_width:
            return None
        return file_character * (len(indent) * file_width // old_width)

    return _map_indentation(text, convert)


def _map_indentation(text: str, convert: Callable[[str], str | None]) -> str | None:
    """Convert the indentation of every line that is not blank; None if one cannot be converted."""
    result: list[str] = []
    for line in text.split("\n"):
        if not line.strip():
            result.append(line)
            continue
        indent = get_indentation(line)
        converted = convert(indent)
        if converted is None:
            return None
        result.append(converted + line[len(indent) :])
    return "\n".join(result)
