"""What the host knows of a server before it runs: how to start it, how to name it, what may be replayed."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.model.replay import ReplayClass

Positive = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]


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
    modern_first: bool = False
    """Whether a server of unknown era is first asked in that of 2026."""
    restart: Literal["always", "never"] = "always"
    pin: bool = False
    required: bool = False
    managed: bool = False
    """From the registry: it is resolved when it is started, gets a minimal environment, and may change while it runs."""
    mark: str = ""
    """Of a managed one: stands for everything that its process is started with."""
    env_names: tuple[str, ...] | None = None
    """Variables that it gets besides the usual few; None: the whole environment."""
    untrusted: str = ""
    """Why it must not be started, as a sentence: it comes from a file of the workspace that the user does not trust."""

    def starts_like(self, other: MountSpec) -> bool:
        return self._launch() == other._launch()

    def _launch(self) -> tuple[object, ...]:
        return self.argv, self.cwd, self.env, self.mark, self.env_names

    def offers(self, tool: str) -> bool:
        return tool not in self.deny and (not self.allow or tool in self.allow)


class Limits(msgspec.Struct, frozen=True):
    """Every bound of the host (law 8). Overflow refuses the newcomer; nothing is dropped."""

    frame_bytes: Positive = 64 * 1024 * 1024
    pending: Positive = 1024
    queue: Positive = 256
    in_flight: Positive = 256
    outbox_bytes: Positive = 32 * 1024 * 1024
    replays: Count = 1
    probes: Count = 3
    asks: Count = 64
    deferred: Count = 16
    subscriptions: Count = 4096
    listens: Count = 64
    pages: Positive = 1000
    catalog_items: Positive = 10_000
    catalog_bytes: Positive = 32 * 1024 * 1024
    input_rounds: Count = 10
    era_s: Seconds = 10.0
    ping_s: Seconds = 5.0
    probe_s: Seconds = 10.0
    question_s: Seconds = 3600.0
    list_grace_s: Seconds = 5.0
    refresh_grace_s: Seconds = 2.0
    drain_s: Seconds = 5.0
    unproductive_starts: Positive = 5
    backoff_s: Seconds = 0.1
    backoff_max_s: Seconds = 5.0
    circuit_s: Seconds = 5.0
    circuit_max_s: Seconds = 60.0
    restarts_per_minute: Positive = 60
    settled_s: Seconds = 1.0
    unsolicited_per_window: Positive = 500
    window_s: Seconds = 0.1
