"""Check whether content is well-formed, and say where it is not.

    check(content, format_hint=None, target_path="a.json")   run the check in this process
    sandbox.Checker().check(...)                             run it in a child with limits on time and memory
    regressions(before, after)                               the problems for which a write is refused

| level | formats | a problem is | a write is refused |
|---|---|---|---|
| exact | JSON, TOML, YAML, XML, Python, LaTeX | an error, `valid: false` | if the file is new or parsed before |
| grammar | programming languages, CSS, HTML, SQL, by tree-sitter | a warning, `valid: null` | if the file parsed before |
| none | Markdown, unknown formats | a hint, `valid: null` | never |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Final

from perdure.validate.detect import detect
from perdure.validate.report import (
    LEVELS,
    UNKNOWN,
    CannotCheck,
    Problem,
    Report,
    is_template,
    report_checked,
    report_unchecked,
)

__all__ = ["Problem", "Report", "check", "check_as", "regressions"]

# Imported when first needed: most content is of two or three formats.
_CHECKERS: Final = {
    "yaml": ("exact", "check_yaml"),
    "toml": ("exact", "check_toml"),
    "xml": ("exact", "check_xml"),
    "python": ("exact", "check_python"),
    "json": ("json_formats", "check_json"),
    "jsonc": ("json_formats", "check_jsonc"),
    "json5": ("json_formats", "check_json5"),
    "jsonl": ("json_formats", "check_json_lines"),
    "latex": ("latex", "check_latex"),
    "markdown": ("markdown", "check_markdown"),
}


def check(content: str, *, format_hint: str | None = None, target_path: str | None = None) -> Report:
    """Check content in the format that the hint, the path or the content itself names."""
    form = detect(content, format_hint=format_hint, target_path=target_path)
    return check_as(form, content)


def check_as(form: str, content: str) -> Report:
    if form == UNKNOWN:
        return report_unchecked(form, "not checked")
    text = content.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    try:
        problems = _checker(form)(text)
    except CannotCheck as reason:
        return report_unchecked(form, str(reason), reason.problems)
    error = next((problem for problem in problems if problem.severity == "error"), None)
    if error is not None and is_template(text, error.line):
        return report_unchecked(form, "looks like a template: only its output can be checked")
    if form == "json" and content.startswith("\ufeff"):
        problems = [*problems, Problem(1, 1, "a byte-order mark is before the JSON", "warning")]
    return report_checked(form, problems)


def regressions(before: Report | None, after: Report) -> list[Problem]:
    """The problems for which a write is refused. `before` is the report on the file as it was, None for a new file.

    A file that did not parse before may stay broken. A grammar counts only where it could read the file before: then
    it knows the language as this file uses it.
    """
    if before is None or before.format != after.format:
        return [problem for problem in after.errors if problem.severity == "error"]
    if before.valid is not True:
        return []
    if LEVELS[after.format] == "grammar":
        return after.errors
    return [problem for problem in after.errors if problem.severity == "error"]


def _checker(form: str) -> Callable[[str], list[Problem]]:
    module, function = _CHECKERS.get(form, ("grammar", "check_grammar"))
    checker: Callable[..., list[Problem]] = getattr(import_module(f"perdure.validate.{module}"), function)
    return checker if form in _CHECKERS else partial(checker, form)
