"""Commands of Perdure as processes of their own, forked from one that has loaded their modules.

They are real processes, with their own memory, locks and death, at a tenth of the cost of a start of Python. A process that
forks must have one thread and no open database: what reads the journal is forked, too (`ask`).
"""

from __future__ import annotations

import importlib
import io
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from harness.seeded_bugs import SeededBugs
from perdure.platform import fault_points

_MODULES: Final = (
    *("json", "socket", "logging.handlers", "watchfiles", "apsw", "argparse", "difflib"),
    *("perdure.cli.main", "perdure.cli.hook", "perdure.cli.hook_journal", "perdure.cli.worker"),
    *("perdure.cli.changes.undo", "perdure.cli.changes.rewind", "perdure.cli.changes.timeline", "perdure.cli.locations"),
    *("perdure.cli.worker_settings",),
    *("perdure.host.settings", "perdure.hooks.clients", "perdure.hooks.claude_code", "perdure.worker.compose"),
    *("perdure.worker.server", "perdure.worker.resident_recorder", "perdure.worker.diagnostics"),
    *("perdure.storage.sqlite.journal", "perdure.storage.workspace_store", "perdure.surfaces.write.surface"),
    *("perdure.workspace.timeline.recorder", "perdure.workspace.timeline.watcher", "perdure.workspace.verify"),
    *("perdure.present.tool_errors", "perdure.cli.tool_command"),
)  # fmt: skip
_FAILED: Final = 70


class Ended(NamedTuple):
    """`code` is negative for a signal."""

    code: int
    out: str
    err: str


class Conditions(msgspec.Struct, frozen=True):
    """What a process meets. `clock_s` is added to its time of day. `files` limits its open files."""

    faults: str = ""
    clock_s: float = 0.0
    files: int = 0
    python: bool = False
    """Start Python anew, as a client does. The clock is the machine's then, and no bug is seeded."""


NORMAL: Final = Conditions()


class Process:
    def __init__(self, pid: int, out: int, err: int, stdin: int | None) -> None:
        self.pid = pid
        self._out, self._err, self._stdin = out, err, stdin
        self._ended: Ended | None = None

    def kill(self) -> None:
        if self._ended is None:
            os.kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        if self._ended is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._collect(status)
        return self._ended is not None

    def wait(self) -> Ended:
        if self._ended is None:
            self._collect(os.waitpid(self.pid, 0)[1])
        assert self._ended is not None
        return self._ended

    def _collect(self, status: int) -> None:
        texts = [
            os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace") for fd in (self._out, self._err)
        ]
        for fd in (self._out, self._err, self._stdin):
            if fd is not None:
                os.close(fd)
        self._ended = Ended(os.waitstatus_to_exitcode(status), *texts)


class Launcher:
    """`home` is Perdure's folder. `bug` is seeded in every process that is forked."""

    def __init__(self, home: Path, bugs: SeededBugs | None = None, bug: str = "") -> None:
        for name in _MODULES:
            importlib.import_module(name)
        self.home = home
        self._apply = bugs[bug].apply if bugs is not None and bug else None

    def environ(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("PERDURE_", "CLAUDE_"))
        }
        return {**kept, "PERDURE_HOME": str(self.home), **more}

    def start(
        self,
        *words: str,
        cwd: Path,
        told: bytes | None = b"",
        conditions: Conditions = NORMAL,
        environ: Mapping[str, str] | None = None,
    ) -> Process:
        """`told` is the standard input; None for one that stays open until the process has ended."""
        out, err = os.memfd_create("out"), os.memfd_create("err")
        stdin: int | None = None
        if told is None:
            read, stdin = os.pipe()
        else:
            read = os.memfd_create("in")
            os.pwrite(read, told, 0)
        variables = self.environ(environ or {})
        pid = os.fork()
        if pid == 0:
            if stdin is not None:
                os.close(stdin)
            self._become(words, (read, out, err), str(cwd), variables, conditions)
        os.close(read)
        return Process(pid, out, err, stdin)

    def _become(
        self,
        words: tuple[str, ...],
        streams: tuple[int, int, int],
        cwd: str,
        variables: dict[str, str],
        conditions: Conditions,
    ) -> NoReturn:
        code = _FAILED
        try:
            for number, fd in enumerate(streams):
                os.dup2(fd, number)
            os.closerange(3, 256)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(variables)
            if conditions.files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (conditions.files, conditions.files))
            if conditions.python:
                os.environ[fault_points.VARIABLE] = conditions.faults
                os.execv(sys.executable, [sys.executable, "-m", "perdure", *words])
            sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
            sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False))
            sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), line_buffering=True)
            _set_clock(conditions.clock_s)
            if self._apply is not None:
                self._apply()
            fault_points.arm(conditions.faults)
            from perdure.cli.main import main

            code = main(list(words))
            sys.stdout.flush()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def run(self, *words: str, **options: Any) -> Ended:
        return self.start(*words, **options).wait()

    def ask(self, work: Callable[[], Any], result_type: Any = Any) -> Any:
        """What `work` returns in a process of its own, without any bug."""
        out = os.memfd_create("answer")
        pid = os.fork()
        if pid == 0:
            code = _FAILED
            try:
                os.environ["PERDURE_HOME"] = str(self.home)
                os.pwrite(out, msgspec.msgpack.encode(work()), 0)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            if status:
                raise RuntimeError(f"the question ended with {status}")
            return msgspec.msgpack.decode(os.pread(out, os.fstat(out).st_size, 0), type=result_type)
        finally:
            os.close(out)


def _set_clock(offset_s: float) -> None:
    if offset_s:
        seconds, nanoseconds = time.time, time.time_ns
        time.time = lambda: seconds() + offset_s
        time.time_ns = lambda: nanoseconds() + int(offset_s * 1e9)
