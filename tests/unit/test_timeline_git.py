"""What is read of git's own files: HEAD, the index and blobs, compared with what git says."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from perdure.workspace.timeline.git_head import read_head
from perdure.workspace.timeline.git_objects import GitObjects, read_blobs, read_index


def git(root: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "src" / "deep").mkdir(parents=True)
    for number in range(40):
        (root / "src" / f"file-{number}.py").write_text(f"{number}\n")
    (root / "src" / "deep" / "größe\nx").write_text("x")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "link").symlink_to("run")
    git(tmp_path, "init", "-q", "-b", "main", str(root))
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return root


def listed(root: Path) -> dict[str, str]:
    """The regular files of the index, as git lists them."""
    entries = [line.split("\t", 1) for line in git(root, "ls-files", "-s", "-z").split("\0") if line]
    return {path: facts.split(" ")[1] for facts, path in entries if facts.startswith("100")}


def test_without_a_repository_there_is_no_head_and_no_index(tmp_path: Path) -> None:
    assert read_head(str(tmp_path)) is None
    assert read_index(str(tmp_path)) == {}


def test_head_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", ".")
    assert read_head(str(tmp_path)) is None


def test_head_on_a_branch_detached_and_packed(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert read_head(str(repository)) == commit
    git(repository, "checkout", "-q", "--detach")
    assert read_head(str(repository)) == commit
    git(repository, "checkout", "-q", "main")
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git" / "refs" / "heads" / "main").exists()
    assert read_head(str(repository)) == commit


def test_head_and_index_of_a_worktree(repository: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    git(repository, "worktree", "add", "-q", "-b", "feature/x", str(tree))
    (tree / "new").write_text("new")
    git(tree, "add", "new")
    git(tree, "commit", "-qm", "two")
    assert read_head(str(tree)) == git(tree, "rev-parse", "HEAD") != read_head(str(repository))
    assert read_index(str(tree)) == listed(tree)


@pytest.mark.parametrize(
    "text", ["", "ref: refs/heads/../../../secret", "nonsense", "ref: /etc/passwd", "\0"]
)
def test_a_head_that_leads_elsewhere_is_none(repository: Path, text: str) -> None:
    (repository / ".git" / "HEAD").write_text(text)
    assert read_head(str(repository)) is None


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_the_index_is_read_as_git_lists_it(repository: Path, version: str) -> None:
    if version == "3":
        git(repository, "update-index", "--skip-worktree", "run")
    git(repository, "update-index", "--index-version", version if version != "3" else "2")
    found = read_index(str(repository))
    assert found == listed(repository)
    assert len(found) == 42


@pytest.mark.parametrize("size", [0, 11, 12, 60, 100, 500])
def test_a_damaged_index_is_no_index(repository: Path, size: int) -> None:
    index = repository / ".git" / "index"
    index.write_bytes(index.read_bytes()[:size])
    assert len(read_index(str(repository))) <= 6


@pytest.mark.parametrize("is_packed", [False, True])
def test_blobs_are_read_back_and_missing_ones_are_told(repository: Path, is_packed: bool) -> None:
    if is_packed:
        git(repository, "gc", "-q")
    objects = GitObjects(str(repository))
    oid = objects.find_clean("src/file-7.py", b"7\n")
    assert oid is not None
    assert objects.find_clean("src/file-7.py", b"7\r\n") is None
    assert objects.find_clean("other", b"7\n") is None
    absent = "0" * 40
    assert objects.find_missing([oid, absent]) == {absent}
    large = objects.find_clean("run", b"#!/bin/sh\n")
    assert large is not None
    found = list(read_blobs(str(repository), [oid, absent, large]))
    assert found == [(oid, b"7\n"), (large, b"#!/bin/sh\n")]


def test_a_repository_with_longer_hashes(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--object-format=sha256", ".")
    (tmp_path / "f").write_text("x")
    git(tmp_path, "add", "f")
    git(tmp_path, "commit", "-qm", "one")
    assert read_head(str(tmp_path)) == git(tmp_path, "rev-parse", "HEAD")
    assert GitObjects(str(tmp_path)).find_clean("f", b"x") == sha256(b"blob 1\0x").hexdigest()
