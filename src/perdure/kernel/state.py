"""All of the kernel's state as plain data, so that a session can be written down and taken up again.

States are sum types: one class per state with just that state's data.

    Session.phase   New → Uninitialized, Modern → Initializing → Ready       (table in `client`)
    Mount.phase     Idle → Starting → Serving → Waiting → Starting …         (tables in `mounts`)
    Link.stage      Spawned → Opening → Cataloguing → Live → Draining
    Mount.rollout   Settled → Preparing → Announced → Settled
    Invocation      Queued → InFlight → (answered)                           (table in `calls`)
    Task.place      AtServer, InCall → Ended                                 (table in `tasks`)
"""

from __future__ import annotations

import msgspec

from perdure.protocol.eras import Era
from perdure.protocol.faults import Fault
from perdure.protocol.frames import RequestId
from perdure.protocol.replay import NEVER, ReplayClass

# --- a server's catalog -------------------------------------------------------------------------


class CacheHint(msgspec.Struct, frozen=True):
    """How long a list stays fresh, and whether it is the same for everybody."""

    ttl_ms: int = 0
    is_public: bool = False


class ChildCatalog(msgspec.Struct):
    """What a server said of itself, as raw JSON; it outlives the process that said it."""

    capabilities: bytes = b"{}"
    server_info: bytes = b"{}"
    instructions: str = ""
    tools: list[bytes] = []
    prompts: list[bytes] = []
    resources: list[bytes] = []
    templates: list[bytes] = []
    era: Era = "handshake"
    hints: dict[str, CacheHint] = {}


# --- a mount and its generations ----------------------------------------------------------------


class Idle(msgspec.Struct, frozen=True, tag=True):
    pass


class Starting(msgspec.Struct, frozen=True, tag=True):
    generation: int
    deadline: float


class Serving(msgspec.Struct, frozen=True, tag=True):
    generation: int


class Waiting(msgspec.Struct, frozen=True, tag=True):
    until: float


class Open(msgspec.Struct, frozen=True, tag=True):
    """The circuit: calls are refused at once until the next attempt."""

    until: float


class Disabled(msgspec.Struct, frozen=True, tag=True):
    pass


class Stopped(msgspec.Struct, frozen=True, tag=True):
    """Down until it is restarted on request: its entry says `restart: never`, or it cannot be started as described."""


Phase = Idle | Starting | Serving | Waiting | Open | Stopped | Disabled


class Spawned(msgspec.Struct, frozen=True, tag=True):
    pass


class Opening(msgspec.Struct, frozen=True, tag=True):
    """The handshake. `until` is when the other era is tried beside the first; None once both were."""

    first: Era = "handshake"
    until: float | None = None
    refusals: tuple[str, ...] = ()


class Cataloguing(msgspec.Struct, frozen=True, tag=True):
    pass


class Live(msgspec.Struct, frozen=True, tag=True):
    pass


class Draining(msgspec.Struct, frozen=True, tag=True):
    """Fenced off: finishes what it was given, receives nothing new."""


Stage = Spawned | Opening | Cataloguing | Live | Draining


class Unlisted(msgspec.Struct, frozen=True, tag=True):
    """Its lists were not asked for yet."""


class Listing(msgspec.Struct, frozen=True, tag=True):
    """Its lists are read into `draft`; `pending` are not complete. `is_outdated`: meanwhile it said that they changed."""

    pending: tuple[str, ...]
    draft: ChildCatalog
    items: int = 0
    size: int = 0
    is_outdated: bool = False


class Listed(msgspec.Struct, frozen=True, tag=True):
    pass


class Outdated(msgspec.Struct, frozen=True, tag=True):
    """They were read, and it said that they changed, but it does not serve yet: read again when it does."""


Lists = Unlisted | Listing | Listed | Outdated


class NoStream(msgspec.Struct, frozen=True, tag=True):
    pass


class StreamAsked(msgspec.Struct, frozen=True, tag=True):
    child_id: int


class StreamOpen(msgspec.Struct, frozen=True, tag=True):
    """The server acknowledged it."""

    child_id: int


class StreamEnded(msgspec.Struct, frozen=True, tag=True):
    """The server never opened it, or ended it too often: this generation is asked again only for another set."""


Stream = NoStream | StreamAsked | StreamOpen | StreamEnded
"""The one stream on which a 2026 server announces changes."""


class Link(msgspec.Struct):
    """One generation of a mount: a process and what was agreed with it."""

    mount: str
    generation: int
    since: float
    stage: Stage = Spawned()
    pid: int = 0
    era: Era = "handshake"
    version: str = ""
    backlog: int = 0
    productive: bool = False
    """It has answered a call."""
    catalog: ChildCatalog = msgspec.field(default_factory=ChildCatalog)
    lists: Lists = Unlisted()
    deferred: list[bytes] = []
    """What it asked before it, or the client, was ready for that."""
    subscribed: list[str] = []
    watched: list[str] = []
    """The tasks, by the server's own ids, of which its stream tells."""
    stream: Stream = NoStream()
    streams_reopened: int = 0
    ping_until: float | None = None
    """When the answer to a ping is due; None while none is awaited."""
    window: float = 0.0
    unsolicited: int = 0


class Settled(msgspec.Struct, frozen=True, tag=True):
    pass


class Preparing(msgspec.Struct, frozen=True, tag=True):
    generation: int
    deadline: float


class Announced(msgspec.Struct, frozen=True, tag=True):
    """The catalog changes: the client was told; its refresh, or `until`, sets the fence."""

    generation: int
    until: float


Rollout = Settled | Preparing | Announced


class KnownTools(msgspec.Struct, frozen=True):
    """A hash of each tool of a server: as it was accepted, and of those held back."""

    known: dict[str, str] | None = None
    held: dict[str, str] = {}


class Mount(msgspec.Struct):
    name: str
    phase: Phase = Idle()
    rollout: Rollout = Settled()
    generation: int = 0
    links: dict[int, Link] = {}
    queue: list[int] = []
    catalog: ChildCatalog | None = None
    settled: bool = False
    restarts: int = 0
    unproductive: int = 0
    opened: int = 0
    recent: list[float] = []
    used_at: float = 0.0
    last_fault: Fault | None = None
    exit_code: int | None = None
    stderr: str = ""
    known: dict[str, str] | None = None
    """What its tools were when they were last accepted: a hash of each; None before the first time."""
    changed: list[str] = []
    held: dict[str, str] = {}
    notices: list[str] = []
    """What the built-in worker had to tell, the newest last."""

    def serving_link(self) -> Link | None:
        return self.links.get(self.phase.generation) if isinstance(self.phase, Serving) else None


# --- invocations ----------------------------------------------------------------------------------


class Queued(msgspec.Struct, frozen=True, tag=True):
    pass


class InFlight(msgspec.Struct, frozen=True, tag=True):
    generation: int
    child_id: int


class Overdue(msgspec.Struct, frozen=True, tag=True):
    """Past its deadline; its server is asked whether it lives at all."""

    generation: int
    child_id: int


class Held(msgspec.Struct, frozen=True, tag=True):
    """Its outcome is unknown because of `fault`, and only a probe may decide; no probe is under way.

    `may_run`: only its deadline passed. Its process was not lost and may still do it.
    """

    fault: Fault
    may_run: bool = False


class Probing(msgspec.Struct, frozen=True, tag=True):
    generation: int
    child_id: int
    fault: Fault
    may_run: bool = False


class Parked(msgspec.Struct, frozen=True, tag=True):
    """The server's question went to a 2026 client as `input_required`; its retry carries `ticket`."""

    generation: int
    child_id: int
    ticket: str


class Answered(msgspec.Struct, frozen=True, tag=True):
    """Parked, and the server answered meanwhile: the client gets that when it comes back."""

    generation: int
    ticket: str
    result: bytes | None
    error: bytes | None


class Asking(msgspec.Struct, frozen=True, tag=True):
    """A 2026 server's questions are with a handshake client; `waiting` are not answered yet."""

    generation: int
    waiting: dict[int, str]
    answers: dict[str, bytes]
    request_state: str | None


InvocationState = Queued | InFlight | Overdue | Held | Probing | Parked | Answered | Asking


class UnreadKeys(msgspec.Struct, frozen=True, tag=True):
    """Where in a call's arguments its conflict keys are. As a rule no call waits for another, so they are not read."""

    pointers: tuple[str, ...]


class ReadKeys(msgspec.Struct, frozen=True, tag=True):
    keys: tuple[str, ...] = ()


ConflictKeys = UnreadKeys | ReadKeys
"""What a call may be changing, for example a path."""


class Invocation(msgspec.Struct):
    """One request of the client's, from acceptance to its one answer. `deadline` is that of its state."""

    seq: int
    public_id: RequestId
    method: str
    params: bytes | None
    mount: str
    era: Era
    name: str
    accepted_at: float
    deadline: float
    timeout: float
    extra: dict[str, bytes] = {}
    state: InvocationState = Queued()
    replay: ReplayClass = NEVER
    conflicts: ConflictKeys = ReadKeys()
    attempts: int = 0
    replays: int = 0
    probes: int = 0
    rounds: int = 0
    token: RequestId | None = None
    progress: float | None = None
    log_level: str = ""
    abilities: tuple[str, ...] = ()
    inputs: bytes | None = None
    is_wait: bool = False
    task: str = ""
    """The handle of the task that the call became: its request has been answered with it."""

    def is_on(self, link: Link) -> bool:
        """Whether this generation still owes something for the call."""
        if self.mount != link.mount:
            return False
        match self.state:
            case Queued() | Held():
                return False
            case state:
                return state.generation == link.generation


# --- the host's own requests to a child -----------------------------------------------------------


class ForCall(msgspec.Struct, frozen=True, tag=True):
    seq: int


class ForProbe(msgspec.Struct, frozen=True, tag=True):
    seq: int


class ForInitialize(msgspec.Struct, frozen=True, tag=True):
    pass


class ForDiscover(msgspec.Struct, frozen=True, tag=True):
    """`is_retry` after the server refused the version that it says it supports: not asked a third time."""

    is_retry: bool = False


class ForList(msgspec.Struct, frozen=True, tag=True):
    method: str
    pages: int


class ForPing(msgspec.Struct, frozen=True, tag=True):
    pass


class ForSession(msgspec.Struct, frozen=True, tag=True):
    """Session state handed to a child: a subscription, a log level. Its answer changes nothing."""


class ForListen(msgspec.Struct, frozen=True, tag=True):
    """The stream on which a 2026 server announces changes: its answer comes when the stream ends."""


class ForTask(msgspec.Struct, frozen=True, tag=True):
    """Whether a new generation knows a task that was started on an earlier one."""

    handle: str


Purpose = (
    ForCall | ForProbe | ForInitialize | ForDiscover | ForList | ForPing | ForSession | ForListen | ForTask
)


class Route(msgspec.Struct, frozen=True):
    """Whom a child's answer is for. Ids are minted once and never reused (law 6)."""

    mount: str
    generation: int
    purpose: Purpose


# --- what children ask of the client ----------------------------------------------------------------


class Ask(msgspec.Struct, frozen=True):
    """A request of a child's, known to the client under the host's own id.

    `call` is the invocation it was asked for where that is known, `input_key` its name there. A handshake server does
    not say for which call it asks: `running` are those that it held when it asked.
    """

    mount: str
    generation: int
    child_id: RequestId | None
    method: str
    call: int = 0
    input_key: str = ""
    token: RequestId | None = None
    params: bytes | None = None
    asked_at: float = -1.0  # below 0: by a version that did not keep it
    running: tuple[int, ...] = ()


# --- tasks ------------------------------------------------------------------------------------------


class AtServer(msgspec.Struct, frozen=True, tag=True):
    """A server made it and knows how it stands. The generation counts in the session that made the task."""

    inner: str
    generation: int


class Orphaned(msgspec.Struct, frozen=True, tag=True):
    """The process that made it is gone. A successor may know it: one with a store of its own, or a remote server."""

    inner: str


class InCall(msgspec.Struct, frozen=True, tag=True):
    """The host made it of a call that runs long."""

    seq: int


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Nothing changes any more. It is kept until its time to live is over."""


TaskPlace = AtServer | Orphaned | InCall | Ended


class Task(msgspec.Struct):
    """A task under the host's own handle, which is unique over servers and outlives them.

    `seen` is the task as the client was last told of it, whole: with its result, or its error.
    """

    handle: str
    mount: str
    tool: str
    place: TaskPlace
    seen: bytes
    era: Era = "modern"
    created: str = ""
    expires: float | None = None
    """In seconds since 1970; None where its server keeps it without a limit."""
    owner: str = ""
    session: str = ""
    host: str = ""
    result: bytes | None = None
    """What `tasks/result` of the handshake era answers, once it was seen."""


# --- the client's session -----------------------------------------------------------------------------


class Waiter(msgspec.Struct, frozen=True):
    """A request that waits, for a bounded time, until every server has said what it offers."""

    public_id: RequestId
    method: str
    params: bytes | None
    era: Era
    until: float
    accepted_at: float
    extra: dict[str, bytes] = {}


class Listen(msgspec.Struct, frozen=True):
    """A 2026 client's open `subscriptions/listen` stream."""

    public_id: RequestId
    kinds: tuple[str, ...]
    uris: tuple[str, ...]
    tasks: tuple[str, ...] = ()


class New(msgspec.Struct, frozen=True, tag=True):
    """No request yet, other than `ping`."""


class Uninitialized(msgspec.Struct, frozen=True, tag=True):
    """Requests of the handshake era came, and no `initialize`."""


class Modern(msgspec.Struct, frozen=True, tag=True):
    """Requests of 2026-07-28: each carries the client's name and capabilities."""


class Initializing(msgspec.Struct, frozen=True, tag=True):
    """`initialize` came; the client is not ready to be asked. `is_early`: it said that it is before it had its answer."""

    version: str
    is_early: bool = False


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A handshake client that works with the session: it can be asked, and hears of changes."""

    version: str


SessionPhase = New | Uninitialized | Modern | Initializing | Ready


class Session(msgspec.Struct):
    session_id: str
    started_at: float
    phase: SessionPhase = New()
    client_info: bytes = b'{"name":"unknown","version":"0"}'
    client_name: str = "unknown"
    client_process: str = ""
    """The process of the client, where the shell knows it (`platform/process_tree.py`)."""
    capabilities: bytes = b"{}"
    log_level: str = ""
    profile: str = ""
    """The profile that this session asked for; empty: the host's."""
    groups: dict[str, bool] = {}
    """The groups of tools that the session enabled or disabled itself."""
    roots: bytes | None = None
    subscriptions: dict[str, str] = {}
    listens: list[Listen] = []
    apps: list[str] = []
    """The servers of whose apps the client has read a page."""
    closing: float | None = None
    """When the session ends with whatever is unanswered; None while it is open."""

    @property
    def version(self) -> str:
        """The version that was agreed on with `initialize`; empty where none was."""
        return self.phase.version if isinstance(self.phase, Initializing | Ready) else ""

    @property
    def initialized(self) -> bool:
        return isinstance(self.phase, Initializing | Ready)

    @property
    def live(self) -> bool:
        return isinstance(self.phase, Ready)


class Latency(msgspec.Struct):
    count: int = 0
    total: float = 0.0
    last: float = 0.0
    max: float = 0.0
    buckets: dict[int, int] = {}


class Counters(msgspec.Struct):
    requests: int = 0
    successes: int = 0
    errors: int = 0
    tool_errors: int = 0
    response_errors: int = 0
    recovery_errors: int = 0
    recovery_faults: int = 0
    replays: int = 0
    latency: Latency = msgspec.field(default_factory=Latency)


class ToolCounters(Counters):
    """The calls of one tool, by the name that clients use."""

    mount: str = ""


class EndedCall(msgspec.Struct, frozen=True):
    """A tool call that has its answer. `at` is the kernel's time; `code` says why it failed, where that is known."""

    tool: str
    mount: str
    at: float
    ms: float
    ending: str
    code: str = ""


class Pace(msgspec.Struct):
    """Requests of the running window and of the one before it."""

    began: float = 0.0
    count: int = 0
    before: float = 0.0
    counted: int = 0


class Metrics(msgspec.Struct):
    totals: Counters = msgspec.field(default_factory=Counters)
    methods: dict[str, Counters] = {}
    tools: dict[str, ToolCounters] = {}
    recent: list[EndedCall] = []
    """The newest calls that ended, oldest first; bounded."""
    quarantined: dict[str, int] = {}
    consecutive_failures: int = 0
    last_fault: Fault | None = None
    pace: Pace = msgspec.field(default_factory=Pace)


class State(msgspec.Struct):
    session: Session
    mounts: dict[str, Mount] = {}
    seq: int = 0
    calls: dict[int, Invocation] = {}
    ids: dict[RequestId, int] = {}
    routes: dict[int, Route] = {}
    asks: dict[int, Ask] = {}
    waiters: list[Waiter] = []
    tasks: dict[str, Task] = {}
    metrics: Metrics = msgspec.field(default_factory=Metrics)
    file_faults: dict[str, list[Fault]] = {}
    """What is wrong with the files that the host reads, by which kind of file it is."""
    jitter: int = 1
