"""An agent: a process of its own, so that it is an owner. It reserves and writes at random.

It writes by Perdure's tool, by an editing tool of its client, which a hook may refuse, and by a shell command, which no hook
can refuse. A command line names the file that it changes, or nothing.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from contextlib import closing, suppress
from typing import Any, Final

import msgspec

from harness.reservations.report import Granted, Told, Write, Writer
from harness.reservations.seeded_bugs import BUGS
from perdure.platform.process_tree import own_process
from perdure.protocol.calls import LocalCall
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StateError
from perdure.storage.reservations import Mode
from perdure.surfaces.write.reserve import Reserve, reserve
from perdure.surfaces.write.write import SafeWrite, safe_write
from perdure.worker.compose import Settings, open_write
from perdure.workspace.reservations.hook_answer import handle_event
from perdure.workspace.reservations.settings import ReservationSettings
from perdure.workspace.timeline.event import HookAnswer, HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.workspace import Workspace

FILES: Final = ("src/a.py", "src/b.py", "src/deep/c.py", "docs/a.md", "d.py")
PATTERNS: Final = ("src", "src/*.py", "*.py", "src/**/c.py", "docs", "*.md", "d.py", "src/a.py")
ACTIONS: Final = ("acquire", "acquire", "release", "renew", "write", "write", "edit", "shell")
STEPS: Final = 12
COLLECT: Final = -1
"""A seed: the agent writes a file that no agent reserves, and is told what it has to be told."""
TTL_S: Final = 1


class AgentSettings(msgspec.Struct, frozen=True):
    """`state` is the store of a whole repository's reservations; None keeps them in the workspace."""

    root: str
    number: int
    shell: str
    state: str | None = None
    bug: str = ""


class Agent:
    def __init__(self, workspace: Workspace, number: int) -> None:
        self._workspace = workspace
        self._root = workspace.roots[0].path
        self._number = number
        self._recorder = Recorder(workspace)
        self._call = LocalCall(f"agent-{number}", f"session-{os.getpid()}", tool="reserve")
        self._call.process = own_process()
        self._unchecked = _Warnings()
        logging.getLogger("perdure.workspace.reservations.hook_answer").addHandler(self._unchecked)

    def run(self, seed: int) -> Told:
        chance, told = random.Random(seed), Told(self._number)
        if seed == COLLECT:
            self._write(f"agent-{self._number}.txt", "the end", told)
            return told
        for _ in range(STEPS):
            try:
                getattr(self, chance.choice(ACTIONS))(chance, told)
            except ToolError as error:
                context = error.envelope.context
                told.notices += context.get("warnings", ())
                if str(context.get("reason")).startswith("state_"):
                    told.unreachable += 1
                elif error.envelope.error == "conflict":  # reserved, or another writer was faster
                    told.refused += 1
                else:
                    raise
            except StateError:
                told.unreachable += 1
        return told

    def acquire(self, chance: random.Random, told: Told) -> None:
        paths = chance.sample(PATTERNS, chance.randint(1, 2))
        mode: Mode = "exclusive" if chance.random() < 0.5 else "shared"
        request = Reserve(action="acquire", paths=paths, mode=mode, ttl_s=TTL_S)
        began = time.time()
        payload = reserve(self._workspace, request, self._call)
        if payload["status"] == "ok":
            told.granted.append(
                Granted(
                    owner=self._number,
                    token=payload["token"],
                    paths=paths,
                    mode=mode,
                    began=began,
                    since=time.time(),
                    until=began + TTL_S,
                )
            )

    def release(self, chance: random.Random, told: Told) -> None:
        for granted in told.granted[-1:]:
            told.released.setdefault(granted.token, time.time())
            reserve(self._workspace, Reserve(action="release", token=granted.token), self._call)

    def renew(self, chance: random.Random, told: Told) -> None:
        for granted in told.granted[-1:]:
            began = time.time()
            request = Reserve(action="renew", token=granted.token, ttl_s=TTL_S)
            if reserve(self._workspace, request, self._call)["status"] == "ok":
                told.renewed[granted.token] = began + TTL_S

    def write(self, chance: random.Random, told: Told) -> None:
        self._write(chance.choice(FILES), self._line(chance), told)

    def _write(self, path: str, line: str, told: Told) -> None:
        request = SafeWrite(path=path, content=f"{line}\n", mode="append")
        self._call.tool = "safe_write"
        began = time.time()
        try:
            payload = safe_write(self._workspace, request, self._call).result()
        finally:
            self._call.tool = "reserve"
        told.notices += payload.get("warnings", ())
        told.writes.append(self._wrote(path, began, "tool", line))

    def edit(self, chance: random.Random, told: Told) -> None:
        """By the client's own tool, if its hook lets it."""
        path, line = chance.choice(FILES), self._line(chance)
        given = {"tool": "Write", "call_id": line, "paths": (os.path.join(self._root, path),)}
        began, before = time.time(), self._unchecked.count
        if self._tell("before_tool", given).refusal:
            told.refused += 1
            return
        write = self._wrote(path, began, "hook", line)
        write.is_checked = self._unchecked.count == before
        self._append(path, line)
        told.notices += self._tell("after_tool", given).notice.split("\n")
        told.writes.append(write)

    def shell(self, chance: random.Random, told: Told) -> None:
        path, line = chance.choice(FILES), self._line(chance)
        command = f"touch {path}; {line}" if chance.random() < 0.5 else f"{line}; make"
        given = {"tool": "Bash", "call_id": line, "command": command}
        began, before = time.time(), self._unchecked.count
        self._tell("before_tool", given)
        self._append(path, line)
        notice = self._tell("after_tool", given).notice
        told.notices += notice.split("\n")
        write = self._wrote(path, began, "shell", line)
        write.notice = notice
        write.is_checked = self._unchecked.count == before
        with suppress(FileNotFoundError), open(os.path.join(self._root, path)) as file:
            write.is_line_left = f"{line}\n" in file.readlines()
        told.writes.append(write)

    def _tell(self, kind: Any, given: dict[str, Any]) -> HookAnswer:
        event = HookEvent(
            client=self._call.client,
            kind=kind,
            session=self._call.session,
            cwd=self._root,
            process=self._call.process,
            **given,
        )
        return handle_event(self._workspace, self._recorder, event)

    def _append(self, path: str, line: str) -> None:
        place = os.path.join(self._root, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "a") as file:
            file.write(f"{line}\n")

    def _line(self, chance: random.Random) -> str:
        return f"line-{self._number}-{chance.getrandbits(48)}"

    def _wrote(self, path: str, began: float, by: Writer, line: str) -> Write:
        return Write(owner=self._number, path=path, began=began, answered=time.time(), by=by, line=line)


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


def serve_rounds(settings: AgentSettings) -> None:
    """The process of an agent: a seed on each line of standard input, what it tells on standard output."""
    if settings.bug:
        BUGS[settings.bug].apply()
    scope = "workspace" if settings.state is None else "repository"
    known = ReservationSettings(shell=settings.shell, scope=scope)  # type: ignore[arg-type]
    opened = open_write(Settings(workspaces=(settings.root,), state=settings.state, reservations=known))
    with closing(opened) as workspace:
        agent = Agent(workspace, settings.number)
        print("ready", flush=True)
        for line in sys.stdin:
            print(msgspec.json.encode(agent.run(int(line))).decode(), flush=True)
