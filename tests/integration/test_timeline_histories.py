"""Random changes of a tree: the rows of a call, taken back from the newest to the oldest, give the tree as it was.

At each step the folder of what comes back is there already, and a folder that goes is empty.
"""

from __future__ import annotations

import os
import random
import shutil
import stat
from pathlib import Path
from typing import NamedTuple

import pytest

from perdure.storage.journal import Filter, Row
from perdure.worker.compose import Settings, open_write
from perdure.workspace.timeline.event import HookEvent
from perdure.workspace.timeline.recorder import Recorder
from perdure.workspace.verify import verify
from perdure.workspace.workspace import Workspace


class Item(NamedTuple):
    kind: str
    content: bytes
    mode: int | None


Tree = dict[str, Item]


def look(root: Path) -> Tree:
    found: Tree = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            inside = os.path.relpath(path, root)
            if os.path.islink(path):
                found[inside] = Item("link", os.fsencode(os.readlink(path)), None)
            elif os.path.isdir(path):
                found[inside] = Item("directory", b"", mode)
            else:
                found[inside] = Item("file", Path(path).read_bytes(), mode)
    return found


def take_back(workspace: Workspace, row: Row, tree: Tree) -> None:
    def content(sha: bytes, kind: str) -> bytes:
        return b"" if kind == "directory" else workspace.store.load(sha.hex())

    detail = row.detail
    kind = detail.get("kind", "file")
    now = tree.get(row.path)
    if row.new_sha is None:
        assert now is None, row
    else:
        assert now is not None, row
        assert (now.kind, now.content) == (kind, content(row.new_sha, kind)), row
        assert "file_mode" not in detail or now.mode == detail["file_mode"], row
    if row.old_sha is None:
        assert not any(path.startswith(f"{row.path}/") for path in tree), row
        del tree[row.path]
        return
    folder = os.path.dirname(row.path)
    assert not folder or tree[folder].kind == "directory", row
    before = detail.get("kind_before", kind)
    if before != "directory":
        assert not any(path.startswith(f"{row.path}/") for path in tree), row
    mode = detail.get(
        "mode_before", detail.get("file_mode") if row.new_sha is None else now.mode if now else None
    )
    tree[row.path] = Item(before, content(row.old_sha, before), None if before == "link" else mode)


class Mischief:
    """Changes a tree at random, with few names, so that paths change their kind and come back."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self.chance = chance

    def path(self) -> Path:
        names = [self.chance.choice("abc") for _ in range(self.chance.randint(1, 3))]
        return self.root.joinpath(*names)

    def text(self) -> bytes:
        size = self.chance.choice((0, 1, 3, 30))
        return b"".join(self.chance.choice((b"x\n", b"y\n", b"\0", b"line\n")) for _ in range(size))

    def step(self) -> None:
        path = self.path()
        action = self.chance.choice(("write", "write", "mkdir", "remove", "move", "mode", "link"))
        try:
            if action == "write":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.text())
            elif action == "mkdir":
                path.mkdir(parents=True)
            elif action == "link":
                path.symlink_to(self.chance.choice(("a", "b/c", "/etc", "nowhere")))
            elif action == "move":
                os.rename(path, self.path())
            elif action == "mode":
                os.chmod(path, self.chance.choice((0o700, 0o755)), follow_symlinks=path.is_dir())
            elif path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except (OSError, NotImplementedError):
            pass  # that was not possible here


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.thorough) for n in range(4, 60))]
)
def test_rows_taken_back_give_the_tree_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    root = tmp_path / "work"
    root.mkdir()
    mischief = Mischief(root, random.Random(seed))
    for _ in range(15):
        mischief.step()
    workspace = open_write(Settings(workspaces=(str(root),), surfaces=("write",)))
    recorder = Recorder(workspace)
    recorder.observe()
    trees = [look(root)]
    newest = [0]
    for number in range(8):
        facts = {"client": "c", "session": "s", "cwd": str(root), "tool": "Bash", "call_id": str(number)}
        recorder.handle(HookEvent(kind="before_tool", **facts))  # type: ignore[arg-type]
        for _ in range(mischief.chance.choice((1, 3, 12))):
            mischief.step()
        recorder.handle(HookEvent(kind="after_tool", **facts))  # type: ignore[arg-type]
        trees.append(look(root))
        rows = workspace.journal.rows(Filter(), 1)
        newest.append(rows[0].seq if rows else 0)
    assert [problem.detail for problem in verify(workspace)] == []
    tree = dict(trees.pop())
    rows = workspace.journal.rows(Filter(), 10_000)
    while trees:
        after = newest.pop()
        for row in rows:
            if newest[-1] < row.seq <= after:
                take_back(workspace, row, tree)
        assert tree == trees.pop()
    workspace.close()
