"""Reservations of a workspace, kept in its own journal, and the check of each write against them.

The check reads the book in the transaction of the change, so that a reservation which was granted before is always seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from perdure.platform.process_tree import has_ended
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import call_again, call_tool, either
from perdure.storage.journal import Journal
from perdure.storage.reservations import Mode, Notice, Reservation, ReservationBook
from perdure.storage.timeline import ANOTHER_PROGRAM
from perdure.text.printable import make_printable
from perdure.text.times import format_time
from perdure.workspace.paths.roots import Roots
from perdure.workspace.reservations import rules
from perdure.workspace.reservations.patterns import covers
from perdure.workspace.reservations.rules import Held, Request
from perdure.workspace.reservations.settings import ReservationSettings

SECOND: Final = 1_000_000
AUTOMATIC_S: Final = 600
RECENT_S: Final = 300
"""A change of another agent that is younger is told to the next one that writes the file."""
MOST_RECENT: Final = 20
"""Of how many files of one change that is told."""
SESSION_OWNER: Final = "session:"


class Granted(msgspec.Struct, frozen=True):
    reservation: Reservation


class Refused(msgspec.Struct, frozen=True):
    """Other owners hold some of the paths."""

    holders: list[Held]


class Unknown(msgspec.Struct, frozen=True):
    """The token is of no reservation of this owner."""

    status: Literal["lost", "not_found"]


class Reservations:
    """In a workspace's journal. What changes something is called inside the write transaction."""

    def __init__(self, journal: Journal, settings: ReservationSettings) -> None:
        self._journal = journal
        self.settings = settings

    def acquire(
        self, call: Call, paths: tuple[str, ...], mode: Mode, ttl_s: int, reason: str
    ) -> Granted | Refused:
        """All paths or none. With `call.force` the reservations of others that are in the way are released."""
        book, now = self.active_book(), _now()
        agent, turn = self._agent(call)
        request = Request(owner_of(call), call.client, agent, turn, paths, mode, reason)
        in_the_way = rules.find_holders(book, request)
        holders = _living(in_the_way)
        if holders and not call.force:
            return Refused(holders)
        book = rules.release(book, (held.by.token for held in in_the_way))
        book, made = rules.acquire(book, request, now, ttl_s * SECOND)
        self._journal.save_reservation_book(book)
        return Granted(made)

    def renew(self, call: Call, token: int, ttl_s: int) -> Granted | Unknown:
        book = self.active_book()
        match rules.find_token(book, token, owner_of(call)):
            case Reservation():
                book, renewed = rules.renew(book, token, _now() + ttl_s * SECOND)
                self._journal.save_reservation_book(book)
                return Granted(renewed)
            case status:
                return Unknown(status)

    def release(self, call: Call, token: int) -> Granted | Refused | Unknown:
        """Another owner's reservation is released with `call.force` alone."""
        book = self.active_book()
        found = rules.find_token(book, token, owner_of(call))
        if found == "not_found":
            others = [one for one in book.reservations if one.token == token]
            if others and not call.force:
                return Refused([Held(path, one) for one in others for path in one.paths])
            found = others[0] if others else found
        if not isinstance(found, Reservation):
            return Unknown(found)
        self._journal.save_reservation_book(rules.release(book, [token]))
        return Granted(found)

    def release_all(self, owner: str) -> None:
        book = self._journal.reservation_book()
        tokens = [one.token for one in book.reservations if one.owner == owner]
        if tokens:
            self._journal.save_reservation_book(rules.release(book, tokens))

    def find_blocking(self, path: str, owner: str) -> list[Held]:
        """The reservations that keep an owner from writing a path."""
        if self.settings.mode == "off":
            return []
        return _living(rules.find_blocking(self.active_book(), path, owner))

    def add_notices(self, notices: Iterable[Notice]) -> None:
        self._journal.save_reservation_book(rules.add_notices(self._journal.reservation_book(), notices))

    def take_notices(self, owner: str) -> list[str]:
        book = self._journal.reservation_book()
        if not any(notice.owner == owner for notice in book.notices):
            return []
        book, told = rules.take_notices(book, owner)
        self._journal.save_reservation_book(book)
        return told

    def active(self) -> tuple[Reservation, ...]:
        """Without those whose owner's process has ended."""
        book = self.active_book()
        gone = {owner for owner in {one.owner for one in book.reservations} if has_ended(owner)}
        return tuple(one for one in book.reservations if one.owner not in gone)

    def reserve_changed(self, call: Call, paths: Iterable[str]) -> None:
        """In mode `automatic`, in the transaction of a change: its files are held for a while."""
        if self.settings.mode != "automatic":
            return
        book, owner = self.active_book(), owner_of(call)
        own = [pattern for one in book.reservations if one.owner == owner for pattern in one.paths]
        fresh = tuple(path for path in paths if not any(covers(pattern, path) for pattern in own))
        if fresh:
            self.acquire(call, fresh, "exclusive", AUTOMATIC_S, "written last")

    def active_book(self) -> ReservationBook:
        return rules.prune(self._journal.reservation_book(), _now())

    def _agent(self, call: Call) -> tuple[str | None, int | None]:
        """The agent and turn of the call that a hook of the same client told of, and which still runs."""
        if call.process is not None:
            for known in self._journal.open_calls():
                if known.process == call.process and known.tool.endswith(call.tool):
                    return known.agent, known.turn
        return None, None


class WriteCheck:
    """What other agents have to do with the paths of one change: reserved ones are refused, recent changes are told."""

    def __init__(self, reservations: Reservations, journal: Journal, call: Call) -> None:
        self._reservations = reservations
        self._journal = journal
        self._call = call
        self._book: ReservationBook | None = None
        self._checked: dict[str, tuple[int, ...]] = {}
        self.warnings: list[str] = []

    def check(self, path: str) -> tuple[int, ...]:
        """The tokens that a person overrides here. Raises ToolError for a path that another owner holds."""
        if path not in self._checked:
            self._checked[path] = self._overridden(path)
            if len(self._checked) <= MOST_RECENT:
                self._tell_recent(path)
        return self._checked[path]

    def _overridden(self, path: str) -> tuple[int, ...]:
        if self._reservations.settings.mode == "off":
            return ()
        owner = owner_of(self._call)
        if self._book is None:
            self._book = self._reservations.active_book()
            self.warnings += self._reservations.take_notices(owner)
        if not self._book.reservations:
            return ()
        holders = _living(rules.find_blocking(self._book, path, owner))
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


def _living(holders: list[Held]) -> list[Held]:
    """Without those whose owner's process has ended. That is asked of the system, so only of those in the way."""
    gone = {owner for owner in {held.by.owner for held in holders} if has_ended(owner)}
    return [held for held in holders if held.by.owner not in gone]


def owner_of(call: Call) -> str:
    """The client's process: its hooks, its sessions and its subagents are one owner."""
    return call.process or f"{SESSION_OWNER}{call.session}"


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
    if by.agent is not None:
        described["agent"] = by.agent
    if by.turn is not None:
        described["turn"] = by.turn
    return described


def _name(by: Reservation) -> str:
    agent = f" (agent {make_printable(by.agent)})" if by.agent else ""
    return make_printable(by.client) + agent


def _now() -> int:
    return int(time.time() * SECOND)
