"""JavaScript, TypeScript, Go, Rust and Java: parsed by tree-sitter, placed by brackets, log and layout.

Of a text that does not parse, unmatched brackets say most, since their places follow from the indentation;
then the token where the parser stopped. An unexpected token at the start of a line usually means that
something is missing at the end of the one before.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from tree_sitter import Node

from perdure.validate.balance import unbalanced
from perdure.validate.layout import Lines, Place
from perdure.validate.newer_syntax import reworded
from perdure.validate.report import Problem, Unsure, shown
from perdure.validate.sources import Source
from perdure.validate.trees import Stop, allowed, brackets, faults, first_stop, leaves, parse

MORE: Final = 10
_TEMPLATE: Final = re.compile(r"<%[=-]?\s[^\n]*%>")
_TWO_MARKS: Final = re.compile(rb"([|&])\s+\1(?!\1)")
_LONE_BRACE: Final = re.compile(rb"^[ \t]*\{", re.M)
_HEADS: Final = (
    "if_statement",
    "for_statement",
    "function_declaration",
    "method_declaration",
    "func_literal",
)
_SAID: Final = (";", ",", ")", "]", "}", ":", "=", "{", "(")


def check_javascript(text: str) -> list[Problem]:
    return check_code("javascript", text)


def check_typescript(text: str) -> list[Problem]:
    return check_code("typescript", text)


def check_tsx(text: str) -> list[Problem]:
    return check_code("tsx", text)


def check_go(text: str) -> list[Problem]:
    return check_code("go", text)


def check_rust(text: str) -> list[Problem]:
    return check_code("rust", text)


def check_java(text: str) -> list[Problem]:
    return check_code("java", text)


def check_code(name: str, text: str) -> list[Problem]:
    source = Source(text)
    tree = parse(name, source.data)
    if tree.root_node.has_error and (other := reworded(name, text)) != text:
        source = Source(other)
        tree = parse(name, source.data)
    if not tree.root_node.has_error:
        return _passed(name, tree.root_node, source)
    found = _found(name, tree.root_node, source)
    if any(_TEMPLATE.search(source.lines.row(problem.line)) for problem in found):
        raise Unsure("looks like a template: only its output can be checked")
    return found


def _passed(name: str, root: Node, source: Source) -> list[Problem]:
    """What the grammar takes although the language does not."""
    match name:
        case "typescript" | "tsx":
            return _doubled(root, source)
        case "go":
            return _lone_braces(root, source)
        case _:
            return []


def _lone_braces(root: Node, source: Source) -> list[Problem]:
    """A body whose '{' starts a line: in Go the line break ends the head before it."""
    if not _LONE_BRACE.search(source.data):
        return []
    found = []
    for leaf in leaves(root):
        block = leaf.parent if leaf.type == "{" else None
        head = block.parent if block is not None and block.type == "block" else None
        place = source.place(leaf.start_byte)
        if head is not None and head.type in _HEADS and source.lines.first_on_line(place):
            found.append(Problem(*place, "this '{' belongs to the end of the line before"))
    return found[:MORE]


def _doubled(root: Node, source: Source) -> list[Problem]:
    """Two marks of a union with nothing between, which the grammar takes for one of them."""
    if not _TWO_MARKS.search(source.data):
        return []
    found = []
    for before, after in pairwise(leaves(root)):
        if before.type == after.type and after.type in ("|", "&"):
            found.append(Problem(*source.place(after.start_byte), f"expected a type before '{after.type}'"))
    return found[:MORE]


def _found(name: str, root: Node, source: Source) -> list[Problem]:
    stop = first_stop(name, source.data)
    marks = [(mark, source.character(at)) for mark, at in brackets(root)]
    found = unbalanced(marks, source.lines)
    if stop is None:
        return found or [_of_node(node, source) for node in faults(root)[:MORE]]
    first = _long_string(root, stop, source) or explained(name, stop, source)
    if found and not any(abs(p.line - first.line) <= 1 for p in found):
        return found if min(p.line for p in found) <= first.line else [first, *found]
    if found:
        return [first, *[p for p in found if abs(p.line - first.line) > 1]]
    rest = [_of_node(node, source) for node in faults(root) if node.start_byte > stop.token]
    return [first, *[p for p in rest if p.line > first.line + 1][:MORE]]


def _long_string(root: Node, stop: Stop, source: Source) -> Problem | None:
    """A string over lines that ends on the line of the stop: its quote was meant to be closed before."""
    line = source.place(stop.token).line
    start = source.data.rfind(b"\n", 0, max(stop.token, 1)) + 1
    for byte in {start, max(stop.before - 1, 0)}:
        node = root.descendant_for_byte_range(byte, byte)
        while node is not None and node.start_byte >= start:
            node = node.parent
        if node is not None and "string" in node.type and node.end_byte <= stop.token + 1:
            opened = source.place(node.start_byte)
            if opened.line < line:
                return Problem(*opened, "a quote opened here runs on into later lines")
    return None


def explained(name: str, stop: Stop, source: Source) -> Problem:
    """What the parser found at its first stop, and what could have been there."""
    before, token = source.place(stop.before), source.place(stop.token)
    found = shown(source.word_at(stop.token))
    quote = source.open_quote(before.line) or source.open_quote(token.line)
    if quote is not None:
        return Problem(*quote, "a quote is missing on this line")
    expected = _expected(name, stop)
    if _missing_before(before, token, source.lines):
        return Problem(*before, f"expected {expected or 'something more'} before {found} at {token.said()}")
    return Problem(
        *token, f"found {found}" + (f", expected {expected}" if expected else ", which cannot stand here")
    )


def _missing_before(before: Place, token: Place, lines: Lines) -> bool:
    if token.line == before.line:
        return False
    last = lines.row(before.line)[: before.col - 1].rstrip()[-1:]
    return last not in (";", "{", "}", "")


def _expected(name: str, stop: Stop) -> str:
    tokens = allowed(name, stop.state)
    said = [f"'{mark}'" for mark in _SAID if mark in tokens]
    return " or ".join(said) if 0 < len(said) <= 3 else ""


def _of_node(node: object, source: Source) -> Problem:
    at = getattr(node, "start_byte", 0)
    place = source.place(at)
    if getattr(node, "is_missing", False):
        return Problem(*place, f"'{getattr(node, 'type', '')}' is missing")
    return Problem(*place, f"{shown(source.word_at(at))} starts something that cannot be read")
