"""What an agent tells of one round: what it asked for, what it was answered, and when."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.storage.reservations import Mode

Writer = Literal["tool", "hook", "shell"]


class Granted(msgspec.Struct, kw_only=True):
    """A reservation as its owner saw it: from when it was answered until the owner gave it up, or it expired."""

    owner: int
    token: int
    paths: list[str]
    mode: Mode
    began: float
    since: float
    until: float


class Write(msgspec.Struct, kw_only=True):
    """A write that was acknowledged, that a hook let pass, or that a shell command made. `notice` is what the hook after it
    said. `is_checked` is false where the store of the reservations could not be reached."""

    owner: int
    path: str
    began: float
    answered: float
    by: Writer
    line: str = ""
    notice: str = ""
    is_line_left: bool = False
    is_checked: bool = True


class Told(msgspec.Struct):
    agent: int = -1
    granted: list[Granted] = []
    released: dict[int, float] = {}
    renewed: dict[int, float] = {}
    writes: list[Write] = []
    notices: list[str] = []
    """What it was told of its own reserved files."""
    refused: int = 0
    unreachable: int = 0
