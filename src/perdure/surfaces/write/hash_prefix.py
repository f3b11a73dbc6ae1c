"""A sha256 as an argument: whole, or at least its first 8 hex digits, as results show 12 of them."""

from __future__ import annotations

import re
from typing import Final

from perdure.protocol.envelope import refuse
from perdure.protocol.next_step import FILL, call_again

SHORTEST: Final = 8
_PREFIX = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


def is_prefix(value: str) -> bool:
    return _PREFIX.fullmatch(value) is not None


def check_prefix(value: str, argument: str) -> None:
    """Raises ToolError for what is no beginning of a sha256."""
    if not is_prefix(value):
        raise refuse(
            "invalid_input",
            "bad_sha256",
            f"{argument} must be at least the first {SHORTEST} of the 64 lower-case hex digits of a sha256 (see read).",
            next_step=call_again(**{argument: FILL}),
            reason_hint="syntax",
            suggested_action="fix_syntax",
            argument=argument,
        )
