"""XML by expat, which opens nothing here: no file, no network, no external subset.

Entities are not expanded into the text, and a declaration that would grow without measure is refused before
anything uses it. Expat names the place where a mistake shows; for a tag that is left open, the element's
own indentation says where its end was meant to be.
"""

from __future__ import annotations

import re
from typing import Final
from xml.parsers import expat

from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem, Unsure, shown
from perdure.validate.tags import Element, left_open

ENTITY_CHARACTERS: Final = 1_000_000
# Front matter, or commands of a template on lines of their own
_TEMPLATE: Final = re.compile(r"\A---\s*\n|^[ \t]*(?:\{%|<%)", re.M)
_REFERENCE: Final = re.compile(r"&(\w[\w.-]*);")
_END_TAG: Final = re.compile(r"</\s*([\w:.-]*)")
_MISMATCH: Final = 7
_NO_ELEMENTS: Final = (3, 5, 4, 20)
_WORDS: Final = {
    "not well-formed (invalid token)": "a character that cannot stand here",
    "no element found": "an element is missing",
    "unclosed token": "a tag or comment opened here is not closed",
    "junk after document element": "text or another element after the root element",
    "duplicate attribute": "an attribute is given twice",
    "undefined entity": "an entity that is not declared",
    "unclosed CDATA section": "a CDATA section opened here is not closed",
}


class _Refused(Exception):
    pass


class _Reader:
    """Open elements and entity sizes, as expat tells of them."""

    def __init__(self) -> None:
        self.open: list[Element] = []
        self.sizes: dict[str, int] = {}
        self.parser = expat.ParserCreate(encoding="utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._entity
        self.parser.DefaultHandler = self._other  # its presence keeps entities unexpanded

    def _start(self, name: str, _: object) -> None:
        self.open.append(Element(name, self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1))

    def _end(self, _: str) -> None:
        self.open.pop()

    def _entity(self, name: str, _parameter: object, value: str | None, *_: object) -> None:
        text = value or ""
        size = len(text) + sum(self.sizes.get(inner, 0) for inner in _REFERENCE.findall(text))
        self.sizes[name] = size
        if size > ENTITY_CHARACTERS:
            raise _Refused

    def _other(self, _: str) -> None:
        pass


def check_xml(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    reader = _Reader()
    lines = Lines(text)
    try:
        reader.parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        if _TEMPLATE.search(text):
            raise Unsure("looks like a template: only its output can be checked") from None
        return _placed(error, reader, lines)
    except _Refused:
        place = Place(reader.parser.CurrentLineNumber, reader.parser.CurrentColumnNumber + 1)
        return [Problem(*place, "an entity that would grow to more than a million characters: refused")]
    return []


def _placed(error: expat.ExpatError, reader: _Reader, lines: Lines) -> list[Problem]:
    line = min(error.lineno, len(lines.rows))
    place = Place(line, min(error.offset, len(lines.row(line))) + 1)
    message = expat.ErrorString(error.code) or "not well-formed"
    if error.code == _MISMATCH and reader.open:
        tag = _END_TAG.match(lines.row(line), max(place.col - 3, 0)) or _END_TAG.search(lines.row(line))
        return left_open(reader.open, tag[1] if tag else "", place, lines)
    at_end = place.line >= lines.end().line
    if error.code in _NO_ELEMENTS and at_end and reader.open and message != "unclosed token":
        return left_open(reader.open, "", lines.end(), lines)
    if message == "not well-formed (invalid token)":
        place, message = _token(place, lines)
    return [Problem(*place, _WORDS.get(message, message))]


def _token(place: Place, lines: Lines) -> tuple[Place, str]:
    """What stands at the place; an attribute whose quote is missing shows only at the next tag."""
    found = lines.row(place.line)[place.col - 1 : place.col]
    if found == "<":
        above = lines.text.rfind("<", 0, lines.offset(place.line) + place.col - 1)
        start = lines.place(max(above, 0))
        return start, "a quote or '>' is missing in the tag that starts here"
    return place, f"{shown(found)} cannot stand here" if found else "the line ends too early"
