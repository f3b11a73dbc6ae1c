r"""LaTeX, as far as it can be read without running it: groups, environments and math that open and close.

One stack holds all three, so that `\text{$x$}` inside math is right and `{ $ }` is not. Escapes, comments,
verbatim material and URLs are skipped. The arguments of definitions may hold half of a pair: `\begin` in
one and `\end` in another.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem, Unsure, shown

_VERBATIM: Final = {
    "verbatim", "verbatim*", "Verbatim", "Verbatim*", "BVerbatim", "LVerbatim", "lstlisting", "minted", "comment",
    "filecontents", "filecontents*", "alltt", "verbatimtab", "listing*", "pycode", "luacode", "luacode*", "asy",
    "sagesilent", "spverbatim", "VerbatimOut", "tcblisting", "dot2tex", "gnuplot", "python", "code", "sourcecode",
    "LTXexample", "tkzexample", "codeexample",
}  # fmt: skip
_TOKEN: Final = re.compile(
    r"""(?P<comment>%[^\n]*)
    |(?P<verb>\\(?:verb|lstinline|mintinline\s*\{\w*\})\*?(?:\[[^\]\n]*\])?(?:\{[^{}\n]*\}|(?P<d>[^\sA-Za-z*{])[^\n]*?(?P=d)))
    |(?P<path>\\path\s*(?P<p>[|!+/])[^\n]*?(?P=p))
    |(?P<url>\\(?:url|href|path|nolinkurl|burl|hyperref)\*?(?=\s*\{))
    |(?P<half>(?<=[A-Za-z])\{\\(?:begin|end)\{[^{}\\\n$]*\}\})
    |(?P<env>\\(?P<which>begin|end)\s*\{(?P<name>[^{}\\\n$]*)\})
    |(?P<define>\\(?:(?:re)?newcommand|providecommand|(?:re)?newenvironment|[gex]?def|DeclareRobustCommand
        |(?:New|Renew|Provide|Declare)Document(?:Command|Environment)|DeclareMathOperator|newtcolorbox|AtBegin\w*
        |AtEnd\w*|lstnewenvironment|newtheoremstyle|titleformat|newcolumntype|tikzset|pgfkeys|cs_\w+:\w*
        |\w*NewEnviron\w*|BeforeBeginEnvironment|AfterEndEnvironment|pretocmd|apptocmd|patchcmd)(?![A-Za-z@]))
    |(?P<let>\\let(?![A-Za-z@])(?:\s*\\[A-Za-z@]+(?:\s*=[{}$])?)?)
    |(?P<never>\\iffalse(?![A-Za-z@]))
    |(?P<skip>\\(?:string[{}$%]|(?:(?:cat|lc|uc|sf)code|char)\s*`\\?.|[A-Za-z@]+|[^\[\]()A-Za-z]|$)|\{\$\$?\}|\^\^.)
    |(?P<math>\\[\[\]()]|\$\$?)
    |(?P<brace>[{}])
    |(?P<par>\n[ \t]*\n\s*)""",
    re.S | re.X,
)
_NEW_VERBATIM: Final = re.compile(
    r"\\(?:lstnewenvironment|DefineVerbatimEnvironment|newtcblisting|newverbatim\w*|newminted\[)\s*\{?(\w+\*?)[}\]]"
)
# Characters that quote what is between two of them; some classes come with one.
_SHORT_VERB: Final = re.compile(
    r"\\(?:MakeShortVerb|DefineShortVerb|lstMakeShortInline)\*?(?:\[[^\]]*\])?\s*\{?\\(.)"
)
# A part of a larger text has its quotes from there: |\begin{x}| and |\end{x}| show them.
_PART_QUOTE: Final = re.compile(
    r"(?<!\\left)(?<!\\right)(?<!\\)\|(?:\\(?:begin|end)\{[^{}|\n]*\}[^|\n]*|[{}$])\|"
)
_WHOLE: Final = re.compile(r"\\documentclass|\\(?P<part>(?:sub)*section|chapter|begin)(?![A-Za-z])")
_WITH_SHORT_VERB: Final = re.compile(
    r"\\(?:documentclass|LoadClass)(?:\[[^\]]*\])?\{(?:ltx\w+|l3doc|doc\w*|amsdtx)\}"
)
_CATCODES: Final = re.compile(r"\\catcode\s*`\\[\\{}%$]\s*=\s*\d")
_TEMPLATE: Final = re.compile(
    r"\$(?:projectn\w+|latexdocumentpre|doxygenversion)|^\$[a-z]+_[a-z]+\b|^%%BEGIN [A-Z_]+", re.M
)
_CONDITION: Final = re.compile(r"%[^\n]*|\\(?P<start>if[A-Za-z@]*)|\\(?P<end>fi)(?![A-Za-z@])|\\.", re.S)
_NO_CONDITIONS: Final = {"iff", "ifthenelse", "ifstrequal", "ifstrempty", "ifblank", "ifdefempty"}
_CLOSES: Final = {r"\)": r"\(", r"\]": r"\["}
_ENDS: Final = {"$": "$", "$$": "$$", r"\(": r"\)", r"\[": r"\]", "{": "}"}
_BREAK: Final = re.compile(r"\s*(?:\\(?:sub)*section\b|\\chapter\b|\\paragraph\b|$)")
# How many groups after a defining command may hold halves of pairs.
_ARGUMENTS: Final = 4


class Open(NamedTuple):
    """Something that waits for its end: a group, an environment or math."""

    mark: str
    place: Place
    free: bool


def check_latex(text: str) -> list[Problem]:
    found = _Reader(text).run()
    if found and _TEMPLATE.search(text):
        raise Unsure("looks like a template: only its output can be checked")
    if found and _CATCODES.search(text):
        raise Unsure("not checked: the text gives other meanings to braces or backslashes")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.quotes = set(_SHORT_VERB.findall(text)) | ({"|"} if _quotes_with_bars(text) else set())
        self.stack: list[Open] = []
        self.found: list[Problem] = []
        self.definition = 0
        self.arguments = 0
        self.verbatim = _VERBATIM | set(_NEW_VERBATIM.findall(text))

    def run(self) -> list[Problem]:
        position = 0
        token = self._token()
        while match := token.search(self.text, position):
            position = match.end()
            kind = match.lastgroup or ""
            if kind == "env":
                if match["which"] == "end" and match["name"] == "document":
                    if self._is_conditional(match.start()):
                        continue
                    self._end("document", self.lines.place(match.start()))
                    break
                position = self._environment(match)
            elif kind == "never":
                position = self._past_condition(position)
            elif kind == "url":
                position = self._past_group(position)
            elif match[0] == r"\endinput" and not self.stack:
                break
            else:
                self._take(kind, match)
        for left in self.stack[-3:]:
            if not left.free:
                self._unclosed(left, self.lines.end())
        return self.found

    def _token(self) -> re.Pattern[str]:
        """What to look for, with the short quotes of this text first."""
        if not self.quotes:
            return _TOKEN
        marks = "|".join(f"{re.escape(mark)}[^\\n]*?{re.escape(mark)}" for mark in sorted(self.quotes))
        return re.compile(f"(?P<quoted>(?<!\\\\)(?:{marks}))|{_TOKEN.pattern}", _TOKEN.flags)

    def _is_conditional(self, at: int) -> bool:
        """Whether the document ends in a group of the same line, as in an argument of a condition."""
        top = self.stack[-1] if self.stack else None
        return top is not None and top.mark == "{" and top.place.line == self.lines.place(at).line

    def _take(self, kind: str, match: re.Match[str]) -> None:
        place = self.lines.place(match.start())
        if kind == "define":
            if not self._is_free():
                self.definition = self.arguments = 1 if match[0].endswith("def") else _ARGUMENTS
        elif kind == "skip":
            if match[0][1:2].isalpha() and not self._is_free() and self.definition < self.arguments:
                self.definition = 0  # another command: what it takes is no part of the definition
        elif kind == "par":
            if not self._is_free():
                self.definition = 0
            self._paragraph_ends(place)
        elif kind == "brace":
            self._open("{", place) if match[0] == "{" else self._close_group(place)
        elif kind == "math":
            self._math(match[0], place)

    def _open(self, mark: str, place: Place) -> None:
        inherited = bool(self.stack) and self.stack[-1].free
        self.stack.append(Open(mark, place, inherited or self.definition > 0))

    def _environment(self, match: re.Match[str]) -> int:
        """Take `\\begin` or `\\end`; the offset to read on from, which is past verbatim material."""
        name, place = match["name"], self.lines.place(match.start())
        if not self._is_free():
            self.definition = 0
        if match["which"] == "end":
            self._end(name, place)
            return match.end()
        if name in self.verbatim:
            end = self.text.find(f"\\end{{{name}}}", match.end())
            if end < 0:
                self._unclosed(Open(name, place, False), self.lines.end())
                return len(self.text)
            return end + len(name) + 6
        if name == "document" and self.lines.first_on_line(place) and self.stack:
            self._unclosed(self.stack[0], place)
            self.stack.clear()
            self.definition = 0
        self._open(name, place)
        return match.end()

    def _end(self, name: str, place: Place) -> None:
        if self._is_free():
            if self.stack and self.stack[-1].mark == name:
                self.stack.pop()
            return
        known = any(left.mark == name for left in self.stack)
        if not known:
            self._end_of_nothing(name, place)
            return
        while self.stack[-1].mark != name:
            left = self.stack.pop()
            if not left.free:
                self._unclosed(left, place)
        self.stack.pop()

    def _end_of_nothing(self, name: str, place: Place) -> None:
        top = self.stack[-1] if self.stack else None
        if top is not None and top.mark not in _ENDS and top.mark != "document":
            self.found.append(
                Problem(
                    *place,
                    f"found {_env('end', name)}, expected {_env('end', top.mark)} for line {top.place.line}",
                )
            )
            self.stack.pop()
        elif self.stack or name == "document":
            self.found.append(Problem(*place, f"{_env('end', name)} has no {_env('begin', name)} before it"))
        if self.stack and not self.stack[-1].free:
            self._begin_missing(name, place)

    def _begin_missing(self, name: str, place: Place) -> None:
        """Say where `\\begin` may have been: above the indented lines, or after the last blank one."""
        line = place.line - 1
        depth = self.lines.indent(place.line)
        deeper = self.lines.indent(line) > depth
        while line > 1 and not self.lines.is_blank(line) and (not deeper or self.lines.indent(line) > depth):
            line -= 1
        if place.line - line > 1:
            self.found.append(
                Problem(line, 1, f"{_env('begin', name)} may be missing here: line {place.line} ends it")
            )

    def _close_group(self, place: Place) -> None:
        while self.stack and self.stack[-1].mark != "{" and self.stack[-1].free:
            self.stack.pop()
        if self.stack and self.stack[-1].mark in ("$", "$$", r"\(", r"\[") and self._has("{"):
            self._unclosed(self.stack.pop(), place)
        if self.stack and self.stack[-1].mark == "{":
            self.stack.pop()
            if not (self.stack and self.stack[-1].free):
                self.definition = max(0, self.definition - 1)
        else:
            self.found.append(Problem(*place, "'}' has no '{' before it"))

    def _math(self, mark: str, place: Place) -> None:
        if self._is_free():
            return
        top = self.stack[-1].mark if self.stack else ""
        if mark == "$$" and top == "$":
            self.stack[-1] = Open("$", place, False)
        elif mark in _CLOSES:
            if top == _CLOSES[mark]:
                self.stack.pop()
            elif top != "{":
                self.found.append(Problem(*place, f"'{mark}' has no '{_CLOSES[mark]}' before it"))
        elif mark == top and mark in _CLOSES.values():
            self._unclosed(self.stack.pop(), place)
            self._open(mark, place)
        elif mark == top:
            self.stack.pop()
        elif top == "$$" and mark == "$":
            self.found.append(
                Problem(*place, f"expected '$$' for the one at line {self.stack.pop().place.line}")
            )
        else:
            self._open(mark, place)

    def _paragraph_ends(self, place: Place) -> None:
        """Math cannot go over a paragraph's end."""
        while self.stack and self.stack[-1].mark in ("$", "$$") and not self.stack[-1].free:
            self._unclosed(self.stack.pop(), place)

    def _unclosed(self, left: Open, found: Place) -> None:
        if left.mark in _ENDS:
            self.found.append(Problem(*left.place, f"'{left.mark}' opened here needs '{_ENDS[left.mark]}'"))
            if left.mark in ("$$", r"\["):
                self._end_of_display(left, found)
            return
        place = self._end_place(left.place, found, is_document=left.mark == "document")
        self.found.append(
            Problem(*place, f"{_env('end', left.mark)} is missing: begun at line {left.place.line}")
        )
        if place.line - left.place.line > 1:
            self.found.append(Problem(*left.place, "the environment begun here is never ended"))

    def _end_of_display(self, left: Open, found: Place) -> None:
        """Say where displayed math seems to end: it holds no blank line."""
        for line in range(left.place.line + 2, found.line):
            if _BREAK.match(self.lines.row(line)):
                self.found.append(Problem(line, 1, f"'{_ENDS[left.mark]}' may be missing before here"))
                return

    def _end_place(self, start: Place, found: Place, *, is_document: bool) -> Place:
        """After the indented lines; without any, where the next blank line or heading is."""
        if self.lines.indent(found.line) < self.lines.indent(start.line) or is_document:
            return found
        place = self.lines.end_of_block(start.line, found.line - 1)
        if place.line > start.line:
            return place
        for line in range(start.line + 1, found.line):
            if _BREAK.match(self.lines.row(line)):
                return Place(line, 1)
        return found

    def _past_condition(self, position: int) -> int:
        """The offset after the `\\fi` that ends the condition open at `position`, or `position` if there is none."""
        depth = 1
        for match in _CONDITION.finditer(self.text, position):
            if match["end"]:
                depth -= 1
            elif match["start"] and match["start"] not in _NO_CONDITIONS:
                depth += 1
            if depth == 0:
                return match.end()
        return position

    def _past_group(self, position: int) -> int:
        """The offset after the group at `position`, whose characters mean nothing."""
        depth = 0
        for match in re.compile(r"\\.|[{}]|\n[ \t]*\n", re.S).finditer(self.text, position):
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if depth == 0:
                return match.end() if match[0] == "}" else position
            if match[0].startswith("\n"):
                break
        return position

    def _is_free(self) -> bool:
        return bool(self.stack) and self.stack[-1].free

    def _has(self, mark: str) -> bool:
        return any(left.mark == mark for left in self.stack)


def _quotes_with_bars(text: str) -> bool:
    first = _WHOLE.search(text)
    is_part = first is None or first["part"] is not None
    return _WITH_SHORT_VERB.search(text) is not None or (is_part and _PART_QUOTE.search(text) is not None)


def _env(which: str, name: str) -> str:
    return f"'\\{which}{{{name}}}'" if shown(name.rstrip("*")).startswith("'") else f"'\\{which}'"
