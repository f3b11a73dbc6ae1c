"""Elements left open, for XML and HTML: which one it is, and where its end tag was meant to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem, shown


class Element(NamedTuple):
    """A start tag that waits for its end."""

    name: str
    line: int
    col: int


def left_open(stack: Sequence[Element], found: str, place: Place, lines: Lines) -> list[Problem]:
    """The problems behind an end tag `found` that does not match; "" stands for the end of the file.

    If the end tag belongs to an element further out, those inside it are open; else it is itself wrong.
    """
    if found and not any(element.name == found for element in stack):
        if not stack:
            return [Problem(*place, f"{_end(found)} closes nothing")]
        return [Problem(*place, f"found {_end(found)}, expected {_end(stack[-1].name)} {_since(stack[-1])}")]
    problems: list[Problem] = []
    for element in reversed(stack):
        if found and element.name == found and not _deeper(element, place, lines):
            break
        problems += unclosed(element, place, lines)
    return problems


def unclosed(element: Element, found: Place, lines: Lines) -> list[Problem]:
    expected = _expected(element, found, lines)
    message = f"{_end(element.name)} is missing: the element was opened at line {element.line}"
    problems = [Problem(*expected, message)]
    if expected.line - element.line > 1:
        problems.append(Problem(element.line, element.col, "the element opened here is never closed"))
    return problems


def _expected(element: Element, found: Place, lines: Lines) -> Place:
    if found.line == element.line:
        return found
    return lines.end_of_block(element.line, found.line - 1)


def _deeper(element: Element, place: Place, lines: Lines) -> bool:
    """Whether the end tag, first on its line, stands further out than the element it would match."""
    if not (lines.first_on_line(place) and lines.first_on_line(Place(element.line, element.col))):
        return False
    return lines.indent(place.line) < lines.indent(element.line)


def _end(name: str) -> str:
    word = shown(name)
    return f"'</{name}>'" if word.startswith("'") or name.replace(":", "").isalnum() else "the end tag"


def _since(element: Element) -> str:
    return f"for the element opened at line {element.line}"
