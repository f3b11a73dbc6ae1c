"""Python, by the compiler of the version that runs; deep or hostile input belongs in the child process.

What that version does not take may be newer Python, so it is tried once more in older words (`python_newer`).
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Final

from perdure.validate.layout import Lines, Place
from perdure.validate.python_newer import older
from perdure.validate.report import Problem, Unsure

_NEVER_CLOSED: Final = re.compile(r"'[(\[{]' was never closed")


def check_python(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        return [Problem(*Lines(text).place(text.index("\0")), "a null character")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = _refused(text)
        if isinstance(error, SyntaxError):
            error = _refused_as_newer(text, error)
    if error is None:
        return []
    return _placed(error, text) if isinstance(error, SyntaxError) else [Problem(1, 1, str(error))]


def _refused(text: str, flags: int = 0) -> ValueError | SyntaxError | None:
    try:
        compile(text, "<content>", "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return error
    except (MemoryError, RecursionError, OverflowError):
        raise Unsure("nested too deeply to be checked") from None
    return None


def _refused_as_newer(text: str, error: SyntaxError) -> ValueError | SyntaxError | None:
    """What is still wrong in older words; of two errors the later, since the first may be what is newer."""
    reworded = older(text)
    if reworded is None:
        return error
    left = _refused(reworded.text) if reworded.text != text else error
    if isinstance(left, SyntaxError):
        return left if (left.lineno or 0) > (error.lineno or 0) else error
    return left or _refused_field(text, reworded.fields)


def _refused_field(text: str, fields: list[tuple[int, int]]) -> SyntaxError | None:
    for start, end in fields:
        expression = text[start:end].rstrip().removesuffix("=")
        reworded = older(expression)
        error = _refused(f"({reworded.text if reworded else expression}\n)", ast.PyCF_ONLY_AST)
        if error is not None:
            line, col = Lines(text).place(start)
            return SyntaxError(
                f"in this f-string: {getattr(error, 'msg', error)}", ("<content>", line, col, None)
            )
    return None


def _placed(error: SyntaxError, text: str) -> list[Problem]:
    lines = Lines(text)
    line = min(max(error.lineno or 1, 1), len(lines.rows))
    place = Place(line, min(max(error.offset or 1, 1), len(lines.row(line)) + 1))
    message = error.msg or "invalid syntax"
    found = [Problem(*place, message)]
    if _NEVER_CLOSED.search(message):
        end = lines.end_of_block(line, len(lines.rows)) if lines.continues(line) else lines.end_of(line)
        if end.line - line > 1:
            found.append(Problem(*end, f"the bracket opened at line {line} may be missing here"))
    return found
