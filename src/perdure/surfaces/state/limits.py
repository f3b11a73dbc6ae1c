"""What may be asked of the store, and the refusals that say so. A refusal names no content."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again
from perdure.storage.state import Name, Space
from perdure.storage.state_limits import StateLimits
from perdure.storage.state_values import BadValue, key_problem, parsed

MOST_OPS: Final = 128
MOST_LISTED: Final = 1000
PAGE_BYTES: Final = 4 * 1024 * 1024
MOST_WAITS: Final = 24
LONGEST_WAIT_S: Final = 600.0
LONGEST_TTL_S: Final = 10 * 366 * 86400.0
PATTERN_BYTES: Final = 1024
MOST_REVISIONS: Final = 2**63


def unlisted(default: str) -> Any:
    """A default that the tool list does not repeat for every tool: it is read at every start."""
    return msgspec.field(default_factory=lambda: default)


def named(space: Space, namespace: str, key: str, *, what: str = "key") -> Name:
    for shown, text in (("namespace", namespace), (what, key)):
        if (problem := key_problem(text)) is not None:
            hint: Any = "size_limit" if "bytes" in problem else "encoding"
            raise refuse(
                "invalid_input",
                f"bad_{shown}",
                f"{shown} {problem}.",
                next_step=call_again(**{shown: FILL}),
                reason_hint=hint,
                suggested_action="fix_syntax",
                argument=shown,
            )
    return space, namespace, key


def sized(value: str, limits: StateLimits) -> str:
    """A value that is not too large."""
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > limits.value_bytes:
        raise refuse(
            "quota_exceeded",
            "value_too_large",
            f"not written: the value has {size:,} bytes; the limit for one key is {limits.value_bytes:,}.",
            next_step=call_again(value=FILL),
            reason_hint="size_limit",
            suggested_action="split",
            bytes=size,
            limit=limits.value_bytes,
        )
    return value


def json_value(text: str, limits: StateLimits, argument: str = "value") -> Any:
    """What a JSON text stands for."""
    sized(text, limits)
    try:
        return parsed(text)
    except BadValue as error:
        raise bad_json(str(error), argument) from None


def bad_json(problem: str, argument: str = "value") -> ToolError:
    return refuse(
        "invalid_input",
        "invalid_json",
        f'{argument} is not JSON: {problem}; a text needs quotes: "\\"hello\\"".',
        next_step=call_again(**{argument: FILL}),
        reason_hint="syntax",
        suggested_action="fix_syntax",
        argument=argument,
    )


def bad_argument(argument: str, message: str, **changes: Any) -> ToolError:
    """`changes` are the arguments that the next call has in another way, else the caller fills this one in."""
    return refuse(
        "invalid_input",
        "bad_argument",
        message,
        next_step=call_again(**(changes or {argument: FILL})),
        suggested_action="fix_syntax",
        argument=argument,
    )


def expiry(ttl_s: float | None, now: int) -> int | None:
    return None if ttl_s is None else now + max(1, int(ttl_s * 1_000_000))


def checked_ttl(ttl_s: float | None) -> float | None:
    if ttl_s is not None and not 0 < ttl_s <= LONGEST_TTL_S:
        raise bad_argument("ttl_s", f"ttl_s must be more than 0 and at most {LONGEST_TTL_S:.0f} seconds.")
    return ttl_s
