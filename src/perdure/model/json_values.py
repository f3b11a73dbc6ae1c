"""JSON read by the decoder that Python's own package uses, without that package: its patterns take longer to load."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    Pairs = Callable[[list[tuple[str, Any]]], Any]

try:
    import _json

    _SCANNER: Any = _json.make_scanner
except (ImportError, AttributeError):  # a Python that has it elsewhere
    _SCANNER = None

BLANKS = " \t\r\n"


def loads(text: str, pairs: Pairs | None = None) -> Any:
    """The value of a whole text; `pairs` makes an object of its members. Raises ValueError or RecursionError."""
    value, end = value_at(text, len(text) - len(text.lstrip(BLANKS)), pairs)
    if text[end:].strip(BLANKS):
        raise ValueError("something stands after the end")
    return value


def value_at(text: str, at: int, pairs: Pairs | None = None) -> tuple[Any, int]:
    """The value that begins at a place, and where it ends."""
    if _SCANNER is not None:
        try:
            found: tuple[Any, int] = _SCANNER(_How(pairs))(text, at)
            return found
        except (StopIteration, SystemError):
            pass  # it names a problem by the package's own error, and has none while that is not loaded
    import json

    decoder = json.JSONDecoder(object_pairs_hook=pairs, parse_constant=_refuse)
    return decoder.raw_decode(text, at)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is Python's, and no JSON")


class _How:
    """What the decoder asks of whoever uses it."""

    strict = True
    object_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_refuse)

    def __init__(self, pairs: Pairs | None) -> None:
        self.object_pairs_hook = pairs
