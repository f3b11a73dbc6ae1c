"""Seeded bugs of reservations, one for each rule: `python -m harness.reservations --bug NAME` must report violations."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from harness.seeded_bugs import Function, SeededBugs, do_nothing, replace, wrap
from perdure.workspace import planning
from perdure.workspace.reservations import access, hook_answer, rules
from perdure.workspace.reservations.access import Reservations, WriteCheck

BUGS: Final = SeededBugs()


@BUGS.add("not-checked", "refused")
def not_checked() -> None:
    """A write of a tool is not checked."""
    replace(WriteCheck, "check", lambda self, path: ())


@BUGS.add("hook-passes", "refused")
def hook_passes() -> None:
    """A hook refuses nothing."""
    replace(hook_answer, "_refuse", lambda workspace, event: "")


@BUGS.add("shared-is-open", "refused")
def shared_is_open() -> None:
    """A shared reservation keeps nobody from writing."""

    def make(original: Function) -> Function:
        def find_blocking(*args: Any) -> Any:
            return [held for held in original(*args) if held.by.mode == "exclusive"]

        return find_blocking

    wrap(rules, "find_blocking", make)


@BUGS.add("first-path-only", "exclusive")
def first_path_only() -> None:
    """Only the first path of a request is compared with what others hold."""

    def make(original: Function) -> Function:
        return lambda book, request: original(book, request._replace(paths=request.paths[:1]))

    wrap(rules, "find_holders", make)


@BUGS.add("overlap-by-name", "exclusive")
def overlap_by_name() -> None:
    """Two patterns overlap only if they are the same."""
    replace(rules, "overlap", lambda first, second: first == second)


@BUGS.add("half-the-time", "exclusive")
def half_the_time() -> None:
    """A reservation ends after half of its time."""

    def make(original: Function) -> Function:
        return lambda book, request, now, ttl_us: original(book, request, now, ttl_us // 2)

    wrap(rules, "acquire", make)


@BUGS.add("token-reused", "tokens")
def token_reused() -> None:
    """The last token is forgotten once nothing is reserved."""

    def make(original: Function) -> Function:
        def release(book: Any, tokens: Any) -> Any:
            left = original(book, tokens)
            return left if left.reservations else msgspec.structs.replace(left, last_token=0)

        return release

    wrap(rules, "release", make)


@BUGS.add("not-told", "told")
def not_told() -> None:
    """What a shell command changed is not looked at."""
    replace(hook_answer, "_tell_owners", lambda *_: [])


@BUGS.add("shared-change-untold", "told")
def shared_change_untold() -> None:
    """A change in the change set of another call is not told."""

    def make(original: Function) -> Function:
        return lambda journal, call: [one for one in original(journal, call) if one[0].txn == call.txn]

    wrap(hook_answer, "_rows_of_call", make)


@BUGS.add("lost-under-own-write", "told")
def lost_under_own_write() -> None:
    """A shell command's change is lost where one of Perdure's own tools writes the file before the hook comes."""
    replace(planning, "record_overwritten", do_nothing)


@BUGS.add("owner-not-told", "owner told")
def owner_not_told() -> None:
    """The owner gets no notice."""
    replace(Reservations, "add_notices", do_nothing)


@BUGS.add("not-put-back", "put back")
def not_put_back() -> None:
    """A change is said to be put back, and stays."""
    replace(hook_answer, "_put_back", lambda *_: "; it was put back")


@BUGS.add("ended-by-release-of-others", "exclusive")
def released_by_anyone() -> None:
    """Any owner can release a reservation by its token, and each request releases the oldest."""

    def make(original: Function) -> Function:
        def find_holders(book: Any, request: Any) -> Any:
            oldest = min((one.token for one in book.reservations), default=0)
            return [held for held in original(book, request) if held.by.token != oldest]

        return find_holders

    wrap(rules, "find_holders", make)


@BUGS.add("living-taken-for-dead", "refused")
def living_taken_for_dead() -> None:
    """Every owner counts as ended."""
    replace(access, "_has_ended", lambda owner: True)
