"""What the host knows of a server before it runs: how to start it, how to name it, what may be replayed."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.protocol.replay import ReplayClass

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
    """Every limit of the host (law 8). A request over a limit is refused; nothing is dropped.

    The text below each field is its line in `docs/reference/limits.md`.
    """

    frame_bytes: Positive = 64 * 1024 * 1024
    """The largest message, from a client or a server. The host refuses a larger one by its id; the session continues."""
    pending: Positive = 1024
    """Requests of one session that have no answer yet. The next one gets error -31096."""
    queue: Positive = 256
    """How many requests may wait for one server while it starts or is busy. The next one gets error -31097."""
    in_flight: Positive = 256
    """Requests that one server works on at the same time. More wait in its queue."""
    outbox_bytes: Positive = 32 * 1024 * 1024
    """Bytes that wait to be read by one server. Above it, further requests wait in the queue."""
    replays: Count = 1
    """How often a lost call is sent again if its tool is safe to repeat."""
    probes: Count = 3
    """How often the host asks what became of a lost call, and sends it again, if the tool has a probe."""
    asks: Count = 64
    """Questions of servers (sampling, elicitation, roots) that wait for the client. The next one is refused."""
    deferred: Count = 16
    """Questions that one server asks before it serves; they are kept until it does."""
    subscriptions: Count = 4096
    """Resources that one session can subscribe to."""
    listens: Count = 64
    """Notification streams (`subscriptions/listen`) that one session can have open."""
    pages: Positive = 1000
    """Pages of one list (`tools/list` and the others) that the host reads from a server."""
    catalog_items: Positive = 10_000
    """Tools, resources, templates and prompts of one server together. A server with more is not mounted."""
    catalog_bytes: Positive = 32 * 1024 * 1024
    """Size of these lists together. A server with more is not mounted."""
    input_rounds: Count = 10
    """How often one call can ask the client for more input."""
    era_s: Seconds = 10.0
    """How long a server may be silent on `initialize` before the host tries `server/discover`."""
    ping_s: Seconds = 5.0
    """How long a server may take to answer the ping that follows a call's deadline. After that the host replaces it."""
    probe_s: Seconds = 10.0
    """How long a probe may take. Then the outcome of the lost call stays unknown."""
    task_after_s: Seconds = 0.0
    """After how long a tool call becomes a task, for a client that supports tasks (`--task-after`). 0: never."""
    tasks: Count = 1024
    """Tasks that are kept, running and ended. A call beyond it becomes no task; one that its server made is refused."""
    task_bytes: Positive = 64 * 1024 * 1024
    """Size of the kept results of tasks together. Above it, no call becomes a task."""
    task_ttl_s: Seconds = 3600.0
    """How long a task that the host made is kept after its start."""
    question_s: Seconds = 3600.0
    """How long a question of a server waits for the client's answer. Then the host withdraws it."""
    list_grace_s: Seconds = 5.0
    """How long the first `tools/list` waits for servers that are starting, if nothing is cached."""
    introduction_grace_s: Seconds = 1.5
    """How long `initialize` and `server/discover` wait for the extensions of eager servers, if nothing is cached."""
    refresh_grace_s: Seconds = 2.0
    """How long a new version of a server with other tools waits for the client to read the new list."""
    drain_s: Seconds = 5.0
    """How long running calls may go on after the client closed the session."""
    unproductive_starts: Positive = 5
    """Starts in a row that came to nothing before the circuit opens."""
    backoff_s: Seconds = 0.1
    """The wait before the third start in a row; it doubles with each further one."""
    backoff_max_s: Seconds = 5.0
    """The longest such wait."""
    circuit_s: Seconds = 5.0
    """How long an open circuit refuses calls before the host tries the server again; it doubles each time."""
    circuit_max_s: Seconds = 60.0
    """The longest such time."""
    restarts_per_minute: Positive = 60
    """Starts of one server per minute. Above it, starts are spread evenly over the minute."""
    settled_s: Seconds = 1.0
    """How long a server must have served for a later crash to count as a new one, not as a failed start."""
    unsolicited_per_window: Positive = 500
    """Messages without a request, per server and window. The host reads no more of it until the window ends."""
    window_s: Seconds = 0.1
    """The length of that window."""
