"""Python, by the compiler of the version that runs; deep or hostile input belongs in the child process."""

from __future__ import annotations

import re
import warnings
from typing import Final

from perdure.validate.layout import Lines, Place
from perdure.validate.report import Problem, Unsure

_NEVER_CLOSED: Final = re.compile(r"'[(\[{]' was never closed")


def check_python(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        return [Problem(*Lines(text).place(text.index("\0")), "a null character")]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<content>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return _placed(error, text)
    except (MemoryError, RecursionError, OverflowError):
        raise Unsure("nested too deeply to be checked") from None
    except ValueError as error:
        return [Problem(1, 1, str(error))]
    return []


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
