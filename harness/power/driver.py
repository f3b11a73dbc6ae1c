"""One life of the process that writes: it takes up its lanes where they stand, and ends as it is told.

    python -m harness.power.driver < LIFE

Started by the recorder, on the logged disk. It says on the disk's `marks` when a call begins and when it was
acknowledged. A call that may have been under way when the last life ended is asked about first, as the host does.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Literal
from unittest.mock import patch

import apsw
import msgspec

from harness.power import devices
from harness.power.seeded_bugs import BUGS
from harness.power.workload import Step
from perdure.protocol.calls import Done
from perdure.protocol.tools import View
from perdure.storage.sqlite import database, state_schema
from perdure.surfaces.port import Surface, Tool
from perdure.worker import call
from perdure.worker.compose import Durability, Settings, surfaces
from perdure.worker.diagnostics import Diagnostics
from perdure.workspace import settler

FULL = View("json", "full")
Tools = dict[str, Tool]


class Rest(msgspec.Struct, frozen=True):
    """What a lane has still to do; its first step may be done already."""

    name: str
    first: int
    steps: list[Step]


class Life(msgspec.Struct, frozen=True):
    """With a `store`, of shared state; else of files."""

    workspace: str
    marks: str
    durability: Durability
    lanes: list[Rest]
    ending: Literal["close", "exit"] = "exit"
    broken: str | None = None
    store: str | None = None


class PowerCall:
    """A call as the write surface sees it (`perdure.protocol.calls.Call`)."""

    client = "power"
    process = None
    force = False

    def __init__(self, tool: str, session: str, key: str | None, view: View = FULL) -> None:
        self.tool = tool
        self.session = session
        self.invocation_key = key
        self.age_s = 0.0
        self.view = view
        self.cancelled = threading.Event()

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        pass

    def log(self, level: str, message: str) -> None:
        pass


def write_surface(workspace: str, durability: Durability) -> Surface:
    settings = Settings(workspaces=(workspace,), surfaces=("write",), durability=durability)
    return surfaces(settings)[0]


def state_surface(store: str) -> Surface:
    return surfaces(Settings(workspaces=(), surfaces=("state",), state=store))[0]


def named(surface: Surface) -> Tools:
    return {tool.spec.name: tool for tool in surface.tools()}


def run(tools: Tools, name: str, arguments: dict[str, Any], session: str, key: str | None) -> dict[str, Any]:
    """From raw arguments to the payload, all the way that a worker goes."""
    result = call.run(
        tools[name],
        name,
        msgspec.Raw(msgspec.json.encode(arguments)),
        default=FULL,
        roots=(),
        context=lambda view: PowerCall(name, session, key, view),
        diagnostics=Diagnostics(),
    )
    payload: dict[str, Any] = result["structuredContent"]
    if result.get("isError") and "status" not in payload:
        raise Refused(f"{name} was refused: {payload}")
    return payload


class Refused(Exception):
    """A call that cannot be refused was."""


def _work(surface: Surface, lane: Rest, marks: int, failures: list[BaseException]) -> None:
    def say(word: str, number: int) -> None:
        os.write(marks, f"{word} {lane.name} {number}".encode())

    tools = named(surface)
    try:
        for number, step in enumerate(lane.steps, lane.first):
            say("begin", number)
            if number > lane.first or not isinstance(surface.probe(step.key), Done):
                run(tools, step.tool, step.arguments, lane.name, step.key)
            say("done", number)
    except BaseException as error:
        failures.append(error)


def hurry() -> None:
    """What takes seconds and megabytes otherwise happens all the time: settling, and starting the WAL over."""
    connect, configure = database._connect, state_schema._configure

    def connected(path: str) -> apsw.Connection:
        connection = connect(path)
        connection.wal_autocheckpoint(60)
        return connection

    def configured(connection: apsw.Connection) -> None:
        configure(connection)
        connection.wal_autocheckpoint(60)

    patch.object(database, "_connect", connected).start()
    patch.object(state_schema, "_configure", configured).start()
    patch.object(settler, "SETTLE_AFTER_S", 0.03).start()
    patch.object(settler, "LATEST", 0).start()  # a calm moment may not come in so short a life


def main() -> int:
    devices.die_with_parent()
    life = msgspec.json.decode(sys.stdin.buffer.read(), type=Life)
    hurry()
    if life.broken is not None:
        BUGS[life.broken].apply()
    marks = os.open(life.marks, os.O_WRONLY)
    is_state = life.store is not None
    surface = state_surface(life.store or "") if is_state else write_surface(life.workspace, life.durability)
    failures: list[BaseException] = []
    workers = [threading.Thread(target=_work, args=(surface, lane, marks, failures)) for lane in life.lanes]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for failure in failures:
        print(f"{type(failure).__name__}: {failure}", file=sys.stderr)
    if life.ending == "close":
        surface.close()  # type: ignore[attr-defined]
    sys.stderr.flush()
    os._exit(1 if failures else 0)


if __name__ == "__main__":
    sys.exit(main())
