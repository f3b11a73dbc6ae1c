"""The tasks of this host on disk, so that a handle outlives it (law 16a).

Each host appends to a file of its own in `tasks/` of the state directory, for its owner alone: one JSON line per change.
Only the process that a file is named after writes it, so no host ever waits for another. Whoever starts reads what hosts
that are gone left there, and leaves it where it is: it cannot know whose client will ask. A file goes when the last of
its tasks has expired. Nothing is synced: a record must survive a kill of this process, not a power cut.
"""

from __future__ import annotations

import os
import time
from typing import Final

import msgspec

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


class _Gone(msgspec.Struct):
    gone: str


class TaskRecords:
    """`host` names this process, also after it replaced its program in place."""

    def __init__(self) -> None:
        self.host = f"{os.getpid()}-{start_time(os.getpid())}"
        self._lines: dict[str, bytes] = {}
        self._size = 0
        self._fd = -1

    def load(self) -> dict[str, Task]:
        """What hosts that are gone left behind, the newest; what has expired is removed."""
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

    def save(self, handle: str, data: bytes) -> None:
        """Append how a task stands now; empty data forgets it. A record that cannot be written is only missed later."""
        line = (data or msgspec.json.encode(_Gone(handle))) + b"\n"
        try:
            if self._fd < 0:
                self._open()
            if data:
                self._lines[handle] = line
            else:
                self._lines.pop(handle, None)
            os.write(self._fd, line)
            self._size += len(line)
            if self._size > 2 * sum(map(len, self._lines.values())) + _SLACK:
                self._compact()
        except OSError:
            pass

    def _path(self) -> str:
        return os.path.join(private_dir("tasks"), self.host + _SUFFIX)

    def _open(self) -> None:
        path = self._path()
        if os.path.exists(path):  # from before an upgrade in place
            known = _read(path)
            self._lines = {handle: msgspec.json.encode(task) + b"\n" for handle, task in known.items()}
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _compact(self) -> None:
        os.close(self._fd)
        self._fd = -1
        write_private(self._path(), b"".join(self._lines.values()))
        self._fd = os.open(self._path(), os.O_WRONLY | os.O_APPEND)
        self._size = os.fstat(self._fd).st_size


def is_running(host: str) -> bool:
    pid, _, ticks = host.partition("-")
    return pid.isdigit() and start_time(int(pid)) == int(ticks or 0) != 0


def _read(path: str) -> dict[str, Task]:
    """The last line of each task counts. A torn line is the end of a host that was killed while it wrote."""
    tasks: dict[str, Task] = {}
    decoder = msgspec.json.Decoder(prepare_type(Task))
    try:
        lines = read_bounded(path, MOST_BYTES).splitlines()
    except OSError:
        return tasks
    for line in lines:
        try:
            if line.startswith(b'{"gone":'):
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
