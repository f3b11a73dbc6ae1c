"""Changes of the registry's file under races and kills: nobody's entry is lost, and no file is ever half written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.registry import registry_storm
from harness.registry.registry_writers import SwapBack, Write
from perdure.platform.fault_points import names
from perdure.registry.errors import ChangedMeanwhile
from perdure.registry.file.atomic_edit import edit_file
from perdure.registry.file.backend import open_json, open_markdown

INSTALL = (
    "import os, sys\n"
    "from perdure.registry.entry import Entry\n"
    "from perdure.registry.backend import open_backend\n"
    "from perdure.registry.templates import Template\n"
    "open_backend(sys.argv[1], os.environ).install(Entry(name='new', command=Template('python')))\n"
)
POINTS = [name for name in names() if name.startswith(("registry.", "write."))]
OLD = {
    "mcp.md": b"# MCP servers\n\n## old\ncommand: node\n",
    "mcp.json": b'{"mcpServers": {"old": {"command": "node"}}}\n',
}


@pytest.mark.thorough
@pytest.mark.parametrize("style", registry_storm.STYLES)
def test_sixteen_processes_and_a_program_without_our_lock_lose_nothing(style: str, tmp_path: Path) -> None:
    assert registry_storm.storm(tmp_path, 16, 3, style) == []


@pytest.mark.thorough
@pytest.mark.parametrize("style", ["none", "naive", "append"])
def test_nor_do_they_where_each_step_takes_long(style: str, tmp_path: Path) -> None:
    assert registry_storm.storm(tmp_path, 4, 2, style, late_s=0.06) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("style", "late_s", "broken"), [("none", 0.0, "races"), ("naive", 0.02, "overwrites")]
)
def test_a_bug_in_it_is_found(style: str, late_s: float, broken: str, tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        if any(
            one.startswith("lost")
            for one in registry_storm.storm(folder, 4, 4, style, late_s=late_s, broken=broken)
        ):
            return
    pytest.fail("it was not found")


def test_a_lost_entry_would_be_noticed(tmp_path: Path) -> None:
    (tmp_path / registry_storm.FILE).write_text(registry_storm.BEGIN + "\n## half\n")
    assert registry_storm._difference(tmp_path, ["gone"]) == ["lost: gone", "not removed: half", "torn: half"]


@pytest.mark.parametrize(
    ("read_at", "read_ended_at", "is_excused"), [(1.0, 1.9, False), (2.5, 2.6, True), (3.1, 3.2, False)]
)
def test_a_dropped_foreign_section_is_excused_if_it_was_read_before_a_swap_back(
    read_at: float, read_ended_at: float, is_excused: bool
) -> None:
    swap_backs = [SwapBack(exchanged_at=2.0, swapped_back_at=3.0)]
    writes = [Write("b", read_at, read_ended_at, wrote_at=4.0, is_stale=True, lost_names=("a",))]
    assert registry_storm.dropped(writes, swap_backs) == ({"a"} if is_excused else set())


def install(path: Path, home: Path, fault: str = "") -> int:
    env = {**os.environ, "PERDURE_HOME": str(home), "PERDURE_FAULT": fault}
    done = subprocess.run(
        [sys.executable, "-c", INSTALL, str(path)], env=env, capture_output=True, timeout=60
    )
    return done.returncode


@pytest.mark.thorough
@pytest.mark.parametrize("name", list(OLD))
@pytest.mark.parametrize("exists", [True, False])
def test_a_kill_at_any_point_of_an_install_leaves_the_old_file_or_the_new(
    name: str, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    killed = 0
    for point in POINTS:
        folder = tmp_path / point
        folder.mkdir()
        path = folder / name
        if exists:
            path.write_bytes(OLD[name])
        code = install(path, tmp_path / "home", f"{point}=kill")
        killed += code == -signal.SIGKILL
        there = path.read_bytes() if path.exists() else b""
        old = ["old"] if exists else []
        opener = open_markdown if name == "mcp.md" else open_json
        backend = opener(str(path), os.environ)
        listed = [ref.name for ref in backend.list_servers()]
        assert listed in (old, ["new", *old]), point
        if listed == old:
            assert there == (OLD[name] if exists else b"")
            assert code != 0
            assert install(path, tmp_path / "home") == 0  # whoever comes next is not held up
        backend.uninstall("other")
        backend.uninstall("new")
        assert [one for one in os.listdir(folder) if one != name] == [], point
    assert killed >= 8


@pytest.mark.thorough
@pytest.mark.parametrize("error", ["enospc", "eio", "erofs"])
def test_a_failing_disk_is_told_and_leaves_the_old_file(error: str, tmp_path: Path) -> None:
    for point in POINTS:
        path = tmp_path / point / "mcp.md"
        path.parent.mkdir()
        path.write_bytes(OLD["mcp.md"])
        code = install(path, tmp_path / "home", f"{point}={error}")
        if code:
            assert path.read_bytes() == OLD["mcp.md"], point
        assert os.listdir(path.parent) == ["mcp.md"], point


@pytest.mark.parametrize("taken", [b"theirs before", None])
def test_what_another_program_wrote_just_before_a_kill_comes_back(
    taken: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the exchange, before anybody looked at what came out: theirs is the newest, so it goes back."""
    path, home = tmp_path / "mcp.md", tmp_path / "home"
    path.write_bytes(OLD["mcp.md"])
    gate = tmp_path / "gate"
    env = {
        **os.environ,
        "PERDURE_HOME": str(home),
        "PERDURE_FAULT": f"write.before_exchange=pause:{gate};write.exchanged=kill",
    }
    process = subprocess.Popen([sys.executable, "-c", INSTALL, str(path)], env=env)
    while not gate.exists():
        pass
    if taken is not None:
        path.write_bytes(OLD["mcp.md"] + b"\n## theirs\ncommand: node\n")
    gate.unlink()
    assert process.wait(60) == -signal.SIGKILL
    monkeypatch.setenv("PERDURE_HOME", str(home))
    backend = open_markdown(str(path), os.environ)
    backend.uninstall("old")
    assert [ref.name for ref in backend.list_servers()] == (["theirs"] if taken is not None else ["new"])
    assert sorted(os.listdir(tmp_path)) == ["home", "mcp.md"]


STALE = "# MCP servers\n\n## old\ncommand: node\n"


def command(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "PERDURE_HOME": str(folder / "home"), "PERDURE_REGISTRY": str(folder / "mcp.md")}
    return subprocess.Popen(
        [sys.executable, "-m", "perdure", "registry", *words], env=env, stdout=subprocess.PIPE
    )


def test_one_of_ours_that_came_later_is_not_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was installed and is removed by another command a moment later stays removed."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    path = tmp_path / "mcp.md"
    path.write_text(STALE)
    installing = command(tmp_path, "install", "new", "--", "python")
    while b"## new" not in path.read_bytes():
        pass
    open_markdown(str(path), os.environ).uninstall("new")
    installing.communicate()
    assert installing.returncode == 0
    assert path.read_text() == STALE


def test_a_program_that_never_stops_changing_the_file_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    path = tmp_path / "mcp.md"
    path.write_text(STALE)
    writes = 0

    def plan(data: bytes | None) -> bytes:
        nonlocal writes
        writes += 1
        path.write_text(f"{STALE}\n## theirs-{writes}\ncommand: node\n")
        return b"ours"

    with pytest.raises(ChangedMeanwhile) as caught:
        edit_file(str(path), plan, wait_s=0.2)
    assert (caught.value.retryable, caught.value.exit_code) == (True, 3)
    assert writes > 1
    assert path.read_text() == f"{STALE}\n## theirs-{writes}\ncommand: node\n"
