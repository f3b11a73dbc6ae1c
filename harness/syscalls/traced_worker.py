"""A real worker on a workspace of its own, followed by `strace`: what it asks of the system, and how it fails."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from harness.store_location import anchor_of, store_of
from perdure.storage.sqlite.journal import SqliteJournal
from perdure.testing.raw_client import RawClient

ANSWER_S: Final = 30.0
INJECTED: Final = "(INJECTED)"
TRIES: Final = 10
_ENDED: Final = "No such process"
_CALL: Final = re.compile(r"^(\w+)\((.*)")
_UNLOCKING: Final = ("F_UNLCK", "LOCK_UN")
_TARGETS: Final = (
    ("journal.db-wal", "wal"),
    ("journal.db-shm", "shm"),
    ("journal.db", "database"),
    ("/lock", "lock"),
    ("/blobs", "blobs"),
    ("/anchors/", "anchor"),
    (".perdure~", "temporary"),
    ("(deleted)", "temporary"),
)


_ROLES: Final = ("reader", "commit", "call", "deferred")
_NAMED_THREADS: Final = """
import sys, threading
run = threading.Thread.run
def named(thread):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write(thread.name)
    run(thread)
threading.Thread.run = named
from perdure.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""Starts the product with the names of its threads told to the system, so that they can be told apart from outside."""


class Site(msgspec.Struct, frozen=True):
    """The `nth` time that a change makes a system call, and what the call works on."""

    call: str
    nth: int
    target: str
    thread: str
    """The role of the thread: "reader", "commit", "call" or "deferred"."""


class Thread(NamedTuple):
    """What one thread asked of the system, a line for each call."""

    name: str
    lines: list[str]


class Worker:
    """`env` is added to the environment of the first process only; `restart` kills it and starts another."""

    def __init__(self, base: Path, durability: str = "journal", env: Mapping[str, str] | None = None) -> None:
        self.base = base
        self.workspace = base / "workspace"
        self.workspace.mkdir(parents=True, exist_ok=True)
        self.store = store_of(self.workspace, base / "home")
        self._command = [
            sys.executable,
            "-P",
            "-c",
            _NAMED_THREADS,
            "worker",
            "--workspace",
            str(self.workspace),
        ]
        self._command += ["--durability", durability, "--render", "json", "--detail", "full"]
        self.client = self._started(env or {})

    def _started(self, env: Mapping[str, str]) -> RawClient:
        home = {"PERDURE_HOME": str(self.base / "home")}
        client = RawClient(self._command, env={**os.environ, **home, **env})
        client.initialize(timeout=ANSWER_S)
        return client

    def restart(self) -> None:
        self.close()
        self.client = self._started({})

    def close(self) -> None:
        self.client.kill()

    def use(self, tool: str, arguments: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether it was done, and the payload or the envelope. KeyError where the answer is neither."""
        sent = self.client.start("tools/call", {"name": tool, "arguments": arguments})
        result = self.client.wait(sent, ANSWER_S)["result"]
        return not result.get("isError"), result["structuredContent"]

    def journal(self) -> SqliteJournal:
        return SqliteJournal(str(self.store), str(anchor_of(self.workspace, self.base / "home")))

    @contextmanager
    def traced(self, *options: str, site: Site | None = None) -> Iterator[list[Thread]]:
        """Follow the threads that take part in a call: the lines of each, there when the block ends.

        strace counts the calls of each thread apart. With a `site`, only threads of its role are followed.
        """
        found: list[Thread] = []
        with tempfile.TemporaryDirectory(dir=self.base) as folder:
            command = ["strace", "-y", "-s", "0", "--output-separately", "-o", f"{folder}/of", *options]
            with self._followed(command, site) as threads:
                yield found
            for number, name in threads.items():
                file = Path(f"{folder}/of.{number}")
                found.append(Thread(name, file.read_text().splitlines()))

    @contextmanager
    def _followed(self, command: list[str], site: Site | None) -> Iterator[dict[str, str]]:
        """The threads that are, and how each is called. One may end before it is followed: then all again."""
        for tries in range(TRIES):
            threads = {
                number: name for number, name in self._threads() if site is None or site.thread == name
            }
            with ExitStack() as stack:
                try:
                    stack.enter_context(
                        _attached([*command, *(f"--attach={one}" for one in threads)], len(threads))
                    )
                except OSError as error:
                    if _ENDED not in str(error) or tries == TRIES - 1:
                        raise
                    continue
                yield threads
                return

    def _threads(self) -> Iterator[tuple[str, str]]:
        for task in Path(f"/proc/{self.client.pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                is_first = task.name == str(self.client.pid)
                role = "reader" if is_first else (task / "comm").read_text().strip().partition("_")[0]
                if role in _ROLES:
                    yield task.name, role

    def sites(self, threads: Iterable[Thread]) -> list[Site]:
        """The calls of these threads on the workspace and on our own files. Which of several threads of one role takes a
        call differs each time: a site is a call that any of them made so many times."""
        found = {
            (site.thread, site.call, site.nth): site for thread in threads for site in self._sites(thread)
        }
        return list(found.values())

    def _sites(self, thread: Thread) -> Iterator[Site]:
        counts: Counter[str] = Counter()
        locked: set[str] = set()
        for line in thread.lines:
            if (match := _CALL.match(line)) is None:
                continue
            call, file = match[1], match[2].partition("<")[0]
            counts[call] += 1
            if call == "flock":
                locked.add(file)
            if (
                str(self.base) in line
                and not gives_up_a_lock(line)
                and (call, file in locked) != ("close", True)
            ):
                yield Site(call, counts[call], target(line), thread.name)


def gives_up_a_lock(line: str) -> bool:
    """Left alone: every kernel does that, whatever it answers, and a call that strace fails is not made at all."""
    return any(word in line for word in _UNLOCKING)


def target(line: str) -> str:
    """What a call works on, in one word."""
    return next((name for part, name in _TARGETS if part in line), "workspace")


def shown(line: str) -> str:
    """A call and what it works on, for a table."""
    match = _CALL.match(line)
    return f"{match[1]} {target(line)}" if match is not None else ""


def can_trace() -> str:
    """Empty, or why the threads of another process cannot be followed here."""
    if shutil.which("strace") is None:
        return "there is no strace"
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        with _attached(["strace", "-o", os.devnull, f"--attach={sleeper.pid}"], 1):
            return ""
    except OSError as error:
        return str(error)
    finally:
        sleeper.kill()
        sleeper.wait()


@contextmanager
def _attached(command: list[str], threads: int) -> Iterator[None]:
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert tracer.stderr is not None
    try:
        for _ in range(threads):
            said = tracer.stderr.readline()
            if b"attached" not in said:
                raise OSError(said.decode().strip())
        yield
    finally:
        tracer.terminate()
        tracer.communicate()
