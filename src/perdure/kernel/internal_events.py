"""What one part of the kernel tells the others. Each event is delivered at once, by `Kernel.emit`."""

from __future__ import annotations

import msgspec


class ToolGroupSet(msgspec.Struct, frozen=True):
    """The session lists, or no longer lists, the tools of a group."""

    group: str
    is_enabled: bool
