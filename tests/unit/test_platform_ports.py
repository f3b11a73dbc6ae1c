"""The ports of platform/ on this system, and the fallbacks for a system that lacks a call."""

from __future__ import annotations

import inspect
import os
import pty
import socket
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from perdure.platform import (
    boot,
    children,
    files,
    limits,
    linux,
    locks,
    macos,
    permissions,
    polling,
    posix,
    processes,
    signals,
    sockets,
    terminal,
)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        with suppress(OSError):  # a test may have closed it
            os.close(fd)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


# --- locks --------------------------------------------------------------------------------------------------


def _await_holders(path: Path, expected: list[int]) -> None:
    """The system's list of locks is read in pieces: beside many others an entry can be missed or shown twice."""
    deadline = time.monotonic() + 10
    while (holders := locks.holders(str(path))) != expected:
        assert time.monotonic() < deadline, holders


def test_a_lock_excludes_other_descriptors_until_it_is_released(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    locks.lock(first)

    with pytest.raises(BlockingIOError):
        locks.try_lock(second)
    _await_holders(tmp_path, [os.getpid()])
    locks.unlock(first)
    locks.try_lock(second)

    os.close(first)
    os.close(second)
    _await_holders(tmp_path, [])


def test_a_lock_is_waited_for_only_so_long(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    locks.lock(first)

    assert not locks.lock_within(second, 0.01)

    os.close(first)  # the thread that waits for the second descriptor gets the lock now
    os.close(second)
    third = os.open(tmp_path, os.O_RDONLY)
    assert locks.lock_within(third, 10)
    os.close(third)


# --- files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["this system", "without the call"])
def test_a_rename_never_replaces(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "without the call":
        monkeypatch.setattr(files, "rename_exclusively", posix.rename_exclusively)
    (tmp_path / "a").write_text("a")
    (tmp_path / "taken").write_text("theirs")

    with pytest.raises(FileExistsError):
        files.rename_noreplace(folder, "a", folder, "taken")
    files.rename_noreplace(folder, "a", folder, "free")

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"taken": "theirs", "free": "a"}


def test_a_missing_call_is_told_from_a_refusal(folder: int) -> None:
    with pytest.raises(OSError) as missing:
        posix.exchange(folder, "a", "b")
    with pytest.raises(OSError) as refused:
        files.exchange(folder, "a", "b")

    assert files.is_missing(missing.value)
    assert isinstance(refused.value, FileNotFoundError)
    assert not files.is_missing(refused.value)


def test_every_file_operation_has_a_fallback_with_the_same_arguments() -> None:
    for module in (linux, macos):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and name[0] != "_" and name != "boot_session":
                assert inspect.signature(getattr(posix, name)) == inspect.signature(function), name


# --- processes, signals, limits -----------------------------------------------------------------------------


def test_a_child_is_started_in_a_group_of_its_own_and_ended_with_it(pipe: tuple[int, int]) -> None:
    reading, _ = pipe
    code = "import os, sys; print(os.getpgid(0), flush=True); sys.stdin.read()"
    ours, theirs = os.pipe()
    pid = children.spawn([sys.executable, "-c", code], os.environ, stdin=reading, stdout=theirs)
    os.close(theirs)

    assert int(os.read(ours, 100)) == pid
    assert children.exit_status(pid) is None
    assert children.signal_group(pid, signals.TERMINATE)
    _, status = os.waitpid(pid, 0)

    assert children.ending_signal(status) == "SIGTERM"
    assert not children.signal_group(pid, 0)
    os.close(ours)


def test_a_child_can_stay_in_our_group(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    code = "import os; print(os.getpgid(0))"
    pid = children.spawn([sys.executable, "-c", code], os.environ, stdin=0, stdout=writing, own_group=False)

    assert int(os.read(reading, 100)) == os.getpgid(0)
    _, status = os.waitpid(pid, 0)
    assert children.ending_signal(status) is None


def test_what_the_system_tells_about_a_process(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes.is_running(sleeper.pid)
    assert processes.start_time(sleeper.pid) >= processes.start_time(os.getpid()) > 0
    assert not processes.is_stopped(sleeper.pid)

    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)

    assert processes.start_time(sleeper.pid) == 0  # although its parent has not waited for it
    assert not processes.is_running(2**22 + 1)
    assert processes.name_of(2**22 + 1) is None


def test_the_process_that_listens_at_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert processes.listening_at(server.getsockname()[1]) == os.getpid()


def test_the_boot_has_one_identity() -> None:
    assert boot.boot_id() == boot.boot_id()
    assert boot.boot_number() == int(boot.boot_id().replace("-", "")[:8], 16)


def test_a_child_that_computes_for_too_long_is_ended_and_its_parent_can_tell() -> None:
    code = (
        "from perdure.platform.limits import processor_time\nwith processor_time(0.05):\n    while True: pass"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False)

    assert limits.is_processor_timeout(ended.returncode)
    assert not limits.is_processor_timeout(0)


# --- polling, sockets, terminal -----------------------------------------------------------------------------


def test_a_pipe_is_readable_when_it_has_bytes_or_has_ended(pipe: tuple[int, int]) -> None:
    reading, writing = pipe

    assert not polling.wait(reading, polling.READABLE, 0)
    assert polling.wait_readable([reading], 0) == []
    assert polling.wait(writing, polling.WRITABLE, 0)
    os.write(writing, b"x")
    assert polling.wait(reading, polling.READABLE, None)
    assert not polling.wait(reading, 0, 0)  # without events only a closed end counts
    os.close(writing)
    assert polling.wait(reading, 0, None)
    assert polling.wait_readable([reading], None) == [reading]


@pytest.mark.parametrize("depth", [1, 20], ids=["short path", "path longer than an address"])
def test_a_local_socket_is_for_its_owner_at_any_path(tmp_path: Path, depth: int) -> None:
    path = tmp_path.joinpath(*["folder"] * depth, "s")
    path.parent.mkdir(parents=True)
    with sockets.new_local() as listener, sockets.new_local() as client:
        sockets.bind_private(listener, str(path))
        listener.listen()
        sockets.connect(client, str(path))
        connection, _ = listener.accept()
        with connection:
            assert sockets.peer_user(connection) == permissions.user_id()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_the_other_end_has_not_taken_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.connect(server.getsockname())
        connection, _ = server.accept()
        with connection:
            sockets.close_if_unread(connection, 60)
            assert sockets.unsent_bytes(connection) == 0
            connection.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    connection.send(bytes(1 << 20))
            assert sockets.unsent_bytes(connection) > 0


def test_a_terminal_gives_single_keys_and_is_as_before_afterwards() -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)

    with terminal.single_keys(theirs):
        os.write(ours, b"q")
        assert os.read(theirs, 1) == b"q"  # no line end came

    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
