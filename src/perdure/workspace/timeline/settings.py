"""Which files the time machine covers, and how it keeps them: `[timeline]` of the settings file."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Megabytes = Annotated[float, Meta(gt=0, le=1e9)]


class TimelineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`ignore` and `keep` are patterns as in `.gitignore`, relative to the workspace; `keep` wins."""

    enabled: bool = True
    ignore: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    max_file_mb: Megabytes = 50
    max_total_mb: Megabytes = 2000
    capture: Literal["auto", "eager", "git"] = "auto"
    mounts: bool = False
    secrets: Literal["keep", "seal", "skip"] = "keep"
