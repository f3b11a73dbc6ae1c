"""Random changes of a tree, with few names, so that paths change their kind, go and come back."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Final

_LARGE: Final = 150_000
"""Kept in a file of its own by the store."""
_ACTIONS: Final[tuple[str, ...]] = (
    *(
        "write",
        "write",
        "write",
        "append",
        "again",
        "large",
        "mkdir",
        "remake",
        "remove",
        "move",
        "mode",
        "link",
    ),
)


class Mischief:
    """Every text is new, unless it is to be the same again. Each history has a part of the actions: where all are
    drawn, some effects are hidden by others."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self.chance = chance
        self._texts: list[bytes] = [b""]
        self._actions = _ACTIONS

    def choose_actions(self) -> None:
        self._actions = tuple(self.chance.sample(_ACTIONS, self.chance.randint(3, len(_ACTIONS))))

    def steps(self, most: int) -> list[str]:
        return [line for _ in range(self.chance.randint(1, most)) if (line := self.step())]

    def path(self) -> Path:
        names = [self.chance.choice("abcd") for _ in range(self.chance.randint(1, 3))]
        return self.root.joinpath(*names)

    def text(self) -> bytes:
        lines = [f"{self.chance.getrandbits(40):x}\n" for _ in range(self.chance.choice((1, 3, 20)))]
        self._texts.append("".join(lines).encode())
        return self._texts[-1]

    def step(self) -> str:
        """What was done; empty where it was not possible."""
        path = self.path()
        action = self.chance.choice(self._actions)
        try:
            self._act(action, path)
        except (OSError, NotImplementedError, shutil.Error):
            return ""
        return f"{action} {path.relative_to(self.root)}"

    def _act(self, action: str, path: Path) -> None:
        match action:
            case "write" | "again" | "large":
                path.parent.mkdir(parents=True, exist_ok=True)
                if action == "again":
                    path.write_bytes(self.chance.choice(self._texts))
                else:
                    path.write_bytes(self.text() * (1 if action == "write" else _LARGE // 10))
            case "append":
                with path.open("ab") as file:
                    file.write(self.text())
            case "mkdir":
                path.mkdir(parents=True)
            case "remake":  # as a build does
                shutil.rmtree(path)
                path.mkdir()
            case "link":
                path.symlink_to(self.chance.choice(("a", "b/c", "/etc", "nowhere")))
            case "move":
                os.rename(path, self.path())
            case "mode":
                os.chmod(path, self.chance.choice((0o700, 0o755, 0o600)), follow_symlinks=path.is_dir())
            case _:
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
