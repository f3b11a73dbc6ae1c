"""How the tools of a surface are declared: the two kinds there are."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.protocol.replay import CONVERGENT, JOURNAL
from perdure.protocol.tools import ToolSpec


def declare_write(
    name: str,
    title: str,
    description: str,
    params: type[msgspec.Struct],
    *,
    alias_prefix: str = "",
    **more: Any,
) -> ToolSpec:
    """A tool that changes something: the journal or the state store knows whether it did. With `alias_prefix` the tool
    has a second name."""
    return ToolSpec(
        name=name,
        title=title,
        description=description,
        params=params,
        replay=JOURNAL,
        aliases=(f"{alias_prefix}{name}",) if alias_prefix else (),
        **more,
    )


def declare_read(
    name: str,
    title: str,
    description: str,
    params: type[msgspec.Struct],
    *,
    alias_prefix: str = "",
    **more: Any,
) -> ToolSpec:
    """A tool that changes nothing: it may be called again."""
    return ToolSpec(
        name=name,
        title=title,
        description=description,
        params=params,
        replay=CONVERGENT,
        aliases=(f"{alias_prefix}{name}",) if alias_prefix else (),
        read_only=True,
        **more,
    )
