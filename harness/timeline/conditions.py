"""The time machine where the machine is short of something, or a folder is gone: `python -m harness.timeline.conditions`.

    --only NAMES   conditions, separated by commas    --folder DIR   where the workspaces are made
    --bug NAME     a seeded bug that must be found

| condition | |
|---|---|
| full_disk | the file system with Perdure's folder is full during some hooks (where it can be mounted) |
| read_only | it is read-only (likewise) |
| errors | system calls fail at a fault point |
| clock | the clock is set back, and forth |
| few_files | a hook may open few files |
| workspace_made_anew | the workspace is removed and made again, in a call and between calls |
| store_removed | Perdure's folder is removed |
| git_clean | `git clean -fdx` in the middle of a call |
| remade_folder | a folder is removed and made again, with the same name |
| same_times | a file is changed and gets its old size and time back |
| nested | a workspace in a workspace, with hooks of both |
| stopped_worker | the resident recorder does not answer |

Each is met without a resident recorder, and with one where it makes a difference. A hook then exits with 0, prints
nothing, and says on standard error what failed, or has recorded everything. The next one under normal conditions catches
up.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from harness.timeline.client import ResidentWorker, TrialClient, is_acknowledged, is_open, tool_call
from harness.timeline.corpus import make_workspace
from harness.timeline.history import Witness
from harness.timeline.launcher import NORMAL, Conditions, Launcher
from harness.timeline.seeded_bugs import BUGS
from perdure.platform.fault_points import names
from perdure.storage.timeline import ANOTHER_PROGRAM

_NEW_MOUNTS: Final = 0x00020000
_DISK: Final = "8m"

Check = Callable[["Stage"], None]


class Stage:
    """A workspace in which calls are made under changing conditions."""

    def __init__(self, folder: Path, bug: str = "", *, is_resident: bool = False) -> None:
        self.folder = folder
        self.root = folder / "work"
        self.root.mkdir(exist_ok=True)
        self.launcher = Launcher(folder / "home", BUGS, bug)
        self.client = TrialClient(self.launcher, self.root)
        self.witness = Witness(self.launcher, self.root)
        self.wrong: list[str] = []
        self.is_resident = is_resident
        self.worker: ResidentWorker | None = None
        self._number = 0
        self._is_certain = True

    def begin(self) -> None:
        """The first files, and the first look at them."""
        make_workspace(self.root)
        self.hook("SessionStart", "")
        if self.is_resident:
            self.worker = ResidentWorker(self.launcher, self.root)
        self.call(lambda: self.append("README.md"))

    def append(self, path: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        self._number += 1
        with place.open("a") as file:
            file.write(f"line {self._number}\n")

    def change_all(self) -> None:
        """A change of every kind."""
        self._number += 1
        for path in ("src/app.py", f"made/{self._number}/new.txt", f"new{self._number}.txt"):
            self.append(path)
        shutil.rmtree(self.root / "made" / str(self._number - 4), ignore_errors=True)
        (self.root / "big.dat").write_bytes(str(self._number).encode() * 100_000)

    def hook(
        self,
        event: str,
        author: str,
        call_id: str = "",
        conditions: Conditions = NORMAL,
        *,
        may_fail: bool = False,
    ) -> bool:
        """Whether it was acknowledged."""
        told = tool_call(call_id) if call_id else {}
        ended = self.client.hook(event, conditions, **told)
        if not self.root.is_dir():
            self._is_certain = False
            return False
        if is_acknowledged(ended):
            self.witness.see(author if self._is_certain else "")
            self._is_certain = True
            return True
        self._is_certain = False
        if not (may_fail and is_open(ended)):
            self.wrong.append(f"{event} {call_id} ended with {ended}")
        return False

    def call(
        self, change: Callable[[], object], conditions: Conditions = NORMAL, *, may_fail: bool = False
    ) -> None:
        self._number += 1
        call_id = f"c{self._number}"
        self.hook("PreToolUse", ANOTHER_PROGRAM, call_id, conditions, may_fail=may_fail)
        change()
        self.hook("PostToolUse", call_id, call_id, conditions, may_fail=may_fail)
        if not self._is_certain:
            self.hook("Stop", "", conditions=conditions, may_fail=may_fail)

    def finish(self) -> None:
        """Everything is as it should be again: later calls are right, and all can be taken back."""
        self.call(self.change_all)
        self.call(self.change_all)
        self.wrong += self.witness.judge()
        first = self.witness.first_row()
        ended = self.client.command("rewind", str(first))
        if ended.code != 0:
            self.wrong.append(f"rewind {first} ended with {ended}")
        elif lines := self.witness.compare_with_first():
            self.wrong.append(f"after rewind {first}: {lines[:4]}")

    def close(self) -> None:
        if self.worker is not None:
            self.worker.kill()


# --- conditions -------------------------------------------------------------------------------------------------------


def full_disk(stage: Stage) -> None:
    home = _mount(stage, f"size={_DISK}")
    stage.begin()
    ballast = home / "ballast"
    for room in (0, 4096, 100_000):
        with ballast.open("wb") as file:
            _fill(file.fileno())
        os.truncate(ballast, max(0, ballast.stat().st_size - room))
        stage.call(stage.change_all, may_fail=True)
        stage.append("README.md")
        stage.call(stage.change_all, may_fail=True)
        ballast.unlink()
        stage.call(stage.change_all)
    stage.finish()


def _fill(fd: int) -> None:
    for size in (1 << 16, 1 << 12):
        try:
            while True:
                os.write(fd, bytes(size))
        except OSError:
            continue


def read_only(stage: Stage) -> None:
    home = _mount(stage, f"size={_DISK}")
    stage.begin()
    for _ in range(2):
        subprocess.run(["mount", "-o", "remount,ro", str(home)], check=False, capture_output=True)
        stage.call(stage.change_all, may_fail=True)
        subprocess.run(["mount", "-o", "remount,rw", str(home)], check=True)
        stage.append("README.md")
        stage.call(stage.change_all)
    stage.finish()


def _mount(stage: Stage, options: str) -> Path:
    """A file system of its own for Perdure's folder, in this process and its children only."""
    if ctypes.CDLL(None).unshare(_NEW_MOUNTS) != 0:
        raise PermissionError("unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    home = stage.launcher.home
    home.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "trial", str(home)], check=True)
    return home


def errors(stage: Stage) -> None:
    stage.begin()
    points = [name for name in names() if name.startswith(("timeline.", "blob.", "commit."))]
    for number, name in enumerate(points):
        error = ("enospc", "eio", "erofs", "edquot", "emfile")[number % 5]
        stage.call(stage.change_all, Conditions(faults=f"{name}={error}"), may_fail=True)
    stage.finish()


def clock(stage: Stage) -> None:
    stage.begin()
    for offset in (-3600, -400 * 86_400, 7200, 3 * 86_400, 0, -30):
        conditions = Conditions(clock_s=offset)
        stage.call(stage.change_all, conditions)
        stage.append("README.md")
        stage.call(stage.change_all, conditions)
    stage.finish()


def few_files(stage: Stage) -> None:
    stage.begin()
    for files in (*range(4, 24), 32, 64):
        stage.call(stage.change_all, Conditions(files=files), may_fail=True)
    stage.finish()


def workspace_made_anew(stage: Stage) -> None:
    stage.begin()

    def make_anew() -> None:
        shutil.rmtree(stage.root)
        stage.root.mkdir()
        stage.append("src/app.py")
        (stage.root / "other.txt").write_text("other\n")

    stage.call(make_anew, may_fail=True)
    stage.call(stage.change_all)
    make_anew()
    stage.call(stage.change_all)
    stage.call(lambda: shutil.rmtree(stage.root), may_fail=True)
    stage.root.mkdir(exist_ok=True)
    stage.call(stage.change_all)
    stage.finish()


def store_removed(stage: Stage) -> None:
    """What was kept is gone with it, and `verify` says so; what is recorded from then on is right."""
    stage.begin()
    shutil.rmtree(stage.launcher.home / "workspaces")
    stage.call(stage.change_all, may_fail=True)
    stage.witness = Witness(stage.launcher, stage.root)
    stage.hook("SessionStart", "")
    stage.finish()
    stage.wrong = [line for line in stage.wrong if not line.endswith("were there and are gone")]


def git_clean(stage: Stage) -> None:
    stage.begin()
    for _ in range(2):
        stage.append("untracked/deep/file.txt")
        (stage.root / ".env").write_text("MODE=test\n")
        stage.call(lambda: subprocess.run(["git", "clean", "-qfdx"], cwd=stage.root, check=True))
        stage.call(lambda: subprocess.run(["git", "checkout", "-q", "--", "."], cwd=stage.root, check=True))
    stage.finish()


def remade_folder(stage: Stage) -> None:
    """As a build does with its output."""
    stage.begin()

    def remake() -> None:
        shutil.rmtree(stage.root / "notes")
        (stage.root / "notes").mkdir()

    for _ in range(3):
        stage.call(remake)
        stage.call(partial(stage.append, "notes/new.txt"))
        stage.append("notes/other.txt")
        stage.call(stage.change_all)
    stage.finish()


def same_times(stage: Stage) -> None:
    """A file with another content, and the size and the time of the last change that it had."""
    stage.begin()
    place = stage.root / "src" / "util.py"
    for letter in (b"a", b"b"):
        info = place.stat()

        def change(content: bytes = letter * info.st_size, info: os.stat_result = info) -> None:
            place.write_bytes(content)
            os.utime(place, ns=(info.st_atime_ns, info.st_mtime_ns))

        stage.call(change)
    stage.finish()


def nested(stage: Stage) -> None:
    inner_root = stage.root / "packages" / "inner"
    inner_root.mkdir(parents=True)
    (inner_root / "a.txt").write_text("a\n")
    stage.begin()
    inner = TrialClient(stage.launcher, inner_root, "inner")
    witness = Witness(stage.launcher, inner_root)
    inner.hook("SessionStart")
    witness.see("")
    for number in range(3):
        call_id = f"i{number}"
        inner.hook("PreToolUse", **tool_call(call_id))
        witness.see(ANOTHER_PROGRAM)
        with (inner_root / "a.txt").open("a") as file:
            file.write(f"{call_id}\n")
        inner.hook("PostToolUse", **tool_call(call_id))
        witness.see(call_id)
        stage.call(partial(stage.append, "packages/inner/b.txt"))
    inner.hook("UserPromptSubmit", prompt="go on")
    witness.see(ANOTHER_PROGRAM)
    stage.wrong += [f"inner: {line}" for line in witness.judge()]
    stage.finish()


def stopped_worker(stage: Stage) -> None:
    stage.begin()
    assert stage.worker is not None
    os.kill(stage.worker.process.pid, signal.SIGSTOP)
    stage.call(stage.change_all, may_fail=True)
    os.kill(stage.worker.process.pid, signal.SIGCONT)
    stage.hook("Stop", "")
    stage.finish()


ALONE: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        full_disk,
        read_only,
        errors,
        clock,
        few_files,
        workspace_made_anew,
        store_removed,
        git_clean,
        remade_folder,
        same_times,
        nested,
    )
}
RESIDENT: Final[dict[str, Check]] = {
    check.__name__: check
    for check in (
        full_disk,
        read_only,
        workspace_made_anew,
        store_removed,
        git_clean,
        remade_folder,
        same_times,
        nested,
        stopped_worker,
    )
}
MOUNTING: Final = ("full_disk", "read_only")


def can_mount() -> bool:
    """Root can, unless a container forbids it."""
    if shutil.which("unshare") is None:
        return False
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "trial", "/mnt"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def run(check: Check, folder: Path, bug: str = "", *, is_resident: bool) -> list[str]:
    """What was wrong. In a process of its own: a condition may mount a file system."""
    report = folder / "wrong"
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            stage = Stage(folder, bug, is_resident=is_resident)
            try:
                check(stage)
            finally:
                stage.close()
            report.write_text("\n".join(stage.wrong))
            code = 0
        except BaseException:
            report.write_text(traceback.format_exc())
        finally:
            os._exit(code)
    os.waitpid(pid, 0)
    return [line for line in report.read_text().splitlines() if line]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--folder", help="where the workspaces are made")
    parser.add_argument("--bug", default="", choices=("", *BUGS))
    options = parser.parse_args()
    failed = 0
    for is_resident, checks in ((False, ALONE), (True, RESIDENT)):
        for name, check in checks.items():
            if options.only and name not in options.only.split(","):
                continue
            if name in MOUNTING and not can_mount():
                print(f"{name}: skipped, nothing can be mounted")
                continue
            with tempfile.TemporaryDirectory(prefix="perdure-conditions-", dir=options.folder) as folder:
                wrong = run(check, Path(folder), options.bug, is_resident=is_resident)
            print(f"{name}{', resident' if is_resident else ''}: {len(wrong)} wrong", flush=True)
            for line in wrong[:6]:
                print(f"  {line[:600]}")
            failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
