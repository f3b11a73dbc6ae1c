"""What other programs do to the files: on disk, and in the model."""

from __future__ import annotations

import os

import msgspec

from harness.tree_model.state import MODE, File, Model


class Foreign(msgspec.Struct, frozen=True):
    """One edit. `write` is in place, `replace` by rename, as editors do."""

    what: str
    path: str
    content: bytes = b""
    to: str = ""
    mode: int = 0

    def __repr__(self) -> str:
        more = {"write": self.content, "replace": self.content, "rename": self.to, "chmod": oct(self.mode)}
        return f"<{self.what} {self.path} {more.get(self.what, '')}>"

    def happen(self, workspace: str) -> bool:
        """On disk. False: there was nothing to be done it to."""
        path = os.path.join(workspace, self.path)
        if self.what != "replace" and not os.path.exists(path):
            return False
        match self.what:
            case "write":
                with open(path, "wb") as file:
                    file.write(self.content)
            case "replace":
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(f"{path}~", "wb") as file:
                    file.write(self.content)
                os.chmod(f"{path}~", MODE)
                os.replace(f"{path}~", path)
            case "delete":
                os.unlink(path)
            case "rename":
                to = os.path.join(workspace, self.to)
                os.makedirs(os.path.dirname(to), exist_ok=True)
                os.replace(path, to)
            case "chmod":
                os.chmod(path, self.mode)
        return True

    def apply(self, model: Model) -> None:
        """The same in the model."""
        found = model.files.get(self.path)
        match self.what:
            case "replace":
                model.put(self.path, File(self.content))
            case "write" if found is not None:
                model.put(self.path, File(self.content, found.mode))
            case "delete":
                model.put(self.path, None)
            case "rename" if found is not None:
                model.put(self.path, None)
                model.put(self.to, found)
            case "chmod" if found is not None:
                model.put(self.path, File(found.content, self.mode))
