"""Types that msgspec has worked out, by one thread at a time.

It does so at the first use of a type, and shows what it has before all of it is there: another thread that uses the type
meanwhile ends the whole process. So whatever may run in several threads names its types by `learned`.
"""

from __future__ import annotations

from threading import Lock
from typing import Final, TypeVar

import msgspec

Kind = TypeVar("Kind")

_known: Final[set[object]] = set()
_learning: Final = Lock()


def learned(kind: Kind) -> Kind:
    """The same type, which can be used at once."""
    if kind not in _known:
        with _learning:
            msgspec.json.Decoder(kind)
        _known.add(kind)
    return kind
