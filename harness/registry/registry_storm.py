"""Many processes install and uninstall while another program rewrites the file without our lock: nothing is lost.

    python -m harness.registry.registry_storm [--processes 16] [--rounds 10] [--style renamed|in-place|append|naive|slow]

Each process keeps some of the servers it installs and removes the others. The foreign program adds sections of its
own, and keeps account. At the end every section that somebody was told is there is there, once, and none that was
removed; at no moment does the file hold half a section.

    renamed    reads the file, writes a copy with one more section beside it, and changes places with it; if what comes
               out is not what it read, it changes back and begins anew
    append     opens the file and writes one section at its end, in one call
    in-place   reads the file, opens it, cuts it to nothing and writes it with one more section, in two parts
    naive      reads the file and renames a copy with one more section over it, whatever was written meanwhile
    slow       the same, with a tenth of a second between reading and writing

The last three write back what they read a moment ago. What changed in between comes back all the same: by whoever
made the change, while it looks, and by every change after that. Only the last copy of all, if it was read before
the last changes and is written when none of ours runs any more, can take those away for good; nobody is there to
notice, and it is not counted. What the foreign program wrote itself is always counted.

`--late MS` lets ours stop that long wherever another program can come in between. `--broken` gives it a bug, which must
be found: `forgets` brings nothing back, `shows` lets others read ours before it is verified.
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

from harness.registry.registry_writers import BUGS, CERTAIN, FILE, STYLES, Act, Write, foreigner, installer
from perdure.registry.keeping import LINGER_S
from perdure.registry.md_sections import parsed

__all__ = ["BUGS", "CERTAIN", "STYLES", "storm"]
_T = TypeVar("_T")
BEGIN: Final = "# MCP servers\n\nProse that stays.\n\n## Allowed commands\npython\n"


def storm(
    folder: Path, processes: int, rounds: int, style: str, *, late_s: float = 0.0, broken: str = ""
) -> list[str]:
    """What went wrong; empty if nothing did."""
    (folder / FILE).write_text(BEGIN)
    told = ["--folder", str(folder), "--style", style, "--late", str(late_s * 1000), "--broken", broken]
    words = [sys.executable, "-m", "harness.registry.registry_storm", *told]
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
    while any(one.poll() is None for one in ours):
        text = (folder / FILE).read_text()
        if text != seen and style != "in-place":  # that one tears its own file, for a moment
            problems += _torn(text)
        seen = text
        time.sleep(0.02)
    acts = [act for one in ours for act in _printed(one.communicate()[0], list[Act])]
    problems += [f"a process failed with {one.returncode}" for one in ours if one.returncode]
    writes = _printed(foreign.communicate()[0], list[Write])
    lasting = _not_promised(acts, writes)
    wanted = [name for name, is_there in _last(acts).items() if is_there] + [one.name for one in writes]
    return problems + _difference(folder, wanted, lasting)


def _printed(text: str, kind: type[list[_T]]) -> list[_T]:
    return msgspec.json.decode(text or "[]", type=kind)


def _last(acts: Sequence[Act]) -> dict[str, bool]:
    return {act.name: act.is_there for act in sorted(acts, key=lambda act: act.ended_at)}


def _not_promised(acts: Sequence[Act], writes: Sequence[Write]) -> frozenset[str]:
    """What was changed while the last copy was in the foreign program's hands, if that was for longer than we look and
    came back when all of ours had ended."""
    if not acts or not writes:
        return frozenset()
    last = writes[-1]
    if last.wrote_at - last.read_at < LINGER_S or last.wrote_at < max(act.ended_at for act in acts):
        return frozenset()
    return frozenset(act.name for act in acts if act.ended_at > last.read_at)


def _torn(text: str) -> list[str]:
    bad = [one.name for one in parsed(text).servers if len(one.lines) != 2]
    return [f"torn: {name}" for name in bad] + ([] if text.startswith(BEGIN) else ["the prose is gone"])


def _difference(folder: Path, wanted: Sequence[str], not_promised: frozenset[str] = frozenset()) -> list[str]:
    text = (folder / FILE).read_text()
    names = [one.name for one in parsed(text).servers]
    problems = [f"lost: {name}" for name in wanted if name not in names and name not in not_promised]
    problems += [f"not removed: {name}" for name in names if name not in wanted and name not in not_promised]
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
        foreigner(options.folder, options.style)
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
