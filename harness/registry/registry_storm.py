"""Concurrent changes of one registry file: our processes install and uninstall while a foreign program rewrites it.

    python -m harness.registry.registry_storm [--processes 16] [--rounds 10] [--style none|renamed|append|…]

Each of our processes keeps some of the servers it installs and removes the others. The foreign program takes no lock of
ours, adds sections of its own, and records when it read and when it wrote the file.

    none       there is no foreign program
    renamed    reads the file, exchanges it with a copy that has one more section, and exchanges back if the displaced
               content is not the one it read
    append     appends one section to the file in one call
    in-place   reads the file, truncates it and writes it with one more section, in two parts
    naive      reads the file and renames a copy with one more section over it, without a comparison
    slow       the same, with a tenth of a second between reading and writing

What must hold at the end:

- Changes of our processes are all there, once, and removed sections are gone. Excused is a change that ended after a
  foreign read and before the write that followed it: the foreign program wrote a stale copy over it.
- Sections of the foreign program are all there. Excused is a section that it wrote into our file before the swap back:
  that content must be in a backup. Excused is also a section that the foreign program dropped itself: it read the file
  between an exchange of ours and the swap back, when the name held our content without that section, and wrote a copy of
  what it had read. An exchange that was not swapped back excuses nothing.
- At no moment does the file hold half a section, and no temporary file is left.

`--late MS` delays our processes at the points where another program can come in between, and the foreign program before
it reads. `--broken` gives our processes a bug that the run must find: `overwrites` skips the comparison after the
exchange, `races` skips it and the locks too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from harness.registry.registry_writers import (
    BUGS,
    FILE,
    STYLES,
    Act,
    Report,
    SwapBack,
    Write,
    foreigner,
    installer,
)
from perdure.registry.file.mcp_md_sections import parse_sections

__all__ = ["BUGS", "STYLES", "storm"]
_T = TypeVar("_T")
BEGIN: Final = "# MCP servers\n\nProse that stays.\n\n## Allowed commands\npython\n"


def storm(
    folder: Path, processes: int, rounds: int, style: str, *, late_s: float = 0.0, broken: str = ""
) -> list[str]:
    """The violations; empty if there are none."""
    (folder / FILE).write_text(BEGIN)
    options = ["--folder", str(folder), "--style", style, "--late", str(late_s * 1000), "--broken", broken]
    words = [sys.executable, "-m", "harness.registry.registry_storm", *options]
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
    seen = ""
    while any(process.poll() is None for process in ours):
        text = (folder / FILE).read_text()
        if text != seen and style != "in-place":  # that one tears its own file, for a moment
            problems += _torn(text)
        seen = text
        time.sleep(0.02)
    reports = [_decode(process.communicate()[0], Report) or Report([], []) for process in ours]
    acts = [act for report in reports for act in report.acts]
    swap_backs = [swap_back for report in reports for swap_back in report.swap_backs]
    problems += [f"a process failed with {process.returncode}" for process in ours if process.returncode]
    writes = _decode(foreign.communicate()[0], list[Write]) or []
    problems += [f"the foreign program failed with {foreign.returncode}"] if foreign.returncode else []
    wanted = [name for name, is_there in _last(acts).items() if is_there]
    wanted += [write.name for write in writes if not write.is_in_backup]
    excused = overwritten(acts, writes) | dropped(writes, swap_backs)
    excused |= {write.name for write in writes if write.is_in_backup}
    return problems + _difference(folder, wanted, excused)


def _decode(text: str, kind: type[_T]) -> _T | None:
    return msgspec.json.decode(text, type=kind) if text else None


def _last(acts: Sequence[Act]) -> dict[str, bool]:
    return {act.name: act.is_there for act in sorted(acts, key=lambda act: act.ended_at)}


def overwritten(acts: Sequence[Act], writes: Sequence[Write]) -> set[str]:
    """The names of changes that a foreign program may have overwritten: its read came before their end, and the write
    of that copy after their begin."""
    return {
        act.name
        for act in acts
        if any(
            write.is_stale and write.read_at < act.ended_at and write.wrote_at > act.began_at
            for write in writes
        )
    }


def dropped(writes: Sequence[Write], swap_backs: Sequence[SwapBack]) -> set[str]:
    """The names of foreign sections that the foreign program dropped itself: it made its copy from a read between an
    exchange of ours and the swap back."""
    return {
        name
        for write in writes
        if any(
            write.read_at < swap_back.swapped_back_at and write.read_ended_at > swap_back.exchanged_at
            for swap_back in swap_backs
        )
        for name in write.lost_names
    }


def _torn(text: str) -> list[str]:
    bad = [section.name for section in parse_sections(text).servers if len(section.lines) != 2]
    return [f"torn: {name}" for name in bad] + ([] if text.startswith(BEGIN) else ["the prose is gone"])


def _difference(folder: Path, wanted: Sequence[str], excused: set[str] | None = None) -> list[str]:
    text = (folder / FILE).read_text()
    names = [section.name for section in parse_sections(text).servers]
    judged = set(wanted).union(names) - (excused or set())
    problems = [f"lost: {name}" for name in wanted if name not in names and name in judged]
    problems += [f"not removed: {name}" for name in names if name not in wanted and name in judged]
    problems += [f"twice: {name}" for name in set(names) if names.count(name) > 1]
    left = [name for name in os.listdir(folder) if name not in (FILE, "home")]
    return problems + [f"left lying: {name}" for name in left] + _torn(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--style", choices=STYLES, default="renamed")
    parser.add_argument("--late", type=float, default=0.0, metavar="MS")
    parser.add_argument("--broken", choices=("", *BUGS), default="")
    parser.add_argument("--role", choices=("ours", "foreign"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    late_s = options.late / 1000
    if options.role == "ours":
        installer(options.folder, options.number, options.rounds, late_s, options.broken)
        return 0
    if options.role == "foreign":
        foreigner(options.folder, options.style, late_s)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        problems = storm(
            Path(folder),
            options.processes,
            options.rounds,
            options.style,
            late_s=late_s,
            broken=options.broken,
        )
    print("\n".join(problems) or f"{options.processes} processes, {options.rounds} rounds each: nothing lost")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
