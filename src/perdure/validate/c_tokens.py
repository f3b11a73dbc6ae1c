"""C and C++ cut into tokens, with the preprocessor's lines apart and one branch of each conditional taken.

Both branches of an `#if` may open the same brace. Reading the first of them, and of `#ifdef __cplusplus` none
in C, gives a text in which brackets match if they do for the compiler.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from perdure.validate.layout import Lines
from perdure.validate.report import Problem
from perdure.validate.spelling import one_slip

_TOKEN: Final = re.compile(
    r"""(?P<splice>\\\n)|(?P<line>\n)|(?P<space>[ \t\f\v\r]+)
    |(?P<comment>//(?:\\\n|[^\n])*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)
    |(?P<raw>\b(?:u8|[uUL])?R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)")
    |(?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"|(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')
    |(?P<loose>/\*|["'])
    |(?P<word>[^\W\d]\w*|\.?\d(?:[\w.]|'(?=\w)|(?<=[eEpP])[-+])*)|(?P<mark>[()\[\]{};,#])|(?P<operator>.)""",
    re.S | re.X,
)
_DIRECTIVE: Final = re.compile(r"[ \t]*#[ \t]*(\w*)(.*)", re.S)
_BLANK: Final = re.compile(r"[^\n]")
_FOR_OTHERS: Final = re.compile(r"\s*(?:0|__cplusplus|defined\s*\(?\s*__cplusplus\s*\)?)\s*$")
_NEVER: Final = re.compile(r"\s*0\s*$")
_INCLUDED: Final = re.compile(r"\s*(?:<[^<>\n]*|\"[^\"\n]*)\s*$")
_DIRECTIVES: Final = ("include", "define", "endif", "ifdef", "ifndef", "undef", "pragma", "else", "error")
_OTHER_DIRECTIVES: Final = frozenset((
    "if", "elif", "elifdef", "elifndef", "warning", "line", "import", "include_next", "ident", "sccs", "assert",
    "unassert", "embed", "region", "endregion", "using", "",
))  # fmt: skip


def _is_open_include(word: str, rest: str) -> bool:
    return word in ("include", "include_next", "import") and _INCLUDED.match(rest) is not None


def _is_misspelt(word: str) -> bool:
    if word in _DIRECTIVES or word in _OTHER_DIRECTIVES:
        return False
    return any(one_slip(word, known) for known in _DIRECTIVES)


class Token(NamedTuple):
    kind: str
    text: str
    at: int


class Branch(NamedTuple):
    """An open `#if`: where it is, whether it is read now, and whether one of its branches was read."""

    line: int
    read: bool
    done: bool
    outer: bool


class Reading(NamedTuple):
    """A source as one reading of it: its tokens, the text with all else blanked, and what is wrong already."""

    tokens: list[Token]
    text: str
    problems: list[Problem]


def read(text: str, *, cplusplus: bool = False) -> Reading:
    """`cplusplus` takes the branches that are for C++ alone."""
    lines = Lines(text)
    problems: list[Problem] = []
    plain = _without_directives(text, problems, _NEVER if cplusplus else _FOR_OTHERS)
    tokens: list[Token] = []
    blanked: list[str] = []
    for match in _TOKEN.finditer(plain):
        kind = match.lastgroup or ""
        kind = "string" if kind == "tag" else kind
        if kind == "loose":
            what = "comment" if match[0] == "/*" else "string"
            problems.append(Problem(*lines.place(match.start()), f"a {what} that is not closed"))
            if what == "comment":
                break
        if kind in ("comment", "splice"):
            blanked.append(_BLANK.sub(" ", match[0]))
            continue
        blanked.append(match[0])
        if kind not in ("line", "space", "loose"):
            tokens.append(Token(kind, match[0], match.start()))
    return Reading(tokens, "".join(blanked), problems)


def emptied(text: str, tokens: list[Token]) -> str:
    """The text with other characters in its strings, so that no word in them is taken for one of the program."""
    pieces: list[str] = []
    done = 0
    for token in tokens:
        if token.kind in ("string", "raw"):
            start = token.at + token.text.index("(" if token.kind == "raw" else token.text[-1]) + 1
            end = token.at + (token.text.rindex(")") if token.kind == "raw" else len(token.text) - 1)
            pieces += [text[done:start], re.sub(r"[^\n]", "x", text[start:end])]
            done = end
    return "".join([*pieces, text[done:]])


def _without_directives(text: str, problems: list[Problem], passed: re.Pattern[str]) -> str:
    """The text with directives and branches not taken blanked; conditionals that do not match are problems."""
    out: list[str] = []
    stack: list[Branch] = []
    for line, row, is_directive in _logical_lines(text):
        reading = stack[-1].read if stack else True
        match = _DIRECTIVE.fullmatch(row) if is_directive else None
        if match is None:
            out.append(row if reading else _BLANK.sub(" ", row))
            continue
        out.append(_BLANK.sub(" ", row))
        word = match[1]
        if word in ("if", "ifdef", "ifndef"):
            take = reading and not (word != "ifndef" and passed.match(match[2]))
            stack.append(Branch(line, take, take, reading))
        elif word in ("elif", "else", "elifdef", "elifndef", "endif"):
            _turn(word, line, stack, problems)
        elif reading and _is_open_include(word, match[2]):
            problems.append(Problem(line, 1, "the name of an '#include' is not closed"))
        elif reading and _is_misspelt(word):
            problems.append(Problem(line, 1, f"'#{word}' is no directive"))
    problems += [Problem(branch.line, 1, "an '#if' without its '#endif'") for branch in stack]
    return "\n".join(out)


def _turn(word: str, line: int, stack: list[Branch], problems: list[Problem]) -> None:
    if not stack:
        problems.append(Problem(line, 1, f"'#{word}' without an '#if' before it"))
        return
    branch = stack.pop()
    if word != "endif":
        take = branch.outer and not branch.done
        stack.append(Branch(branch.line, take, branch.done or take, branch.outer))


def _logical_lines(text: str) -> list[tuple[int, str, bool]]:
    """Rows with their numbers, and whether each is a directive, which is joined with what continues it."""
    found: list[tuple[int, str, bool]] = []
    rows = text.split("\n")
    index = 0
    in_comment = False
    while index < len(rows):
        start, row = index, rows[index]
        is_directive = not in_comment and row.lstrip().startswith("#")
        if is_directive:
            while index + 1 < len(rows) and (row.endswith("\\") or _in_comment(row, False)):
                index += 1
                row += "\n" + rows[index]
        else:
            in_comment = _in_comment(row, in_comment)
        found.append((start + 1, row, is_directive))
        index += 1
    return found


def _in_comment(row: str, inside: bool) -> bool:
    """Whether a comment is open at the end of a row."""
    for mark in re.findall(r"//[^\n]*|/\*|\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)+'", row):
        if inside:
            inside = "*/" not in mark
        elif mark == "/*":
            inside = True
    return inside


def partners(tokens: list[Token]) -> dict[int, int]:
    """Each bracket's partner, by index; the brackets are known to match."""
    found: dict[int, int] = {}
    stack: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in "([{":
            stack.append(index)
        elif token.text in ")]}" and stack:
            opener = stack.pop()
            found[opener], found[index] = index, opener
    return found
