"""What one machine of the kernel tells the others. An event is delivered at once: it is dealt with when `emit` returns.

| event | from | to |
|---|---|---|
| ServerNeeded, LivenessDoubted | calls | mounts |
| SessionCallSucceeded | calls | subscriptions |
| GenerationServes, GenerationLost, GenerationRetired, GenerationAlive, MountUnavailable | mounts | calls, client |
| CatalogSettled, ListsChanged | mounts | client |
| ClientArrived, ClientReady, ListRequested | client | mounts, calls |
| ClientLeaves | client | subscriptions |
| ListsDoubted | subscriptions | mounts |
| RequestResumed | client | the router of client frames |
| InputNeeded, InputAnswered, InputExpired | server requests | calls |
| TaskCreated, CallDetached, TaskAnswered, DetachedCallEnded | calls | tasks |
| TaskQuestionsChanged | calls, server requests | tasks |
| TaskEnded, TaskCancelled, TaskInputGiven | tasks | calls |
| WatchedTasksChanged | tasks | subscriptions |
| ToolGroupSet | the host's own tools | client |
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from perdure.kernel.state import Ask, Invocation, Link, Mount, Task, Waiter
from perdure.protocol.faults import Fault
from perdure.protocol.frames import Members, Response


class _InternalEvent(msgspec.Struct, frozen=True):
    pass


# --- from calls ---------------------------------------------------------------------------------------


class ServerNeeded(_InternalEvent, frozen=True):
    """A call waits for a server that does not run."""

    mount: Mount


class LivenessDoubted(_InternalEvent, frozen=True):
    """A call has no answer at its deadline: does the server live at all?"""

    link: Link


class SessionCallSucceeded(_InternalEvent, frozen=True):
    """A call that changes the session: a subscription, a log level, or the first page of an app."""

    link: Link
    call: Invocation


# --- from mounts ----------------------------------------------------------------------------------------


class GenerationServes(_InternalEvent, frozen=True):
    link: Link


class GenerationLost(_InternalEvent, frozen=True):
    """It is gone with whatever it held."""

    link: Link
    fault: Fault


class GenerationRetired(_InternalEvent, frozen=True):
    """It held no call and was stopped."""

    link: Link


class GenerationAlive(_InternalEvent, frozen=True):
    """It answered a ping."""

    link: Link


class MountUnavailable(_InternalEvent, frozen=True):
    """No generation of it will serve soon."""

    mount: Mount


class CatalogSettled(_InternalEvent, frozen=True):
    """One mount less for which lists wait."""


class ListsChanged(_InternalEvent, frozen=True):
    kinds: Sequence[str]


# --- from the client ---------------------------------------------------------------------------------------


class ClientArrived(_InternalEvent, frozen=True):
    """Its first request came: the servers that depend on it can start."""


class ClientReady(_InternalEvent, frozen=True):
    """It can be asked."""


class ClientLeaves(_InternalEvent, frozen=True):
    """The session ends: no new work, and every open stream gets its answer."""


class ListsDoubted(_InternalEvent, frozen=True):
    """The stream on which a server announces changes was interrupted: its lists may have changed unheard."""

    link: Link


class ListRequested(_InternalEvent, frozen=True):
    pass


class RequestResumed(_InternalEvent, frozen=True):
    """A request that waited for the first catalogs is routed again."""

    waiter: Waiter


# --- from server requests ------------------------------------------------------------------------------------


class InputNeeded(_InternalEvent, frozen=True):
    """A handshake server asks something in the course of this call of a 2026 client."""

    call: Invocation


class InputAnswered(_InternalEvent, frozen=True):
    """The client answered what a 2026 server asked for a call; `identity` is the id of the question."""

    identity: int
    ask: Ask
    response: Response


class InputExpired(_InternalEvent, frozen=True):
    """The client left such a question unanswered."""

    call: Invocation


# --- calls and tasks -------------------------------------------------------------------------------------------


class TaskCreated(_InternalEvent, frozen=True):
    """A server answered a call with a task, which the client will know by this handle."""

    link: Link
    call: Invocation
    handle: str
    task: Members


class CallDetached(_InternalEvent, frozen=True):
    """A call runs for so long that it goes on as the task `call.task`."""

    call: Invocation


class DetachedCallEnded(_InternalEvent, frozen=True):
    """Such a call has its result, or its error; neither where it was cancelled."""

    call: Invocation
    result: bytes | None = None
    error: bytes | None = None


class TaskQuestionsChanged(_InternalEvent, frozen=True):
    """A server asks something in the course of such a call, or has its answer."""

    call: Invocation


class TaskAnswered(_InternalEvent, frozen=True):
    """A server answered a request about a task."""

    link: Link
    call: Invocation
    response: Response


class TaskEnded(_InternalEvent, frozen=True):
    """Requests about it that still wait can be answered."""

    task: Task


class TaskCancelled(_InternalEvent, frozen=True):
    seq: int


class TaskInputGiven(_InternalEvent, frozen=True):
    """The client answers questions of such a call, by their names."""

    seq: int
    answers: Members


class WatchedTasksChanged(_InternalEvent, frozen=True):
    """Another set of tasks runs on a server: its stream must tell of those that the client wants to hear of."""


# --- from the host's own tools ---------------------------------------------------------------------------------


class ToolGroupSet(_InternalEvent, frozen=True):
    """The session lists, or no longer lists, the tools of a group."""

    group: str
    is_enabled: bool
