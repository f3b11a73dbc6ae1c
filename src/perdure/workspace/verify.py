"""Checking a workspace against itself: chain, contents, and the files on disk. Nothing is changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator

from perdure.protocol.envelope import ToolError
from perdure.storage.files.fingerprint import seen
from perdure.storage.journal import Filter, Problem
from perdure.storage.os_errors import os_refusal
from perdure.workspace.paths.roots import Roots, rooted
from perdure.workspace.timeline.scan import examine, kind_of, open_file, read_link
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
        except ToolError as error:
            yield Problem("content", f"{sha.hex()}: {error.envelope.context.get('message', 'unreadable')}")


def _drift(workspace: Workspace, watch: Watch) -> Iterator[Problem]:
    roots = workspace.roots
    for number, row in enumerate(workspace.journal.latest(), 1):
        watch("files", number, 0)
        wanted = (row.detail.get("kind", "file"), row.new_sha.hex()) if row.new_sha is not None else None
        try:
            found = _on_disk(roots, row.path)
        except (ToolError, OSError) as error:
            refusal = os_refusal(error) if isinstance(error, OSError) else error
            reason = refusal.envelope.context.get("reason")
            yield Problem("drift", f"{row.path} cannot be read: {reason}", row.seq)
            continue
        if found != wanted:
            what = "is gone" if found is None else "is there again" if wanted is None else "was changed"
            yield Problem("drift", f"{row.path} {what} since change {row.seq}", row.seq)


def _on_disk(roots: Roots, path: str) -> tuple[str, str] | None:
    """Kind and hash of what is at a path as rows name it; None for nothing. A directory has the hash of no content."""
    if rooted(path)[0] >= len(roots):
        return None  # a root that is not open now
    info = examine(roots, path)
    kind = kind_of(info) if info is not None else None
    if info is None:
        return None
    match kind:
        case "directory":
            return "directory", hashlib.sha256(b"").hexdigest()
        case "link":
            return "link", hashlib.sha256(read_link(roots, path)).hexdigest()
        case None:
            return "special", ""
    number, inside = rooted(path)
    fd = open_file(roots[number], inside)
    try:
        return "file", seen(fd).sha256
    finally:
        os.close(fd)
