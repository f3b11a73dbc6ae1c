"""HTML: tags that do not match, tags and comments that do not end, marks of a merge conflict.

Elements whose end tag the standard lets an author omit need none. A browser accepts any text, so all findings are
doubts. A template may open an element in one branch and close it in another, so it is not checked.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from perdure.validate.lines import Lines
from perdure.validate.report import CannotCheck, Doubtful, Problem

MAX_PROBLEMS: Final = 20
_VOID: Final = frozenset((
    "area", "base", "basefont", "bgsound", "br", "col", "command", "embed", "frame", "hr", "img", "input", "keygen",
    "link", "meta", "param", "source", "track", "wbr",
))  # fmt: skip
_RAW: Final = ("script", "style", "textarea", "title", "xmp")
_OPTIONAL_END: Final = frozenset((
    "html", "head", "body", "p", "li", "dt", "dd", "option", "optgroup", "colgroup", "caption", "thead", "tbody",
    "tfoot", "tr", "td", "th", "rb", "rt", "rtc", "rp",
))  # fmt: skip
_MARKUP: Final = re.compile(
    r"(?m:^(?:<{7}|>{7})(?: [^\s<>=][^\n]*)?$)|<!--|<!\[CDATA\[|<\?|<%|<!|<(?=/?[A-Za-z])"
)
_ENDS: Final = {"<!--": re.compile("--!?>")} | {
    mark: re.compile(re.escape(end))
    for mark, end in (("<![CDATA[", "]]>"), ("<?", "?>"), ("<%", "%>"), ("<!", ">"))
}
# Possessive: backtracking over many quotes would take exponential time.
_TAG: Final = re.compile(
    r"<(?P<slash>/?)(?P<name>[A-Za-z][^\s/>\"'=<]*+)"
    r"(?P<rest>(?:[^\"'<>=]++|\"[^\"]*+\"|=\s*+'[^']*+'|=|')*+)>"
)
# A slash at the end of an unquoted value belongs to the value.
_BARE_VALUE: Final = re.compile(r"=[^\s\"'=]+\Z")
_PLAIN_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,23}")
_TEMPLATE: Final = re.compile(
    r"\{%|<\?(?:php|=)|<%|\[%|<#|\{\{[-~]?\s*(?:[#/^]|if|range|else|end|each|with)\b|@if\b|@foreach\b"
    r"|<!--BEGIN [A-Z_]+-->|<!--#include\b|\$(?:projectname|generatedby|relpath\^)"
)


def check_html(text: str) -> list[Problem]:
    problems = _Reader(text.removeprefix("\ufeff")).run()
    if problems and _TEMPLATE.search(text):
        raise CannotCheck("looks like a template: only its output can be checked")
    if problems:
        raise Doubtful(problems)
    return []


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.stack: list[tuple[str, int]] = []
        self.open: Counter[str] = Counter()
        self.problems: list[Problem] = []
        self.endless: set[str] = set()

    def run(self) -> list[Problem]:
        position = 0
        while (match := _MARKUP.search(self.text, position)) and len(self.problems) < MAX_PROBLEMS:
            mark, at = match[0], match.start()
            if mark in _ENDS:
                position = self._past(mark, match.end())
                if mark == "<!--" and mark in self.endless:
                    self._report(at, "the comment opened here is never closed")
                    return self.problems
            elif mark != "<":
                self._report(at, "a mark of a merge conflict")
                position = match.end()
            elif tag := _TAG.match(self.text, at):
                position = self._tag(tag)
            else:
                self._report(at, "a tag that does not end: a quote or '>' is missing")
                position = match.end()
        for name, at in self.stack[:MAX_PROBLEMS]:
            self._unclosed(name, at)
        return self.problems

    def _past(self, mark: str, position: int) -> int:
        """The offset after the end that belongs to a mark; without one the mark is text like any other."""
        end = None if mark in self.endless else _ENDS[mark].search(self.text, position)
        if end is None:
            self.endless.add(mark)
            return position
        return end.end()

    def _tag(self, match: re.Match[str]) -> int:
        """Take a tag; the offset to read on from, which is past the text of a script."""
        name, at = match["name"].lower(), match.start()
        is_foreign = self.open["svg"] + self.open["math"] > 0
        is_closed = match["rest"].endswith("/") and not _BARE_VALUE.search(match["rest"])
        if match["slash"]:
            self._end(name, at)
        elif is_closed or (name in _VOID and not is_foreign):
            pass
        elif name in _RAW and not is_foreign:
            end = re.compile(rf"</{name}\s*>", re.I).search(self.text, match.end())
            if end is None:
                self._unclosed(name, at)
            return end.end() if end is not None else len(self.text)
        else:
            self.stack.append((name, at))
            self.open[name] += 1
        return match.end()

    def _end(self, name: str, at: int) -> None:
        if name in _VOID:
            return
        if not self.open[name]:
            if name not in ("p", "html", "body"):
                self._report(at, f"{_show(name, '/')} closes nothing")
            return
        while self.stack[-1][0] != name:
            self._unclosed(*self._pop())
        self._pop()

    def _pop(self) -> tuple[str, int]:
        element = self.stack.pop()
        self.open[element[0]] -= 1
        return element

    def _unclosed(self, name: str, at: int) -> None:
        if name not in _OPTIONAL_END:
            self._report(at, f"{_show(name)} is never closed")

    def _report(self, at: int, message: str) -> None:
        self.problems.append(Problem(*self.lines.position(at), message))


def _show(name: str, slash: str = "") -> str:
    return f"<{slash}{name}>" if _PLAIN_NAME.fullmatch(name) else "a tag"
