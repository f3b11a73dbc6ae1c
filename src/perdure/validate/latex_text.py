r"""LaTeX, as far as it can be read without running it: groups and environments that open and close.

Escapes, comments, verbatim material and URLs are skipped. The arguments of a definition may hold half of a pair:
`\begin` in one and `\end` in another. The check ends at the first error. A document without a class and a misspelt
`\begin` or `\end` are warnings.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from perdure.validate.lines import Lines
from perdure.validate.report import CannotCheck, Problem, quote_token, warning

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
    |(?P<skip>\\(?:string[{}$%]|(?:(?:cat|lc|uc|sf)code|char)\s*`\\?.|[A-Za-z@]+|[^A-Za-z]|$)|\^\^.)
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
# A part of a larger text may quote by a bar that is defined elsewhere: |\begin{x}| and |\end{x}| show it.
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
_GROUP_PART: Final = re.compile(r"\\.|[{}]|\n[ \t]*\n", re.S)
# What sets the class of a document, or reads a file that may set it.
_CLASS: Final = re.compile(
    r"\\(?:documentclass|documentstyle|LoadClass|input|include|InputIfFileExists|subfile|import)(?![A-Za-z])|^%&",
    re.M,
)
_MISSPELT: Final = re.compile(
    r"\\(?:(?P<begin>being|bgein|beign|begni|begn|beginn|bigin|ebgin|bein)|ned|edn|ende|endd)"
)
# How many groups after a defining command may hold halves of pairs.
_ARGUMENTS: Final = 4


class _Open(NamedTuple):
    """A group ("{") or an environment that is not closed yet. In a definition it is unpaired: it may never be."""

    mark: str
    at: int
    unpaired: bool


class _Unbalanced(Exception):
    def __init__(self, at: int, message: str) -> None:
        super().__init__(message)
        self.at = at


def check_latex(text: str) -> list[Problem]:
    reader = _Reader(text)
    try:
        reader.run()
    except _Unbalanced as error:
        if _TEMPLATE.search(text):
            raise CannotCheck("looks like a template: only its output can be checked") from None
        if _CATCODES.search(text):
            raise CannotCheck("not checked: the text gives other meanings to braces or backslashes") from None
        return [*reader.warnings(), Problem(*Lines(text).position(error.at), str(error))]
    return reader.warnings()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.stack: list[_Open] = []
        self.verbatim = _VERBATIM | set(_NEW_VERBATIM.findall(text))
        self.definition = self.arguments = 0
        self.document: int | None = None  # where `\begin{document}` is
        self.misspelt: list[tuple[int, str, str]] = []  # where, as written, and the word that is meant

    def warnings(self) -> list[Problem]:
        lines = Lines(self.text)
        found = [
            warning(*lines.position(at), f"'\\{written}' is probably a misspelt '\\{meant}'")
            for at, written, meant in self.misspelt
            if re.search(rf"\\(?:\w*command\*?|\w*def|let)\s*\{{?\\{written}\b", self.text) is None
        ]
        if self.document is not None and _CLASS.search(self.text, 0, self.document) is None:
            message = "'\\documentclass' is missing before '\\begin{document}'"
            found.append(warning(*lines.position(self.document), message))
        return found

    def run(self) -> None:
        position, token = 0, self._token()
        while match := token.search(self.text, position):
            position = match.end()
            kind = match.lastgroup or ""
            if kind == "env" and match["which"] == "end" and match["name"] == "document":
                if not self._is_argument(match.start()):
                    self._end(match)
                    break
            elif kind == "env":
                position = self._environment(match)
            elif kind == "never":
                position = self._past_condition(position)
            elif kind == "url":
                position = self._past_group(position)
            elif match[0] == r"\endinput" and not self.stack:
                break
            else:
                self._take(kind, match)
        for left in self.stack:
            if not left.unpaired:
                raise self._unclosed(left)

    def _token(self) -> re.Pattern[str]:
        """The tokens to look for, with the short quotes of this text first."""
        quotes = set(_SHORT_VERB.findall(self.text)) | ({"|"} if _quotes_with_bars(self.text) else set())
        if not quotes:
            return _TOKEN
        marks = "|".join(f"{re.escape(mark)}[^\\n]*?{re.escape(mark)}" for mark in sorted(quotes))
        return re.compile(f"(?P<quoted>(?<!\\\\)(?:{marks}))|{_TOKEN.pattern}", _TOKEN.flags)

    def _take(self, kind: str, match: re.Match[str]) -> None:
        if kind == "brace":
            self._open("{", match.start()) if match[0] == "{" else self._close_group(match.start())
        elif self._is_unpaired():
            return
        elif kind == "skip" and (spelling := _MISSPELT.fullmatch(match[0])) and self._has_group(match.end()):
            self.misspelt.append((match.start(), match[0][1:], "begin" if spelling["begin"] else "end"))
        elif kind == "define":
            self.definition = self.arguments = 1 if match[0].endswith("def") else _ARGUMENTS
        elif kind == "par" or (
            kind == "skip" and match[0][1:2].isalpha() and self.definition < self.arguments
        ):
            self.definition = 0  # what another command takes is no part of the definition

    def _open(self, mark: str, at: int) -> None:
        self.stack.append(_Open(mark, at, self._is_unpaired() or self.definition > 0))

    def _close_group(self, at: int) -> None:
        while self.stack and self.stack[-1].mark != "{" and self.stack[-1].unpaired:
            self.stack.pop()
        if not any(left.mark == "{" for left in reversed(self.stack)):
            raise _Unbalanced(at, "closing brace '}' has no opening brace '{' before it")
        if self.stack[-1].mark != "{":
            raise self._unclosed(self.stack[-1])
        self.stack.pop()
        if not self._is_unpaired():
            self.definition = max(0, self.definition - 1)

    def _environment(self, match: re.Match[str]) -> int:
        r"""Take `\begin` or `\end`; the offset to read on from, which is past verbatim material."""
        name, at = match["name"], match.start()
        if not self._is_unpaired():
            self.definition = 0
        if match["which"] == "end":
            self._end(match)
        elif name in self.verbatim:
            end = self.text.find(f"\\end{{{name}}}", match.end())
            if end < 0:
                raise self._unclosed(_Open(name, at, False))
            return end + len(name) + 6
        else:
            row_start = self.text.rfind("\n", 0, at) + 1
            if name == "document" and self.stack and not self.text[row_start:at].strip():
                raise self._unclosed(self.stack[0])
            if name == "document" and not self.stack:
                self.document = at
            self._open(name, at)
        return match.end()

    def _end(self, match: re.Match[str]) -> None:
        name = match["name"]
        top = self.stack[-1] if self.stack else None
        if top is not None and (top.mark == name or top.unpaired):
            if top.mark == name:
                self.stack.pop()
        elif any(left.mark == name for left in self.stack):
            raise self._unclosed(self.stack[-1])
        elif top is not None and top.mark != "{":
            line = self.text.count("\n", 0, top.at) + 1
            message = f"{_env('end', name)} mismatches {_env('begin', top.mark)} of line {line}"
            raise _Unbalanced(match.start(), message)
        elif self.stack or name == "document":
            raise _Unbalanced(match.start(), f"{_env('end', name)} has no {_env('begin', name)} before it")

    def _unclosed(self, left: _Open) -> _Unbalanced:
        if left.mark == "{":
            return _Unbalanced(left.at, "brace '{' is never closed")
        message = f"{_env('begin', left.mark)} is never closed: it has no {_env('end', left.mark)}"
        return _Unbalanced(left.at, message)

    def _is_unpaired(self) -> bool:
        return bool(self.stack) and self.stack[-1].unpaired

    def _has_group(self, at: int) -> bool:
        return self.text[at : at + 1] == "{"

    def _is_argument(self, at: int) -> bool:
        """Whether a group was opened on the same line, as for an argument of a condition."""
        top = self.stack[-1] if self.stack else None
        return top is not None and top.mark == "{" and "\n" not in self.text[top.at : at]

    def _past_condition(self, position: int) -> int:
        r"""The offset after the `\fi` that ends the condition open at `position`, or `position` if there is none."""
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
        for match in _GROUP_PART.finditer(self.text, position):
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if depth == 0:
                return match.end() if match[0] == "}" else position
            if match[0].startswith("\n"):
                break
        return position


def _quotes_with_bars(text: str) -> bool:
    first = _WHOLE.search(text)
    is_part = first is None or first["part"] is not None
    return _WITH_SHORT_VERB.search(text) is not None or (is_part and _PART_QUOTE.search(text) is not None)


def _env(which: str, name: str) -> str:
    return f"'\\{which}{{{name}}}'" if quote_token(name.rstrip("*")).startswith("'") else f"'\\{which}'"
