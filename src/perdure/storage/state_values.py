"""What may be kept: keys of valid UTF-8, values of strict JSON that every reader reads alike."""

from __future__ import annotations

import re
from typing import Any, Final

from perdure.storage.state_limits import VALUE_BYTES

KEY_BYTES: Final = 512
DEPTH: Final = 64

_BRACKETS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


class BadValue(ValueError):
    """Said without a word of the value itself."""


def key_problem(key: Any) -> str | None:
    if not isinstance(key, str) or key == "":
        return "is empty"
    if "\0" in key:
        return "holds a NUL character"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "is not valid UTF-8"
    return f"has {size} bytes, more than {KEY_BYTES}" if size > KEY_BYTES else None


def value_problem(key: Any, value: Any, most: int = VALUE_BYTES) -> str | None:
    """Why a key with a value cannot be kept, or None."""
    if (problem := key_problem(key)) is not None:
        return f"the key {problem}"
    try:
        parsed(value)
        size = len(value.encode())
    except (BadValue, UnicodeEncodeError) as error:
        return f"the value is not strict JSON: {error}"
    return f"the value has {size} bytes, more than {most}" if size > most else None


def parsed(text: Any) -> Any:
    """The value of a JSON text, or `BadValue` with where it goes wrong."""
    import json  # at the first value: a worker starts without it

    if not isinstance(text, str):
        raise BadValue("not a text")
    if text.count("[") + text.count("{") >= DEPTH and _depth(text) > DEPTH:
        raise BadValue(f"nested deeper than {DEPTH} levels")
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except json.JSONDecodeError as error:
        raise BadValue(f"it cannot be read at line {error.lineno} column {error.colno}") from None
    except UnicodeEncodeError:
        raise BadValue("half of a surrogate pair") from None
    except BadValue:
        raise
    except ValueError:
        raise BadValue("a number has too many digits") from None


def written(value: Any) -> str:
    """A value as JSON text; the same value always gives the same text."""
    import json

    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise BadValue("a number is too large") from None


def canonical(value: Any) -> str:
    """For comparing: 1, 1.0 and true differ, the order of members does not matter."""
    import json

    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadValue("a member is given twice")
    return found


def _constant(name: str) -> Any:
    raise BadValue(f"{name} is not JSON")


def _finite(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise BadValue("a number is too large")
    return value


def _depth(text: str) -> int:
    depth = deepest = 0
    for found in _BRACKETS.finditer(text):
        mark = found.group()
        if mark in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif mark in ("]", "}"):
            depth -= 1
    return deepest
