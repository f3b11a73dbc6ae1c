"""One check from content to report: detect the format, run its checker, sum up.

This runs the parsers in the calling process. For untrusted content use `isolated.Checker`, which does the same in a
child process with limits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Final, cast

from perdure.validate.detect import detect
from perdure.validate.report import (
    UNKNOWN,
    CannotCheck,
    Doubtful,
    Problem,
    Report,
    report_checked,
    report_doubtful,
    report_unchecked,
    report_unknown,
)

# Imported when first needed: most content is of two or three formats.
_CHECKERS: Final = {
    "json": ("json_text", "check_json"),
    "jsonc": ("json_text", "check_jsonc"),
    "json5": ("json_text", "check_json5"),
    "jsonl": ("json_text", "check_json_lines"),
    "yaml": ("yaml_text", "check_yaml"),
    "toml": ("toml_text", "check_toml"),
    "xml": ("xml_text", "check_xml"),
    "python": ("python_text", "check_python"),
    "latex": ("latex_text", "check_latex"),
    "markdown": ("markdown_text", "check_markdown"),
    "html": ("html_text", "check_html"),
    "shell": ("shell_text", "check_shell"),
    "sql": ("sql_text", "check_sql"),
}


def check(content: str, *, format_hint: str | None = None, target_path: str | None = None) -> Report:
    """Check content in the format that the hint, the path or the content itself names."""
    form = detect(content, format_hint=format_hint, target_path=target_path)
    return check_as(form, content)


def check_as(form: str, content: str) -> Report:
    if form == UNKNOWN:
        return report_unknown()
    text = content.replace("\r\n", "\n").replace("\r", "\n")
    try:
        return report_checked(form, _checker(form)(text))
    except Doubtful as doubts:
        return report_doubtful(form, doubts.problems)
    except CannotCheck as reason:
        return report_unchecked(form, str(reason))


def _checker(form: str) -> Callable[[str], list[Problem]]:
    module, function = _CHECKERS.get(form, ("grammar", "check_grammar"))
    checker = getattr(import_module(f"perdure.validate.{module}"), function)
    return cast("Callable[[str], list[Problem]]", checker if form in _CHECKERS else partial(checker, form))
