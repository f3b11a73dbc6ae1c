"""XML by expat, which opens nothing here: no file, no network, no external subset.

Entities are not expanded into the text, and a declaration that would grow without limit is refused before anything
uses it.
"""

from __future__ import annotations

import re
from typing import Final
from xml.parsers import expat

from perdure.validate.lines import Lines
from perdure.validate.report import CannotCheck, Problem, quote_token

MAX_ENTITY_CHARACTERS: Final = 1_000_000
# Front matter, or commands of a template on lines of their own
_TEMPLATE: Final = re.compile(r"\A---\s*\n|^[ \t]*(?:\{%|<%)", re.M)
_REFERENCE: Final = re.compile(r"&(\w[\w.-]*);")
_MISMATCHED_TAG: Final = expat.errors.codes[expat.errors.XML_ERROR_TAG_MISMATCH]
_NO_ELEMENTS: Final = expat.errors.codes[expat.errors.XML_ERROR_NO_ELEMENTS]


class _EntityTooLarge(Exception):
    pass


class _Reader:
    """Open elements with their lines, and entity sizes, by expat's callbacks."""

    def __init__(self) -> None:
        self.open: list[tuple[str, int]] = []
        self.sizes: dict[str, int] = {}
        self.parser = expat.ParserCreate(encoding="utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._entity
        self.parser.DefaultHandler = self._other  # its presence keeps entities unexpanded

    def _start(self, name: str, _: object) -> None:
        self.open.append((name, self.parser.CurrentLineNumber))

    def _end(self, _: str) -> None:
        self.open.pop()

    def _entity(self, name: str, _parameter: object, value: str | None, *_: object) -> None:
        text = value or ""
        size = len(text) + sum(self.sizes.get(inner, 0) for inner in _REFERENCE.findall(text))
        self.sizes[name] = size
        if size > MAX_ENTITY_CHARACTERS:
            raise _EntityTooLarge

    def _other(self, _: str) -> None:
        pass


def check_xml(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    reader, lines = _Reader(), Lines(text)
    try:
        reader.parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        if _TEMPLATE.search(text):
            raise CannotCheck("looks like a template: only its output can be checked") from None
        message = expat.ErrorString(error.code) or "not well-formed"
        if reader.open and error.code in (_MISMATCHED_TAG, _NO_ELEMENTS):
            name, line = reader.open[-1]
            message += f": {quote_token(name)} is open since line {line}"
        return [Problem(*lines.at(error.lineno, error.offset + 1), message)]
    except _EntityTooLarge:
        position = lines.at(reader.parser.CurrentLineNumber, reader.parser.CurrentColumnNumber + 1)
        return [Problem(*position, "an entity that would grow to more than a million characters: refused")]
    return []
