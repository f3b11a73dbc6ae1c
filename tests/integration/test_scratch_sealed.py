"""Scratch contents sealed on disk, under a key from the environment or from the system's keyring."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backend import KeyringBackend
from write_tools import Tools

from harness.store_location import store_of

EVIDENCE = "raw evidence: a very particular sentence " * 10
LARGE = "another particular sentence, many times over. " * 10_000


class Drawer(KeyringBackend):
    """A keyring that lasts as long as the test."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PERDURE_SCRATCH_KEY", "correct horse battery staple")
    (tmp_path / "ws").mkdir()
    (tmp_path / "rules.yaml").write_text("scratch: {encrypt: true}\n")
    before = keyring.get_keyring()
    yield tmp_path
    keyring.set_keyring(before)


def opened(place: Path, *, sealed: bool = True) -> Tools:
    return Tools(place / "ws", policy=place / "rules.yaml" if sealed else None)


def on_disk(place: Path) -> bytes:
    return b"".join(
        p.read_bytes() for p in sorted(store_of(place / "ws", place / "home").rglob("*")) if p.is_file()
    )


def put(tools: Tools, content: str, **more: Any) -> dict[str, Any]:
    is_done, found = tools.use("scratch_put", {"content": content, **more})
    assert is_done, found
    return found


def got(tools: Tools, **named: str) -> str:
    is_done, found = tools.use("scratch_get", named)
    assert is_done, found
    content: str = found["content"]
    return content


def test_what_is_kept_is_not_on_the_disk_in_the_clear(place: Path) -> None:
    tools = opened(place)
    for content in (EVIDENCE, LARGE):
        found = put(tools, content, label=f"of {len(content)}")
        assert (found["sha256"], found["bytes"], found["sealed"]) == (
            hashlib.sha256(content.encode()).hexdigest(),
            len(content),
            True,
        )
        assert got(tools, sha256=found["sha256"]) == content
    tools.close()
    assert b"particular sentence" not in on_disk(place)
    again = opened(place)
    assert got(again, label=f"of {len(LARGE)}") == LARGE
    again.close()


@pytest.mark.parametrize("sealed", [True, False])
def test_only_the_policy_keeps_the_bytes_off_the_disk(place: Path, sealed: bool) -> None:
    tools = opened(place, sealed=sealed)
    noise = random.Random(1).randbytes(300)  # what cannot be compressed stands on the disk as it is
    put(tools, base64.b64encode(noise).decode(), encoding="base64")
    tools.close()
    assert (noise in on_disk(place)) is not sealed


def test_putting_it_again_seals_what_was_not(place: Path) -> None:
    tools = opened(place, sealed=False)
    sha256 = put(tools, EVIDENCE, label="a")["sha256"]
    tools.close()
    tools = opened(place)
    assert got(tools, label="a") == EVIDENCE
    assert put(tools, EVIDENCE, label="b")["deduped"] is True
    assert [got(tools, label=name) for name in "ab"] == [EVIDENCE] * 2
    is_done, found = tools.use("scratch_ref", {"sha256": sha256})
    assert (is_done, found["alias_count"], found["bin_exists"]) == (True, 2, True)
    assert tools.use("scratch_drop", {"label": "a"})[1]["dropped"] is True
    assert tools.use("scratch_get", {"label": "b"})[1]["error"] == "not_found"
    tools.close()


def test_another_key_opens_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = opened(place)
    sha256 = put(tools, EVIDENCE)["sha256"]
    monkeypatch.setenv("PERDURE_SCRATCH_KEY", "another")
    is_done, found = tools.use("scratch_get", {"sha256": sha256})
    assert (is_done, found["error"], found["context"]["reason"]) == (False, "policy_violation", "wrong_key")
    tools.close()


def test_a_key_is_made_once_and_kept_in_the_keyring(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_SCRATCH_KEY")
    drawer = Drawer()
    keyring.set_keyring(drawer)
    tools = opened(place)
    sha256 = put(tools, EVIDENCE)["sha256"]
    put(tools, LARGE)
    assert list(drawer.kept) == [("perdure", "scratch")]
    assert got(tools, sha256=sha256) == EVIDENCE
    tools.close()
    assert drawer.kept["perdure", "scratch"].encode() not in on_disk(place)


def test_without_a_key_nothing_is_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_SCRATCH_KEY")
    from keyring.backends.fail import Keyring

    keyring.set_keyring(Keyring())
    tools = opened(place)
    is_done, found = tools.use("scratch_put", {"content": EVIDENCE})
    assert (is_done, found["error"], found["context"]["reason"]) == (False, "policy_violation", "no_key")
    tools.close()
    assert b"particular sentence" not in on_disk(place)
