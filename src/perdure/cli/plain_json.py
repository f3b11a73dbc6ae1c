"""JSON of plain values, written without the package that also reads it: that one takes as long as a whole command."""

from __future__ import annotations

import sys
from _json import encode_basestring, encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def shown(text: str) -> str:
    """JSON as this terminal can take it: what it has no letter for is escaped, and it is JSON still."""
    encoding = (getattr(sys.stdout, "encoding", None) or "").lower().replace("_", "-")
    if text.isascii() or encoding in ("utf-8", "utf8"):
        return text
    return "".join(c if c.isascii() else encode_basestring_ascii(c)[1:-1] for c in text)


def dumps(value: Any, *, is_ascii: bool = True) -> str:
    """Of dicts, lists, tuples, texts, finite numbers, booleans and None."""
    return _text(value, encode_basestring_ascii if is_ascii else encode_basestring, ", ", ": ")


def compact(value: Any) -> str:
    """The same without blanks, every letter as it is."""
    return _text(value, encode_basestring, ",", ":")


def _text(value: Any, quoted: Callable[[str], str], comma: str, colon: str) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case int() | float():
            return repr(value)
        case dict():
            members = (f"{quoted(k)}{colon}{_text(v, quoted, comma, colon)}" for k, v in value.items())
            return "{" + comma.join(members) + "}"
        case list() | tuple():
            return "[" + comma.join(_text(one, quoted, comma, colon) for one in value) + "]"
        case _:
            raise TypeError(type(value).__name__)
