"""Argument parsers of the commands: argparse that suggests the nearest option, command or value."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from typing import Any, Final, NoReturn

COMMAND: Final = "COMMAND"
"""The metavar of subcommands."""
_UNKNOWN: Final = re.compile(r"unrecognized arguments: (.*)", re.S)
_CHOICE: Final = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)", re.S)


class Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if message == f"the following arguments are required: {COMMAND}":
            message = f"a command is missing: {', '.join(self._commands())}"
        super().error(message + self._hint(message))

    def _commands(self) -> list[str]:
        choices = [action.choices for action in self._actions if isinstance(action.choices, dict)]
        return [name for names in choices for name in names]

    def _hint(self, message: str) -> str:
        from difflib import get_close_matches

        if (choice := _CHOICE.search(message)) is not None:
            wrong, names = choice[1], [word.strip().strip("'") for word in choice[2].split(",")]
        elif (unknown := _UNKNOWN.search(message)) is not None:
            wrong = next((word.partition("=")[0] for word in unknown[1].split() if word.startswith("-")), "")
            names = self._flags()
        else:
            return ""
        near = get_close_matches(wrong, names, 1) if wrong else []
        return f"; did you mean {near[0]}?" if near else ""

    def _flags(self) -> list[str]:
        """Flags of this command and its subcommands: the message does not say which of them was meant."""
        flags = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action.choices, dict):
                for subparser in action.choices.values():
                    flags += subparser._option_string_actions
        return flags


def new_parser(name: str, description: str, **more: Any) -> ArgumentParser:
    return Parser(prog=f"perdure {name}", description=description, **more)
