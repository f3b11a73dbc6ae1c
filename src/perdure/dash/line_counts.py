"""How many lines each change added and removed. A change never changes, so each is counted once and remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from perdure.dash.tool_client import ToolClient, ToolFailed
from perdure.text.diff_lines import count_lines, has_counted_lines

MOST_KEPT: Final = 4096
AT_ONCE: Final = 4

Counts = dict[str, tuple[int, int]]


class LineCounts:
    def __init__(self, tools: ToolClient) -> None:
        self._tools = tools
        self._known: dict[str, tuple[int, int] | None] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def of(self, entries: Iterable[dict[str, Any]]) -> Counts:
        """By journal id; without those that are too large to count or cannot be compared."""
        wanted = list(entries)
        await asyncio.gather(*(self._count(one) for one in wanted if one["journal_id"] not in self._known))
        found = {one["journal_id"]: self._known.get(one["journal_id"]) for one in wanted}
        return {identity: counts for identity, counts in found.items() if counts is not None}

    async def _count(self, entry: dict[str, Any]) -> None:
        counts = None
        if has_counted_lines(entry):
            async with self._turns:
                try:
                    diff = await self._tools.call("diff", path=entry["path"], to=entry["journal_id"])
                except ToolFailed:
                    return  # asked again at the next look: the tools may just be starting
            counts = count_lines(diff["diff"]) if not diff["truncated"] else None
        if len(self._known) >= MOST_KEPT:
            del self._known[next(iter(self._known))]
        self._known[entry["journal_id"]] = counts
