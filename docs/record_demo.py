"""Draws the recordings of the documents as animated terminals, from real runs: `python docs/record_demo.py`.

`pictures/demo.svg` is a run of `perdure demo`; `pictures/rescue.svg` shows an undo of `rm -rf src`, in a temporary home.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import textwrap
from pathlib import Path
from typing import BinaryIO
from xml.sax.saxutils import escape

PICTURES = Path(__file__).resolve().parent / "pictures"
COLUMNS, ROWS = 100, 26
CHARACTER, LINE, DESCENT, MARGIN = 8.4, 19, 5, 16
END_S = 6.0
STYLE = {"ok": "#7ee787", "error": "#ffa198", "command": "#79c0ff", "output": "#c9d1d9", "story": "#8b949e"}
FILES = {
    "src/app.py": "print('hello')\n",
    "src/util.py": "def add(a, b):\n    return a + b\n",
    "README.md": "# Shop\n",
}


def main() -> int:
    PICTURES.mkdir(exist_ok=True)
    for name, title, record in (
        ("demo", "A run of perdure demo", record_demo),
        ("rescue", "A folder that an agent removed, brought back by perdure undo", record_rescue),
    ):
        picture = PICTURES / f"{name}.svg"
        picture.write_text(draw(record(), title), encoding="utf-8")
        print(f"wrote {picture}: {picture.stat().st_size:,} bytes")
    return 0


def record_demo() -> list[str]:
    command = [sys.executable, "-m", "perdure", "demo"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return ["$ perdure demo", *result.stdout.splitlines()]


def record_rescue() -> list[str]:
    with tempfile.TemporaryDirectory() as home:
        return Rescue(Path(home)).play()


class Rescue:
    """A person and an agent in a project. The agent's client runs the hooks that `perdure install` has written."""

    def __init__(self, home: Path) -> None:
        self.project = home / "shop"
        for name, content in FILES.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        programs = home / "bin"
        programs.mkdir()
        script = programs / "perdure"
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m perdure "$@"\n')
        script.chmod(0o755)
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "XDG_"))
        }
        self.environ = {
            **kept,
            "HOME": str(home),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "CLAUDE_PROJECT_DIR": str(self.project),
            "NO_COLOR": "1",
            "TERM": "dumb",
        }
        self.settings = home / ".claude" / "settings.json"
        self.settings.parent.mkdir()
        self.calls = 0
        self.lines: list[str] = []

    def play(self) -> list[str]:
        self.type("perdure install claude-code --hooks --apply")
        self.tell("The agent is asked to clean up. It removes a folder too many, then goes on working:")
        self.hook("UserPromptSubmit", prompt="clean up")
        self.use_shell("rm -rf src")
        self.use_shell("echo Clean. >> README.md")
        self.lines.append("")
        self.type("ls src")
        self.type("perdure timeline")
        self.tell("One call is undone. What came after it stays:")
        self.type("perdure undo 1")
        self.type("ls src")
        self.type("cat README.md")
        return self.lines

    def tell(self, text: str) -> None:
        self.lines += ["", text, ""]

    def type(self, line: str) -> None:
        """What a person types, and what the terminal shows."""
        reading, writing = pty.openpty()
        fcntl.ioctl(writing, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS - 4, 0, 0))
        with os.fdopen(reading, "rb") as terminal:
            process = subprocess.Popen(
                ["sh", "-c", line],
                env=self.environ,
                cwd=self.project,
                stdin=subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
            )
            os.close(writing)
            shown = read_all(terminal).replace(self.environ["HOME"], "~")
            process.wait(60)
        self.lines += [f"$ {line}", *(f"  {shown_line}" for shown_line in shown.expandtabs().splitlines())]

    def use_shell(self, command: str) -> None:
        """A call of the agent's shell tool."""
        self.calls += 1
        call = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": f"call-{self.calls}"}
        self.hook("PreToolUse", **call)
        subprocess.run(["sh", "-c", command], cwd=self.project, check=True)
        self.hook("PostToolUse", tool_response={}, **call)
        self.lines.append(f"   Bash: {command}")

    def hook(self, event: str, **fields: object) -> None:
        (group,) = json.loads(self.settings.read_text())["hooks"][event]
        payload = {"session_id": "s1", "cwd": str(self.project), "hook_event_name": event, **fields}
        subprocess.run(
            ["sh", "-c", group["hooks"][0]["command"]],
            input=json.dumps(payload).encode(),
            env=self.environ,
            cwd=self.project,
            check=True,
            timeout=60,
        )


def read_all(terminal: BinaryIO) -> str:
    pieces: list[bytes] = []
    try:
        while piece := terminal.read1(65536):  # type: ignore[attr-defined]
            pieces.append(piece)
    except OSError:
        pass  # on Linux the end of a terminal is an error
    return b"".join(pieces).decode()


def draw(output: list[str], title: str) -> str:
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
        f' role="img">\n<title>{escape(title)}</title>\n'
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
    if text.startswith(("error", "not ", "nothing ", "refused", "BROKEN", "A PROMISE", "ls: ")):
        return "error"
    if text.startswith(("$", "kill -9")) or re.match(r" {3}\w+: ", line):
        return "command"
    return "output" if line.startswith(" ") else "story"


if __name__ == "__main__":
    sys.exit(main())
