"""TOML 1.1 by tomli; the standard library's parser knows only version 1.0."""

from __future__ import annotations

import re
from typing import Final

import tomli

from perdure.validate.lines import Lines
from perdure.validate.report import CannotCheck, Problem

_AT: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_NAMES: Final = re.compile(r" \(['\"].*\)")


def check_toml(text: str) -> list[Problem]:
    text = text.removeprefix("\ufeff")
    try:
        tomli.loads(text)
    except ValueError as error:
        return [_problem(str(error), Lines(text))]
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
