"""JSON of plain values, written without the package that also reads it: that one takes as long as a whole command."""

from __future__ import annotations

import sys
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def shown(text: str) -> str:
    """JSON as this terminal can take it: what it has no letter for is escaped, and it is JSON still."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("_", "-")
    if text.isascii() or encoding in ("utf-8", "utf8"):
        return text
    return "".join(c if c.isascii() else encode_basestring_ascii(c)[1:-1] for c in text)


def dumps(value: Any) -> str:
    """Of dicts, lists, tuples, texts, finite numbers, booleans and None."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return encode_basestring_ascii(value)
        case int() | float():
            return repr(value)
        case dict():
            return (
                "{" + ", ".join(f"{encode_basestring_ascii(k)}: {dumps(v)}" for k, v in value.items()) + "}"
            )
        case list() | tuple():
            return "[" + ", ".join(map(dumps, value)) + "]"
        case _:
            raise TypeError(type(value).__name__)
