"""Programming languages and CSS by their tree-sitter grammars.

A grammar may be older than the language and knows no macros and few dialects, so its findings are doubtful: they never
make content invalid by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final

from tree_sitter import Language, Node, Parser

from perdure.validate.lines import Lines
from perdure.validate.report import CannotCheck, Doubtful, Problem, quote_token

MAX_FINDINGS: Final = 10
_GRAMMARS: Final = {
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "css": ("tree_sitter_css", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "python": ("tree_sitter_python", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "shell": ("tree_sitter_bash", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}
_TEMPLATE: Final = re.compile(r"<%[=-]?\s[^\n]*%>")
_OBJECTIVE_C: Final = re.compile(
    r"^\s*(?:@(?:import|interface|protocol|class|implementation|end)\b|#\s*import\b)", re.M
)
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")


@cache
def _language(form: str) -> Language:
    module, function = _GRAMMARS[form]
    get_language: Callable[[], object] = getattr(import_module(module), function)
    return Language(get_language())


def parses(form: str, text: str) -> bool:
    """Whether the grammar reads the text without an error."""
    return not _root(form, text).has_error


def check_grammar(form: str, text: str) -> list[Problem]:
    """Nothing if the grammar reads the text, else its findings as doubts."""
    text = text.removeprefix("\ufeff")
    root = _root(form, text)
    # A header may be of either language.
    if not root.has_error or (form == "c" and parses("cpp", text)):
        return []
    if form == "c" and _OBJECTIVE_C.search(text):
        raise CannotCheck("not checked: looks like Objective-C")
    problems = _findings(root, text)
    rows = text.split("\n")
    if any(_TEMPLATE.search(rows[problem.line - 1]) for problem in problems):
        raise CannotCheck("looks like a template: only its output can be checked")
    raise Doubtful(problems)


def _root(form: str, text: str) -> Node:
    return Parser(_language(form)).parse(text.encode("utf-8", "replace")).root_node


def _findings(root: Node, text: str) -> list[Problem]:
    """The outermost nodes that the parser skipped or made up, in order, without recursion."""
    data, lines = text.encode("utf-8", "replace"), Lines(text)
    findings: list[Problem] = []
    pending = [root]
    while pending and len(findings) < MAX_FINDINGS:
        node = pending.pop()
        inner = [] if node.is_error else [child for child in node.children if child.has_error]
        if inner:
            pending += reversed(inner)
            continue
        offset = len(data[: node.start_byte].decode("utf-8", "replace"))
        token = _TOKEN.search(text, offset)
        near = f"syntax error near {quote_token(token[0] if token else '')}"
        message = f"'{node.type}' is missing" if node.is_missing else near
        findings.append(Problem(*lines.position(offset), message))
    return findings
