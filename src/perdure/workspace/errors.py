"""What the engine raises where it changes nothing. Facts only: a surface turns them into what its caller reads.

    WorkspaceError
    ├── ChangeNotFound   no change has this id                                identity
    ├── AlreadyUndone    the change is not in force                           identity, path
    └── NothingToUndo    no change that is in force matches the selection     session

Errors of storage pass unchanged (`storage/errors.py`). Refusals of paths, policies and preconditions are `ToolError`s.
"""

from __future__ import annotations


class WorkspaceError(Exception):
    """The text of each is for a log: it names no path and no content."""


class ChangeNotFound(WorkspaceError):
    def __init__(self, identity: str) -> None:
        super().__init__("change_not_found")
        self.identity = identity


class AlreadyUndone(WorkspaceError):
    """`path` is that of the first file of the change."""

    def __init__(self, identity: str, path: str) -> None:
        super().__init__("already_undone")
        self.identity = identity
        self.path = path


class NothingToUndo(WorkspaceError):
    """`session` is the one whose changes were looked for; None for all sessions."""

    def __init__(self, session: str | None = None) -> None:
        super().__init__("nothing_to_undo")
        self.session = session
