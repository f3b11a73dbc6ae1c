"""What the host knows of a server before it runs: how to start it, how to name it, what may be replayed."""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.model.replay import ReplayClass

SEPARATOR = "__"


class MountSpec(msgspec.Struct, frozen=True):
    """One server behind the host. `prefix` is empty for the built-in worker and for a wrapped server."""

    name: str
    argv: tuple[str, ...] = ()
    prefix: str = ""
    env: dict[str, str] = {}
    cwd: str = ""
    builtin: bool = False
    start: Literal["eager", "lazy"] = "eager"
    startup_s: float = 30.0
    call_s: float = 300.0
    idle_s: float = 600.0
    trust_annotations: bool = True
    replay: dict[str, ReplayClass] = {}
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def offers(self, tool: str) -> bool:
        return tool not in self.deny and (not self.allow or tool in self.allow)


class Limits(msgspec.Struct, frozen=True):
    """Every bound of the host (law 8). Overflow refuses the newcomer; nothing is dropped."""

    frame_bytes: int = 64 * 1024 * 1024
    pending: int = 1024
    queue: int = 256
    in_flight: int = 256
    outbox_bytes: int = 32 * 1024 * 1024
    replays: int = 1
    probes: int = 3
    asks: int = 64
    deferred: int = 16
    subscriptions: int = 4096
    listens: int = 64
    pages: int = 1000
    input_rounds: int = 10
    ping_s: float = 5.0
    probe_s: float = 10.0
    list_grace_s: float = 5.0
    refresh_grace_s: float = 2.0
    drain_s: float = 5.0
    unproductive_starts: int = 5
    backoff_s: float = 0.1
    backoff_max_s: float = 5.0
    circuit_s: float = 5.0
    circuit_max_s: float = 60.0
    restarts_per_minute: int = 60
    settled_s: float = 10.0
    unsolicited_per_window: int = 500
    window_s: float = 0.1
