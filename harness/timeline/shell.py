"""Each operation of the corpus as a client's shell tool runs it: hook, command, hook; then undone, and compared."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from harness.processes import wait_for
from harness.timeline.corpus import Operation, environ, make_workspace

COMMAND: Final = (sys.executable, "-m", "perdure")
SESSION: Final = "corpus-session"
LATER: Final = "later by another program\n"
_BACKGROUND_S: Final = 20.0

Tree = dict[str, tuple[str, int, bytes]]
"""Path below the root -> kind, mode, and content or target."""


class Violation(Exception):
    """The record or the undo of an operation is not what it must be."""


def missing_programs(operation: Operation) -> list[str]:
    return [program for program in operation.needs if shutil.which(program) is None]


def check(operation: Operation, folder: Path, *, with_later_edit: bool) -> None:
    """Raises Violation. `folder` is empty, on the file system to test."""
    client = Client(folder)
    make_workspace(client.root)
    client.hook("UserPromptSubmit", prompt="do it")
    before = read_tree(client.root)
    client.hook("PreToolUse", **_tool(operation))
    done = subprocess.run(
        ["sh", "-c", operation.command], cwd=client.root, env=environ(), stderr=subprocess.PIPE, check=False
    )
    client.hook("PostToolUse" if done.returncode == 0 else "PostToolUseFailure", **_tool(operation))
    after = read_tree(client.root)
    if operation.is_background:
        (folder / "go").touch()
        _expect(
            wait_for((folder / "gone").exists, _BACKGROUND_S), "the process in the background has not written"
        )
        client.hook("UserPromptSubmit", prompt="go on")
    listed = client.json("timeline")
    changes = [change for change in listed["changes"] if change["client"] == "claude-code"]
    _check_not_covered(operation, listed["not_covered"])
    if operation.changes_nothing:
        _expect(changes == [], f"recorded {changes}")
        return
    _check_record(operation, changes)
    later = _edit_later(client.root, before, after) if with_later_edit else {}
    identities = [change["id"] for change in changes]
    for identity in reversed(identities):
        undone = client.json("undo", str(identity))
        if undone["conflicts"] and with_later_edit:
            _expect(read_tree(client.root) == _with(after, later), "a conflict changed something")
            return
        reasons = {conflict["reason"] for conflict in undone["conflicts"]}
        _expect(reasons <= {operation.conflict}, f"conflicts: {undone['conflicts']}")
        if reasons:
            _expect(read_tree(client.root) == _with(after, later), "a conflict changed something")
            return
    _compare(_with(before, later), read_tree(client.root), operation)
    statuses = {change["id"]: change["status"] for change in client.json("timeline")["changes"]}
    _expect(all(statuses[one] == "undone" for one in identities), f"statuses after the undo: {statuses}")


class Client:
    """A coding client that runs hooks and commands in one workspace."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self._environ = {
            **{
                key: value for key, value in os.environ.items() if not key.startswith(("PERDURE_", "CLAUDE_"))
            },
            "PERDURE_HOME": str(folder / "home"),
            "CLAUDE_PROJECT_DIR": str(self.root),
        }

    def hook(self, event: str, **more: Any) -> None:
        told = {"hook_event_name": event, "session_id": SESSION, "cwd": str(self.root), **more}
        done = subprocess.run(
            [*COMMAND, "hook", "journal", "--client", "claude-code"],
            input=json.dumps(told).encode(),
            cwd=self.root,
            env=self._environ,
            capture_output=True,
            check=False,
        )
        _expect(done.returncode == 0, f"the hook of {event} failed: {done.stderr.decode()}")
        _expect(not done.stderr, f"the hook of {event} said: {done.stderr.decode()}")

    def json(self, *words: str) -> Any:
        done = subprocess.run(
            [*COMMAND, *words, "--json"], cwd=self.root, env=self._environ, capture_output=True, check=False
        )
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise Violation(
                f"perdure {' '.join(words)}: {done.stderr.decode() or done.stdout.decode()}"
            ) from None


def read_tree(root: Path) -> Tree:
    """All but `.git` and special files."""
    tree: Tree = {}
    for folder, folders, files in os.walk(root):
        if folder == str(root):
            folders[:] = [name for name in folders if name != ".git"]
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            found = os.lstat(path)
            mode = stat.S_IMODE(found.st_mode)
            key = os.path.relpath(path, root)
            if stat.S_ISLNK(found.st_mode):
                tree[key] = ("link", 0, os.fsencode(os.readlink(path)))
            elif stat.S_ISDIR(found.st_mode):
                tree[key] = ("directory", mode, b"")
            elif stat.S_ISREG(found.st_mode):
                tree[key] = ("file", mode, Path(path).read_bytes())
    return tree


def _tool(operation: Operation) -> dict[str, Any]:
    return {
        "tool_name": "Bash",
        "tool_use_id": f"toolu_{abs(hash(operation.name)) % 10**12}",
        "tool_input": {"command": operation.command},
        "tool_response": {"stdout": "", "stderr": ""},
    }


def _check_record(operation: Operation, changes: list[Any]) -> None:
    done = [change for change in changes if change["status"] == "done"]
    _expect(len(done) == 1, f"recorded as {len(done)} changes: {changes}")
    [change] = done
    _expect(change["tool"] == "Bash", f"the tool is {change['tool']}")
    _expect(change["turn"] == 1, f"the turn is {change['turn']}")
    _expect(change["call_id"] == _tool(operation)["tool_use_id"], f"the call is {change['call_id']}")
    _expect(change["session"] == SESSION, f"the session is {change['session']}")
    first = operation.command.split("\n")[0][:40]
    _expect(first in (change["command"] or ""), f"the command is {change['command']!r}")
    _expect(bool(change["paths"]), "no path is named")
    missing = [path for path in operation.lost if path not in change.get("not_covered", [])]
    _expect(not missing, f"not named as lost: {missing}")
    if operation.is_background:
        _expect(any(one["status"] == "late" for one in changes), f"nothing is late: {changes}")


def _check_not_covered(operation: Operation, listed: list[Any]) -> None:
    named = {place["path"] for place in listed}
    missing = [path for path in operation.not_covered if path not in named]
    _expect(not missing, f"not named as not covered: {missing}, only {sorted(named)}")


def _edit_later(root: Path, before: Tree, after: Tree) -> Tree:
    """Another program creates a file, and appends to one that the operation left alone."""
    edited: Tree = {}
    (root / "later-new.txt").write_text(LATER)
    edited["later-new.txt"] = read_tree(root)["later-new.txt"]
    for path in ("notes/other.txt", "docs/guide.md"):
        if path in after and after[path] == before.get(path):
            with (root / path).open("a") as file:
                file.write(LATER)
            kind, mode, content = before[path]
            edited[path] = (kind, mode, content + LATER.encode())
    return edited


def _with(tree: Tree, edited: Tree) -> Tree:
    return {**tree, **edited}


def _compare(expected: Tree, found: Tree, operation: Operation) -> None:
    differences = []
    for path in sorted({*expected, *found}):
        shown = path.encode("utf-8", "backslashreplace").decode()
        if any(shown == place or shown.startswith(f"{place}/") for place in operation.not_covered):
            continue
        if expected.get(path) != found.get(path):
            differences.append(
                f"{path!r}: {_describe(expected.get(path))} expected, {_describe(found.get(path))} found"
            )
    _expect(not differences, "; ".join(differences[:10]))


def _describe(entry: tuple[str, int, bytes] | None) -> str:
    if entry is None:
        return "nothing"
    kind, mode, content = entry
    return f"{kind} {mode:o} of {len(content)} bytes"


def _expect(holds: bool, problem: str) -> None:
    if not holds:
        raise Violation(problem)
