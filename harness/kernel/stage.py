"""A kernel on a stage: a scenario plays the client and the servers by hand and looks at every frame."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from perdure.kernel.core import Kernel
from perdure.kernel.events import (
    ChildFrame,
    ChildLost,
    ChildStarted,
    ClientFrame,
    Effect,
    Event,
    Note,
    Spawn,
    Stop,
    Tick,
    ToChild,
    ToClient,
)
from perdure.protocol import eras
from perdure.protocol.eras import Era
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import Limits, MountSpec
from perdure.surfaces.ops import host_tools

_encode = msgspec.json.encode

ENVELOPE: dict[str, Any] = {
    eras.META_VERSION: eras.LATEST_MODERN,
    eras.META_CAPABILITIES: {"sampling": {}, "elicitation": {}, "roots": {}},
    eras.META_CLIENT: {"name": "stage", "version": "1"},
}


def tool(name: str, replay: str = "", **contract: Any) -> dict[str, Any]:
    """A tool's definition; `replay` is a worker's contract, or `read_only` for an annotation."""
    found: dict[str, Any] = {"name": name, "inputSchema": {"type": "object"}}
    if replay == "read_only":
        found["annotations"] = {"readOnlyHint": True}
    elif replay:
        found["_meta"] = {eras.META_CONTRACT: {"replay": replay, **contract}}
    return found


class Sent(NamedTuple):
    """A frame that went to a server."""

    mount: str
    generation: int
    message: dict[str, Any]

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def params(self) -> dict[str, Any]:
        found: dict[str, Any] = self.message.get("params", {})
        return found


class Stage:
    """Every effect is kept: what the client got, what the servers got, who was started and stopped."""

    def __init__(self, *specs: MountSpec, limits: Limits | None = None, **options: Any) -> None:
        self.options = {
            "session_id": "s",
            "limits": limits,
            "render": "json",
            "host_tools": host_tools,
            **options,
        }
        self.specs = {spec.name: spec for spec in specs}
        self.kernel = Kernel(self.specs, **self.options)
        self.now = 0.0
        self.client: list[dict[str, Any]] = []
        self.sent: list[Sent] = []
        self.spawned: list[tuple[str, int]] = []
        self.stopped: list[tuple[str, int]] = []
        self.notes: list[Note] = []
        self._take(self.kernel.start(0.0))

    def feed(self, event: Event) -> list[Effect]:
        return self._take(self.kernel.handle(event, self.now))

    def _take(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case ToClient(frame):
                    self.client.append(msgspec.json.decode(frame))
                case ToChild(mount, generation):
                    self.sent.append(Sent(mount, generation, msgspec.json.decode(effect.frame)))
                case Spawn(mount, generation):
                    self.spawned.append((mount, generation))
                case Stop(mount, generation):
                    self.stopped.append((mount, generation))
                case Note():
                    self.notes.append(effect)
                case _:
                    pass
        return effects

    # --- the client ---------------------------------------------------------------------------

    def send(self, message: dict[str, Any]) -> list[Effect]:
        return self.feed(ClientFrame(_encode({"jsonrpc": "2.0", **message})))

    def request(self, identity: Any, method: str, params: dict[str, Any] | None = None, **meta: Any) -> None:
        """A request of a handshake client; with `modern=True` of a 2026 client."""
        body = dict(params or {})
        found = dict(ENVELOPE) if meta.pop("modern", False) else {}
        found.update(meta)
        if found:
            body["_meta"] = found
        self.send({"id": identity, "method": method, **({"params": body} if body else {})})

    def call(self, identity: Any, name: str, arguments: dict[str, Any] | None = None, **meta: Any) -> None:
        self.request(identity, "tools/call", {"name": name, "arguments": arguments or {}}, **meta)

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.send({"method": method, **({"params": params} if params is not None else {})})

    def cancel(self, identity: Any) -> None:
        self.notify("notifications/cancelled", {"requestId": identity})

    def initialize(self, **capabilities: Any) -> None:
        offered = capabilities or {"sampling": {}, "elicitation": {}, "roots": {}}
        info = {"name": "stage", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": offered, "clientInfo": info}
        self.request("init", "initialize", params)
        self.notify("notifications/initialized")

    def answers(self, identity: Any) -> list[dict[str, Any]]:
        return [m for m in self.client if "method" not in m and m["id"] == identity]

    def answer(self, identity: Any) -> dict[str, Any]:
        """The one answer to a request."""
        (found,) = self.answers(identity)
        return found

    def heard(self, method: str) -> list[dict[str, Any]]:
        return [m for m in self.client if m.get("method") == method]

    # --- the servers ------------------------------------------------------------------------------

    def newest(self, mount: str) -> int:
        return max(generation for name, generation in self.spawned if name == mount)

    def got(self, mount: str, method: str, generation: int = 0) -> list[Sent]:
        """The requests and notifications of one method that a server got, oldest first."""
        return [
            s
            for s in self.sent
            if s.mount == mount and s.message.get("method") == method and generation in (0, s.generation)
        ]

    def says(self, mount: str, generation: int, message: dict[str, Any]) -> list[Effect]:
        return self.feed(ChildFrame(mount, generation, _encode({"jsonrpc": "2.0", **message})))

    def reply(self, to: Sent, result: dict[str, Any]) -> None:
        self.says(to.mount, to.generation, {"id": to.id, "result": result})

    def refuse(self, to: Sent, code: int = -32000, message: str = "no") -> None:
        self.says(to.mount, to.generation, {"id": to.id, "error": {"code": code, "message": message}})

    def lose(self, mount: str, generation: int = 0) -> None:
        found = generation or self.newest(mount)
        self.feed(ChildLost(mount, found, Fault("process", "exited", found)))

    def serve(
        self,
        mount: str,
        tools: list[dict[str, Any]],
        *,
        era: Era = "handshake",
        generation: int = 0,
        **more: Any,
    ) -> int:
        """Start the newest generation and go through its handshake; `more` are its other capabilities."""
        found = generation or self.newest(mount)
        capabilities = {"tools": {}, **more}
        self.feed(ChildStarted(mount, found, 4000 + found))
        opened = {"capabilities": capabilities, "serverInfo": {"name": mount, "version": "1"}}
        if era == "handshake":
            self.reply(self.got(mount, "initialize", found)[-1], {"protocolVersion": "2025-11-25", **opened})
        else:
            for opening in self.got(mount, "initialize", found):
                self.refuse(opening, eras.UNSUPPORTED_VERSION)
            discovered = {"supportedVersions": [eras.LATEST_MODERN], "capabilities": capabilities}
            self.reply(self.got(mount, "server/discover", found)[-1], discovered)
        self.list_tools(mount, tools, found)
        return found

    def list_tools(self, mount: str, tools: list[dict[str, Any]], generation: int = 0) -> None:
        self.reply(self.got(mount, "tools/list", generation or self.newest(mount))[-1], {"tools": tools})

    # --- time ----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let time pass to the next thing that is due."""
        wake = self.kernel.next_wake()
        assert wake is not None
        self.now = max(self.now, wake)
        self.feed(Tick())

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (wake := self.kernel.next_wake()) is not None and wake <= until:
            self.tick()
        self.now = until

    # --- looking inside, as a person would ---------------------------------------------------------------

    def ask_host(self, tool_name: str, /, **arguments: Any) -> dict[str, Any]:
        """What one of the host's own tools says now, in full unless `detail` says otherwise."""
        identity = f"host-{len(self.client)}"
        self.call(identity, tool_name, {"detail": "full", **arguments})
        found: dict[str, Any] = self.answer(identity)["result"]["structuredContent"]
        return found

    def read_host(self, tool_name: str, /, **arguments: Any) -> list[str]:
        """The lines that an agent reads of one of the host's own tools."""
        identity = f"host-{len(self.client)}"
        self.call(identity, tool_name, {"render": "porcelain", **arguments})
        text: str = self.answer(identity)["result"]["content"][0]["text"]
        return text.split("\n")

    def restored(self) -> Stage:
        """The same stage, its kernel replaced by one that took up its snapshot."""
        kernel = Kernel(self.specs, **self.options)
        kernel.restore(self.kernel.snapshot())
        self.kernel = kernel
        return self
