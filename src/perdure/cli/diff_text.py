"""Diffs on standard output: coloured on a terminal, byte for byte into a pipe."""

from __future__ import annotations

from perdure.cli.screen import Screen

_STYLES = {b"+": "green", b"-": "red", b"@": "cyan"}


def print_diff(diff: bytes, screen: Screen) -> None:
    if not screen.is_terminal:
        screen.out.flush()
        screen.out.buffer.write(diff)
        screen.out.buffer.flush()
        return
    is_header = True
    for line in diff.splitlines(keepends=True):
        is_header = is_header and not line.startswith(b"@@")
        style = "bold" if is_header else _STYLES.get(line[:1], "")
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        # Whatever a file holds, it does not move the cursor of a terminal.
        shown = "".join(c if c.isprintable() or c == "\t" else "?" for c in text)
        screen.out.write(screen.styled(shown, style) + "\n")
