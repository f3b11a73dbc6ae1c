"""Types are prepared for msgspec by one thread at a time.

msgspec works a type out at its first use, and publishes the result before it is complete: a second thread that uses the
type meanwhile crashes the process. So code that may run in several threads passes its types through `prepare_type`.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, TypeVar

import msgspec

Kind = TypeVar("Kind")

_prepared: Final[set[object]] = set()
_preparing: Final = Lock()


def prepare_type(kind: Kind) -> Kind:
    """Return the same type, ready for use in any thread."""
    if kind not in _prepared:
        with _preparing:
            msgspec.json.Decoder(kind)
        _prepared.add(kind)
    return kind
