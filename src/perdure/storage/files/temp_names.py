"""The names of our temporary files, and whether the process that made one still lives.

    .perdure~w<pid>.<start>.<space>.<random>    being written: not content of a file yet
    .perdure~x<pid>.<start>.<space>.<random>    being exchanged: may hold the only copy of a foreign content

A process id alone is not enough to know an owner: it is used again, and it means another process in another
container. So a name also has the owner's start time and the id of its process-id namespace, all in hex.
The name never depends on the target's, so a target may use all of its 255 bytes.
"""

from __future__ import annotations

import os
import re
import secrets
from functools import cache
from typing import Final, Literal, NamedTuple

from perdure.platform.boot import boot_number
from perdure.platform.processes import is_running, pid_namespace, start_time

PREFIX: Final = ".perdure~"
Use = Literal["w", "x"]
_NAME: Final = re.compile(
    re.escape(PREFIX)
    + r"(?P<use>[wx])(?P<pid>[0-9a-f]{1,8})\.(?P<start>[0-9a-f]{1,16})\.(?P<space>[0-9a-f]{1,16})\.[0-9a-f]{16}"
)


class Owner(NamedTuple):
    pid: int
    start: int
    space: int


class TempName(NamedTuple):
    use: Use
    owner: Owner


def fresh(use: Use) -> str:
    pid, start, space = _of_process(os.getpid())
    return f"{PREFIX}{use}{pid:x}.{start:x}.{space:x}.{secrets.token_hex(8)}"


def parsed(name: str) -> TempName | None:
    """Parse one of our temporary names; None for any other name."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    owner = Owner(int(found["pid"], 16), int(found["start"], 16), int(found["space"], 16))
    return TempName("w" if found["use"] == "w" else "x", owner)


def owner_lives(owner: Owner) -> bool | None:
    """None where it cannot be known from here: the owner belongs to another container or machine."""
    if owner.space != _of_process(os.getpid()).space:
        return None
    if owner.start == 0:
        return is_running(owner.pid)
    return start_time(owner.pid) == owner.start


@cache
def _of_process(pid: int) -> Owner:
    # By pid, so that a forked child does not sign with its parent's name.
    namespace = pid_namespace()
    return Owner(pid, start_time(pid), namespace ^ boot_number() << 32 if namespace else 0)
