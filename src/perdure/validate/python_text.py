"""Python by the compiler of the running version; deep or hostile input belongs in the child process.

The content may be meant for a newer Python. So a syntax error is certain only if tree-sitter's grammar, which does not
depend on the running version, finds one too.
"""

from __future__ import annotations

import warnings

from perdure.validate.grammar import parses
from perdure.validate.lines import Lines
from perdure.validate.report import CannotCheck, Doubtful, Problem


def check_python(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    if "\0" in text:
        return [Problem(*Lines(text).position(text.index("\0")), "a null character")]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<content>", "exec", dont_inherit=True)
    except SyntaxError as error:
        position = Lines(text).at(error.lineno or 1, error.offset or 1)
        problem = Problem(*position, error.msg or "invalid syntax")
        is_layout = isinstance(error, IndentationError)  # its rules are the same in all versions
    except ValueError:
        raise CannotCheck("not checked: a character that cannot be encoded") from None
    except (MemoryError, RecursionError, OverflowError):
        raise CannotCheck("nested too deeply to be checked") from None
    else:
        return []
    if is_layout or not parses("python", text):
        return [problem]
    raise Doubtful([problem])
