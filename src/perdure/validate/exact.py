"""TOML, XML, Python and YAML by their parsers. None of them opens a file or runs what it reads.

TOML 1.1 is read by tomli: the standard library's parser knows only version 1.0. Python is read by the compiler of the
running version. YAML is read as ruamel's events: nothing is constructed, so aliases cannot multiply.
"""

from __future__ import annotations

import re
import warnings
from typing import Any, Final
from xml.parsers import expat

import tomli
from ruamel.yaml import YAML
from ruamel.yaml import events as yaml
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.reader import ReaderError

from perdure.validate.grammar import parses
from perdure.validate.report import CannotCheck, Lines, Position, Problem, quote_token, warning

DEPTH: Final = 1000
TOO_DEEP: Final = "nested too deeply to be checked"
_TOML_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOML_NAMES: Final = re.compile(r" \(['\"].*\)")
_TOML_STRING: Final = re.compile(
    r'''#[^\n]*|"""(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|(?P<unclosed>["\'])''',
    re.S,
)
_TAG_MISMATCH: Final = expat.errors.codes[expat.errors.XML_ERROR_TAG_MISMATCH]
_END_TAG: Final = re.compile(r"</\s*([^\s>]+)")
# The parser knows 1.1 and 1.2 and asserts on others, which differ in nothing that is used.
_YAML_VERSION: Final = re.compile(r"^%YAML[ \t]+1\.\d+(?=\s)", re.M)
# A tag handle in a message of the parser: the content's own words, which a report does not repeat.
_YAML_HANDLE: Final = re.compile(r" '!.*'$")
# An unclosed quote is reported where it was opened.
_REPORTED_AT_START: Final = ("quoted scalar", "simple key", "block scalar")


def check_toml(text: str) -> list[Problem]:
    try:
        tomli.loads(text)
    except RecursionError:
        raise CannotCheck(TOO_DEEP) from None
    except ValueError as error:
        lines, message = Lines(text), str(error)
        at = _TOML_AT.search(message)
        position = (
            lines.position(len(text)) if at is None or at[1] is None else lines.at(int(at[1]), int(at[2]))
        )
        # The parser reports an unclosed string at the end of the file.
        string = next((match for match in _TOML_STRING.finditer(text) if match["unclosed"]), None)
        if string is not None and lines.position(string.start()) < position:
            return [Problem(*lines.position(string.start()), "the string opened here is never closed")]
        return [Problem(*position, _TOML_NAMES.sub("", _TOML_AT.sub("", message)))]
    return []


def check_python(text: str) -> list[Problem]:
    """The content may be meant for a newer Python, so what tree-sitter's grammar reads is only doubted."""
    lines = Lines(text)
    if "\0" in text:
        return [Problem(*lines.position(text.index("\0")), "a null character")]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<content>", "exec", dont_inherit=True)
    except SyntaxError as error:
        problem = Problem(*lines.at(error.lineno or 1, error.offset or 1), error.msg or "invalid syntax")
        # The rules of indentation are the same in all versions.
        if not isinstance(error, IndentationError) and parses("python", text):
            raise CannotCheck("not valid in the running version, perhaps in another", [problem]) from None
        return [problem]
    except ValueError:
        raise CannotCheck("not checked: a character that cannot be encoded") from None
    except (MemoryError, RecursionError, OverflowError):
        raise CannotCheck(TOO_DEEP) from None
    return []


def check_xml(text: str) -> list[Problem]:
    """By expat, which limits how far entities grow."""
    if text.startswith("---"):
        raise CannotCheck("not checked: it begins with front matter")
    parser = expat.ParserCreate(encoding="utf-8")
    elements: list[tuple[str, Position]] = []
    lines = Lines(text)

    def start(name: str, _: object) -> None:
        elements.append((name, lines.at(parser.CurrentLineNumber, parser.CurrentColumnNumber + 1)))

    def end(_: str) -> None:
        elements.pop()

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.DefaultHandler = lambda _: None  # its presence keeps entities unexpanded
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        position = lines.at(error.lineno, error.offset + 1)
        if error.code == _TAG_MISMATCH and elements:
            name, opened = elements[-1]
            row = text.split("\n")[position.line - 1]
            closed = _END_TAG.search(row, row.rfind("<", 0, position.col))
            if closed and closed[1] in (outer for outer, _ in elements[:-1]):
                return [Problem(*opened, f"mismatched tag: {quote_token(name)} is never closed")]
            return [
                Problem(*position, f"mismatched tag: {quote_token(name)} is open since line {opened.line}")
            ]
        return [Problem(*position, expat.ErrorString(error.code) or "not well-formed")]
    return []


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
                raise CannotCheck(TOO_DEEP)

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
    """Any number of documents and any tags. A key given twice is a warning, an alias without an anchor an error."""
    text = _YAML_VERSION.sub("%YAML 1.2", text)
    lines = Lines(text)
    walk = _Walk(lines)
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            walk.take(event)
    except MarkedYAMLError as error:
        walk.problems.append(_yaml_problem(error, lines))
    except ReaderError as error:
        position = lines.position(error.position) if isinstance(error.position, int) else Position(1, 1)
        walk.problems.append(Problem(*position, "a character that YAML does not allow"))
    return walk.problems


def _yaml_problem(error: MarkedYAMLError, lines: Lines) -> Problem:
    context = error.context or ""
    message = _YAML_HANDLE.sub("", error.problem or context or "not readable")
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None:
        if any(word in context for word in _REPORTED_AT_START):
            mark = error.context_mark
        elif "flow" in context:
            message += f" for the bracket in line {lines.position(error.context_mark.index).line}"
    return Problem(*lines.position(mark.index if mark is not None else len(lines.text)), message)
