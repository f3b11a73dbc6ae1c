"""Which repository a clone is of: the same for all clones, another for forks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from perdure.storage.errors import StateError
from perdure.workspace.reservations import repository
from perdure.workspace.reservations.repository import find_repository, normalize_remote


@pytest.mark.parametrize(
    "url",
    [
        "git@Example.org:team/app.git",
        "example.org:team/app",
        "https://example.org/team/app",
        "https://me:secret@example.org/team/App.git/",
        "ssh://git@example.org:2222/team/app.git",
        "git://example.org/team/app",
    ],
)
def test_all_addresses_of_a_remote_are_one(url: str) -> None:
    assert normalize_remote(url) == "example.org/team/app"


@pytest.mark.parametrize(
    "url", ["https://example.org/other/app", "https://example.com/team/app", "/srv/team/app.git"]
)
def test_another_remote_is_another_one(url: str) -> None:
    assert normalize_remote(url) != "example.org/team/app"


def git(folder: Path, *words: str) -> None:
    own = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", "-C", str(folder), *own, *words], check=True, capture_output=True)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q")
    (origin / "a.py").write_text("1\n")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "first")
    git(origin, "commit", "-qm", "second", "--allow-empty")
    return origin


def test_clones_are_one_repository_and_a_folder_in_one_has_its_prefix(origin: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        git(tmp_path, "clone", "-q", str(origin), name)
    git(tmp_path / "two", "commit", "-qm", "third", "--allow-empty")
    (tmp_path / "two" / "src").mkdir()
    one = find_repository(str(tmp_path / "one"), str(tmp_path / "one.json"))
    two = find_repository(str(tmp_path / "two" / "src"), str(tmp_path / "two.json"))
    assert one is not None
    assert two is not None
    assert one.identity == two.identity
    assert (one.prefix, two.prefix) == ("", "src")


def test_git_is_asked_again_only_after_its_configuration_has_changed(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = str(tmp_path / "kept.json")
    first = find_repository(str(origin), kept)
    asked = repository._git
    monkeypatch.setattr(repository, "_git", lambda *_: pytest.fail("git was asked"))
    assert find_repository(str(origin), kept) == first
    monkeypatch.setattr(repository, "_git", asked)
    git(origin, "remote", "add", "origin", "https://example.org/team/app.git")
    found = find_repository(str(origin), kept)
    assert found is not None
    assert found.identity.endswith(" example.org/team/app")


def test_a_folder_without_commits_has_no_clones(tmp_path: Path) -> None:
    assert find_repository(str(tmp_path), str(tmp_path / "kept")) is None
    git(tmp_path, "init", "-q")
    assert find_repository(str(tmp_path), str(tmp_path / "kept")) is None


def test_the_first_commit_of_a_shallow_clone_is_not_known(origin: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{origin}", "shallow")
    with pytest.raises(StateError) as raised:
        find_repository(str(tmp_path / "shallow"), str(tmp_path / "kept"))
    assert "--unshallow" in raised.value.detail
