"""The small worlds that are explored: which servers, which client, which bounds, which actions how often."""

from __future__ import annotations

import msgspec

from harness.kernel.world import Tool
from perdure.kernel.core import Kernel
from perdure.kernel.state import Task
from perdure.protocol.eras import META_CONTRACT, Era
from perdure.protocol.mounts import Limits, MountSpec
from perdure.protocol.replay import ProbeRequired
from perdure.surfaces.ops import host_tools

_encode = msgspec.json.encode

WORKER, MOUNTED, OTHER = "w", "m", "n"
TOOLS = (
    Tool(WORKER, "put", "probe", keyed=True),
    Tool(WORKER, "get", "convergent", keyed=True),
    Tool(WORKER, "once", "never"),
    Tool(MOUNTED, "read", "convergent"),
    Tool(MOUNTED, "send", "never"),
    Tool(MOUNTED, "charge", "probe"),
    Tool(OTHER, "slow", "never"),
)
FIND = "find"  # the probe tool of the mounted server

SPECS = {
    WORKER: MountSpec(WORKER, builtin=True, startup_s=5.0, call_s=20.0),
    MOUNTED: MountSpec(
        MOUNTED,
        prefix="m__",
        startup_s=5.0,
        call_s=20.0,
        replay={"charge": ProbeRequired(FIND, {"tag": "/tag"})},
    ),
    OTHER: MountSpec(OTHER, prefix="n__", startup_s=5.0, call_s=20.0),
}

TIGHT = Limits(
    pending=4,
    queue=2,
    in_flight=2,
    outbox_bytes=100,
    replays=1,
    probes=2,
    asks=2,
    deferred=1,
    listens=1,
    unproductive_starts=3,
    settled_s=1e9,
)
ROOMY = Limits(
    pending=8, queue=6, in_flight=6, outbox_bytes=100, probes=2, asks=3, unproductive_starts=4, settled_s=1e9
)
TASK_TTL_S = 10.0  # shorter than a call may take
LONG = msgspec.structs.replace(ROOMY, task_after_s=2.0, task_ttl_s=TASK_TTL_S, tasks=5)


class Scope(msgspec.Struct, frozen=True):
    """One world and its alphabet: `budget` says how often each verb may occur in a history."""

    name: str
    budget: dict[str, int]
    mounts: tuple[str, ...] = (WORKER,)
    client: Era = "handshake"
    children: Era = "handshake"
    limits: Limits = TIGHT
    keys: tuple[str, ...] = ("k",)
    tools: tuple[str, ...] = ("put", "get", "once", "read", "send", "charge")
    opening: tuple[str, ...] = ()
    depth: int = 6
    rich: bool = False
    """The servers have resources, log levels and an interest in roots, too."""
    lazy: bool = False
    wrapped: bool = False
    tasks: bool = False
    """The servers answer calls with tasks, too."""
    keeps_tasks: bool = False
    """They keep them on disk: a later process knows them."""

    def spec(self, mount: str) -> MountSpec:
        spec = SPECS[mount]
        if self.wrapped:
            spec = msgspec.structs.replace(spec, prefix="")
        return msgspec.structs.replace(spec, start="lazy", idle_s=3.0) if self.lazy else spec

    def kernel(self, tasks: dict[str, Task] | None = None, session: str = "s", now: float = 0.0) -> Kernel:
        specs = {name: self.spec(name) for name in self.mounts}
        return Kernel(
            specs,
            session_id=session,
            now=now,
            limits=self.limits,
            render="json",
            host_tools=host_tools,
            wrapped=self.wrapped,
            tasks=tasks,
            host="h",
        )


def tool(name: str) -> Tool:
    return next(t for t in TOOLS if t.name == name)


def catalog(mount: str, version: int) -> bytes:
    """The tools of a server in one version of it, as the answer to tools/list."""
    tools: list[dict[str, object]] = []
    for known in TOOLS:
        if known.mount != mount:
            continue
        entry: dict[str, object] = {"name": known.name, "inputSchema": {"type": "object"}}
        if mount == WORKER:
            contract: dict[str, object] = {"replay": known.replay, "deadline_s": 20}
            if known.keyed:
                contract["conflict"] = ["/path"]
            entry["_meta"] = {META_CONTRACT: contract}
        elif known.replay == "convergent":
            entry["annotations"] = {"readOnlyHint": True}
        tools.append(entry)
    for number in range(2, version + 1):
        tools.append({"name": f"extra{number}", "inputSchema": {"type": "object"}})
    return _encode({"tools": tools})


def uri_of(mount: str) -> str:
    """The resource of a server that a client may subscribe to."""
    return f"{mount}://a"


_OPEN = ("init", "initialized", "serve w 0")
_ASK = {"ask": 3, "unask": 1, "reply": 2, "refuse": 1, "stray-reply": 1}
_ROLL = {"reload": 2, "serve": 3, "change": 1, "list": 1}
_LIVE: dict[str, int] = {"answer": 9, "error": 3, "die": 3, "work": 3, "serve": 9, "tick": 9}
_EVERYTHING: dict[str, int] = {
    "init": 1, "initialized": 1, "discover": 1, "call": 14, "dup": 2, "cancel": 3, "list": 3, "ping": 2,
    "health": 2, "listen": 3, "unlisten": 1, "bad": 2, "big": 1, "close": 1, "restart": 1, "disable": 1,
    "enable": 1, "reply": 6, "refuse": 2, "stray-reply": 1, "retry": 4, "up": 20, "open": 80, "fail": 2, "shrug": 2,
    "serve": 8, "answer": 14, "error": 3, "garble": 2, "again": 2, "stray": 2, "work": 8, "progress": 6,
    "ask": 6, "unask": 2, "need": 3, "change": 3, "log": 3, "noise": 2, "full": 2, "drain": 2, "die": 8,
    "tick": 30, "reload": 4, "come": 4, "read": 4, "subscribe": 3, "unsubscribe": 2, "update": 4, "level": 2, "roots": 2,
}  # fmt: skip
_TASKS: dict[str, int] = {
    "task": 8, "finish": 6, "tell": 6, "get": 12, "input": 4, "stop": 3, "age": 1, "lose-host": 1,
}  # fmt: skip
_HOSTED = ("health", "restart", "disable", "enable", "level")  # what a wrapped server does not have

EXHAUSTIVE = (
    Scope(
        "loss", {"call": 3, "work": 1, "answer": 3, "die": 2, "serve": 3, "tick": 2}, opening=_OPEN, depth=6
    ),
    Scope(
        "start",
        {
            "init": 1,
            "initialized": 1,
            "call": 1,
            "list": 1,
            "ping": 1,
            "up": 2,
            "open": 4,
            "fail": 1,
            "die": 2,
            "tick": 2,
        },
        tools=("put",),
        depth=7,
    ),
    Scope(
        "rollout",
        {"call": 2, "answer": 2, "die": 2, "work": 1, **_ROLL, "tick": 1},
        opening=_OPEN,
        tools=("put", "once"),
        depth=6,
    ),
    Scope(
        "questions",
        {"call": 2, "answer": 1, "die": 1, "serve": 1, "cancel": 1, "tick": 1, **_ASK},
        opening=_OPEN,
        tools=("get",),
        depth=6,
    ),
    Scope(
        "questions-2026",
        {"call": 2, "answer": 2, "die": 1, "serve": 1, "ask": 2, "retry": 2, "cancel": 1, "tick": 2},
        client="modern",
        opening=("discover", "serve w 0"),
        tools=("once",),
        depth=6,
    ),
    Scope(
        "needs",
        {"call": 2, "need": 2, "reply": 2, "refuse": 1, "answer": 2, "die": 1, "serve": 1, "cancel": 1},
        mounts=(MOUNTED,),
        children="modern",
        opening=("init", "initialized", "serve m 0"),
        tools=("read", "send"),
        depth=6,
    ),
    Scope(
        "deadlines",
        {"call": 2, "work": 1, "answer": 1, "open": 3, "progress": 1, "die": 1, "serve": 1, "tick": 6},
        opening=_OPEN,
        tools=("put", "once"),
        depth=7,
    ),
    Scope(
        "mounted",
        {"call": 2, "work": 1, "answer": 2, "die": 2, "serve": 2, "tick": 4, "open": 2},
        mounts=(MOUNTED,),
        opening=("init", "initialized", "serve m 0"),
        tools=("charge", "send"),
        depth=6,
    ),
    Scope(
        "abuse",
        {
            "call": 3,
            "dup": 1,
            "cancel": 2,
            "bad": 1,
            "answer": 2,
            "again": 1,
            "stray": 1,
            "garble": 1,
            "die": 1,
            "full": 1,
            "drain": 1,
        },
        opening=_OPEN,
        tools=("put", "get"),
        depth=5,
    ),
    Scope(
        "subscriptions",
        {
            "subscribe": 1,
            "unsubscribe": 1,
            "read": 1,
            "answer": 2,
            "update": 1,
            "die": 1,
            "serve": 2,
            "cancel": 1,
        },
        opening=_OPEN,
        tools=(),
        depth=6,
        rich=True,
    ),
    Scope(
        "subscriptions-2026",
        {"listen": 2, "unlisten": 1, "update": 2, "die": 1, "serve": 2, "change": 1, "reload": 1},
        mounts=(MOUNTED,),
        client="modern",
        children="modern",
        opening=("discover", "serve m 0"),
        tools=(),
        depth=6,
        rich=True,
    ),
    Scope(
        "levels-and-roots",
        {"level": 2, "roots": 1, "ask": 3, "reply": 2, "die": 1, "up": 1, "open": 3, "serve": 1, "log": 1},
        opening=_OPEN,
        tools=(),
        depth=6,
        rich=True,
    ),
    Scope(
        "lazy",
        {"call": 2, "answer": 2, "die": 1, "serve": 3, "tick": 4, "subscribe": 1},
        mounts=(MOUNTED,),
        opening=("init", "initialized", "serve m 0"),
        tools=("send",),
        depth=7,
        rich=True,
        lazy=True,
    ),
    Scope(
        "lazy-rollout",
        {"reload": 1, "call": 2, "serve": 3, "tick": 2},
        mounts=(MOUNTED,),
        opening=("init", "initialized", "serve m 0"),
        tools=("send",),
        depth=7,
        lazy=True,
    ),
    Scope(
        "wrap",
        {
            "init": 1,
            "initialized": 1,
            "list": 1,
            "call": 2,
            "answer": 1,
            "up": 2,
            "open": 5,
            "die": 1,
            "tick": 2,
        },
        mounts=(MOUNTED,),
        tools=("send",),
        depth=7,
        wrapped=True,
    ),
    Scope(
        "tasks",
        {"call": 2, "task": 2, "finish": 1, "get": 2, "stop": 1, "die": 1, "serve": 2, "age": 1},
        mounts=(MOUNTED, OTHER),
        client="modern",
        children="modern",
        limits=ROOMY,
        opening=("discover", "serve m 0", "serve n 0"),
        tools=("send", "slow"),
        depth=6,
        tasks=True,
    ),
    Scope(
        "tasks-lost-host",
        {"task": 1, "finish": 1, "tell": 1, "get": 2, "die": 1, "serve": 2, "lose-host": 1, "reload": 1},
        mounts=(OTHER,),
        client="modern",
        children="modern",
        limits=ROOMY,
        opening=("discover", "serve n 0", "call slow -"),
        tools=(),
        depth=6,
        tasks=True,
        keeps_tasks=True,
    ),
    Scope(
        "tasks-watched",
        {
            "task": 1,
            "listen": 1,
            "unlisten": 1,
            "finish": 1,
            "tell": 2,
            "get": 1,
            "stop": 1,
            "die": 1,
            "serve": 2,
        },
        mounts=(OTHER,),
        client="modern",
        children="modern",
        limits=ROOMY,
        opening=("discover", "serve n 0", "call slow -", "task n 0 0"),
        tools=(),
        depth=6,
        tasks=True,
    ),
    Scope(
        "tasks-same-id",
        {"die": 1, "come": 1, "call": 1, "task": 1, "finish": 1, "serve": 1, "get": 1},
        mounts=(OTHER,),
        client="modern",
        children="modern",
        limits=ROOMY,
        opening=("discover", "serve n 0", "call slow -", "task n 0 0"),
        tools=("slow",),
        depth=7,
        tasks=True,
    ),
    Scope(
        "tasks-of-calls",
        {
            "call": 1,
            "tick": 3,
            "get": 2,
            "stop": 1,
            "answer": 1,
            "need": 1,
            "input": 1,
            "die": 1,
            "serve": 1,
            "lose-host": 1,
            "task": 1,
        },
        mounts=(OTHER,),
        client="modern",
        children="modern",
        limits=LONG,
        opening=("discover", "serve n 0", "call slow -", "tick"),
        tools=("slow",),
        depth=5,
        tasks=True,
    ),
)

RANDOM = (
    *(
        Scope(
            f"random-{'+'.join(mounts)}-{client}-client-{children}-server-{size}",
            _EVERYTHING,
            mounts=mounts,
            client=client,
            children=children,
            limits=limits,
            keys=("k", "l"),
            depth=60,
            rich=size == "roomy",
        )
        for mounts in ((WORKER,), (MOUNTED,), (WORKER, MOUNTED))
        for client in ("handshake", "modern")
        for children in ("handshake", "modern")
        for size, limits in (("tight", TIGHT), ("roomy", ROOMY))
    ),
    *(
        Scope(
            f"random-{'wrapped' if wrapped else 'lazy'}-{client}-client-{children}-server",
            {verb: most for verb, most in _EVERYTHING.items() if not (wrapped and verb in _HOSTED)},
            mounts=(MOUNTED,),
            client=client,
            children=children,
            limits=ROOMY,
            depth=60,
            rich=True,
            lazy=not wrapped,
            wrapped=wrapped,
        )
        for wrapped in (True, False)
        for client in ("handshake", "modern")
        for children in ("handshake", "modern")
    ),
    *(
        Scope(
            f"random-tasks-{children}-server-{'kept' if keeps_tasks else 'forgotten'}-{size}",
            {**_EVERYTHING, **_TASKS},
            mounts=mounts,
            client="modern",
            children=children,
            limits=limits,
            depth=60,
            tasks=children == "modern",
            keeps_tasks=keeps_tasks,
        )
        for children in ("modern", "handshake")
        for keeps_tasks in ((True, False) if children == "modern" else (False,))
        for size, mounts, limits in (
            ("slow", (MOUNTED, OTHER), LONG),
            ("one", (OTHER,), LONG),
            ("roomy", (MOUNTED, OTHER), ROOMY),
        )
        if children == "modern" or limits is LONG
    ),
)
