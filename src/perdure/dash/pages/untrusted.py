"""Settings files of the workspace that wait for the user's trust, and what to type. No page can grant it."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.dash.html import Markup, table
from perdure.dash.layout import card
from perdure.dash.pieces import code
from perdure.dash.web import Part
from perdure.protocol.pending_trust import UntrustedFile, command_for


def untrusted_part(files: Iterable[UntrustedFile]) -> Part:
    """Empty where nothing waits: a part of a live page stays in its place."""
    rows = [
        (
            code(file.path),
            ", ".join(f"{start.name}: {start.shown}" for start in file.starts) or "nothing",
            ", ".join(file.settings) or "nothing",
            code(command_for(file.path)),
        )
        for file in files
    ]
    if not rows:
        return Part("untrusted", Markup(""))
    heads = ("File", "Would start", "Would set", "To trust it, type")
    return Part("untrusted", card("Not trusted", table("Files that wait for trust", heads, rows, "")))
