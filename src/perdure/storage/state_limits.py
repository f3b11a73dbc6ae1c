"""How much the state store takes, and how long it remembers."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

Amount = Annotated[float, Meta(ge=0, le=1e9)]

VALUE_BYTES: Final = 1024 * 1024

Bound = Annotated[int, Meta(ge=1, le=2**40)]


class StateLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Quotas are per namespace. The newest version of a key stays whatever `history-days` says."""

    value_bytes: Bound = VALUE_BYTES
    namespace_keys: Bound = 5_000_000
    namespace_bytes: Bound = 8 * 1024**3
    history_days: Amount = 90
    answers_days: Amount = 7
