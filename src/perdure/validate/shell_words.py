"""The words of a shell script that open and close blocks, and those among them that have no partner.

    if … then … fi     while|until|for … do … done     case … in … esac     { … }

A word is reserved only where a command may start. Quotes, comments, expansions and here-documents are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t]+|\\\n)|(?P<comment>(?<![^\s;&|()])\#[^\n]*)|(?P<line>\n)
    |(?P<here><<-?[ \t]*(?P<mark>\\?\w+|'\w+'|"\w+"))|(?P<herestring><<<)
    |(?P<expansion>\$\{[^{}\n]*(?:\{[^{}\n]*\}[^{}\n]*)*\}|\$\(\([^\n]*?\)\))
    |(?P<quoted>\\.|\$?'[^']*'|"(?:[^"\\]|\\.)*")
    |(?P<operator>;;&?|&&|\|\|?|[;&()<>]+)|(?P<word>[^\s;&|()<>"'\\$]+|[$"'`])""",
    re.S | re.X,
)
_COMMAND_NEXT: Final = frozenset(("then", "do", "else", "elif", "if", "while", "until", "{", "!", "time"))
_ENDS: Final = {"fi": "if", "done": "loop", "esac": "case", "}": "{"}
_LOOPS: Final = ("while", "until", "for", "select")
_CLOSERS: Final = {"if": "fi", "case": "esac", "{": "}", "loop": "done"}
_INNER: Final = {"if": "then", "loop": "do"}


class Block(NamedTuple):
    """An open block: its kind, its word and place, and whether its `then` or `do` was seen."""

    kind: str
    word: str
    place: Place
    begun: bool


def words(text: str) -> Iterator[tuple[str, int]]:
    """Reserved words where they are reserved, with their offsets."""
    position, command, waiting = 0, True, list[str]()
    while match := _TOKEN.match(text, position):
        position = match.end()
        kind = match.lastgroup or ""
        if kind == "here" or match["mark"]:
            waiting.append(match["mark"].strip("\\'\""))
        elif kind == "line":
            position = _past_documents(text, position, waiting)
            command = True
        elif kind == "operator":
            command = not match[0].startswith(("<", ">"))
        elif kind == "word":
            if command:
                yield match[0], match.start()
            command = command and match[0] in _COMMAND_NEXT
        elif kind in ("quoted", "expansion"):
            command = False


def _past_documents(text: str, position: int, waiting: list[str]) -> int:
    for mark in waiting:
        end = re.compile(rf"^[ \t]*{re.escape(mark)}$", re.M).search(text, position)
        position = end.end() if end else len(text)
    waiting.clear()
    return position


def unmatched(text: str, lines: Lines) -> list[Problem]:
    """The first block that does not match, with both of its ends; empty if all do."""
    stack: list[Block] = []
    for word, offset in words(text):
        place = lines.place(offset)
        if word in ("if", "case", "{", *_LOOPS):
            stack.append(Block("loop" if word in _LOOPS else word, word, place, False))
        elif word in ("then", "do"):
            if not stack or _INNER.get(stack[-1].kind) != word:
                return _misplaced(word, place, stack, lines)
            stack[-1] = stack[-1]._replace(begun=True)
        elif word in ("else", "elif") and stack and stack[-1].kind == "if" and not stack[-1].begun:
            return [_needs(stack[-1], lines)]
        elif word in ("else", "elif"):
            if not stack or stack[-1].kind != "if":
                return _misplaced(word, place, stack, lines)
            stack[-1] = stack[-1]._replace(begun=word == "else")
        elif word in _ENDS:
            problems = _close(stack, word, place, lines)
            if problems:
                return problems
    return unclosed(stack[-1], Place(lines.end().line + 1, 1), lines) if stack else []


def _close(stack: list[Block], word: str, place: Place, lines: Lines) -> list[Problem]:
    kind = _ENDS[word]
    if not stack:
        return [Problem(*place, f"'{word}' closes nothing")]
    top = stack[-1]
    if top.kind == kind and not _belongs_further_out(stack, kind, place, lines):
        if top.kind in _INNER and not top.begun:
            return [_needs(top, lines)]
        stack.pop()
        return []
    if any(block.kind == kind for block in stack[:-1]):
        return unclosed(top, place, lines)
    return _misplaced(word, place, stack, lines)


def _belongs_further_out(stack: list[Block], kind: str, place: Place, lines: Lines) -> bool:
    if not lines.first_on_line(place) or lines.indent(stack[-1].place.line) <= lines.indent(place.line):
        return False
    return any(b.kind == kind and lines.indent(b.place.line) == lines.indent(place.line) for b in stack[:-1])


def _misplaced(word: str, place: Place, stack: list[Block], lines: Lines) -> list[Problem]:
    if stack and lines.indent(place.line) < lines.indent(stack[-1].place.line):
        return unclosed(stack[-1], place, lines)
    expected = f", expected '{_CLOSERS[stack[-1].kind]}' for line {stack[-1].place.line}" if stack else ""
    return [Problem(*place, f"'{word}' cannot stand here{expected}")]


def _needs(block: Block, lines: Lines) -> Problem:
    return Problem(*lines.end_of(block.place.line), f"expected '{_INNER[block.kind]}' for '{block.word}'")


def unclosed(block: Block, found: Place, lines: Lines) -> list[Problem]:
    line = block.place.line
    place = lines.end_of_block(line, found.line - 1) if found.line > line else found
    if block.kind == "case":
        ends = [number for number in range(line, found.line) if ";;" in lines.row(number)]
        place = lines.end_of(ends[-1]) if ends else place
    while place.line < found.line - 1 and re.match(r"\s*(?:else|elif|then|do)\b", lines.row(place.line)):
        further = lines.end_of_block(place.line, found.line - 1)
        if further.line <= place.line:
            break
        place = further
    problems = [Problem(*place, f"'{_CLOSERS[block.kind]}' is missing: '{block.word}' is at line {line}")]
    if place.line - line > 1:
        problems.append(Problem(*block.place, f"'{block.word}' opened here is never closed"))
    return problems
