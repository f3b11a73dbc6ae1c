"""Reservations of a workspace, and the check of each write against them.

The check reads the book after the call has begun: in the transaction of the change, or where several machines share the book
just before it (`book_store.py`). So a reservation that was granted before the call is always seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache, partial
from socket import gethostname
from typing import Any, Final, Literal, TypeVar

import msgspec

from perdure.platform.boot import boot_id
from perdure.platform.process_tree import has_ended
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again, call_tool, either
from perdure.storage.errors import StateError
from perdure.storage.journal import Journal
from perdure.storage.reservations import Mode, Notice, Reservation, ReservationBook
from perdure.storage.state import StateBackend
from perdure.storage.timeline import ANOTHER_PROGRAM
from perdure.text.printable import make_printable
from perdure.text.times import format_time
from perdure.workspace.deferred import DeferredWork
from perdure.workspace.paths.roots import Roots
from perdure.workspace.reservations import rules
from perdure.workspace.reservations.book_store import SECOND, BookStore, JournalBook, Snapshot, StateBook
from perdure.workspace.reservations.patterns import covers, has_wildcard
from perdure.workspace.reservations.repository import find_repository
from perdure.workspace.reservations.rules import Held, Request
from perdure.workspace.reservations.settings import ReservationSettings

AUTOMATIC_S: Final = 600
RECENT_S: Final = 300
"""A change of another agent that is younger is told to the next one that writes the file."""
MOST_AGE_S: Final = 1.0
"""Of a shared book, when a write is checked against it."""
MOST_RECENT: Final = 20
"""Of how many files of one change that is told."""
SESSION_OWNER: Final = "session:"

T = TypeVar("T")
OpenState = Callable[[], StateBackend]


class Granted(msgspec.Struct, frozen=True):
    reservation: Reservation


class Refused(msgspec.Struct, frozen=True):
    """Other owners hold some of the paths."""

    holders: list[Held]


class Unknown(msgspec.Struct, frozen=True):
    """The token is of no reservation of this owner."""

    status: Literal["lost", "not_found"]


class Reservations:
    """Of a workspace. `book` says when they may be changed. `prefix` is the workspace's folder in its repository, where the
    book is of a repository: its paths are the repository's."""

    def __init__(
        self, journal: Journal, settings: ReservationSettings, book: BookStore, prefix: str = ""
    ) -> None:
        self._journal = journal
        self.settings = settings
        self._book = book
        self._prefix = prefix
        self.is_shared = book.is_shared

    def acquire(
        self, call: Call, paths: tuple[str, ...], mode: Mode, ttl_s: int, reason: str
    ) -> Granted | Refused:
        """All paths or none. With `call.force` the reservations of others that are in the way are released."""
        agent, turn = self._agent(call)
        machine = gethostname() if self.is_shared else None
        names = tuple(self._pattern(path) for path in paths)
        request = Request(self.owner_of(call), call.client, agent, turn, machine, names, mode, reason)

        def change(before: Snapshot) -> tuple[ReservationBook, Granted | Refused]:
            book = rules.prune(before.book, before.now)
            in_the_way = rules.find_holders(book, request)
            holders = _living(in_the_way)
            if holders and not call.force:
                return before.book, Refused(holders)
            book = rules.release(book, (held.by.token for held in in_the_way))
            book, made = rules.acquire(book, request, before.now, ttl_s * SECOND)
            return book, Granted(made)

        return self._book.update(change)

    def renew(self, call: Call, token: int, ttl_s: int) -> Granted | Unknown:
        def change(before: Snapshot) -> tuple[ReservationBook, Granted | Unknown]:
            book = rules.prune(before.book, before.now)
            match rules.find_token(book, token, self.owner_of(call)):
                case Reservation():
                    book, renewed = rules.renew(book, token, before.now + ttl_s * SECOND)
                    return book, Granted(renewed)
                case status:
                    return before.book, Unknown(status)

        return self._book.update(change)

    def release(self, call: Call, token: int) -> Granted | Refused | Unknown:
        """Another owner's reservation is released with `call.force` alone."""

        def change(before: Snapshot) -> tuple[ReservationBook, Granted | Refused | Unknown]:
            book = rules.prune(before.book, before.now)
            found = rules.find_token(book, token, self.owner_of(call))
            if found == "not_found":
                others = [one for one in book.reservations if one.token == token]
                if others and not call.force:
                    return before.book, Refused([Held(path, one) for one in others for path in one.paths])
                found = others[0] if others else found
            if not isinstance(found, Reservation):
                return before.book, Unknown(found)
            return rules.release(book, [token]), Granted(found)

        return self._book.update(change)

    def release_all(self, process: str) -> None:
        owner = self.owner_of_process(process)

        def change(before: Snapshot) -> tuple[ReservationBook, None]:
            tokens = [one.token for one in before.book.reservations if one.owner == owner]
            return (rules.release(before.book, tokens) if tokens else before.book), None

        self._book.update(change)

    def find_blocking(self, path: str, process: str) -> list[Held]:
        """The reservations that keep a client from writing a path."""
        if self.settings.mode == "off":
            return []
        return self.blocking_in(self.active_book(), path, self.owner_of_process(process))

    def blocking_in(self, book: ReservationBook, path: str, owner: str) -> list[Held]:
        holders = _living(rules.find_blocking(book, self._name(path), owner))
        return [held._replace(path=path) for held in holders]

    def add_notices(self, notices: Sequence[Notice]) -> None:
        self._book.update(lambda before: (rules.add_notices(before.book, notices), None))

    def take_notices(self, owner: str) -> list[str]:
        def change(before: Snapshot) -> tuple[ReservationBook, list[str]]:
            if not has_notices(before.book, owner):
                return before.book, []
            return rules.take_notices(before.book, owner)

        return self._book.update(change)

    def active(self) -> tuple[Reservation, ...]:
        """Without those whose owner's process has ended."""
        book = self.active_book()
        gone = {owner for owner in {one.owner for one in book.reservations} if _has_ended(owner)}
        return tuple(one for one in book.reservations if one.owner not in gone)

    def reserve_changed(self, call: Call, paths: Iterable[str], deferred: DeferredWork) -> None:
        """In mode `automatic`, in the plan of a change: its files are held for a while. Raises ToolError where another owner
        has reserved one since it was checked."""
        if self.settings.mode != "automatic":
            return
        book, owner = self.planned_book(deferred), self.owner_of(call)
        own = [pattern for one in book.reservations if one.owner == owner for pattern in one.paths]
        fresh = tuple(path for path in paths if not any(covers(pattern, self._name(path)) for pattern in own))
        if not fresh:
            return
        answer = self.planned(
            deferred,
            ("acquire", fresh),
            lambda: self.acquire(call, fresh, "exclusive", AUTOMATIC_S, "written last"),
        )
        if isinstance(answer, Refused):
            raise reserved(answer.holders)

    def planned(self, deferred: DeferredWork, key: Hashable, work: Callable[[], T]) -> T:
        """In a plan: use the book. A shared one is used outside the lock, after the call has begun."""
        return deferred.result(("reservations", key), work) if self.is_shared else work()

    def planned_book(self, deferred: DeferredWork) -> ReservationBook:
        """In a plan. A shared book that was read a while ago is read again: the process may have been stopped meanwhile."""

        def read() -> tuple[float, ReservationBook]:
            return time.monotonic(), self.active_book()

        read_at, book = self.planned(deferred, "book", read)
        if time.monotonic() - read_at > MOST_AGE_S:
            deferred.request(("reservations", "book"), read)
        return book

    def active_book(self) -> ReservationBook:
        book, now = self._book.read()
        return rules.prune(book, now)

    def owner_of(self, call: Call) -> str:
        """The client's process: its hooks, its sessions and its subagents are one owner."""
        return self.owner_of_process(call.process) if call.process else f"{SESSION_OWNER}{call.session}"

    def owner_of_process(self, process: str) -> str:
        """Processes of several machines can have the same identity."""
        return f"{process}@{_machine_id()}" if self.is_shared else process

    def close(self) -> None:
        self._book.close()

    def _name(self, path: str) -> str:
        """A path of the workspace as the book names it."""
        return f"{self._prefix}/{path}" if self._prefix and not path.startswith("@") else path

    def _pattern(self, pattern: str) -> str:
        """A glob without a slash is for any depth, in the workspace."""
        if not self._prefix or pattern.startswith("@"):
            return pattern
        depth = "**/" if has_wildcard(pattern) and "/" not in pattern else ""
        return f"{self._prefix}/{depth}{pattern.lstrip('/')}"

    def _agent(self, call: Call) -> tuple[str | None, int | None]:
        """The agent and turn of the call that a hook of the same client told of, and which still runs."""
        if call.process is not None:
            for known in self._journal.open_calls():
                if known.process == call.process and known.tool.endswith(call.tool):
                    return known.agent, known.turn
        return None, None


class WriteCheck:
    """What other agents have to do with the paths of one change: reserved ones are refused, recent changes are told."""

    def __init__(
        self, reservations: Reservations, journal: Journal, call: Call, deferred: DeferredWork
    ) -> None:
        self._reservations = reservations
        self._journal = journal
        self._call = call
        self._deferred = deferred
        self._book: ReservationBook | None = None
        self._checked: dict[str, tuple[int, ...]] = {}
        self.warnings: list[str] = []
        self.notices: list[str] = []
        """Taken from the book, and to be told whatever becomes of the change."""

    def check(self, path: str) -> tuple[int, ...]:
        """The tokens that a person overrides here. Raises ToolError for a path that another owner holds."""
        if path not in self._checked:
            self._checked[path] = self._overridden(path)
            if len(self._checked) <= MOST_RECENT:
                self._tell_recent(path)
        return self._checked[path]

    def take_notices(self) -> None:
        """Once nothing of the change is refused: a refusal takes none."""
        reservations = self._reservations
        owner = reservations.owner_of(self._call)
        if self._book is not None and has_notices(self._book, owner):
            self.notices = reservations.planned(
                self._deferred, "notices", lambda: reservations.take_notices(owner)
            )
            self.warnings += self.notices

    def _overridden(self, path: str) -> tuple[int, ...]:
        reservations = self._reservations
        if reservations.settings.mode == "off":
            return ()
        owner = reservations.owner_of(self._call)
        if self._book is None:
            self._book = reservations.planned_book(self._deferred)
        if not self._book.reservations:
            return ()
        holders = reservations.blocking_in(self._book, path, owner)
        if holders and not self._call.force:
            raise reserved(holders)
        return tuple(held.by.token for held in holders)

    def _tell_recent(self, path: str) -> None:
        row = self._journal.last_of(path)
        if row is None or row.session == self._call.session or row.client == ANOTHER_PROGRAM:
            return
        age_s = (_now() - row.ts) / SECOND
        if not 0 <= age_s < RECENT_S:
            return
        made_by = self._journal.call_of(row.seq, row.txn)
        if made_by is not None and made_by.process is not None and made_by.process == self._call.process:
            return
        agent = f" (agent {make_printable(made_by.agent)})" if made_by is not None and made_by.agent else ""
        author = make_printable(row.client) + agent
        self.warnings.append(
            f"{make_printable(path)} was changed by {author} {int(age_s)} s ago (change {row.seq})"
        )


def taken_notices(deferred: DeferredWork) -> list[str]:
    """From a shared book, by a plan that was given up or refused since."""
    notices: list[str] | None = deferred.find(("reservations", "notices"))
    return notices or []


def open_reservations(
    journal: Journal, settings: ReservationSettings, root: str, folder: str, open_state: OpenState | None
) -> Reservations:
    """Of the workspace at a root, whose store is in `folder`."""
    if settings.scope == "workspace" or settings.mode == "off" or open_state is None:
        return Reservations(journal, settings, JournalBook(journal))
    try:
        repository = find_repository(root, os.path.join(folder, "repository.json"))
    except StateError as error:
        return Reservations(journal, settings, StateBook(partial(_fail, error), ""))
    if repository is None:
        return Reservations(journal, settings, JournalBook(journal))
    return Reservations(journal, settings, StateBook(open_state, repository.identity), repository.prefix)


def _fail(error: StateError) -> StateBackend:
    raise error


def _living(holders: list[Held]) -> list[Held]:
    """Without those whose owner's process has ended. That is asked of the system, so only of those in the way."""
    gone = {owner for owner in {held.by.owner for held in holders} if _has_ended(owner)}
    return [held for held in holders if held.by.owner not in gone]


def _has_ended(owner: str) -> bool:
    """False for a process of another machine: its reservations end with their time."""
    process, _, machine = owner.partition("@")
    return machine in ("", _machine_id()) and has_ended(process)


@cache
def _machine_id() -> str:
    """Of this boot: after another one the processes have ended, but that is known on this machine alone."""
    return boot_id()


def has_notices(book: ReservationBook, owner: str) -> bool:
    return any(notice.owner == owner for notice in book.notices)


def reserved(holders: list[Held]) -> ToolError:
    """The refusal of a write to a path that another owner holds."""
    path = holders[0].path
    return refuse(
        "conflict",
        "reserved",
        f"{sentence(holders[0])}.",
        next_step=either(call_tool("reserve", action="list"), call_again()),
        suggested_action="retry_later",
        path=path,
        holders=[describe(held) for held in holders],
    )


def sentence(held: Held) -> str:
    by = held.by
    why = f": {make_printable(by.reason)}" if by.reason else ""
    return f"{make_printable(held.path)} is reserved by {_name(by)} until {format_time(by.until)}{why}"


def resolve_path(roots: Roots, path: str, cwd: str | None = None) -> str | None:
    """A path as rows of the journal name it: a link stands for its target, and the first root itself is empty. None for one
    outside the workspace."""
    whole = os.path.realpath(os.path.join(cwd or roots[0].path, path))
    for number, root in enumerate(roots):
        top = os.path.realpath(root.path)
        if whole == top or whole.startswith(top.rstrip("/") + "/"):
            name = os.path.relpath(whole, top)
            return (f"@{number}/" if number else "") + ("" if name == "." else name)
    return None


def describe(held: Held) -> dict[str, Any]:
    by = held.by
    described: dict[str, Any] = {
        "path": held.path,
        "mode": by.mode,
        "owner": by.owner,
        "client": by.client,
        "since": format_time(by.since),
        "until": format_time(by.until),
        "reason": by.reason,
        "token": by.token,
    }
    if by.machine is not None:
        described["machine"] = by.machine
    if by.agent is not None:
        described["agent"] = by.agent
    if by.turn is not None:
        described["turn"] = by.turn
    return described


def _name(by: Reservation) -> str:
    agent = f" (agent {make_printable(by.agent)})" if by.agent else ""
    machine = f" on {make_printable(by.machine)}" if by.machine else ""
    return make_printable(by.client) + agent + machine


def _now() -> int:
    return int(time.time() * SECOND)
