"""The tasks of this host on disk, so that a handle outlives it (law 16a).

Each host appends to a file of its own in `tasks/` of the state directory, readable by its user alone: one JSON line per
change. Only the process that a file is named after writes it, so hosts need no lock. A host that starts reads the files of
hosts that have ended and keeps them: it cannot know which client will ask. A file is deleted when its last task has expired.
Nothing is synced: a record must survive a kill of this process, not a power cut.

A write can fail, on a full disk above all. The task works on without its record; the next change writes what is missing,
after a newline that ends a torn line. The first failure is logged, and the first success after it.
"""

from __future__ import annotations

import os
import time
from typing import Final

import msgspec

from perdure.kernel.events import Note
from perdure.kernel.state import Task
from perdure.kernel.tasks import adopt
from perdure.platform.processes import start_time
from perdure.protocol.msgspec_types import prepare_type
from perdure.storage.files.bounded_read import read_bounded
from perdure.storage.user_dirs import private_dir, state_dir, write_private

MOST_BYTES: Final = 256 * 1024 * 1024
MOST_TASKS: Final = 1024
KEEP_DAYS: Final = 7
_SLACK: Final = 1024 * 1024
_SUFFIX: Final = ".jsonl"
_GONE: Final = b'{"gone":'


class _Gone(msgspec.Struct):
    gone: str


class TaskRecords:
    """`host` names this process, also after it replaced its program in place."""

    def __init__(self) -> None:
        self.host = f"{os.getpid()}-{start_time(os.getpid())}"
        self._lines: dict[str, bytes] = {}  # the last line of each task in the file
        self._unwritten: dict[str, bytes] = {}  # what the file lacks after a failed write
        self._size = 0
        self._fd = -1
        self._is_torn = False
        self._is_failing = False

    def load(self) -> dict[str, Task]:
        """The newest tasks of hosts that have ended. Deletes files whose tasks have all expired."""
        wall = time.time()
        folder = os.path.join(state_dir(), "tasks")
        tasks: dict[str, Task] = {}
        try:
            names = [name for name in os.listdir(folder) if name.endswith(_SUFFIX)]
        except OSError:
            return tasks
        for name in sorted(names, key=lambda name: _modified(os.path.join(folder, name))):
            path = os.path.join(folder, name)
            host = name.removesuffix(_SUFFIX)
            if is_running(host):
                continue
            left = adopt(_read(path).values(), is_running, wall)
            if not left or _modified(path) < wall - KEEP_DAYS * 86400:
                _remove(path)
            tasks.update(left)
        newest = list(tasks.items())[-MOST_TASKS:]
        return dict(newest)

    def save(self, handle: str, data: bytes) -> Note | None:
        """Append how a task stands now; empty data forgets it. Returns a note when writing begins to fail or works again."""
        self._unwritten.pop(handle, None)
        if data:
            self._unwritten[handle] = data + b"\n"
        elif handle in self._lines or self._fd < 0:
            self._unwritten[handle] = msgspec.json.encode(_Gone(handle)) + b"\n"
        try:
            self._append()
        except OSError as error:
            return self._report(error)
        return self._report(None)

    def _append(self) -> None:
        if self._fd < 0:
            self._open()
        unsent = memoryview(b"\n" * self._is_torn + b"".join(self._unwritten.values()))
        while unsent:
            self._is_torn = True
            count = os.write(self._fd, unsent)  # short when the disk becomes full: the next write says why
            self._size += count
            unsent = unsent[count:]
        self._is_torn = False
        for handle, line in self._unwritten.items():
            if line.startswith(_GONE):
                self._lines.pop(handle, None)
            else:
                self._lines[handle] = line
        self._unwritten.clear()
        if self._size > 2 * sum(map(len, self._lines.values())) + _SLACK:
            self._compact()

    def _report(self, error: OSError | None) -> Note | None:
        if self._is_failing == (error is not None):
            return None
        self._is_failing = error is not None
        if error is None:
            return Note("tasks_recorded", {"detail": "tasks are recorded on disk again"})
        detail = f"tasks are not recorded on disk ({error.strerror}): an end of this host would lose them"
        return Note("fault", {"class": "resource", "code": "tasks_not_recorded", "detail": detail})

    def _path(self) -> str:
        return os.path.join(private_dir("tasks"), self.host + _SUFFIX)

    def _open(self) -> None:
        path = self._path()
        if os.path.exists(path):  # from before an upgrade in place
            known = _read(path)
            self._lines = {handle: msgspec.json.encode(task) + b"\n" for handle, task in known.items()}
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._is_torn = self._size > 0  # perhaps: an empty line more does no harm

    def _compact(self) -> None:
        write_private(self._path(), b"".join(self._lines.values()))
        os.close(self._fd)
        self._fd = -1
        self._open()


def is_running(host: str) -> bool:
    pid, _, ticks = host.partition("-")
    return pid.isdigit() and start_time(int(pid)) == int(ticks or 0) != 0


def _read(path: str) -> dict[str, Task]:
    """The last line of each task counts. A torn line, of a write that failed or a host that was killed, is skipped."""
    tasks: dict[str, Task] = {}
    decoder = msgspec.json.Decoder(prepare_type(Task))
    try:
        lines = read_bounded(path, MOST_BYTES).splitlines()
    except OSError:
        return tasks
    for line in lines:
        try:
            if line.startswith(_GONE):
                tasks.pop(msgspec.json.decode(line, type=_Gone).gone, None)
            else:
                task = decoder.decode(line)
                tasks.pop(task.handle, None)
                tasks[task.handle] = task
        except msgspec.MsgspecError:
            continue
    return tasks


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
