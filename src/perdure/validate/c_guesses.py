"""Guesses at macros, until the parser can read a C or C++ source or no guess helps.

A compiler knows what a macro stands for; here it can only be told by its looks. Where the parser stops near
one, it is put in other words (nothing, a value, a type, a function's head) and if that lets the parser go
on, it was the macro. What is left when no guess helps is an error. Every guess has the same length as what it
stands for, so places stay right.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from perdure.validate.c_commas import commas_reworded
from perdure.validate.c_macros import Macros
from perdure.validate.c_tokens import Token, emptied
from perdure.validate.code_text import explained
from perdure.validate.newer_syntax import reworded
from perdure.validate.report import Problem, warning
from perdure.validate.sources import Source
from perdure.validate.trees import Stop, first_stop, parse

AHEAD: Final = 3000
_TAKES_TYPES: Final = frozenset(
    ("offsetof", "va_arg", "container_of", "typeof", "alignof", "_Alignof", "_Generic")
)
_LOOPS: Final = re.compile(r"\w*(?:for_?each|for_?all|list_for|iterate)\w*", re.I)
_TYPE_LAST: Final = re.compile(
    r"[,(]\s*(?:(?:struct|union|enum)\s+\w+[\s*]*[,)]|\w[\w\s]*\*+\s*[,)]"
    r"|(?:(?:const|unsigned|signed)\s+\w+|int|char|double|float|long|short|void|bool|\w+_t)[\s*]*\))"
)
_HARD: Final = frozenset(
    ("operator", "template", "typename", "decltype", "requires", "concept", "asm", "__asm__", "module")
)
_ENDS: Final = (";", "{", "}")
_TYPES: Final = frozenset(("int", "char", "long", "short", "double", "float", "unsigned", "signed", "void"))
_BEGIN_DECLARATION: Final = _TYPES | frozenset(
    [
        "static",
        "extern",
        "const",
        "volatile",
        "struct",
        "union",
        "enum",
        "class",
        "typedef",
        "inline",
        "return",
        "template",
        "typename",
        "using",
        "virtual",
        "explicit",
        "friend",
        "constexpr",
        "auto",
        "register",
        "else",
    ]
)
_NEAR: Final = 20
_HEAD: Final = 8
_HEAD_NEAR: Final = 3


def doubted(problem: Problem) -> Problem:
    message = f"could not be read, perhaps for a macro: {problem.message}"
    return warning(problem.line, problem.col, message)


def _is_taken_apart(texts: list[str]) -> bool:
    """Arguments that no function takes: a type, or nothing."""
    if {("*", ","), ("(", ",")} & set(pairwise(texts)):
        return True
    triples = zip(texts, texts[1:], texts[2:], strict=False)
    return any(
        last == "," and one in _TYPES and (first == "(" or first in _TYPES) for first, one, last in triples
    )


class Guesser:
    """Parses again and again, each time past one more macro."""

    def __init__(
        self,
        name: str,
        text: str,
        tokens: list[Token],
        partner: dict[int, int],
        macros: Macros,
        until: float,
    ) -> None:
        self.name = name
        plain = emptied(text, tokens)
        self.text = reworded(name, commas_reworded(plain, tokens, partner) if name == "cpp" else plain)
        self.tokens = tokens
        self.partner = partner
        self.macros = macros
        self.until = until

    def run(self) -> list[Problem]:
        if not parse(self.name, self.text.encode()).root_node.has_error:
            return []
        stop = self._stop(len(self.text))
        while stop is not None:
            further = self._past(stop)
            if time.monotonic() > self.until:  # perhaps in the middle of a guess, which says nothing then
                place = Source(self.text).place(stop.token)
                return [
                    warning(*place, "from here on only quotes and brackets were checked: too many macros")
                ]
            if further is None:
                return [self._judged(stop)]
            stop = self._stop(len(self.text))
        return []

    def _judged(self, stop: Stop) -> Problem:
        """An error, or only a warning where a macro or a template may be behind it."""
        source = Source(self.text)
        problem = explained(self.name, stop, source)
        if self._is_plain(source.character(stop.token)):
            return problem
        return doubted(problem)

    def _is_plain(self, at: int) -> bool:
        """Whether the statement around an offset is such that the grammar is to be trusted."""
        here = next(
            (index for index, token in enumerate(self.tokens) if token.at >= at), len(self.tokens) - 1
        )
        start = here
        while start > 0 and not (self.tokens[start - 1].text in _ENDS and here - start > 1):
            start -= 1
        end = here
        while end < len(self.tokens) and self.tokens[end].text not in _ENDS:
            end += 1
        words = {token.text for token in self.tokens[start : end + 1] if token.kind == "word"}
        words |= {self.tokens[index].text for index in self._headers(here, _HEAD_NEAR)}
        hard = words & _HARD or any(word.endswith("_cast") for word in words)
        texts = [token.text for token in self.tokens[start : end + 1]]
        odd = _is_taken_apart(texts) or self._is_generator(start)
        return not (hard or odd or any(self.macros.has(word) for word in words))

    def _is_generator(self, index: int) -> bool:
        """A name with arguments at the left margin, where a declaration should be, and nothing after it."""
        tokens = self.tokens[index : index + 2]
        if len(tokens) < 2 or tokens[0].kind != "word" or tokens[1].text != "(":
            return False
        at = tokens[0].at
        is_margin = at == 0 or self.text[at - 1] == "\n"
        after = self.partner.get(index + 1, -2) + 1
        return is_margin and (after >= len(self.tokens) or self.tokens[after].text not in (";", "{"))

    def _stop(self, end: int) -> Stop | None:
        return first_stop(self.name, self.text[:end].encode())

    def _past(self, stop: Stop) -> str | None:
        """Reword a macro near the stop so that the parser gets further; None if nothing helps."""
        source = Source(self.text)
        at = source.character(stop.token)
        before = self.text
        for token, stand_ins in self._guesses(at):
            reached: dict[str, int] = {}
            for stand_in in stand_ins:
                if time.monotonic() > self.until:
                    break
                self.text = self._reworded(before, token, stand_in)
                if self.text != before:
                    # A class that is cut short cannot be read, however right its head is.
                    later = self._stop(len(before) if self._heads_class(token) else at + AHEAD)
                    reached[self.text] = later.token if later else len(before) + AHEAD
            best = max(reached, key=lambda text: reached[text], default=before)
            if reached.get(best, 0) > stop.token + 1:
                self.text = best
                return best
        self.text = before
        return None

    def _guesses(self, at: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Macros near an offset, nearest first, each with what it might stand for."""
        here = next(
            (index for index, token in enumerate(self.tokens) if token.at >= at), len(self.tokens) - 1
        )
        for index in self._near(here):
            token = self.tokens[index]
            if self.text[token.at] == " " or token.kind != "word":
                continue
            if self.macros.has(token.text) and self._heads_class(index):
                yield index, ("",)
            elif self.macros.has(token.text):
                yield index, ("", "0", ";", "int f()", "T", "if(1)")
            elif _LOOPS.fullmatch(token.text):
                yield index, ("if(1)",)
            elif self._is_qualifier(index) or self._is_attribute(index):
                yield index, ("",)
            elif token.text in _TAKES_TYPES or self._takes_type(index):
                yield index, ("0",)

    def _heads_class(self, index: int) -> bool:
        """Whether a word stands between `class` and the name of it."""
        names = [token.text for token in self.tokens[index - 1 : index + 2]] if index else []
        return len(names) == 3 and names[0] in ("class", "struct", "union") and names[2].isidentifier()

    def _is_qualifier(self, index: int) -> bool:
        """Whether a name stands directly before a type and what is declared with it, at the begin of a declaration."""
        before = self.tokens[index - 1].text if index else ";"
        names = [token.text for token in self.tokens[index : index + 8] if token.text != "*"][:3]
        if not names[0].isidentifier() or names[0] in _BEGIN_DECLARATION or self._follows(index, "*"):
            return False
        if before in _ENDS or before in ("static", "extern", "const", "volatile"):
            return len(names) == 3 and all(name.isidentifier() for name in names)
        if before in _TYPES:
            # A calling convention before a function's name
            return "_" in names[0] and len(names) == 3 and names[1].isidentifier() and names[2] == "("
        return before in ("*", "&", "(", ",") and self._is_mark(index)

    def _is_attribute(self, index: int) -> bool:
        """Whether something with arguments stands between a type and the name of a function: `void checked(1, 2) f(`."""
        before = self.tokens[index - 1] if index else None
        if before is None or before.kind != "word" or before.text in ("return", "else", "case", "goto"):
            return False
        after = self.partner.get(index + 1, len(self.tokens)) + 1
        names = [token.text for token in self.tokens[after : after + 2]]
        return self._follows(index, "(") and len(names) == 2 and names[0].isidentifier() and names[1] == "("

    def _is_mark(self, index: int) -> bool:
        """Whether a name before a type, or between a pointer and its name, stands so elsewhere too: `void *not_null p`."""
        name = self.tokens[index].text
        after = [token.text for token in self.tokens[index + 1 : index + 3]]
        declares = (
            len(after) == 2 and after[0].isidentifier() and after[1] in (",", ")", ";", "=", "[", "*", "(")
        )
        return declares and "_" in name and [token.text for token in self.tokens].count(name) > 1

    def _takes_type(self, index: int) -> bool:
        """Whether something like a call has a type for its last argument."""
        if not self._follows(index, "(") or index + 1 not in self.partner:
            return False
        return _TYPE_LAST.search(self.text[slice(*self._span(index))]) is not None

    def _near(self, here: int) -> Iterator[int]:
        """The tokens of the statement around one, going outwards, and the calls that enclose it."""
        yield from range(here, min(here + 2, len(self.tokens)))
        index, steps = here - 1, 0
        while index >= 0 and steps < _NEAR:
            token = self.tokens[index]
            if token.text in (")", "}") and index in self.partner and token.text == ")":
                index = self.partner[index]
            elif token.text in (";", "}") and steps > 3:
                break
            else:
                yield index
            index -= 1
            steps += 1
        yield from self._headers(here, _HEAD)

    def _headers(self, here: int, most: int) -> Iterator[int]:
        """What stands before the braces around a token: the name of a call, or some words, such as those of a class
        with a macro before its name.
        """
        blocks = [i for i in range(here) if self.tokens[i].text == "{" and self.partner.get(i, 0) > here]
        for brace in [*blocks[:2], *blocks[-2:]]:
            before = brace - 1
            if before > 0 and self.tokens[before].text == ")":
                before = self.partner[before] - 1
            for index in range(before, max(before - most, -1), -1):
                if before - index >= _HEAD_NEAR and self.tokens[index].text in _ENDS:
                    break
                yield index

    def _reworded(self, text: str, index: int, stand_in: str) -> str:
        """The text with one macro, or all of its name in like company, reworded with its arguments."""
        company = self._company(index)
        pieces: list[str] = []
        done = 0
        for other in (i for i, token in enumerate(self.tokens) if token.text == self.tokens[index].text):
            start, end = self._span(other)
            if start < done or len(stand_in) > end - start or text[start] == " ":
                continue
            if other != index and self._company(other) != company:
                continue
            gap = re.sub(r"[^\n]", " ", text[start:end])
            pieces += [text[done:start], _laid_into(gap, stand_in)]
            done = end
        return "".join([*pieces, text[done:]])

    def _span(self, index: int) -> tuple[int, int]:
        """From a name to the end of its arguments, if it has some."""
        token = self.tokens[index]
        following = self.tokens[index + 1] if index + 1 < len(self.tokens) else None
        if following is not None and following.text == "(" and index + 1 in self.partner:
            last = self.tokens[self.partner[index + 1]]
            return token.at, last.at + 1
        return token.at, token.at + len(token.text)

    def _company(self, index: int) -> tuple[str, str]:
        end = self.partner.get(index + 1, index) if self._follows(index, "(") else index
        before = self.tokens[index - 1] if index else None
        after = self.tokens[end + 1] if end + 1 < len(self.tokens) else None
        return _kind(before), _kind(after)

    def _follows(self, index: int, mark: str) -> bool:
        return index + 1 < len(self.tokens) and self.tokens[index + 1].text == mark


def _laid_into(gap: str, stand_in: str) -> str:
    """The stand-in at the start of a gap, whose line breaks stay."""
    if "\n" in gap[: len(stand_in)]:
        return gap
    return stand_in + gap[len(stand_in) :]


def _kind(token: Token | None) -> str:
    if token is None:
        return ""
    return token.kind if token.kind in ("word", "string") else token.text
