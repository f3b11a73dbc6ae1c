"""Tokens of remote servers on disk: durable before they count, and gone after a logout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from perdure.registry import oauth_tokens
from perdure.registry.oauth_tokens import (
    Grant,
    grant_path,
    grant_paths,
    read_grant,
    remove_grant,
    write_grant,
)

URL = "https://host.test/mcp"
GRANT = Grant("login", {"refresh_token": "r3fr3sh"})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    return tmp_path


def test_the_name_of_a_new_token_file_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bool] = []
    sync = oauth_tokens.sync_directory

    def watch(dir_fd: int) -> None:
        synced.append(os.path.exists(grant_path("far", URL)))
        sync(dir_fd)

    monkeypatch.setattr(oauth_tokens, "sync_directory", watch)
    write_grant(grant_path("far", URL), GRANT)
    assert synced == [True]


def test_a_token_file_that_cannot_be_put_in_place_leaves_nothing(home: Path) -> None:
    path = grant_path("far", URL)
    os.makedirs(path)  # a folder in its place
    with pytest.raises(OSError, match=r"far-"):
        write_grant(path, GRANT)
    assert os.listdir(home / "sign-ins") == [os.path.basename(path)]


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_logout_removes_what_a_killed_process_left(home: Path, is_finished: bool) -> None:
    path = grant_path("far", URL)
    write_grant(path, GRANT)
    Path(f"{path}.4711").write_text("tokens")
    if not is_finished:
        os.unlink(path)
    assert grant_paths("far") == [path]
    assert remove_grant(path) is True
    assert os.listdir(home / "sign-ins") == []
    assert (read_grant(path), remove_grant(path), grant_paths("far")) == (None, False, [])
