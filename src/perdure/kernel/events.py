"""What comes into the kernel and what goes out of it.

The kernel never waits: the shell turns the world into events, hands each over with the time,
and carries out the effects in order.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.protocol.faults import Fault
from perdure.protocol.mounts import MountSpec
from perdure.protocol.pending_trust import UntrustedFile


class _Event(msgspec.Struct, frozen=True, tag=True):
    pass


# --- in ---------------------------------------------------------------------------------------


class ClientFrame(_Event, frozen=True):
    frame: bytes


class ClientOversize(_Event, frozen=True):
    """A frame over the bound was discarded; its two ends are kept so that its id can be read."""

    size: int
    head: bytes
    tail: bytes


class ClientClosed(_Event, frozen=True):
    pass


class ChildStarted(_Event, frozen=True):
    mount: str
    generation: int
    pid: int


class ChildFrame(_Event, frozen=True):
    mount: str
    generation: int
    frame: bytes


class ChildNoise(_Event, frozen=True):
    """Lines on a child's stdout that are not frames, or a frame over the bound."""

    mount: str
    generation: int
    lines: int
    oversize: bool = False
    head: bytes = b""
    tail: bytes = b""


class ChildLost(_Event, frozen=True):
    """The child exited, could not be started, or its pipe broke. Said once per generation."""

    mount: str
    generation: int
    fault: Fault
    exit_code: int | None = None
    stderr: str = ""


class ChildBacklog(_Event, frozen=True):
    """How many bytes wait in the child's outbox; said when it fills and when it drains."""

    mount: str
    generation: int
    size: int


class NotRecorded(_Event, frozen=True):
    """The shell must keep a record of this call before its first byte is sent, and could not: nothing was sent."""

    seq: int
    reason: str


class Tick(_Event, frozen=True):
    pass


class Reload(_Event, frozen=True):
    """Roll every child over to what is installed now."""


class Order(_Event, frozen=True):
    """Somebody other than the client wants a server restarted, stopped or back; an unknown name is nothing."""

    mount: str
    action: Literal["restart", "enable", "disable"]


class Remount(_Event, frozen=True):
    """What the registry lists now, all of it: what is new is mounted, what is gone is not, what changed rolls over."""

    specs: dict[str, MountSpec]
    untrusted: tuple[UntrustedFile, ...] = ()


class FileFaults(_Event, frozen=True):
    """What is wrong now with the files of one kind that the host reads; none where all of them are sound."""

    source: Literal["settings", "registry"]
    faults: tuple[Fault, ...]


class Approved(_Event, frozen=True):
    """These tools of a mount were accepted as they are, by their hash."""

    mount: str
    tools: dict[str, str]


class Shutdown(_Event, frozen=True):
    """End the session in good order: no new work, finish what is running, then stop."""


Event = (
    ClientFrame
    | ClientOversize
    | ClientClosed
    | ChildStarted
    | ChildFrame
    | ChildNoise
    | ChildLost
    | ChildBacklog
    | NotRecorded
    | Tick
    | Reload
    | Order
    | Remount
    | FileFaults
    | Approved
    | Shutdown
)

# --- out --------------------------------------------------------------------------------------


class ToClient(_Event, frozen=True):
    frame: bytes


class ToChild(_Event, frozen=True):
    mount: str
    generation: int
    frame: bytes


class Spawn(_Event, frozen=True):
    """Start this generation; `gently` where the last one came to nothing: it must not take time from others."""

    mount: str
    generation: int
    gently: bool = False


class Stop(_Event, frozen=True):
    """End this generation: close its input, then terminate, then kill its process group.

    With `force` it is killed at once: its work will be redone or probed, so it must do nothing more.
    """

    mount: str
    generation: int
    force: bool = False


class Throttle(_Event, frozen=True):
    """Do not read this child before `until`: what it sends unasked must not delay the others."""

    mount: str
    generation: int
    until: float


class SaveCatalog(_Event, frozen=True):
    mount: str
    catalog: bytes


class SaveTools(_Event, frozen=True):
    """The hashes of a mount's tools: as they were accepted, and of those held back."""

    mount: str
    known: dict[str, str]
    held: dict[str, str]


class SaveTask(_Event, frozen=True):
    """A task as it stands now; empty data where it is forgotten."""

    handle: str
    data: bytes


class Note(_Event, frozen=True):
    """A record for the event log: no content, no secrets."""

    event: str
    fields: dict[str, str | int | float | bool]


class Exit(_Event, frozen=True):
    pass


Effect = ToClient | ToChild | Spawn | Stop | Throttle | SaveCatalog | SaveTools | SaveTask | Note | Exit
