"""How much of the past a workspace keeps."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Amount = Annotated[float, Meta(ge=0, le=1e9)]


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """Contents that were replaced go when they are older than `days` or when all together take more than
    `megabytes`. The newest thousand changes and the last one of every file can be undone whatever these say."""

    days: Amount = 90
    megabytes: Amount = 2048
    answers_days: Amount = 7
