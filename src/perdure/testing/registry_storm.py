"""Many processes install and uninstall while another program rewrites the file without our lock: nothing is lost.

    python -m perdure.testing.registry_storm [--processes 16] [--rounds 10] [--style renamed|in-place|append|naive|slow]

Each process keeps some of the servers it installs and removes the others. The foreign program adds sections of its
own, and keeps account. At the end every section that somebody was told is there is there, once, and none that was
removed; at no moment does the file hold half a section.

    renamed    reads the file, writes a copy with one more section beside it, and changes places with it; if what comes
               out is not what it read, it changes back and begins anew
    append     opens the file and writes one section at its end, in one call
    in-place   reads the file, opens it, cuts it to nothing and writes it with one more section, in two parts
    naive      reads the file and renames a copy with one more section over it, whatever was written meanwhile
    slow       the same, with a tenth of a second between reading and writing

The last three write back what they read a moment ago. What changed in between comes back all the same, since a change is
looked at again for a while; nobody can promise it for a program that waits longer than we look.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from perdure.registry.entry import Entry
from perdure.registry.filesystem import open_markdown
from perdure.registry.md_sections import parsed
from perdure.registry.templates import Template
from perdure.storage.files.syscalls import exchange

CERTAIN: Final = ("renamed", "append")
STYLES: Final = (*CERTAIN, "in-place", "naive", "slow")
THINKING_S: Final = 0.1
LINGER_S: Final = 0.25
FILE: Final = "mcp.md"
BEGIN: Final = "# MCP servers\n\nProse that stays.\n\n## Allowed commands\npython\n"


def installer(folder: Path, number: int, rounds: int) -> None:
    """Installs `rounds` servers and removes every second one."""
    backend = open_markdown(str(folder / FILE), os.environ)
    backend.linger_s = LINGER_S
    kept = []
    for turn in range(rounds):
        name = f"ours-{number}-{turn}"
        backend.install(Entry(name=name, command=Template("python"), args=(Template("x" * 50),)))
        if turn % 2:
            backend.uninstall(name)
        else:
            kept.append(name)
    print(json.dumps(kept))


def foreigner(folder: Path, style: str) -> None:
    """Adds sections until its input ends."""
    path = folder / FILE
    dir_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    added: list[str] = []
    print("editing", flush=True)
    os.set_blocking(0, False)
    while not _is_told():
        name = f"theirs-{len(added)}"
        section = f"\n## {name}\ncommand: node\nargs: {'y' * 50}\n".encode()
        match style:
            case "append":
                with open(path, "ab", buffering=0) as file:
                    file.write(section)
            case "in-place":
                _in_place(path, section)
            case "naive" | "slow":
                seen = path.read_bytes()
                time.sleep(THINKING_S if style == "slow" else 0)
                (folder / ".foreign").write_bytes(seen + section)
                os.replace(folder / ".foreign", path)
            case _:
                _renamed(path, dir_fd, section)
        added.append(name)
        time.sleep(0.1)
    print(json.dumps(added), flush=True)


def _renamed(path: Path, dir_fd: int, section: bytes) -> None:
    beside = f".foreign-{os.getpid()}"
    while True:
        seen = path.read_bytes()
        (path.parent / beside).write_bytes(seen + section)
        exchange(dir_fd, beside, path.name)
        if (path.parent / beside).read_bytes() == seen:
            os.unlink(path.parent / beside)
            return
        exchange(dir_fd, beside, path.name)


def _in_place(path: Path, section: bytes) -> None:
    content = path.read_bytes() + section
    with open(path, "wb", buffering=0) as file:
        file.write(content[: len(content) // 2])
        file.write(content[len(content) // 2 :])


def _is_told() -> bool:
    try:
        return os.read(0, 1) == b""
    except BlockingIOError:
        return False


def storm(folder: Path, processes: int, rounds: int, style: str) -> list[str]:
    """What went wrong; empty if nothing did."""
    (folder / FILE).write_text(BEGIN)
    words = [
        sys.executable,
        "-m",
        "perdure.testing.registry_storm",
        "--folder",
        str(folder),
        "--style",
        style,
    ]
    env = {**os.environ, "PERDURE_HOME": str(folder / "home")}
    foreign = subprocess.Popen(
        [*words, "--role", "foreign"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert foreign.stdout is not None
    foreign.stdout.readline()
    ours = [
        subprocess.Popen(
            [*words, "--role", "ours", "--number", str(number), "--rounds", str(rounds)],
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    problems: list[str] = []
    while any(one.poll() is None for one in ours):
        problems += _torn(folder) if style != "in-place" else []  # that one tears its own file, for a moment
        time.sleep(0.005)
    wanted = [name for one in ours for name in json.loads(one.communicate()[0] or "[]")]
    problems += [f"a process failed with {one.returncode}" for one in ours if one.returncode]
    wanted += json.loads(foreign.communicate()[0] or "[]")
    return problems + _difference(folder, wanted)


def _torn(folder: Path) -> list[str]:
    text = (folder / FILE).read_text()
    bad = [one.name for one in parsed(text).servers if len(one.lines) != 2]
    return [f"torn: {name}" for name in bad] + ([] if text.startswith(BEGIN) else ["the prose is gone"])


def _difference(folder: Path, wanted: list[str]) -> list[str]:
    names = [one.name for one in parsed((folder / FILE).read_text()).servers]
    problems = [f"lost: {name}" for name in wanted if name not in names]
    problems += [f"not removed: {name}" for name in names if name not in wanted]
    problems += [f"twice: {name}" for name in set(names) if names.count(name) > 1]
    left = [name for name in os.listdir(folder) if name not in (FILE, "home")]
    return problems + [f"left lying: {name}" for name in left] + _torn(folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--style", choices=STYLES, default="renamed")
    parser.add_argument("--role", choices=("ours", "foreign"))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--number", type=int, default=0)
    options = parser.parse_args()
    if options.role == "ours":
        installer(options.folder, options.number, options.rounds)
        return 0
    if options.role == "foreign":
        foreigner(options.folder, options.style)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        problems = storm(Path(folder), options.processes, options.rounds, options.style)
    print("\n".join(problems) or f"{options.processes} processes, {options.rounds} rounds each: nothing lost")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
