"""Marks of a merge conflict that nobody settled, in texts to whose grammar they are nothing special."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from perdure.validate.layout import Lines
from perdure.validate.report import Problem

_ENOUGH: Final = 20
_MARK: Final = re.compile(r"^(?:<{7}|>{7})(?: [^\s<>=][^\n]*)?$", re.M)


def marked_conflicts(text: str) -> list[Problem]:
    """The lines with such a mark; strings, comments and code in prose are to be blanked before."""
    lines = Lines(text)
    return [
        Problem(*lines.place(match.start()), "a mark of a merge conflict")
        for match in islice(_MARK.finditer(text), _ENOUGH)
    ]
