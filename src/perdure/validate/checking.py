"""One check from content to report: find the format, run its checker, sum up.

This runs the parsers where it is called. For content that others made, use `isolated.Checker`, which does the
same in a child process with limits.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, cast

from perdure.validate.detect import detect
from perdure.validate.report import UNKNOWN, Problem, Report, Unsure, judged, unjudged, unknown

_ROOM: Final = "perdure.validate."
# Loaded when first needed: most content is of two or three formats.
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
    "css": ("css_text", "check_css"),
    "javascript": ("code_text", "check_javascript"),
    "typescript": ("code_text", "check_typescript"),
    "tsx": ("code_text", "check_tsx"),
    "go": ("code_text", "check_go"),
    "rust": ("code_text", "check_rust"),
    "java": ("code_text", "check_java"),
    "c": ("c_text", "check_c"),
    "cpp": ("c_text", "check_cpp"),
    "shell": ("shell_text", "check_shell"),
    "sql": ("sql_text", "check_sql"),
}


def check(content: str, *, format_hint: str | None = None, target_path: str | None = None) -> Report:
    """Check content in the format that the hint, the path or the content itself names."""
    form = detect(content, format_hint=format_hint, target_path=target_path)
    return check_as(form, content)


def check_as(form: str, content: str) -> Report:
    if form == UNKNOWN:
        return unknown()
    text = content.replace("\r\n", "\n").replace("\r", "\n")
    try:
        return judged(form, _checker(form)(text))
    except ModuleNotFoundError as missing:
        return unjudged(
            form, f"not checked: {missing.name} is not installed (pip install 'perdure[validate]')"
        )
    except Unsure as unsure:
        return unjudged(form, str(unsure))


def _checker(form: str) -> Callable[[str], list[Problem]]:
    module, function = _CHECKERS[form]
    return cast("Callable[[str], list[Problem]]", getattr(import_module(_ROOM + module), function))
