"""Markdown: everything is valid to a renderer, so this reports what cannot have been meant.

Errors: a fence, a comment, front matter or a block of HTML that never ends, a link whose bracket is missing, a heading
without its space, a table that is none. Warnings: references without a definition, rows of another width, marks
without a partner.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.validate.conflicts import marked_conflicts
from perdure.validate.layout import Lines
from perdure.validate.report import Problem, Severity, warning

_FENCE: Final = re.compile(
    r"(?P<lead>[ \t>]*(?:[-*+]|\d+[.)])?[ \t]*)(?P<mark>`{3,}(?!.*`)|~{3,})\s*(?P<info>\S*)"
)
_COMMENT: Final = "<!--"
# Doxygen's way to mark code
_COMMAND: Final = re.compile(r"[ \t>]*[@\\]code\b")
_COMMAND_END: Final = re.compile(r"[ \t>]*[@\\]endcode\b")
_DEFINITION: Final = re.compile(r"^[ \t>]*\[([^\]\n]+)\]:", re.M)
_OPEN_DEFINITION: Final = re.compile(r"\[[^\]\n:]+:[ \t]+<?https?://\S+[ \t]*")
_REFERENCE: Final = re.compile(r"(?<![\\\]!\w])!?\[((?:[^\[\]\n\\]|\\.)+)\]\[((?:[^\[\]\n\\]|\\.)*)\]")
_OPEN_LINK: Final = re.compile(
    r"(?<!\\)!?\[(?:[^\[\]\n\\]|\\.)*\]\((?:<[^<>\n]*>|[^\s()<>]|\([^\s()]*\))*\s*$"
)
_OPEN_TITLE: Final = re.compile(
    r"(?<!\\)!?\[(?:[^\[\]\n\\]|\\.)*\]\((?:https?:|\.{0,2}/|[\w-]+\.\w)(?:[^\s()]|\([^\s()]*\))*\s+"
    r"(?:\"[^\"\n]*\"\s*$|(?![\"'(=])[^()\n]*$)"
)
_NO_BRACKET: Final = re.compile(
    r"(?<![\\\w\]\[(])!?\[(?:[^\[\]\n\\()]|\\.)+\((?:https?:|\.{0,2}/)(?:[^\s()]|\([^\s()]*\))*\)"
)
_NEXT_LINK: Final = re.compile(r"(?<!\\)\[(?:[^\[\]\n\\]|\\.)+\]\([^()\n]*(?<!\\)\]\(")
_TWICE_OPEN: Final = re.compile(r"(?<!\\)\]\(\([^()\n]*\)(?!.*\))")
_BLOCK: Final = re.compile(
    r"<(?P<slash>/?)(?P<name>details|summary|table|ul|ol|center|div)\b(?:[^<>/]|/(?!>))*>", re.I
)
_KEY: Final = re.compile(r"[A-Za-z_][\w-]*:(?:\s|$)")
_TWO_TICKS: Final = re.compile(r"[ \t]*``\w+[ \t]*$")
_PROSE: Final = re.compile(r"#{1,6} |[A-Z][a-z]+[ ,.]|[-*] \w|$")
_HEADING: Final = re.compile(r"^#{1,6} ", re.M)
_NO_SPACE: Final = re.compile(r"#{1,6}[A-Za-z][^#\n]*$")
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`)(?:.*?[^`])??\1(?!`)", re.S)
_CODE_MARK: Final = "\u00b7"  # neither a space, which would empty a cell, nor a letter
_ESCAPE: Final = re.compile(r"\\[\\`*_{}\[\]()#+.!|<>~-]")
_DELIMITER: Final = re.compile(r"[ \t>]*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*")


def check_markdown(text: str) -> list[Problem]:
    lines = Lines(text)
    found: list[Problem] = []
    prose = _without_code(lines, found)
    joined = "\n".join(prose)
    found += _references(joined, text)
    spaced = _HEADING.search(joined) is not None  # in files without any it is an older way to write them
    for number, row in enumerate(prose, 1):
        found += _links(number, row, prose[number] if number < len(prose) else "")
        if _TWO_TICKS.fullmatch(lines.row(number)) and row.strip():
            found.append(Problem(number, 1, "a code fence needs three backticks"))
        if _NO_SPACE.fullmatch(row) and not (number > 1 and prose[number - 2].strip()):
            severity: Severity = "error" if spaced else "warning"
            found.append(Problem(number, 1, "a heading needs a space after its '#'", severity))
        if _OPEN_DEFINITION.fullmatch(row):
            found.append(Problem(number, 1, "a definition of a link whose ']' is missing"))
    found += marked_conflicts(joined)
    found += _tables(prose)
    found += _blocks(joined)
    found += _marks(prose)
    return found


def _without_code(lines: Lines, found: list[Problem]) -> list[str]:
    """The rows with fenced code and front matter emptied, and escapes and code spans blanked."""
    rows = list(lines.rows)
    start = _front_matter(lines, rows, found)
    last_end = max((i for i, row in enumerate(rows) if _COMMAND_END.match(row)), default=0)
    opened: tuple[int, str] | None = None
    for index in range(start, len(rows)):
        if opened is None:
            if index < last_end and _COMMAND.match(rows[index]):
                opened = (index + 1, _COMMAND_END.pattern)
            else:
                opened = _opening(index + 1, rows[index])
            if opened is None:
                continue
        elif opened[1] == _COMMAND_END.pattern:
            opened = None if _COMMAND_END.match(rows[index]) else opened
        elif opened[1] == _COMMENT:
            opened = None if "-->" in rows[index] else opened
        elif _closes(opened[1], rows[index]):
            opened = None
        elif _is_inner(opened[1], rows[index]):
            found += _not_closed_before(opened[0], index + 1, lines)
            opened = (index + 1, opened[1])
        rows[index] = ""
    if opened is not None:
        found += _never_closed(*opened, lines)
    return _blank_spans(rows)


def _opening(line: int, row: str) -> tuple[int, str] | None:
    """The fence or the comment that a row opens and does not close itself."""
    match = _FENCE.match(row)
    if match:
        return line, match["mark"]
    if _COMMENT in row and _COMMENT in (plain := re.sub(r"<!--.*?-->", "", _CODE.sub("", row))):
        return (line, _COMMENT) if "`" not in plain else None
    return None


def _is_inner(mark: str, row: str) -> bool:
    """Whether a row in a fence opens another one with just the same mark, at the start of the line."""
    match = _FENCE.match(row)
    return match is not None and match["mark"] == mark and row.startswith(mark) and bool(match["info"])


def _not_closed_before(line: int, inner: int, lines: Lines) -> list[Problem]:
    found = [Problem(line, 1, f"the code fence opened here is not closed before the next at line {inner}")]
    return found + _closing_place(line, inner, lines)


def _closing_place(line: int, last: int, lines: Lines) -> list[Problem]:
    """Where the prose seems to go on after the code that starts at `line`."""
    for number in range(line + 1, last):
        if lines.is_blank(number) and _PROSE.match(lines.row(number + 1)):
            return [Problem(number, 1, f"the closing fence for line {line} may be missing here")]
    return []


def _closes(mark: str, row: str) -> bool:
    match = _FENCE.match(row)
    return match is not None and match["mark"].startswith(mark) and not match["info"]


def _never_closed(line: int, mark: str, lines: Lines) -> list[Problem]:
    if mark == _COMMENT:
        return [Problem(line, 1, "the comment opened here is never closed")]
    last = lines.end()
    found = [Problem(line, 1, "the code fence opened here is never closed")]
    found += _closing_place(line, last.line, lines)
    return (
        found
        if len(found) > 1 or last.line == line
        else [*found, Problem(*last, "the closing fence is missing")]
    )


def _front_matter(lines: Lines, rows: list[str], found: list[Problem]) -> int:
    if not rows or rows[0].rstrip() != "---":
        return 0
    for index in range(1, len(rows)):
        if rows[index].rstrip() in ("---", "..."):
            found += _yaml("\n".join(["", *rows[1:index]]))
            rows[: index + 1] = [""] * (index + 1)
            return index + 1
        if not rows[index].strip():
            if index > 1 and _KEY.match(rows[1]) and "---" not in {row.rstrip() for row in rows[index:]}:
                found.append(Problem(1, 1, "the front matter opened here is never closed"))
                found.append(Problem(index + 1, 1, "'---' may be missing here"))
            break
    return 0


def _yaml(text: str) -> list[Problem]:
    from perdure.validate.yaml_text import check_yaml

    return [Problem(p.line, p.col, f"in the front matter: {p.message}", p.severity) for p in check_yaml(text)]


def _blank_spans(rows: list[str]) -> list[str]:
    """Code spans may go over lines, but not over blank ones."""
    text = _ESCAPE.sub("  ", "\n".join(rows))
    parts = re.split(r"(\n[ \t]*\n)", text)
    blanked = [_CODE.sub(lambda match: re.sub(r"[^\n]", _CODE_MARK, match[0]), part) for part in parts]
    return "".join(blanked).split("\n")


def _references(prose: str, text: str) -> list[Problem]:
    known = {_label(label) for label in _DEFINITION.findall(text)}
    lines = Lines(prose)
    found = []
    for match in _REFERENCE.finditer(prose):
        if _label(match[2] or match[1]) not in known and not match[1].startswith("^"):
            found.append(warning(*lines.place(match.start()), "a reference link without a definition"))
    return found


def _label(text: str) -> str:
    return " ".join(text.split()).casefold()


def _links(number: int, row: str, following: str) -> list[Problem]:
    if row.startswith(("    ", "\t")):
        return []
    match = _OPEN_LINK.search(row) or _OPEN_TITLE.search(row)
    if match and not row.rstrip().endswith("(") and not re.match(r"[^()\n]*\)", following):
        return [Problem(number, match.start() + 1, "a link whose ')' is missing")]
    match = _NO_BRACKET.search(row)
    if match:
        return [Problem(number, match.start() + 1, "a link whose ']' is missing")]
    match = _TWICE_OPEN.search(row)
    if match:
        return [Problem(number, match.start() + 1, "a link with two '(' and one ')'")]
    match = _NEXT_LINK.search(row)
    if match:
        return [Problem(number, match.start() + 1, "a link whose ')' is missing before the next")]
    return []


def _blocks(prose: str) -> list[Problem]:
    """Tags of blocks that are opened and not closed, or the other way round; what they hold may be any Markdown."""
    lines = Lines(prose)
    found: list[Problem] = []
    opened: dict[str, list[int]] = {}
    for match in _BLOCK.finditer(prose):
        name = match["name"].lower()
        if not match["slash"]:
            opened.setdefault(name, []).append(match.start())
        elif not opened.get(name):
            found.append(Problem(*lines.place(match.start()), f"'</{name}>' has no '<{name}>' before it"))
        else:
            opened[name].pop()
    for name, starts in opened.items():
        for start in starts:
            place = lines.place(start)
            found.append(Problem(*place, f"the <{name}> opened here is never closed"))
            if name != "summary":
                found += _block_end(place.line, name, lines)
                found.append(Problem(*lines.end(), f"'</{name}>' for line {place.line} is missing"))
    return found


def _block_end(line: int, name: str, lines: Lines) -> list[Problem]:
    """After the first paragraph in a block, where it may have been meant to end."""
    last = len(lines.rows)
    inside = line + 1
    while inside < last and not lines.is_blank(inside):
        inside += 1
    while inside < last and lines.is_blank(inside):
        inside += 1
    while inside < last and not lines.is_blank(inside):
        inside += 1
    return [Problem(inside, 1, f"'</{name}>' for line {line} may be missing here")] if inside < last else []


def _tables(rows: list[str]) -> list[Problem]:
    found = []
    width = 0
    for number, row in enumerate(rows, 1):
        if number > 1 and "|" in row and "|" in rows[number - 2] and _DELIMITER.fullmatch(row):
            width = _cells(row)
            if _cells(rows[number - 2]) != width:
                found.append(Problem(number, 1, "the table's head and its line of dashes differ in width"))
        elif "|" not in row:
            width = 0
        elif width and _cells(row) != width:
            found.append(
                warning(number, 1, f"a table row of {_cells(row)} cells, where the head has {width}")
            )
    return found


def _cells(row: str) -> int:
    return row.strip(" \t>").strip("|").count("|") + 1


def _marks(rows: list[str]) -> list[Problem]:
    """Paragraphs with an odd number of marks for strong text, or a lone backtick."""
    found = []
    for start, end in _paragraphs(rows):
        part = rows[start:end]
        for mark, word in (("**", "'**'"), ("`", "a backtick")):
            counts = [sum(m[0] == mark for m in re.finditer(r"\*+|`+", row)) for row in part]
            if sum(counts) % 2:
                line = next(index for index, count in enumerate(counts) if count % 2)
                found.append(
                    warning(start + line + 1, part[line].index(mark) + 1, f"{word} without its partner")
                )
    return found


def _paragraphs(rows: list[str]) -> list[tuple[int, int]]:
    found, start = [], None
    for index, row in enumerate([*rows, ""]):
        apart = not row.strip() or re.match(r"\s*(?:[-*+]|\d+[.)])\s|\s*[#|]|    ", row)
        if apart and start is not None:
            found.append((start, index))
            start = None
        if row.strip() and start is None and not row.startswith(("    ", "\t")):
            start = index
    return found
