"""YAML by ruamel's events: any number of documents, any tags, and no recursion however deep it nests.

Nothing is constructed, so aliases cannot multiply. A key given twice in one mapping is a warning, an alias
without an anchor an error.
"""

from __future__ import annotations

import re
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml import events as yaml
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from perdure.validate.lines import Lines, Position
from perdure.validate.report import CannotCheck, Problem, quote_token, warning

DEPTH: Final = 1000
_TEMPLATE: Final = re.compile(r"(?<!\$)\{\{|\{%|<%")
# The parser knows 1.1 and 1.2 and asserts on others, which differ in nothing that is used.
_VERSION: Final = re.compile(r"^%YAML[ \t]+1\.\d+(?=\s)", re.M)
_TEMPLATE_LINE: Final = re.compile(r"^\s*(?:\{\{|\{%|<%)", re.M)
# A tag handle in a message of the parser: the content's own words, which a report does not repeat.
_HANDLE: Final = re.compile(r" '!.*'$")
# An unclosed quote is reported where it was opened.
_REPORTED_AT_START: Final = ("quoted scalar", "simple key", "block scalar")


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
        self.problems: list[Problem] = []

    def take(self, event: Any) -> None:
        position = self.lines.position(event.start_mark.index)
        match event:
            case yaml.DocumentStartEvent():
                self.anchors.clear()
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self.levels.pop()
                self._node_done()
            case yaml.AliasEvent():
                if event.anchor not in self.anchors:
                    self.problems.append(Problem(*position, "an alias whose anchor is not defined before it"))
                self._node_done()
            case yaml.NodeEvent():
                self._node(event, position)

    def _node(self, event: Any, position: Position) -> None:
        if event.anchor:
            self.anchors.add(event.anchor)
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event, position)
            self._node_done()
        else:
            self.levels.append(_Level(isinstance(event, yaml.MappingStartEvent)))
            if len(self.levels) > DEPTH:  # the scanner's time grows with the square of the depth
                raise CannotCheck("nested too deeply to be checked")

    def _scalar(self, event: Any, position: Position) -> None:
        level = self.levels[-1] if self.levels else None
        if level is None or not level.at_key or event.value == "<<":
            return
        key = f"{event.tag or ''} {event.value}"
        if key in level.keys:
            label = f" {quote_token(event.value)}" if event.value.isidentifier() else ""
            self.problems.append(
                warning(*position, f"the key{label} was given already at line {level.keys[key]}")
            )
        level.keys[key] = position.line

    def _node_done(self) -> None:
        if self.levels:
            self.levels[-1].step()


def check_yaml(text: str) -> list[Problem]:
    text = _VERSION.sub("%YAML 1.2", text.removeprefix("\ufeff"))
    lines = Lines(text)
    walk = _Walk(lines)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            walk.take(event)
    except MarkedYAMLError as error:
        problem = _problem(error, lines)
        if _is_template(text, problem.line):
            raise CannotCheck("looks like a template: only its output can be checked") from None
        walk.problems.append(problem)
    except ReaderError as error:
        position = lines.position(error.position) if isinstance(error.position, int) else Position(1, 1)
        walk.problems.append(Problem(*position, "a character that YAML does not allow"))
    return walk.problems


def _is_template(text: str, line: int) -> bool:
    """Whether templates stand on lines of their own, or one is where the error is."""
    near = "\n".join(text.split("\n")[max(0, line - 2) : line + 1])
    return bool(_TEMPLATE_LINE.search(text) or _TEMPLATE.search(near))


def _problem(error: MarkedYAMLError, lines: Lines) -> Problem:
    context = error.context or ""
    message = _HANDLE.sub("", error.problem or context or "not readable")
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None:
        if any(word in context for word in _REPORTED_AT_START):
            mark = error.context_mark
        elif "flow" in context:
            message += f" for the bracket in line {lines.position(error.context_mark.index).line}"
    return Problem(*lines.position(mark.index if mark is not None else len(lines.text)), message)
