"""What the rules of the kernel work with: the state, the settings, the time, and the effects of the running event."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Raw

from perdure.kernel.catalog import Public, ToolEntry
from perdure.kernel.events import Effect, Note, ToChild, ToClient
from perdure.kernel.state import (
    AtServer,
    ChildCatalog,
    Disabled,
    Draining,
    Idle,
    InFlight,
    Invocation,
    KnownTools,
    Link,
    Mount,
    Overdue,
    Session,
    State,
    Task,
)
from perdure.protocol import eras
from perdure.protocol.faults import Fault
from perdure.protocol.mounts import Limits, MountSpec
from perdure.protocol.pending_trust import UntrustedFile


class HostTools(Protocol):
    """The tools that the host answers itself, in every phase (law 16)."""

    def entries(self) -> Sequence[ToolEntry]: ...

    def call(self, k: Context, name: str, arguments: Raw | None) -> bytes:
        """The result of one call; a failure is a result, too."""
        ...


class Context(ABC):
    """The state of one client's session and what every rule needs to change it."""

    def __init__(
        self,
        specs: Mapping[str, MountSpec],
        *,
        session_id: str,
        now: float = 0.0,
        limits: Limits | None = None,
        wrapped: bool = False,
        version: str = "0",
        render: str = "porcelain",
        detail: str = "concise",
        profile: str = "full",
        catalogs: Mapping[str, ChildCatalog] | None = None,
        tools: Mapping[str, KnownTools] | None = None,
        file_faults: Mapping[str, Sequence[Fault]] | None = None,
        untrusted: tuple[UntrustedFile, ...] = (),
        places: Callable[[], dict[str, str]] = dict,
        host_tools: HostTools | None = None,
        tasks: dict[str, Task] | None = None,
        owner: str = "",
        host: str = "",
        epoch: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.specs = dict(specs)
        self.untrusted = untrusted
        self.places = places  # the workspace and its store, for `health`
        self.limits = limits or Limits()
        self.wrapped = wrapped
        self.version = version
        self.render = render
        self.detail = detail
        self.profile = profile
        self.owner = owner  # whose tasks the session may see, where clients are told apart
        self.host = host  # this process, in the records of tasks
        self.epoch = epoch  # what to add to `now` for the time of day
        self.now = now
        self.out: list[Effect] = []
        known, accepted = catalogs or {}, tools or {}
        self.state = State(
            session=Session(session_id=session_id, started_at=now),
            mounts={
                name: Mount(
                    name=name,
                    phase=Disabled() if spec.untrusted else Idle(),
                    catalog=None if spec.untrusted else known.get(name),
                    settled=bool(spec.untrusted) or name in known,
                    known=accepted[name].known if name in accepted else None,
                    held=accepted[name].held if name in accepted else {},
                )
                for name, spec in specs.items()
            },
            file_faults={source: list(faults) for source, faults in (file_faults or {}).items()},
            tasks={} if tasks is None else tasks,  # shared, where one process has many sessions
            jitter=seed,
        )
        self.host_tools = None if wrapped else host_tools
        self.public = self._public_catalog()

    def _public_catalog(self) -> Public:
        entries = self.host_tools.entries if self.host_tools is not None else tuple
        return Public(
            self.state,
            self.specs,
            wrapped=self.wrapped,
            version=self.version,
            profile=self.profile,
            host_tools=entries,
            makes_tasks=self.limits.task_after_s > 0,
        )

    @abstractmethod
    def emit(self, event: msgspec.Struct) -> None:
        """Hand an event to the machines that it concerns, at once: it is dealt with when this returns."""

    @property
    def groups(self) -> frozenset[str]:
        """The groups of built-in tools that this session lists."""
        return self.public.enabled_groups

    def mint(self) -> int:
        """A number never used before in this session: call order, child ids and ask ids come from here."""
        self.state.seq += 1
        return self.state.seq

    def to_client(self, frame: bytes) -> None:
        self.out.append(ToClient(frame))

    def to_child(self, link: Link, frame: bytes) -> None:
        self.out.append(ToChild(link.mount, link.generation, frame))

    def note(self, event: str, **fields: str | int | float | bool) -> None:
        self.out.append(Note(event, fields))

    def link(self, mount: str, generation: int) -> Link | None:
        named = self.state.mounts.get(mount)
        return named.links.get(generation) if named else None

    def calls_on(self, link: Link) -> list[Invocation]:
        """The calls for which this generation still owes something."""
        return [call for call in self.state.calls.values() if call.is_on(link)]

    def in_flight(self, link: Link) -> list[Invocation]:
        """The calls that this generation works on, oldest first."""
        running = (call for call in self.state.calls.values() if isinstance(call.state, InFlight | Overdue))
        return sorted((call for call in running if call.is_on(link)), key=lambda call: call.seq)

    def wanted_uris(self, mount: Mount) -> list[str]:
        """The resources of a server, by its own addresses, whose updates the client wants to hear of."""
        session = self.state.session
        wanted = {uri for uri, owner in session.subscriptions.items() if owner == mount.name}
        wanted.update(
            uri
            for listen in session.listens
            for uri in listen.uris
            if self.public.resource_owner(uri) == mount.name
        )
        addresses = self.public.addresses()
        return sorted(addresses.inner(mount.name, uri) for uri in wanted)

    def task_link(self, call: Invocation) -> Link | None:
        """The fenced generation that has the task which a request is about; None where the serving one is asked."""
        task = self.state.tasks.get(call.name) if call.method in eras.TASK_METHODS else None
        if task is None or not isinstance(task.place, AtServer) or not self.is_own(task):
            return None
        link = self.link(task.mount, task.place.generation)
        return link if link is not None and isinstance(link.stage, Draining) else None

    def tasks_at(self, link: Link) -> list[Task]:
        """The tasks of this session that run in a generation."""
        return [
            task
            for task in self.state.tasks.values()
            if isinstance(task.place, AtServer)
            and (task.mount, task.place.generation) == (link.mount, link.generation)
            and self.is_own(task)
        ]

    def has_task_room(self) -> bool:
        """Whether one more task can be kept (law 8)."""
        kept = self.state.tasks.values()
        return len(kept) < self.limits.tasks and sum(len(t.seen) for t in kept) < self.limits.task_bytes

    def is_own(self, task: Task) -> bool:
        """Whether this session made the task: then its generation is one of ours."""
        return task.session == self.state.session.session_id

    def is_client_listening(self) -> bool:
        """Whether the client would hear of a changed list."""
        return self.state.session.live or bool(self.state.session.listens)

    def random(self) -> float:
        """A number in [0, 1), from the state alone, so that every history can be repeated."""
        self.state.jitter = (self.state.jitter * 6364136223846793005 + 1442695040888963407) % (1 << 63)
        return (self.state.jitter >> 20) / float(1 << 43)

    def quarantine(self, kind: str, count: int = 1) -> None:
        counts = self.state.metrics.quarantined
        counts[kind] = counts.get(kind, 0) + count
