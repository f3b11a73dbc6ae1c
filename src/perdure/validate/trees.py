"""Programming languages by tree-sitter: whether a text parses, and the token at which it first does not.

A syntax tree with errors shows what was skipped to go on, which may begin long before the mistake. The parser's
own log says more: the token that could not follow what came before. So a text with errors is parsed once
more with the log on, and only for further errors is the tree believed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from tree_sitter import Language, LogType, Node, Parser, Tree

FIRST_BYTES: Final = 8_192
NEXT_TIMES: Final = 8
# A stop so close to where a text was cut may come from the cut.
CUT_BYTES: Final = 1_024
LOGGED_BYTES: Final = 200_000
_GRAMMARS: Final = {
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "shell": ("tree_sitter_bash", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}
_BRACKETS: Final = {mark: mark for mark in "()[]{}"} | {"${": "{", "#{": "{", "$(": "("}
_POSITION: Final = re.compile(r"process version:\d+, version_count:\d+, state:(\d+), row:(\d+), col:(\d+)")


class Stop(NamedTuple):
    """Where the parser could not go on: after `before`, at the token that starts at `token` (byte offsets)."""

    before: int
    token: int
    state: int


@cache
def language(name: str) -> Language:
    module, function = _GRAMMARS[name]
    maker: Callable[[], object] = getattr(import_module(module), function)
    return Language(maker())


def parse(name: str, source: bytes) -> Tree:
    return Parser(language(name)).parse(source)


def leaves(root: Node) -> Iterator[Node]:
    """Every token of a tree in order, without recursion."""
    cursor = root.walk()
    while True:
        if cursor.goto_first_child():
            continue
        node = cursor.node
        if node is not None:
            yield node
        while not cursor.goto_next_sibling():
            if not cursor.goto_parent():
                return


def brackets(root: Node) -> list[tuple[str, int]]:
    """The brackets of the program, with byte offsets; those in strings, comments and text are none."""
    return [
        (_BRACKETS[leaf.type], leaf.start_byte)
        for leaf in leaves(root)
        if leaf.type in _BRACKETS and not leaf.is_missing
    ]


def faults(root: Node) -> list[Node]:
    """The outermost nodes that are errors or were made up, in order, without recursion."""
    found: list[Node] = []
    pending = [root]
    while pending:
        node = pending.pop()
        if node.is_error or node.is_missing:
            found.append(node)
        elif node.has_error:
            pending += reversed(node.children)
    return found


def first_stop(name: str, source: bytes) -> Stop | None:
    """Where the parser first gave up, by its log. A parser that is stopped may crash, so the text is cut instead, and
    only as much of it parsed as is needed: the log takes many times longer than the parse.
    """
    if len(source) > LOGGED_BYTES:
        return None
    size = FIRST_BYTES
    while size < len(source):
        stop = _logged_stop(name, source[:size])
        if stop is not None and stop.token < size - CUT_BYTES:
            return stop
        size *= NEXT_TIMES
    return _logged_stop(name, source)


def _logged_stop(name: str, source: bytes) -> Stop | None:
    log = _Log(source)
    parser = Parser(language(name))
    parser.logger = log
    parser.parse(source)
    return log.stop


class _Log:
    """Follows the parser's log up to its first resumption, which is its first real error."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.rows = [0]
        for match in re.finditer(b"\n", source):
            self.rows.append(match.end())
        self.here = 0
        self.before = 0
        self.state = 0
        self.after_extra = False
        self.stop: Stop | None = None
        self.furthest: Stop | None = None

    def __call__(self, kind: Any, message: str) -> None:
        if self.stop is not None or kind is LogType.LEX:
            return
        if message.startswith("process"):
            self._at(message)
        elif message.startswith("shift_extra"):
            self.after_extra = True
        elif message.startswith("shift"):
            self.after_extra = False
        elif message.startswith("detect_error"):
            self._detected()
        elif message.startswith("resume"):
            self.stop = self.furthest

    def _at(self, message: str) -> None:
        match = _POSITION.match(message)
        if match is None:
            return
        self.state = int(match[1])
        self.here = min(self.rows[min(int(match[2]), len(self.rows) - 1)] + int(match[3]), len(self.source))
        if not self.after_extra:
            self.before = self.here

    def _detected(self) -> None:
        token = self.here
        while token < len(self.source) and self.source[token] in b" \t\n\r\f":
            token += 1
        stop = Stop(min(self.before, self.here), token, self.state)
        if self.furthest is None or stop.token >= self.furthest.token:
            self.furthest = stop


def allowed(name: str, state: int) -> set[str]:
    """The tokens that the parser would have taken in a state."""
    iterator = language(name).lookahead_iterator(state)
    return set(iterator.names()) if iterator is not None else set()
