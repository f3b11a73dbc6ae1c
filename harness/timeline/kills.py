"""Hooks, the resident recorder, `undo` and `rewind` are killed at random places: `python -m harness.timeline.kills`.

    --rounds N   rounds in all (1000)        --seed N   of the first history (random)
    --each N     rounds of one history (25)  --bug NAME a seeded bug that must be found

A history is one workspace. In each round another program and a call of a client change files at random; the hooks of the
call, or a command that takes changes back, are killed at a fault point or at a random time. The trial keeps its own copies
of the tree.

| law | |
|---|---|
| open | a hook that is not killed exits with 0 and prints nothing; where it failed it says so |
| true | after a hook that was acknowledged, the rows of the journal replayed give the tree |
| caught up | the first hook that nothing happens to is acknowledged |
| whose | a change between two acknowledged hooks of a call is that call's; between calls it is another program's |
| whole | a killed `undo` or `rewind` has done all or nothing, and the next process leaves no trace of half of it |
| kept | every content of a tree that a hook acknowledged is in the store |
| back | at the end, a rewind to the first change gives the first tree |
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from harness.timeline.client import ResidentWorker, TrialClient, is_acknowledged, is_open, tool_call
from harness.timeline.history import (
    OWN_TOOLS,
    Digests,
    Moment,
    Record,
    RecordedRow,
    Witness,
    differences,
    digests_of,
    is_below,
    read_record,
    replay,
)
from harness.timeline.launcher import Conditions, Ended, Launcher
from harness.timeline.mischief import Mischief
from harness.timeline.seeded_bugs import BUGS
from harness.timeline.shell import read_tree
from perdure.platform.fault_points import names
from perdure.storage.timeline import ANOTHER_PROGRAM

_PREFIXES: Final = ("timeline.", "blob.", "commit.", "recover.")
_HOOK_POINTS: Final = tuple(name for name in names() if name.startswith(_PREFIXES))
_COMMAND_POINTS: Final = tuple(
    name for name in names() if name.startswith((*_PREFIXES, "write.", "remove.", "mode."))
)
_MOST_POINTS: Final = 60
_LONGEST_S: Final = 0.06


class History:
    def __init__(self, folder: Path, seed: int, bug: str = "") -> None:
        self.chance = random.Random(seed)
        self.root = folder / "work"
        self.root.mkdir(parents=True)
        self.launcher = Launcher(folder / "home", BUGS, bug)
        self.client = TrialClient(self.launcher, self.root)
        self.mischief = Mischief(self.root, self.chance)
        self.wrong: list[str] = []
        self.kills = 0
        self.log: list[str] = []
        self._worker: ResidentWorker | None = None
        self._witness = Witness(self.launcher, self.root)
        self._is_certain = True
        self._has_lost_end = False
        self.mischief.steps(25)
        self.mischief.choose_actions()
        self._acknowledge(self.client.hook("SessionStart"), ANOTHER_PROGRAM)

    def run(self, rounds: int) -> None:
        for number in range(rounds):
            self.log.append(f"round {number}")
            if self.chance.random() < 0.3:
                self.log += self.mischief.steps(4)
            if self.chance.random() < 0.25:
                self._take_back()
            else:
                self._call(f"c{number}")
            if self.wrong:
                break
        if not self.wrong:
            self._finish()
        self._stop_worker()

    # --- calls ---------------------------------------------------------------------------------------------

    def _call(self, call_id: str) -> None:
        self._choose_worker()
        aim = self.chance.choice(("before", "after", "after", "both", "none"))
        is_before = self._hook("PreToolUse", call_id, ANOTHER_PROGRAM, is_aimed=aim in ("before", "both"))
        self.log += self.mischief.steps(8)
        author = call_id if is_before else ""
        if not self._hook("PostToolUse", call_id, author, is_aimed=aim in ("after", "both")):
            self._has_lost_end = True
        self._end_batch()

    def _end_batch(self) -> None:
        """Where the end of a call is missing, the agent stops: a call that is open is given up."""
        if self._has_lost_end and self._hook("Stop", "", "", is_aimed=self.chance.random() < 0.1):
            self._has_lost_end = False

    def _choose_worker(self) -> None:
        """Half of the time a worker takes the hooks; some of them end at a fault point."""
        is_wanted = self.chance.random() < (0.8 if self._worker is not None else 0.4)
        if self._worker is not None and (not is_wanted or not self._worker.is_running()):
            self._stop_worker()
        if is_wanted and self._worker is None:
            conditions = self._aim(_HOOK_POINTS) if self.chance.random() < 0.6 else Conditions()
            self._worker = ResidentWorker(self.launcher, self.root, conditions)
            self.log.append(f"worker {conditions.faults}")

    def _stop_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _aim(self, points: tuple[str, ...]) -> Conditions:
        if self.chance.random() < 0.5:
            fault = f"*=kill@{self.chance.randint(1, _MOST_POINTS)}"
        else:
            fault = f"{self.chance.choice(points)}=kill@{self.chance.choice((1, 1, 1, 2, 3, 7))}"
        return Conditions(faults=fault)

    def _hook(self, event: str, call_id: str, author: str, *, is_aimed: bool) -> bool:
        """Whether it was acknowledged."""
        is_resident = self._worker is not None and self._worker.is_running()
        conditions = Conditions()
        by_time = is_aimed and (is_resident or self.chance.random() < 0.3)
        if is_aimed and not by_time:
            conditions = self._aim(_HOOK_POINTS)
        process = self.client.start_hook(event, conditions, **(tool_call(call_id) if call_id else {}))
        if by_time:
            delay = self.chance.random() * _LONGEST_S
            if is_resident and self._worker is not None and self.chance.random() < 0.7:
                self._worker.kill(delay)
            else:
                time.sleep(delay)
                process.kill()
        ended = process.wait()
        self.log.append(f"{event} {call_id} {conditions.faults} -> {ended.code} {ended.err.strip()}")
        return self._acknowledge(ended, author, may_fail=is_aimed or is_resident, may_die=is_aimed)

    def _acknowledge(
        self, ended: Ended, author: str, *, may_fail: bool = False, may_die: bool = False
    ) -> bool:
        if is_acknowledged(ended):
            is_certain = self._is_certain and not (self._has_lost_end and author == ANOTHER_PROGRAM)
            self._witness.see(author if is_certain else "")
            self._is_certain = True
            return True
        self._is_certain = False
        if (may_die and ended.code == -signal.SIGKILL) or (may_fail and is_open(ended)):
            self.kills += 1
        else:
            self.wrong.append(f"open: a hook ended with {ended}")
        return False

    # --- taking back ---------------------------------------------------------------------------------------

    def _take_back(self) -> None:
        """A command that is killed; then a hook, which must find the whole of it done, or nothing."""
        if not self._hook("UserPromptSubmit", "", ANOTHER_PROGRAM, is_aimed=False):
            return
        self._has_lost_end = False
        record = read_record(self.launcher, self.root, set())
        changes = list(dict.fromkeys(row.txn for row in record.rows if row.txn is not None))
        if not changes:
            return
        change = self.chance.choice(changes[-6:])
        rows = [row for row in record.rows if row.txn == change]
        verb = self.chance.choice(("undo", "rewind"))
        before = digests_of(read_tree(self.root))
        expected = (
            _rewound(self._witness.moments[0], record, rows)
            if verb == "rewind"
            else _undone(record, rows, before)
        )
        conditions = self._aim(_COMMAND_POINTS)
        ended = self.client.command(verb, str(rows[0].seq), conditions=conditions)
        self.log.append(
            f"{verb} {rows[0].seq} {conditions.faults} -> {ended.code} {(ended.out + ended.err)[-200:]}"
        )
        self.kills += ended.code == -signal.SIGKILL
        self._hook("UserPromptSubmit", "", OWN_TOOLS, is_aimed=self.chance.random() < 0.3)
        self._stop_worker()
        if not is_acknowledged(again := self.client.hook("UserPromptSubmit", prompt="go on")):
            self.wrong.append(f"caught up: a hook ended with {again}")
            return
        self._acknowledge(again, OWN_TOOLS)
        now = digests_of(read_tree(self.root))
        is_done = ended.code == 0
        if expected is not None and differences(expected, now) and (is_done or differences(before, now)):
            lines = differences(expected, now)[:3] + differences(before, now)[:3]
            self.wrong.append(f"whole: {verb} {rows[0].seq} exited with {ended.code}: {lines}")

    # --- the end -------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        self._stop_worker()
        ended = self.client.hook("UserPromptSubmit", prompt="go on")
        if not self._acknowledge(ended, ""):
            return
        self.wrong += self._witness.judge()
        self._rewind_all()

    def _rewind_all(self) -> None:
        if (first := self._witness.first_row()) is None:
            return
        ended = self.client.command("rewind", str(first))
        if ended.code != 0 and "nothing_to_undo" not in ended.out + ended.err:
            self.wrong.append(f"back: rewind {first} ended with {ended}")
        elif lines := self._witness.compare_with_first():
            self.wrong.append(f"back: after rewind {first}: {lines[:4]}")


def _rewound(first: Moment, record: Record, rows: list[RecordedRow]) -> Digests | None:
    if rows[0].seq <= first.head:
        return None
    return replay(first.tree, record.rows, first.head, rows[0].seq - 1)


def _undone(record: Record, rows: list[RecordedRow], now: Digests) -> Digests | None:
    """The tree without a change; None where others follow in the same places, so that texts are merged or it collides."""
    paths = {row.path for row in rows}
    for other in record.rows:
        is_later = other.seq > rows[0].seq and other.txn != rows[0].txn
        if is_later and any(is_below(other.path, path) or is_below(path, other.path) for path in paths):
            return None
    tree = dict(now)
    for row in reversed(rows):
        if row.old is None:
            tree.pop(row.path, None)
            continue
        kind = row.detail.get("kind_before", row.detail.get("kind", "file"))
        tree[row.path] = (kind, row.detail.get("mode_before"), row.old)
    return tree


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--each", type=int, default=25)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--bug", default="", choices=("", *BUGS))
    parser.add_argument("--folder", help="where the workspaces are made")
    parser.add_argument("--keep", help="copy the folder of a history that failed to this one")
    options = parser.parse_args()
    rounds = kills = 0
    failed: list[int] = []
    for seed in range(options.seed, options.seed + -(-options.rounds // options.each)):
        with tempfile.TemporaryDirectory(prefix="perdure-kills-", dir=options.folder) as folder:
            history = History(Path(folder), seed, options.bug)
            history.run(options.each)
            rounds, kills = rounds + options.each, kills + history.kills
            if not history.wrong:
                continue
            failed.append(seed)
            print(
                json.dumps({"seed": seed, "wrong": history.wrong[:5], "log": history.log}, indent=1),
                flush=True,
            )
            if options.keep:
                shutil.copytree(
                    folder,
                    Path(options.keep) / str(seed),
                    symlinks=True,
                    ignore=shutil.ignore_patterns("*.sock"),
                )
            if options.bug:
                break
    print(f"{rounds} rounds, {kills} kills, from seed {options.seed}: wrong in {len(failed)} {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
