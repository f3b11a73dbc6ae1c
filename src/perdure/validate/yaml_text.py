"""YAML by libyaml's events: any number of documents, any tags, and no recursion however deep it nests.

Nothing is constructed, so aliases cannot multiply. A key given twice in one mapping is a warning, an alias
without an anchor an error.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem, Unsure, shown, warning

DEPTH: Final = 1000
_LOADER: Final[Any] = getattr(yaml, "CLoader", yaml.Loader)
_TEMPLATE: Final = re.compile(r"(?<!\$)\{\{|\{%|<%")
# The parser knows 1.1 and 1.2; what 1.0 has besides is not used.
_VERSION: Final = re.compile(r"^%YAML 1\.\d(?=\s)", re.M)
_TEMPLATE_LINE: Final = re.compile(r"^\s*(?:\{\{|\{%|<%)", re.M)
# The place where these started tells more than the place where they were given up.
_PLACE_OF_CONTEXT: Final = ("quoted scalar", "simple key", "block scalar")
_WORDS: Final = {
    "mapping values are not allowed in this context": "a ':' that cannot stand here",
    "could not find expected ':'": "expected ':' after the key",
    "found unexpected end of stream": "a quote is not closed",
    "found character '\\t' that cannot start any token": "a tab where spaces are needed",
    "found character that cannot start any token": "a character that cannot stand here",
    "did not find expected key": "a line that does not fit the mapping: its indentation, or a missing ':'",
    "did not find expected '-' indicator": "a line that does not fit the list: its indentation, or a missing '-'",
    "did not find expected ',' or ']'": "expected ',' or ']'",
    "did not find expected ',' or '}'": "expected ',' or '}'",
    "did not find expected node content": "a value is missing",
    "did not find expected <document start>": "text that does not belong to the document before it",
    "block sequence entries are not allowed in this context": "a '-' that cannot stand here",
    "found a tab character that violates indentation": "a tab in the indentation",
    "found a tab character where an indentation space is expected": "a tab in the indentation",
}


class _Level:
    """An open mapping or sequence; in a mapping every other node is a key."""

    def __init__(self, is_mapping: bool) -> None:
        self.is_mapping = is_mapping
        self.at_key = is_mapping
        self.keys: dict[str, int] = {}

    def step(self) -> None:
        self.at_key = self.is_mapping and not self.at_key


class _Walk:
    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.levels: list[_Level] = []
        self.anchors: set[str] = set()
        self.found: list[Problem] = []
        self.long_quote: Place | None = None

    def take(self, event: Any) -> None:
        place = self.lines.place(event.start_mark.index)
        match event:
            case yaml.DocumentStartEvent():
                self.anchors.clear()
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self.levels.pop()
                self._node_done()
            case yaml.AliasEvent():
                if event.anchor not in self.anchors:
                    self.found.append(Problem(*place, "an alias whose anchor is not defined before it"))
                self._node_done()
            case yaml.NodeEvent():
                self._node(event, place)

    def _node(self, event: Any, place: Place) -> None:
        if event.anchor:
            self.anchors.add(event.anchor)
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, place)
            self._node_done()
        else:
            self.levels.append(_Level(isinstance(event, yaml.MappingStartEvent)))
            if len(self.levels) > DEPTH:  # the scanner's time grows with the square of the depth
                raise Unsure("nested too deeply to be checked")

    def _scalar(self, event: Any, place: Place) -> None:
        if event.style in ("'", '"') and event.end_mark.line > event.start_mark.line:
            self.long_quote = place
        level = self.levels[-1] if self.levels else None
        if level is None or not level.at_key or event.value == "<<":
            return
        key = f"{event.tag or ''} {event.value}"
        if key in level.keys:
            label = f" {shown(event.value)}" if event.value.isidentifier() else ""
            self.found.append(warning(*place, f"the key{label} was given already at line {level.keys[key]}"))
        level.keys[key] = place.line

    def _node_done(self) -> None:
        if self.levels:
            self.levels[-1].step()


def check_yaml(text: str) -> list[Problem]:
    text = _VERSION.sub("%YAML 1.1", text.removeprefix("\ufeff"))
    lines = Lines(text)
    walk = _Walk(lines)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            walk.take(event)
    except yaml.MarkedYAMLError as error:
        problem = _placed(error, walk, lines)
        if _is_template(text, problem.line):
            raise Unsure("looks like a template: only its output can be checked") from None
        walk.found.append(problem)
    except yaml.reader.ReaderError as error:
        place = lines.place(error.position) if isinstance(error.position, int) else Place(1, 1)
        walk.found.append(Problem(*place, "a character that YAML does not allow"))
    return walk.found


def _is_template(text: str, line: int) -> bool:
    """Whether templates stand on lines of their own, or one is where the error is."""
    near = "\n".join(text.split("\n")[max(0, line - 2) : line + 1])
    return bool(_TEMPLATE_LINE.search(text) or _TEMPLATE.search(near))


def _placed(error: yaml.MarkedYAMLError, walk: _Walk, lines: Lines) -> Problem:
    context = error.context or ""
    problem = error.problem or context or "not readable"
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None and any(word in context for word in _PLACE_OF_CONTEXT):
        mark = error.context_mark
    place = lines.place(mark.index) if mark is not None else lines.end()
    opened = ""
    if "flow" in context and error.context_mark is not None:
        opened = f" in the bracket opened at {lines.place(error.context_mark.index).said()}"
    if walk.long_quote and place.line > walk.long_quote.line and _follows_quote(place, lines):
        return Problem(*walk.long_quote, "a quote opened here runs on into later lines")
    return Problem(*_inside(place, lines), _WORDS.get(problem, problem) + opened)


def _follows_quote(place: Place, lines: Lines) -> bool:
    """Whether a quote ended before the error, on its line."""
    before = lines.row(place.line)[: place.col - 1]
    return '"' in before or "'" in before


def _inside(place: Place, lines: Lines) -> Place:
    end = lines.end()
    return end if place.line > end.line else place
