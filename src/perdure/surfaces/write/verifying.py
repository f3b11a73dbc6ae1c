"""Checking a workspace against itself: chain, contents, and the files on disk. Nothing is changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

from perdure.model.envelope import ToolError
from perdure.storage.files.identity import seen
from perdure.storage.journal import Problem
from perdure.surfaces.write.service import WriteService
from perdure.surfaces.write.tree import Tree


def verify(service: WriteService) -> Iterator[Problem]:
    """Every problem, as it is found.

    | kind | |
    |---|---|
    | gap, chain, anchor, truncated | the journal is not what was written |
    | content | a kept content is missing or damaged |
    | drift | a file is not what its last change made it: another program was there |
    """
    yield from service.journal.verify()
    yield from _contents(service)
    yield from _drift(service)


def _contents(service: WriteService) -> Iterator[Problem]:
    for sha, data in service.journal.contents():
        if data is not None:
            if hashlib.sha256(data).digest() != sha:
                yield Problem("content", f"{sha.hex()} is damaged")
            continue
        try:
            service.blobs.open(sha.hex(), verify=True).close()
        except ToolError as error:
            yield Problem("content", f"{sha.hex()}: {error.envelope.context.get('message', 'unreadable')}")


def _drift(service: WriteService) -> Iterator[Problem]:
    tree = Tree(service.workspace, service.store, service.journal, client="", session="")
    for row in service.journal.latest():
        wanted = row.new_sha.hex() if row.new_sha is not None else None
        try:
            with service.workspace.locate(tree.anchored(row.path), force=True) as place:
                found = None
                if place.found is not None:
                    fd = place.open()
                    try:
                        found = seen(fd).sha256
                    finally:
                        os.close(fd)
        except ToolError as error:
            yield Problem(
                "drift", f"{row.path} cannot be read: {error.envelope.context.get('reason')}", row.seq
            )
            continue
        if found != wanted:
            what = "is gone" if found is None else "is there again" if wanted is None else "was changed"
            yield Problem("drift", f"{row.path} {what} since change {row.seq}", row.seq)
