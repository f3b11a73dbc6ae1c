"""The parser of a command's options, made without what only its help needs; and doing without one.

`argparse` takes half as long to load as Python itself. Options of the simple kind are read without it; whatever is
not so simple, mistakes included, is left to it, and a test holds the two to the same answer.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any


def quickly(argv: list[str], defaults: dict[str, Any], places: tuple[str, ...] = ()) -> Any:
    """The options, or None where the parser has to look. A default of False makes a flag, of () one that repeats."""
    found = {name: None if default == () else default for name, default in defaults.items()}
    words, given = iter(argv), []
    for word in words:
        name = word[2:].replace("-", "_")
        if not word.startswith("-"):
            given.append(word)
        elif not word.startswith("--") or name not in defaults:
            return None
        elif defaults[name] is False:
            found[name] = True
        elif isinstance(defaults[name], float):
            return None  # a number is checked by its parser
        else:
            value = next(words, "-")
            if value.startswith("-"):
                return None
            found[name] = [*(found[name] or []), value] if defaults[name] == () else value
    if len(given) != len(places):
        return None
    return _Options({**found, **dict(zip(places, given, strict=True))})


class _Options:
    def __init__(self, found: dict[str, Any]) -> None:
        self.__dict__.update(found)


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def formatter(prog: str) -> argparse.HelpFormatter:
    """Asks the system itself for the width: the standard one loads an archiver's modules to do so."""
    from argparse import HelpFormatter

    return HelpFormatter(prog, width=_columns() - 2)


def formatter_as_written(prog: str) -> argparse.HelpFormatter:
    from argparse import RawDescriptionHelpFormatter

    return RawDescriptionHelpFormatter(prog, width=_columns() - 2)


def new_parser(name: str, description: str, **more: Any) -> argparse.ArgumentParser:
    from perdure.cli.arguments import Parser

    return Parser(prog=f"perdure {name}", description=description, **{"formatter_class": formatter, **more})
