"""`argparse`, with the nearest name where one does not exist: of an option, a command, a value."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from typing import NoReturn

_UNKNOWN = re.compile(r"unrecognized arguments: (.*)", re.S)
_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)", re.S)


class Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(message + self._hint(message))

    def _hint(self, message: str) -> str:
        from difflib import get_close_matches

        if (found := _CHOICE.search(message)) is not None:
            wrong, known = found[1], [word.strip().strip("'") for word in found[2].split(",")]
        elif (found := _UNKNOWN.search(message)) is not None:
            wrong = next((word.partition("=")[0] for word in found[1].split() if word.startswith("-")), "")
            known = self._flags()
        else:
            return ""
        near = get_close_matches(wrong, known, 1) if wrong else []
        return f"; did you mean {near[0]}?" if near else ""

    def _flags(self) -> list[str]:
        """Of this command and those within it: which of them was meant is not known here."""
        found = list(self._option_string_actions)
        for action in self._actions:
            for below in (getattr(action, "choices", None) or {}).values() if _has_commands(action) else ():
                found += below._option_string_actions
        return found


def _has_commands(action: object) -> bool:
    return isinstance(getattr(action, "choices", None), dict)
