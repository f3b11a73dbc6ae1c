"""How the write surface's tools are declared: the two kinds there are, under both of their names."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.protocol.replay import CONVERGENT, JOURNAL
from perdure.protocol.tools import ToolSpec


def writes(
    name: str,
    title: str,
    description: str,
    params: type[msgspec.Struct],
    *,
    conflict: tuple[str, ...],
    **more: Any,
) -> ToolSpec:
    """A tool that changes something: the journal knows whether it did."""
    return ToolSpec(
        name=name,
        title=title,
        description=description,
        params=params,
        replay=JOURNAL,
        aliases=(f"rw.{name}",),
        conflict=conflict,
        **more,
    )


def reads(name: str, title: str, description: str, params: type[msgspec.Struct]) -> ToolSpec:
    """A tool that changes nothing: it may be asked again."""
    return ToolSpec(
        name=name,
        title=title,
        description=description,
        params=params,
        replay=CONVERGENT,
        aliases=(f"rw.{name}",),
        conflict=("/path",) if name in ("read", "history", "diff") else (),
        read_only=True,
    )
