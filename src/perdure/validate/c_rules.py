"""Slips in C and C++ that show without knowing any macro: a statement without ';', two operands side by side.

Only code blocks are looked at, and only lines that start a new statement for certain at the indentation of the
one before, so that what a macro may stand for does not matter.
"""

from __future__ import annotations

import re
from typing import Final

from perdure.validate.c_tokens import Token
from perdure.validate.layout import Lines
from perdure.validate.report import Problem, shown

_STARTS: Final = frozenset(
    (
        "return",
        "if",
        "for",
        "while",
        "do",
        "switch",
        "break",
        "continue",
        "goto",
        "case",
        "int",
        "char",
        "unsigned",
    )
)
_DECLARES: Final = frozenset(
    (
        "static",
        "int",
        "void",
        "char",
        "extern",
        "typedef",
        "struct",
        "class",
        "namespace",
        "template",
        "enum",
        "unsigned",
        "inline",
        "constexpr",
        "using",
        "bool",
    )
)
_TYPES: Final = frozenset(
    ("int", "char", "float", "double", "long", "short", "unsigned", "bool", "size_t", "auto", "struct")
)
_HEADS: Final = frozenset(("if", "for", "while", "switch", "catch", "else", "do", "try"))
_BEFORE_NUMBER: Final = frozenset(
    ("return", "case", "else", "goto", "sizeof", "throw", "co_return", "co_yield", "and", "or")
)
_CAPITALS: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_ASSIGNS: Final = ("=", "-", ".", "+", "[")


def slips(tokens: list[Token], partner: dict[int, int], text: str, lines: Lines) -> list[Problem]:
    """The slips in a source whose brackets match; `text` still has the directives in it."""
    found: list[Problem] = []
    blocks: list[bool] = []
    for index, token in enumerate(tokens):
        if token.kind == "mark" and token.text == "{":
            blocks.append(_is_code(tokens, partner, index))
        elif token.kind == "mark" and token.text == "}" and blocks:
            if blocks[-1] and _unfinished(tokens, partner, index, text, lines):
                found.append(_missing(tokens, index, lines))
            if _is_bare_type(tokens, partner, index, text, lines):
                found.append(Problem(*lines.place(token.at + 1), "expected ';' after this '}'"))
            blocks.pop()
        elif blocks and blocks[-1]:
            if _unfinished(tokens, partner, index, text, lines):
                found.append(_missing(tokens, index, lines))
            elif _touching(tokens, index):
                found.append(Problem(*lines.place(token.at), "a number where an operator or ';' is expected"))
    return found[:20]


def bare_namespaces(tokens: list[Token], lines: Lines) -> list[Problem]:
    """Namespaces whose name ends the line and is followed by something else than a brace."""
    found: list[Problem] = []
    for index, token in enumerate(tokens[:-2]):
        name, following = tokens[index + 1], tokens[index + 2]
        if token.text != "namespace" or name.kind != "word" or following.kind != "word":
            continue
        if lines.place(following.at).line > lines.place(name.at).line:
            found.append(Problem(*lines.place(name.at + len(name.text)), "expected '{' after this namespace"))
    return found


def bare_access(tokens: list[Token], lines: Lines) -> list[Problem]:
    """`public` and its like at the end of a line, where a ':' must follow."""
    found: list[Problem] = []
    for before, token, following in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.text not in ("public", "private", "protected") or following.kind != "word":
            continue
        if before.text in ("{", ";", "}") and lines.place(following.at).line > lines.place(token.at).line:
            found.append(
                Problem(*lines.place(token.at + len(token.text)), f"expected ':' after {token.text}")
            )
    return found


def _is_code(tokens: list[Token], partner: dict[int, int], brace: int) -> bool:
    """Whether a brace opens statements rather than values, names or members."""
    before = tokens[brace - 1] if brace else None
    if before is None:
        return False
    if before.text in ("else", "do", "try", ";", "}", "{"):
        return before.text in ("else", "do", "try")
    if before.text != ")" or brace - 1 not in partner:
        return False
    opener = partner[brace - 1]
    return (
        opener > 0 and tokens[opener - 1].kind == "word" and not _CAPITALS.fullmatch(tokens[opener - 1].text)
    )


def _is_bare_type(tokens: list[Token], partner: dict[int, int], brace: int, text: str, lines: Lines) -> bool:
    """Whether a brace ends a struct or class and another declaration starts on a line below."""
    start = partner.get(brace, 0)
    depth = 0
    while start > 0 and tokens[start - 1].text not in (";", "{", "}", ")"):
        # Past the arguments of a base, but not past the parameters of a template.
        depth += (tokens[start - 1].text == ">") - (tokens[start - 1].text == "<")
        if depth == 1 and tokens[start].text in ("struct", "class", "union"):
            break
        start -= 1
    head = [token.text for token in tokens[start : partner.get(brace, 0)]]
    if (
        not head
        or head[0] not in ("struct", "union", "enum", "class", "typedef")
        or {"(", "="} & {*head}
        or brace + 1 == len(tokens)
    ):
        return False
    following = tokens[brace + 1]
    if head[0] == "typedef" and following.text.isidentifier() and brace + 2 < len(tokens):
        following = tokens[brace + 2]  # the name of the type
    if following.text not in _DECLARES or "#" in text[tokens[brace].at : following.at]:
        return False
    return (
        lines.first_on_line(lines.place(following.at))
        and lines.place(following.at).line > lines.place(tokens[brace].at).line
    )


def _unfinished(tokens: list[Token], partner: dict[int, int], index: int, text: str, lines: Lines) -> bool:
    """Whether a token starts a statement, or ends a block, while the one before has no ';'."""
    if index == 0 or not _starts_statement(tokens, index, lines):
        return False
    last = tokens[index - 1]
    here, there = lines.place(tokens[index].at), lines.place(last.at)
    if here.line == there.line or "#" in text[last.at : tokens[index].at]:
        return False
    first = _first_of(tokens, partner, index - 1)
    if first is None or not _is_statement(tokens, partner, first, index - 1):
        return False
    start = lines.place(tokens[first].at)
    if not lines.first_on_line(start):
        return False
    depth = lines.indent(start.line)
    return lines.indent(here.line) < depth if tokens[index].text == "}" else lines.indent(here.line) == depth


def _starts_statement(tokens: list[Token], index: int, lines: Lines) -> bool:
    token = tokens[index]
    if token.text == "}":
        return True
    if token.kind != "word" or not lines.first_on_line(lines.place(token.at)):
        return False
    following = tokens[index + 1].text if index + 1 < len(tokens) else ""
    return token.text in _STARTS or (not token.text[0].isdigit() and following in (*_ASSIGNS, "("))


def _first_of(tokens: list[Token], partner: dict[int, int], last: int) -> int | None:
    """The first token of the statement that ends with `last`, if it is a plain one."""
    index = last
    while index >= 0:
        text = tokens[index].text
        if text in (";", "{", "}", ":"):
            return index + 1 if index < last else None
        index = partner[index] - 1 if text in (")", "]") and index in partner else index - 1
    return None


def _is_statement(tokens: list[Token], partner: dict[int, int], first: int, last: int) -> bool:
    """Whether tokens are a call or an assignment that wants a ';' after it."""
    head, end = tokens[first], tokens[last]
    if (
        head.kind != "word"
        or head.text in _HEADS
        or _CAPITALS.fullmatch(head.text)
        or head.text in ("case", "default")
    ):
        return False
    if end.text == ")" and first + 1 in partner and partner[first + 1] == last:
        plain = (head.text.islower() and head.text[0] != "_") or _is_used_with_semicolon(
            tokens, partner, head.text
        )
        return plain and "each" not in head.text and "for" not in head.text
    if head.text == "return":
        return end.kind in ("word", "string") or end.text in (")", "]")
    if head.text in _TYPES and end.kind == "word" and end.text not in _TYPES and last - first < 4:
        return not _CAPITALS.fullmatch(end.text)
    assigns = any(token.text == "=" for token in tokens[first:last])
    return (
        assigns
        and (end.kind in ("word", "string") or end.text in (")", "]"))
        and not _CAPITALS.fullmatch(end.text)
    )


def _is_used_with_semicolon(tokens: list[Token], partner: dict[int, int], name: str) -> bool:
    """Whether the same call stands elsewhere with a ';', as a macro that brings its own would not."""
    for index, token in enumerate(tokens):
        if token.text == name and index + 1 in partner and tokens[index + 1].text == "(":
            after = partner[index + 1] + 1
            if after < len(tokens) and tokens[after].text == ";":
                return True
    return False


def _touching(tokens: list[Token], index: int) -> bool:
    token, before = tokens[index], tokens[index - 1] if index else None
    if before is None or token.kind != "word" or not token.text[0].isdigit() or before.kind != "word":
        return False
    return (
        before.text not in _BEFORE_NUMBER
        and not before.text[0].isdigit()
        and not _CAPITALS.fullmatch(before.text)
    )


def _missing(tokens: list[Token], index: int, lines: Lines) -> Problem:
    last = tokens[index - 1]
    place = lines.place(last.at + len(last.text))
    return Problem(*place, f"expected ';' before {shown(tokens[index].text)}")
