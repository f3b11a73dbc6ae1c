"""Contents that only git had, kept in the store as soon as their files change."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from perdure.storage.timeline import TrackedFile
from perdure.workspace.timeline.first_capture import BATCH_BYTES
from perdure.workspace.timeline.git_objects import read_blobs
from perdure.workspace.timeline.scan import Scan
from perdure.workspace.workspace import Workspace

log = logging.getLogger(__name__)


def fetch_from_git(workspace: Workspace, tracked: Mapping[str, TrackedFile], scan: Scan) -> None:
    """Keep the contents of files that git had and that are changed or gone now."""
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
        batch.append(oid)
        size += file.size
        if size > BATCH_BYTES:
            _keep_blobs(workspace, batch, wanted)
            batch, size = [], 0
    if batch:
        _keep_blobs(workspace, batch, wanted)


def _keep_blobs(workspace: Workspace, oids: list[str], wanted: dict[str, TrackedFile]) -> None:
    contents = [
        content
        for oid, data in read_blobs(workspace.roots[0].path, oids)
        if oid in wanted and (content := workspace.store.take(data)).digest == wanted[oid].sha
    ]
    if len(contents) < len(oids):
        log.warning("git no longer has the content of %d changed files", len(oids) - len(contents))

    def keep() -> None:
        for content in contents:
            workspace.store.record(content, by_row=False)

    workspace.committer.transact(keep)
