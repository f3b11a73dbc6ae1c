"""Programming languages, CSS, HTML and SQL by their tree-sitter grammars.

A grammar may be older than the language and knows no macros and few dialects, so its findings are warnings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from itertools import islice
from typing import Final

from tree_sitter import Language, Node, Parser

from perdure.validate.report import Lines, Problem, quote_token, warning

MAX_FINDINGS: Final = 10
_GRAMMARS: Final = {
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "css": ("tree_sitter_css", "language"),
    "go": ("tree_sitter_go", "language"),
    "html": ("tree_sitter_html", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "python": ("tree_sitter_python", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "shell": ("tree_sitter_bash", "language"),
    "sql": ("tree_sitter_sql", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}
_OPENERS: Final = {
    ")": "(",
    "]": "[",
    "}": "{",
    '"': '"',
    "'": "'",
    "`": "`",
    "fi": "if",
    "done": "do",
    "esac": "case",
}
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_PLAIN_TAG: Final = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,23}")
# Elements that have no end tag, or whose end tag the standard lets an author omit.
_NO_END_TAG: Final = frozenset({
    "area", "base", "basefont", "bgsound", "body", "br", "caption", "col", "colgroup", "command", "dd", "dt", "embed",
    "frame", "head", "hr", "html", "img", "input", "keygen", "li", "link", "meta", "optgroup", "option", "p", "param", "rb",
    "rp", "rt", "rtc", "source", "tbody", "td", "tfoot", "th", "thead", "tr", "track", "wbr",
})  # fmt: skip


@cache
def _language(form: str) -> Language:
    module, function = _GRAMMARS[form]
    get_language: Callable[[], object] = getattr(import_module(module), function)
    return Language(get_language())


def parses(form: str, text: str) -> bool:
    """Whether the grammar reads the text without an error."""
    return not _root(form, text.encode("utf-8", "replace")).has_error


def check_grammar(form: str, text: str) -> list[Problem]:
    data = text.encode("utf-8", "replace")
    root = _root(form, data)
    findings = list(islice(_syntax_errors(root), MAX_FINDINGS)) if root.has_error else []
    if form == "html":
        findings += islice(_tag_mismatches(root), MAX_FINDINGS - len(findings))
    # A header may be of either language.
    if not findings or (form == "c" and parses("cpp", text)):
        return []
    lines = Lines(text)
    problems: list[Problem] = []
    for node, message in findings:
        offset = len(data[: node.start_byte].decode("utf-8", "replace"))
        if not message:
            token = _TOKEN.search(text, offset)
            message = f"syntax error near {quote_token(token[0] if token else '')}"
        problems.append(warning(*lines.position(offset), message))
    return problems


def _root(form: str, data: bytes) -> Node:
    return Parser(_language(form)).parse(data).root_node


def _syntax_errors(root: Node) -> Iterator[tuple[Node, str]]:
    """The outermost nodes that the parser skipped or made up, in order, without recursion."""
    pending = [root]
    is_first = True
    while pending:
        node = pending.pop()
        inner = [] if node.is_error else [child for child in node.children if child.has_error]
        if inner:
            pending += reversed(inner)
            continue
        opener = _opener(node) if node.is_missing and is_first else None
        if opener is not None:
            yield opener, f"'{opener.type}' is never closed"
        else:
            yield node, f"'{node.type}' is missing" if node.is_missing else ""
        is_first = False


def _opener(missing: Node) -> Node | None:
    """The bracket, quote or keyword that a missing token would close."""
    siblings = missing.parent.children if missing.parent is not None else []
    opener = _OPENERS.get(missing.type)
    return next((node for node in siblings if node.type == opener and not node.is_missing), None)


def _tag_mismatches(root: Node) -> Iterator[tuple[Node, str]]:
    """End tags without an element, and elements without the end tag that they need. A browser accepts both."""
    pending = [root]
    while pending:
        node = pending.pop()
        pending += reversed(node.children)
        if node.type == "erroneous_end_tag":
            yield node, f"</{_tag_name(node)}> closes nothing"
        elif node.type == "element" and _needs_end_tag(node):
            yield node, f"<{_tag_name(node.children[0])}> is never closed"


def _needs_end_tag(element: Node) -> bool:
    first, last = element.children[0], element.children[-1]
    return first.type == "start_tag" and last.type != "end_tag" and _tag_name(first) not in _NO_END_TAG


def _tag_name(tag: Node) -> str:
    """The name of a tag as a message may show it."""
    name = next((node.text for node in tag.children if node.type.endswith("tag_name")), None) or b""
    return name.decode().lower() if _PLAIN_TAG.fullmatch(name) else "…"
