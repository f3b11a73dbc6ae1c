"""The parser of a command's options, made without what only its help needs."""

from __future__ import annotations

import argparse
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Formatter(argparse.HelpFormatter):
    """Asks the system itself for the width: the standard one loads an archiver's modules to do so."""

    def __init__(self, prog: str, **given: Any) -> None:
        super().__init__(prog, **{"width": _columns() - 2, **given})


def _columns() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def new_parser(name: str, description: str, **more: Any) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"perdure {name}", description=description, **{"formatter_class": Formatter, **more}
    )
