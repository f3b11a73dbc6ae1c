"""TOML by tomli. Without it by the standard parser, which knows only version 1.0, so that its errors are doubts."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from typing import Final

from perdure.validate.lines import Lines
from perdure.validate.report import CannotCheck, Doubtful, Problem

KNOWS_NEWEST: Final = find_spec("tomli") is not None
_PARSER: Final = import_module("tomli" if KNOWS_NEWEST else "tomllib")
_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_NAMES: Final = re.compile(r" \(['\"].*\)")


def check_toml(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    try:
        _PARSER.loads(text)
    except ValueError as error:
        problem = _problem(str(error), Lines(text))
        if not KNOWS_NEWEST:
            raise Doubtful([problem]) from None
        return [problem]
    except RecursionError:
        raise CannotCheck("nested too deeply to be checked") from None
    return []


def _problem(message: str, lines: Lines) -> Problem:
    at = _AT.search(message)
    if at is not None and at[1] is not None:
        position = lines.at(int(at[1]), int(at[2]))
    else:
        position = lines.position(len(lines.text))
    return Problem(*position, _NAMES.sub("", _AT.sub("", message)))
