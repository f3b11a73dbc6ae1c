"""A client and its servers as plain data: what each has sent, seen and done, so that promises can be checked.

Nothing here reads the kernel's state. A server in this world is honest: it does what it is asked,
remembers on its disk what it did, and answers a probe from that memory.
"""

from __future__ import annotations

import msgspec

from perdure.protocol.eras import Era

FOREVER = 1e9


class Tool(msgspec.Struct, frozen=True):
    """A tool of a simulated server: `replay` is convergent, probe or never; `keyed` tools can conflict."""

    mount: str
    name: str
    replay: str
    keyed: bool = False


class Send(msgspec.Struct):
    """One time that a call was written to a server; `goes_on` where it continues an earlier one."""

    generation: int
    child_id: int
    goes_on: bool = False


class Want(msgspec.Struct):
    """A request of the client's that has no answer yet, as an observer on both sides sees it."""

    id: int | str
    kind: str
    modern: bool
    order: int
    at: float
    mount: str = ""
    tool: str = ""
    replay: str = ""
    tag: str = ""
    key: str = ""
    token: int | None = None
    progress: float = -1.0
    sends: list[Send] = []
    probes: int = 0
    in_doubt: bool = False
    absent: bool = False
    done: bool = False
    ticket: str = ""
    input_keys: list[str] = []
    uri: str = ""
    watched: list[str] = []
    """The tasks whose status a stream was opened for."""

    def attempts(self) -> int:
        return sum(1 for send in self.sends if not send.goes_on)


class Pending(msgspec.Struct):
    """A request that a server has received and not answered."""

    id: int
    method: str
    tag: str = ""
    tool: str = ""
    token: int | None = None
    has_run: bool = False
    uri: str = ""


class Child(msgspec.Struct):
    """One generation of a server. `is_gone` is what the kernel was told, or did itself."""

    mount: str
    generation: int
    era: Era
    catalog: int
    is_up: bool = False
    is_gone: bool = False
    is_full: bool = False
    is_productive: bool = False
    pending: list[Pending] = []
    last_answer: bytes = b""
    asks: list[int] = []
    is_rich: bool = False
    subscribed: list[str] = []
    level: str = ""
    has_tasks: bool = False
    keeps_tasks: bool = False


class ServerTask(msgspec.Struct):
    """A task as its server knows it: under an id that other servers, and later processes, give to theirs, too."""

    mount: str
    generation: int
    id: str
    tag: str
    created: str
    status: str = "working"


class ClientTask(msgspec.Struct):
    """A task as the client knows it. `tag` is that of its call, which is in `detached` while the host runs it."""

    handle: str
    mount: str
    tag: str
    expires: float
    place: ServerTask | None = None
    is_stopped: bool = False
    is_host_lost: bool = False
    is_refused: bool = False
    record: bytes = b""
    """The record that the host kept last."""
    final: bytes = b""
    """Its terminal status with result or error, once it has one."""
    inputs: dict[str, str] = {}
    """What it asks the client, by name."""


class Question(msgspec.Struct):
    """What the client was asked; `marker` names the server, generation and question behind it."""

    id: int
    mount: str
    generation: int
    marker: str


class World(msgspec.Struct):
    now: float = 0.0
    order: int = 0
    wants: dict[int | str, Want] = {}
    parked: list[Want] = []
    children: list[Child] = []
    questions: dict[int, Question] = {}
    executed: dict[str, int] = {}
    tags: dict[str, str] = {}
    catalogs: dict[str, int] = {}
    floors: dict[str, int] = {}
    fails: dict[str, int] = {}
    lost_at: dict[str, float] = {}
    used: dict[str, int] = {}
    top_child_id: int = 0
    asked: int = 0
    is_initialized: bool = False
    is_live: bool = False
    has_exited: bool = False
    is_closed: bool = False
    subscribed: list[str] = []
    """What a handshake client was told it is subscribed to."""
    in_doubt: list[str] = []
    """Subscriptions that the client tried to end, and does not know whether it did."""
    level: str = ""
    roots: str = ""
    """The marker under which the client last told its roots; empty after it said that they changed."""
    roots_questions: list[str] = []
    tasks: dict[str, ClientTask] = {}
    server_tasks: list[ServerTask] = []
    detached: list[Want] = []
    """Calls that go on as tasks: their requests are answered."""

    # --- looking ------------------------------------------------------------------------------

    def alive(self, mount: str) -> list[Child]:
        return [c for c in self.children if c.mount == mount and not c.is_gone]

    def child(self, mount: str, generation: int) -> Child | None:
        for child in self.children:
            if child.generation == generation and child.mount == mount:
                return child
        return None

    def is_gone(self, mount: str, generation: int) -> bool:
        child = self.child(mount, generation)
        return child is None or child.is_gone

    def by_tag(self, tag: str) -> Want | None:
        for want in self.wants.values():
            if want.tag == tag:
                return want
        return next((want for want in (*self.parked, *self.detached) if want.tag == tag), None)

    def flying(self, want: Want) -> bool:
        """Written to a server that still has it and may answer it."""
        return (
            bool(want.sends) and not want.in_doubt and not self.is_gone(want.mount, want.sends[-1].generation)
        )

    def held(self, want: Want) -> bool:
        """Written, its outcome unknown, and only a probe may decide."""
        return want.replay == "probe" and bool(want.sends) and not want.absent and not self.flying(want)

    def queued(self, want: Want) -> bool:
        if not want.sends:
            return True
        return not self.flying(want) and (want.absent or want.replay == "convergent")

    def wanted(self, mount: str) -> set[str]:
        """The resources of a server whose updates the client certainly wants."""
        streams = {want.uri for want in self.wants.values() if want.kind == "listen"}
        ending = {want.uri for want in self.wants.values() if want.tool == "resources/unsubscribe"}
        held = {*self.subscribed, *streams} - {*self.in_doubt, *ending, ""}
        return {uri for uri in held if uri.startswith(f"{mount}:")}

    def calls(self, mount: str) -> list[Want]:
        return [w for w in (*self.wants.values(), *self.detached) if w.kind == "call" and w.mount == mount]

    def tasks_of(self, child: Child) -> list[ServerTask]:
        """What this process knows: its own tasks, and where they are kept on disk those of earlier ones."""
        return [
            task
            for task in self.server_tasks
            if task.mount == child.mount and (child.keeps_tasks or task.generation == child.generation)
        ]

    def knows(self, task: ClientTask) -> bool:
        """Whether a living process, or the host, still has the task."""
        if task.place is None:
            return any(want.tag == task.tag for want in self.detached)
        return any(task.place in self.tasks_of(child) for child in self.alive(task.mount))

    def watched(self) -> set[str]:
        return {handle for want in self.wants.values() for handle in want.watched}

    def lose_host(self) -> None:
        """Everything ends with the host but what is on disk, and what the client knows."""
        for task in self.tasks.values():
            task.is_host_lost = True
        kept = {"now", "order", "executed", "catalogs", "used", "asked", "tasks", "server_tasks"}
        fresh = World()
        for name in self.__struct_fields__:
            if name not in kept:
                setattr(self, name, getattr(fresh, name))

    # --- what servers do ------------------------------------------------------------------------

    def execute(self, child: Child, request: Pending, *, is_builtin: bool) -> None:
        """Do the work of a call, on the disk that outlives the process. The worker does a key only once."""
        if request.has_run:
            return
        request.has_run = True
        if request.method == "resources/subscribe":
            child.subscribed = sorted({*child.subscribed, request.uri})
        elif request.method == "resources/unsubscribe":
            child.subscribed = [uri for uri in child.subscribed if uri != request.uri]
        if is_builtin and self.executed.get(request.tag):
            return
        self.executed[request.tag] = self.executed.get(request.tag, 0) + 1


_encode = msgspec.msgpack.encode
_decoder = msgspec.msgpack.Decoder(World)


def copy_of(world: World) -> bytes:
    return _encode(world)


def from_copy(data: bytes) -> World:
    return _decoder.decode(data)
