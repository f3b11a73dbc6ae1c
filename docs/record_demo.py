"""Draws `docs/pictures/demo.svg`, an animated terminal, from a run of `perdure demo`: `python docs/record_demo.py`."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

PICTURE = Path(__file__).resolve().parent / "pictures" / "demo.svg"
COLUMNS, ROWS = 100, 26
CHARACTER, LINE, DESCENT, MARGIN = 8.4, 19, 5, 16
END_S = 6.0
STYLE = {"ok": "#7ee787", "error": "#ffa198", "command": "#79c0ff", "output": "#c9d1d9", "story": "#8b949e"}


def main() -> int:
    command = [sys.executable, "-m", "perdure", "demo"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(["$ perdure demo", *result.stdout.splitlines()]), encoding="utf-8")
    print(f"wrote {PICTURE}: {PICTURE.stat().st_size:,} bytes")
    return 0


def draw(output: list[str]) -> str:
    """An SVG in which the lines appear at reading speed and scroll as in a terminal. It ends with the last lines."""
    lines = [(part, kind(line)) for line in output for part in wrap(line)]
    starts: list[float] = []
    time = 0.5
    for line, _ in lines:
        starts.append(time)
        time += 0.25 + len(line.strip()) * 0.018
    total = time + END_S
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), ROWS * LINE + 2 * MARGIN
    texts = [
        f'<text class="{name} line" y="{(number + 1) * LINE - DESCENT}" style="animation-delay:{start:.2f}s">'
        f"{escape(line).replace('  ', '&#160; ')}</text>"
        for number, ((line, name), start) in enumerate(zip(lines, starts, strict=True))
        if line.strip()
    ]
    scrolls = [
        f"{100 * start / total:.2f}%{{transform:translateY({-max(0, number + 1 - ROWS) * LINE}px)}}"
        for number, start in enumerate(starts)
    ]
    end = -max(0, len(lines) - ROWS) * LINE
    colors = "".join(f".{name}{{fill:{color}}}" for name, color in STYLE.items())
    style = (
        "text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre}"
        f"{colors}.line{{opacity:0;animation:appear .01s forwards}}@keyframes appear{{to{{opacity:1}}}}"
        f".screen{{animation:scroll {total:.2f}s step-end forwards}}"
        f"@keyframes scroll{{{''.join(scrolls)}100%{{transform:translateY({end}px)}}}}"
        f"@media (prefers-reduced-motion){{.line{{opacity:1;animation:none}}"
        f".screen{{animation:none;transform:translateY({end}px)}}}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        ' role="img">\n<title>A run of perdure demo</title>\n'
        f"<style>{style}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>\n'
        f'<svg x="{MARGIN}" y="{MARGIN}" width="{width - 2 * MARGIN}" height="{ROWS * LINE}">'
        f'<g class="screen">\n{chr(10).join(texts)}\n</g></svg>\n</svg>\n'
    )


def wrap(line: str) -> list[str]:
    indent = re.match(r" *", line)[0]  # type: ignore[index]
    return textwrap.wrap(line, COLUMNS, subsequent_indent=indent + "  ", drop_whitespace=False) or [""]


def kind(line: str) -> str:
    text = line.strip()
    if text.startswith(("ok", "every promise held", "Every promise held")):
        return "ok"
    if text.startswith(("error", "not ", "nothing ", "refused", "BROKEN", "A PROMISE")):
        return "error"
    if text.startswith(("$", "kill -9")) or re.match(r" {3}\w+: ", line):
        return "command"
    return "output" if line.startswith(" ") else "story"


if __name__ == "__main__":
    sys.exit(main())
