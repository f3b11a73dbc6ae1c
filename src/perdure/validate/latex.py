r"""LaTeX, as far as it can be read without running it: groups and environments that open and close.

Comments, verbatim material and URLs are skipped. An environment may begin or end inside a group alone, as in the
definition of another one. The check stops at the first error. Math that is not closed in its paragraph, a document
without a class and a misspelt `\begin` or `\end` are warnings. A text that programs TeX is not judged where it looks wrong.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from perdure.validate.report import CannotCheck, Lines, Problem, quote_token, warning

_VERBATIM: Final = frozenset({
    "BVerbatim", "LTXexample", "LVerbatim", "Verbatim", "VerbatimOut", "alltt", "asy", "code", "codeexample", "comment",
    "dot2tex", "filecontents", "gnuplot", "listing", "lstlisting", "luacode", "minted", "pycode", "python", "sagesilent",
    "sourcecode", "spverbatim", "tcblisting", "tkzexample", "verbatim", "verbatimtab",
})  # fmt: skip
_TOKEN: Final = re.compile(
    r"""(?P<comment>%[^\n]*)
    |(?P<quoted>\\(?:verb|lstinline|mintinline\s*\{\w*\}|path)\*?(?:\[[^\]\n]*\])?(?P<d>[^\sA-Za-z*{])[^\n]*?(?P=d))
    |(?P<url>\\(?:url|href|path|nolinkurl|burl|lstinline)\*?\s*\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)*\})
    |(?P<env>\\(?P<which>begin|end)\s*\{(?P<name>[^{}\\\n$]*)\})
    |(?P<display>\\[\[\]])
    |(?P<word>\\(?:string|char\s*`)\\?.|\\[A-Za-z@]+|\\.|\^\^.)
    |(?P<math>\$\$?)
    |(?P<brace>[{}])
    |(?P<paragraph>\n[ \t]*\n)""",
    re.S | re.X,
)
# Commands that change what characters mean, or that choose between parts of the text.
_PROGRAMMED: Final = re.compile(
    r"\\(?:catcode|else|fi|endinput|MakeShortVerb|DefineShortVerb|lstMakeShortInline|lstnewenvironment|newverbatim"
    r"|DefineVerbatimEnvironment|newtcblisting|newminted|let|bgroup|egroup|cs_new|ExplSyntaxOn)(?![A-Za-z])"
    r"|\\(?:documentclass|LoadClass)(?:\[[^\]]*\])?\{(?:ltx\w*|l3doc|doc\w*|amsdtx)\}|\|\\(?:begin|end)\{|\|[{}]\|"
)
_CLASS: Final = re.compile(
    r"\\(?:documentclass|documentstyle|LoadClass|input|include|InputIfFileExists|subfile|import)(?![A-Za-z])|^%&",
    re.M,
)
_MISSPELT: Final = re.compile(
    r"\\(?:(?P<begin>being|bgein|beign|begni|begn|beginn|bigin|ebgin|bein)|ned|edn|ende|endd)"
)


class _Open(NamedTuple):
    r"""A group ("{"), math ("$", "$$", "\[") or an environment that is not closed yet."""

    mark: str
    at: int


class _Unbalanced(Exception):
    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


def check_latex(text: str) -> list[Problem]:
    reader = _Reader(text)
    lines = Lines(text)
    try:
        reader.run()
    except _Unbalanced as error:
        if _PROGRAMMED.search(text):
            raise CannotCheck("not checked: the text programs TeX") from None
        return [*reader.warnings, Problem(*lines.position(error.at), str(error))]
    return reader.warnings


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.stack: list[_Open] = []
        self.warnings: list[Problem] = []

    def run(self) -> None:
        position = 0
        while match := _TOKEN.search(self.text, position):
            position, at, token = match.end(), match.start(), match[0]
            if match["env"]:
                self._close_math()
                name = match["name"]
                if match["which"] == "begin":
                    position = self._begin(name, at, position)
                elif name == "document" and self._group() is None:
                    self._end(name, at)
                    break
                else:
                    self._end(name, at)
            elif match["brace"]:
                self._open_group(at) if token == "{" else self._close_group(at)
            elif match["math"] or match["display"]:
                self._math(token, at)
            elif match["paragraph"]:
                self._close_math()
                position -= 1  # the line end may begin the next empty line
            elif match["word"]:
                self._check_spelling(match)
        self._close_math()
        if self.stack:
            raise self._unclosed(self._group() or self.stack[-1])

    def _begin(self, name: str, at: int, end: int) -> int:
        """Take the begin of an environment; the offset to read on from, which is past verbatim material."""
        if name.rstrip("*") in _VERBATIM:
            end = self.text.find(f"\\end{{{name}}}", end)
            if end < 0:
                raise self._unclosed(_Open(name, at))
            return end + len(name) + len("\\end{}")
        if name == "document" and _CLASS.search(self.text, 0, at) is None:
            self._warn(at, "'\\documentclass' is missing before '\\begin{document}'")
        self.stack.append(_Open(name, at))
        return end

    def _end(self, name: str, at: int) -> None:
        top = self.stack[-1] if self.stack else None
        if top is None:
            if name == "document":
                raise _Unbalanced(at, f"{_env('end', name)} has no {_env('begin', name)} before it")
        elif top.mark == name:
            self.stack.pop()
        elif top.mark == "{":
            pass  # its begin is in another group
        elif any(outer.mark == name for outer in self.stack):
            raise self._unclosed(top)
        else:
            line = self.lines.position(top.at).line
            raise _Unbalanced(at, f"{_env('end', name)} mismatches {_env('begin', top.mark)} of line {line}")

    def _open_group(self, at: int) -> None:
        self.stack.append(_Open("{", at))

    def _close_group(self, at: int) -> None:
        """What began in the group may end in another one."""
        group = self._group()
        if group is None:
            raise _Unbalanced(at, "closing brace '}' has no opening brace '{' before it")
        while self.stack.pop() is not group:
            pass

    def _math(self, token: str, at: int) -> None:
        closes = "\\[" if token == "\\]" else token
        if self.stack and self.stack[-1].mark == closes and token != "\\[":
            self.stack.pop()
        elif token != "\\]":
            self.stack.append(_Open(token, at))

    def _close_math(self) -> None:
        """Math cannot go on over the end of a paragraph or an environment's begin or end."""
        while self.stack and self.stack[-1].mark == "$":
            self._warn(self.stack.pop().at, "the math opened by '$' is not closed in its paragraph")

    def _check_spelling(self, match: re.Match[str]) -> None:
        misspelt = _MISSPELT.fullmatch(match[0])
        if misspelt is None or self.text[match.end() : match.end() + 1] != "{":
            return
        defined = rf"\\(?:\w*command\*?|\w*def|let)\s*\{{?{re.escape(match[0])}(?![A-Za-z])"
        if re.search(defined, self.text) is None:
            meant = "begin" if misspelt["begin"] else "end"
            self._warn(match.start(), f"'{match[0]}' is probably a misspelt '\\{meant}'")

    def _group(self) -> _Open | None:
        return next((left for left in reversed(self.stack) if left.mark == "{"), None)

    def _unclosed(self, left: _Open) -> _Unbalanced:
        if left.mark == "{":
            return _Unbalanced(left.at, "the brace '{' is never closed")
        if left.mark in ("\\[", "$$"):
            return _Unbalanced(left.at, f"'{left.mark}' is never closed")
        return _Unbalanced(left.at, f"{_env('begin', left.mark)} is never closed")

    def _warn(self, at: int, message: str) -> None:
        self.warnings.append(warning(*self.lines.position(at), message))


def _env(which: str, name: str) -> str:
    return f"'\\{which}{{{name}}}'" if quote_token(name.rstrip("*")).startswith("'") else f"'\\{which}'"
