"""How an optional part is added to the installation that runs now."""

from __future__ import annotations

import os
import shlex
import sys


def install_command(extra: str) -> str:
    """For pipx, for `uv tool`, else for the interpreter that runs."""
    prefix = f"{sys.prefix}{os.sep}"
    if f"{os.sep}pipx{os.sep}venvs{os.sep}" in prefix:
        return f"pipx install --force 'perdure[{extra}]'"
    if f"{os.sep}uv{os.sep}tools{os.sep}" in prefix:
        return f"uv tool install --force 'perdure[{extra}]'"
    return f"{shlex.quote(sys.executable)} -m pip install 'perdure[{extra}]'"
