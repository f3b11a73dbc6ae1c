"""HTML: tags that do not match, attributes and comments that do not end.

Browsers take anything, so this holds to what the standard lets an author leave out: void elements, optional
end tags, and the text of scripts and styles. Templates may open in one branch and close in another; where
their marks appear between tags, nothing is an error.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from perdure.validate.conflicts import marked_conflicts
from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem, Unsure, warning
from perdure.validate.tags import Element, left_open, unclosed

_VOID: Final = frozenset((
    "area", "base", "basefont", "bgsound", "br", "col", "command", "embed", "frame", "hr", "img", "input", "keygen",
    "link", "meta", "param", "source", "track", "wbr",
))  # fmt: skip
_RAW: Final = ("script", "style", "textarea", "title", "xmp")
_OPTIONAL: Final = frozenset((
    "html", "head", "body", "p", "li", "dt", "dd", "option", "optgroup", "colgroup", "caption", "thead", "tbody",
    "tfoot", "tr", "td", "th", "rb", "rt", "rtc", "rp",
))  # fmt: skip
_OPEN: Final = re.compile(r"<!--|<!\[CDATA\[|<\?|<%|<!|<(?=/?[A-Za-z])")
_ENDS: Final = {"<!--": re.compile("--!?>")} | {
    mark: re.compile(re.escape(end))
    for mark, end in (("<![CDATA[", "]]>"), ("<?", "?>"), ("<%", "%>"), ("<!", ">"))
}
# Nothing is given back once it was taken: with many quotes that would take for ever.
_TAG: Final = re.compile(
    r"<(?P<slash>/?)(?P<name>[A-Za-z][^\s/>\"'=<]*+)"
    r"(?P<rest>(?:[^\"'<>=]++|\"[^\"]*+\"|=\s*+'[^']*+'|=|')*+)>"
)
# A slash at the end of it belongs to the value.
_BARE_VALUE: Final = re.compile(r"=[^\s\"'=]+\Z")
# A text with so many tags that do not end is not read further, since each may have to be read to the end.
MOST_LOOSE: Final = 50
_TEMPLATE: Final = re.compile(
    r"\{%|<\?(?:php|=)|<%|\[%|<#|\{\{[-~]?\s*(?:[#/^]|if|range|else|end|each|with)\b|@if\b|@foreach\b"
    r"|<!--BEGIN [A-Z_]+-->|<!--#include\b|\$(?:projectname|generatedby|relpath\^)"
)


def check_html(text: str) -> list[Problem]:
    reader = _Reader(text.removeprefix("\ufeff"))
    found = [*reader.run(), *reader.conflicts()]
    if any(p.severity == "error" for p in found) and _TEMPLATE.search(reader.without_scripts()):
        raise Unsure("looks like a template: only its output can be checked")
    return found


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = Lines(text)
        self.stack: list[Element] = []
        self.open: Counter[str] = Counter()
        self.found: list[Problem] = []
        self.loose = 0
        self.endless: set[str] = set()
        self.scripts: list[tuple[int, int]] = []

    def run(self) -> list[Problem]:
        position = 0
        while match := _OPEN.search(self.text, position):
            place = self.lines.place(match.start())
            if match[0] in _ENDS:
                position = self._past(match[0], match.end())
                if match[0] == "<!--" and match[0] in self.endless:
                    self.found.append(Problem(*place, "the comment opened here is never closed"))
                    return self.found
            elif tag := _TAG.match(self.text, match.start()):
                position = self._tag(tag, place)
            else:
                position = match.end()
                self.found.append(Problem(*place, "a tag that does not end: a quote or '>' is missing"))
                self.loose += 1
                if self.loose == MOST_LOOSE:
                    return self.found
        for element in reversed(self.stack[-5:]):
            if element.name not in _OPTIONAL:
                self.found += unclosed(element, self.lines.end(), self.lines)
        return self.found

    def conflicts(self) -> list[Problem]:
        """Marks of a merge conflict outside of scripts, which are not looked into, and of comments."""
        found = []
        for problem in marked_conflicts(self.text):
            at = self.lines.offset(problem.line)
            commented = self.text.rfind("<!--", 0, at) > self.text.rfind("-->", 0, at)
            if not commented and not any(start <= at < end for start, end in self.scripts):
                found.append(problem)
        return found

    def without_scripts(self) -> str:
        pieces, at = [], 0
        for start, end in self.scripts:
            pieces.append(self.text[at:start])
            at = end
        return "".join((*pieces, self.text[at:]))

    def _past(self, mark: str, position: int) -> int:
        """The offset after the end that belongs to a mark; without one the mark is text like any other."""
        end = None if mark in self.endless else _ENDS[mark].search(self.text, position)
        if end is None:
            self.endless.add(mark)
            return position
        return end.end()

    def _tag(self, match: re.Match[str], place: Place) -> int:
        """Take a tag; the offset to read on from, which is past the text of a script."""
        name = match["name"].lower()
        if "\n" in match["rest"] and self._swallowed(match["rest"]):
            self.found.append(Problem(*place, "a quote is missing in the tag that starts here"))
        if match["slash"]:
            self._end(name, place)
            return match.end()
        closed = match["rest"].endswith("/") and not _BARE_VALUE.search(match["rest"])
        self._start(name, place, closed=closed)
        if name not in _RAW or closed or self._in_svg():
            return match.end()
        return self._past_text(name, match.end(), place)

    def _swallowed(self, rest: str) -> bool:
        """Whether an attribute's value runs over lines and has another tag in it."""
        return any(
            re.search(r"\n[^\n]*</?[a-z]+[\s>]", value) and re.search(r">\s*\n", value)
            for value in re.findall(r'="([^"]*)"', rest)
        )

    def _past_text(self, name: str, position: int, place: Place) -> int:
        end = re.compile(rf"</{name}\s*>", re.I).search(self.text, position)
        self._pop()
        if end is None:
            self.found += unclosed(Element(name, *place), self.lines.end(), self.lines)
            return len(self.text)
        if name in ("script", "style"):
            self.scripts.append((position, end.start()))
        return end.end()

    def _start(self, name: str, place: Place, *, closed: bool) -> None:
        foreign = self._in_svg() or ":" in name or "-" in name
        if name in _VOID and not self._in_svg():
            return
        if closed and (foreign or name in ("svg", "math", "path")):
            return
        if closed and name not in _RAW:
            self.found.append(warning(*place, f"'/>' does not close a '{name}' in HTML"))
            return
        self._push(Element(name, *place))

    def _push(self, element: Element) -> None:
        self.stack.append(element)
        self.open[element.name] += 1

    def _pop(self) -> Element:
        element = self.stack.pop()
        self.open[element.name] -= 1
        return element

    def _in_svg(self) -> bool:
        return self.open["svg"] + self.open["math"] > 0

    def _end(self, name: str, place: Place) -> None:
        if name in _VOID:
            return
        while (
            self.stack
            and self.stack[-1].name != name
            and self.stack[-1].name in _OPTIONAL
            and self._is_open(name)
        ):
            self._pop()
        if self.stack and self.stack[-1].name == name:
            if not self._belongs_further_out(name, place):
                self._pop()
                return
            self.found += unclosed(self._pop(), place, self.lines)
            self._pop()
        elif self._is_open(name):
            self._close_over(name, place)
        elif name not in ("p", "br", "html", "body"):
            self.found += left_open(self.stack, name, place, self.lines)
            if (
                self.stack
                and self.stack[-1].name not in _OPTIONAL
                and len(self.stack) > 1
                and _like(name, self.stack[-1])
            ):
                self._pop()

    def _close_over(self, name: str, place: Place) -> None:
        while self.stack[-1].name != name:
            element = self._pop()
            if element.name not in _OPTIONAL:
                self.found += unclosed(element, place, self.lines)
        self._pop()

    def _belongs_further_out(self, name: str, place: Place) -> bool:
        """Whether the same name is open further out at just this indentation, and the nearest is deeper."""
        if self.open[name] < 2 or not self.lines.first_on_line(place):
            return False
        top, below = self.stack[-1], next(e for e in reversed(self.stack[:-1]) if e.name == name)
        if not all(self.lines.first_on_line(Place(e.line, e.col)) for e in (top, below)):
            return False
        here = self.lines.indent(place.line)
        return self.lines.indent(top.line) > here == self.lines.indent(below.line) and below == self.stack[-2]

    def _is_open(self, name: str) -> bool:
        return self.open[name] > 0


def _like(name: str, element: Element) -> bool:
    """Whether an end tag looks like a slip of the pen for the element."""
    return name[:1] == element.name[:1]
