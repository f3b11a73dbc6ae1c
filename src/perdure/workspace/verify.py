"""Checking a workspace against itself: chain, contents, and the files on disk. Nothing is changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from perdure.present.tool_errors import tool_error
from perdure.protocol.envelope import ToolError
from perdure.storage import cipher
from perdure.storage.errors import CipherError, StorageError
from perdure.storage.journal import Filter, Problem
from perdure.workspace.entries import look, state_after
from perdure.workspace.workspace import Workspace

Watch = Callable[[str, int, int], None]
"""Told how far it is: what is looked at, how many of it were, and how many there are; 0 where that is not known."""


def verify(workspace: Workspace, watch: Watch = lambda *_: None) -> Iterator[Problem]:
    """Every problem, as it is found.

    | kind | |
    |---|---|
    | gap, chain, anchor, truncated | the journal is not what was written |
    | content | a kept content is missing or damaged |
    | drift | a file is not what its last change made it: another program was there |
    """
    newest = workspace.journal.rows(Filter(), 1)
    rows = newest[0].seq if newest else 0
    yield from workspace.journal.verify(lambda seq: watch("journal", seq, rows))
    yield from _contents(workspace, watch)
    yield from _sealed_contents(workspace)
    yield from _drift(workspace, watch)


def _contents(workspace: Workspace, watch: Watch) -> Iterator[Problem]:
    for number, (sha, data) in enumerate(workspace.journal.contents(), 1):
        watch("contents", number, 0)
        if data is not None:
            if hashlib.sha256(data).digest() != sha:
                yield Problem("content", f"{sha.hex()} is damaged")
            continue
        try:
            workspace.blobs.open(sha.hex(), verify=True).close()
        except StorageError as error:
            yield Problem("content", f"{sha.hex()}: {tool_error(error).envelope.context['message']}")


def _sealed_contents(workspace: Workspace) -> Iterator[Problem]:
    for sha, sealed in workspace.journal.sealed_contents():
        try:
            data = cipher.unseal(sealed, sha.hex())
        except CipherError as error:
            if error.reason != "wrong_key":
                return  # without a key nothing can be told
            yield Problem("content", f"{sha.hex()}: {tool_error(error).envelope.context['message']}")
            continue
        if hashlib.sha256(data).digest() != sha:
            yield Problem("content", f"{sha.hex()} is damaged")


def _drift(workspace: Workspace, watch: Watch) -> Iterator[Problem]:
    roots = workspace.roots
    for number, row in enumerate(workspace.journal.latest(), 1):
        watch("files", number, 0)
        wanted = state_after(row)
        try:
            with roots.locate_entry(row.path) as place:
                found = look(place).state
        except (ToolError, StorageError, OSError) as error:
            reason = tool_error(error).envelope.context.get("reason")
            yield Problem("drift", f"{row.path} cannot be read: {reason}", row.seq)
            continue
        if found != wanted:
            what = "is gone" if found is None else "is there again" if wanted is None else "was changed"
            yield Problem("drift", f"{row.path} {what} since change {row.seq}", row.seq)
