"""Contents that only git had, fetched as soon as their files change."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial

from perdure.storage.timeline import TrackedFile
from perdure.workspace.contents import Content
from perdure.workspace.timeline.first_capture import BATCH_BYTES
from perdure.workspace.timeline.git_objects import read_blobs
from perdure.workspace.timeline.scan import Scan
from perdure.workspace.workspace import Workspace

log = logging.getLogger(__name__)


def fetch_from_git(workspace: Workspace, tracked: Mapping[str, TrackedFile], scan: Scan) -> list[Content]:
    """The contents of files that git had and that are changed or gone now. Where they are very many, all but the returned
    ones are kept at once; these are to be kept by the transaction that records the changes."""
    paths = [entry.path for entry in (*scan.differing, *scan.outgrown)]
    files = [*map(tracked.__getitem__, paths), *scan.gone]
    wanted = {
        file.git_oid: file
        for file in files
        if file.git_oid is not None and file.sha is not None and not workspace.journal.has_content(file.sha)
    }
    batch: list[str] = []
    size = 0
    for oid, file in wanted.items():
        if size > BATCH_BYTES:
            contents = _read(workspace, batch, wanted)
            workspace.committer.transact(partial(keep, workspace, contents))
            batch, size = [], 0
        batch.append(oid)
        size += file.size
    return _read(workspace, batch, wanted) if batch else []


def keep(workspace: Workspace, contents: Iterable[Content]) -> None:
    """Inside a transaction."""
    for content in contents:
        workspace.store.record(content, by_row=False)


def _read(workspace: Workspace, oids: list[str], wanted: Mapping[str, TrackedFile]) -> list[Content]:
    contents = [
        content
        for oid, data in read_blobs(workspace.roots[0].path, oids)
        if oid in wanted and (content := workspace.store.take(data)).digest == wanted[oid].sha
    ]
    if len(contents) < len(oids):
        log.warning("git no longer has the content of %d changed files", len(oids) - len(contents))
    return contents
