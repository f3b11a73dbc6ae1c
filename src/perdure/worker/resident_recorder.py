"""The recorder of a worker: it takes the hooks of its workspace, and keeps the files watched between them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from perdure.hooks import mount
from perdure.hooks.clients import read_event, reply, sender
from perdure.hooks.last_run import note_run
from perdure.surfaces.write.surface import WriteSurface
from perdure.worker.hook_listener import Elsewhere, HookRequest
from perdure.workspace.reservations.hook_answer import handle_event
from perdure.workspace.timeline.recorder import Recorder

if TYPE_CHECKING:
    from perdure.workspace.timeline.event import HookEvent
    from perdure.workspace.timeline.watcher import FileWatcher
    from perdure.workspace.workspace import Workspace


class ResidentRecorder:
    """`root` is the first workspace of the surface. Used by the thread that takes the hooks."""

    def __init__(self, surface: WriteSurface, root: str) -> None:
        self._surface = surface
        self._root = os.path.realpath(root)
        self._workspace: Workspace | None = None
        self._recorder: Recorder | None = None

    def handle(self, request: HookRequest) -> str:
        payload = msgspec.json.decode(request.json)
        if not isinstance(payload, dict):
            raise ValueError("standard input is not the JSON object of a hook")
        if request.client == mount.CLIENT:
            event = mount.read_call(payload)
        else:
            event = read_event(payload, request.client, request.environ)
        if event is None or not event.may_change_files:
            return ""
        if not self._is_meant(request, event):
            raise Elsewhere
        if event.host is None:
            note_run(request.client or sender(payload))
            event = msgspec.structs.replace(event, process=request.process)
        with self._surface.use() as workspace:
            answer = handle_event(workspace, self._recorder_of(workspace), event)
        return reply(payload, request.client, answer) if event.host is None else ""

    def maintain(self) -> None:
        if self._recorder is None:
            return
        with self._surface.use() as workspace:
            self._recorder_of(workspace).maintain()

    def _is_meant(self, request: HookRequest, event: HookEvent) -> bool:
        project = request.project or event.project
        if project is not None:
            return os.path.realpath(project) == self._root
        cwd = os.path.realpath(event.cwd)
        return cwd == self._root or cwd.startswith(self._root.rstrip(os.sep) + os.sep)

    def _recorder_of(self, workspace: Workspace) -> Recorder:
        """The workspace is another one after its store was replaced."""
        if self._recorder is None or workspace is not self._workspace:
            if self._recorder is not None:
                self._recorder.close()
            self._workspace = workspace
            self._recorder = Recorder(workspace, watch=lambda folders: self._watch(workspace, folders))
        return self._recorder

    def _watch(self, workspace: Workspace, folders: Iterable[str]) -> FileWatcher:
        from perdure.workspace.timeline.watcher import FileWatcher

        cookies = os.path.join(workspace.folder, "watch")
        shutil.rmtree(cookies, ignore_errors=True)
        os.mkdir(cookies, mode=0o700)
        return FileWatcher(self._root, folders, cookies)
