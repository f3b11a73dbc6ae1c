"""Patches in the apply_patch format, sent to a worker as `transaction` with `op: patch`: rules of the format, one a case.

Each case has a folder of its own; `{}` in a patch is that folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perdure.testing.raw_client import RawClient

Files = dict[str, str]


class Case(NamedTuple):
    """`refused` is the reason of the refusal; then every file must be as it was."""

    name: str
    before: Files
    patch: str
    after: Files | None = None
    refused: str | None = None


CASES = [
    Case("add", {}, "*** Add File: {}/docs/new.md\n+# New\n+\n+text", {"docs/new.md": "# New\n\ntext\n"}),
    Case(
        "several-files",
        {"old.txt": "gone\n", "kept.txt": "k\n", "b.txt": "1\n2\n"},
        "*** Delete File: {}/old.txt\n*** Add File: {}/c/d.txt\n+d\n*** Update File: {}/b.txt\n@@\n-2\n+two",
        {"kept.txt": "k\n", "b.txt": "1\ntwo\n", "c/d.txt": "d\n"},
    ),
    Case(
        "several-hunks",
        {"f": "a\nb\nc\nd\ne\n"},
        "*** Update File: {}/f\n@@\n a\n-b\n+B\n@@\n-d\n+D",
        {"f": "a\nB\nc\nD\ne\n"},
    ),
    Case(
        "move-and-change",
        {"from/x.py": "x = 1\n", "from/y.py": "y\n"},
        "*** Update File: {}/from/x.py\n*** Move to: {}/to/deep/x.py\n@@\n-x = 1\n+x = 2",
        {"to/deep/x.py": "x = 2\n", "from/y.py": "y\n"},
    ),
    Case("delete-only", {"f": "1\n2\n3\n"}, "*** Update File: {}/f\n@@\n 1\n-2\n 3", {"f": "1\n3\n"}),
    Case("add-at-end", {"f": "1\n2\n"}, "*** Update File: {}/f\n@@\n+3\n+4", {"f": "1\n2\n3\n4\n"}),
    Case("ends-last-line", {"f": "bare"}, "*** Update File: {}/f\n@@\n-bare\n+one\n+two", {"f": "one\ntwo\n"}),
    Case("bare-stays", {"f": "a\nbare"}, "*** Update File: {}/f\n@@\n-a\n+b", {"f": "b\nbare"}),
    Case(
        "end-of-file",
        {"f": "x\nend\ny\nend\n"},
        "*** Update File: {}/f\n@@\n-end\n+END\n*** End of File",
        {"f": "x\nend\ny\nEND\n"},
    ),
    Case("padded-header", {"f": "o\n"}, "   *** Update File: {}/f  \n@@\n-o\n+n", {"f": "n\n"}),
    Case("no-first-marker", {"f": "a\nb\n"}, "*** Update File: {}/f\n a\n-b\n+c", {"f": "a\nc\n"}),
    Case("unicode", {"f": "über\nœuf ☕\n"}, "*** Update File: {}/f\n@@\n-œuf ☕\n+œuf ✓", {"f": "über\nœuf ✓\n"}),
    Case(
        "crlf",
        {"f": "1\r\n2\r\n3\r\n"},
        "*** Update File: {}/f\n@@\n-1\n+one\n 2\n+between\n 3",
        {"f": "one\r\n2\r\nbetween\r\n3\r\n"},
    ),
    Case(
        "mixed-endings",
        {"f": "1\r\n2\r3\n4\r\n"},
        "*** Update File: {}/f\n@@\n 1\n 2\n-3\n+three\n 4",
        {"f": "1\r\n2\rthree\r\n4\r\n"},
    ),
    Case(
        "trailing-space",
        {"f": "def f():  \n    return 1\t\n"},
        "*** Update File: {}/f\n@@ def f():\n-    return 1\n+    return 2",
        {"f": "def f():  \n    return 2\n"},
    ),
    Case(
        "other-indentation",
        {"f": "class A:\n    def f(self):\n        return 1\n"},
        "*** Update File: {}/f\n@@\n def f(self):\n-    return 1\n+    if x:\n+        return 2",
        {"f": "class A:\n    def f(self):\n        if x:\n            return 2\n"},
    ),
    Case(
        "typographic-punctuation",
        {"f": "“a” – it’s\nb\n"},
        '*** Update File: {}/f\n@@\n "a" - it\'s\n-b\n+c',
        {"f": "“a” – it’s\nc\n"},
    ),
    Case(
        "nested-anchors",
        {"f": "class A:\n  def f():\n    x\nclass B:\n  def f():\n    x\nclass C:\n  def f():\n    x\n"},
        "*** Update File: {}/f\n@@ class B:\n@@   def f():\n-    x\n+    y",
        {"f": "class A:\n  def f():\n    x\nclass B:\n  def f():\n    y\nclass C:\n  def f():\n    x\n"},
    ),
    Case("rename-only", {"a": "1\n"}, "*** Update File: {}/a\n*** Move to: {}/b", {"b": "1\n"}),
    Case("no-file", {"f": "s\n"}, "", refused="bad_patch"),
    Case("no-hunk", {"f": "s\n"}, "*** Update File: {}/f", refused="bad_patch"),
    Case("unknown-header", {"f": "s\n"}, "*** Copy File: {}/f", refused="bad_patch"),
    Case("absent-line", {"f": "a\nb\n"}, "*** Update File: {}/f\n@@\n-c\n+d", refused="hunk_does_not_apply"),
    Case("two-places", {"f": "a\na\n"}, "*** Update File: {}/f\n@@\n-a\n+b", refused="ambiguous_hunk"),
    Case("absent-file", {"f": "s\n"}, "*** Update File: {}/g\n@@\n-a\n+b", refused="file_not_found"),
    Case("delete-absent", {"f": "s\n"}, "*** Delete File: {}/g", refused="file_not_found"),
    Case("delete-folder", {"d/f": "s\n"}, "*** Delete File: {}/d", refused="is_directory"),
    # Nothing that exists is replaced, and nothing is done by halves.
    Case(
        "move-onto-a-file",
        {"a": "1\n", "b": "2\n"},
        "*** Update File: {}/a\n*** Move to: {}/b\n@@\n-1\n+3",
        refused="target_exists",
    ),
    Case("add-onto-a-file", {"f": "1\n"}, "*** Add File: {}/f\n+2", refused="file_already_exists"),
    Case(
        "second-half-fails",
        {"f": "1\n"},
        "*** Add File: {}/new\n+n\n*** Update File: {}/gone\n@@\n-a\n+b",
        refused="file_not_found",
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RawClient, Path]]:
    folder = tmp_path_factory.mktemp("apply_patch")
    workspace = folder / "workspace"
    workspace.mkdir()
    command = [sys.executable, "-P", "-m", "perdure", "worker", "--workspace", str(workspace)]
    environ = {**os.environ, "PERDURE_HOME": str(folder / "home")}
    with RawClient(command, env=environ, cwd=workspace) as client:
        client.initialize()
        yield client, workspace


def send(client: RawClient, patch: str) -> dict[str, Any]:
    operation = {"op": "patch", "path": "unnamed", "patch": patch}
    answer = client.call("transaction", {"ops": [operation], "render": "json", "detail": "full"}, timeout=60)
    found: dict[str, Any] = answer["result"]["structuredContent"]
    return found


def tree(folder: Path) -> Files:
    return {
        str(path.relative_to(folder)): path.read_bytes().decode()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_patch_of_the_format_does_what_the_format_says(worker: tuple[RawClient, Path], case: Case) -> None:
    client, workspace = worker
    folder = workspace / case.name
    folder.mkdir()
    for name, content in case.before.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode())
    body = case.patch.replace("{}", case.name)
    done = send(client, "\n".join(["*** Begin Patch", *([body] if body else []), "*** End Patch", ""]))
    if case.refused is None:
        assert done["ok"], done
        assert tree(folder) == case.after
    else:
        assert (done["ok"], done["context"]["reason"]) == (False, case.refused)
        assert done["context"]["message"]
        assert tree(folder) == case.before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        (" ", " \n\n"),
        ("<<'EOF'\n", "EOF\n"),
        ('apply_patch <<"PATCH"\n', "PATCH\n"),
        ("```diff\n", "```\n"),
    ],
    ids=["bare", "padded", "here-document", "command", "fence"],
)
def test_what_is_around_a_patch_is_no_part_of_it(
    worker: tuple[RawClient, Path], request: pytest.FixtureRequest, before: str, after: str
) -> None:
    client, workspace = worker
    name = f"wrapped-{request.node.callspec.id}"
    patch = f"*** Begin Patch\n*** Add File: {name}\n+a\n*** End Patch\n"
    assert send(client, before + patch + after)["ok"]
    assert (workspace / name).read_text() == "a\n"


def test_a_patch_found_by_a_looser_comparison_says_so(worker: tuple[RawClient, Path]) -> None:
    client, workspace = worker
    for name, content, match in (("strict", "a\n", "exact"), ("loose", "a  \n", "tolerant")):
        (workspace / name).write_text(content)
        patch = f"*** Begin Patch\n*** Update File: {name}\n@@\n-a\n+b\n*** End Patch"
        assert [file["match"] for file in send(client, patch)["files"]] == [match]
