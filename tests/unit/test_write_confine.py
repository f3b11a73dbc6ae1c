"""Every way out of a workspace that we know, tried; and the ways that must stay open."""

from __future__ import annotations

import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.platform.files import can_open_beneath
from perdure.protocol.envelope import ToolError
from perdure.storage.files.pending import PendingFile
from perdure.workspace.paths.protected import Protection
from perdure.workspace.paths.roots import Roots

OUT = "escapes_workspace"
DIR = "is_directory"

LEXICAL = [
    ("../f", OUT),
    ("../../etc/passwd", OUT),
    ("./../f", OUT),
    ("sub/../../outside/f", OUT),
    ("sub/../sub/../../outside/f", OUT),
    ("sub/inner/../../../outside/new", OUT),
    ("missing/../../f", "file_not_found"),
    ("/etc/passwd", OUT),
    ("//etc/passwd", OUT),
    ("/dev/null", OUT),
    ("/dev/fd/1", OUT),
    ("/proc/self/fd/1", OUT),
    ("/proc/self/cwd/f", OUT),
    ("/proc/self/root/etc/passwd", OUT),
    ("{outside}/f", OUT),
    ("{outside}/../outside/f", OUT),
    ("{ws}/../outside/f", OUT),
    ("{ws}-evil/f", OUT),
    ("{ws}/sub/../../ws-evil/f", OUT),
    ("/", DIR),
    ("{ws}", DIR),
    ("{ws}/", "trailing_slash"),
    ("", "empty_path"),
    (".", DIR),
    ("..", DIR),
    ("./", "trailing_slash"),
    ("sub", DIR),
    ("sub/", "trailing_slash"),
    ("sub/.", DIR),
    ("sub/..", DIR),
    ("keep.txt/", "trailing_slash"),
    ("keep.txt/x", "not_a_directory"),
    ("~/.ssh/authorized_keys", "home_path"),
]
LINKS = [
    ("out_file", OUT),
    ("out_file_relative", OUT),
    ("out_dir/new", OUT),
    ("out_dir/deep/er/new", OUT),
    ("out_dir_relative/f", OUT),
    ("up/outside/f", OUT),
    ("up/new", OUT),
    ("chain/f", OUT),
    ("sub/deep_link/f", OUT),
    ("to_deep_link/f", OUT),
    ("dangling_out", OUT),
    ("dotted/f", OUT),
    ("absolute_and_up/f", OUT),
    ("sibling/f", OUT),
    ("slash/etc/passwd", OUT),
    ("etc/passwd", OUT),
    ("loop", "symlink_loop"),
    ("loop/x", "symlink_loop"),
    ("loop_a", "symlink_loop"),
    ("far_0", "symlink_loop"),
    ("to_root", DIR),
    ("to_sub", DIR),
    ("to_keep/x", "not_a_directory"),
]
MAGIC = [
    ("magic_root/etc/passwd", OUT),
    ("magic_cwd/f", OUT),
    ("magic_fd", OUT),
    ("magic_stdin", OUT),
    ("magic_exe", OUT),
    ("magic_init/etc/passwd", OUT),
    ("magic_dev_fd/1", OUT),
]
SPECIAL = [
    ("fifo", "special_file"),
    ("to_fifo", "special_file"),
    ("fifo/x", "not_a_directory"),
    ("socket", "special_file"),
    ("to_socket", "special_file"),
    ("null", "special_file"),
    ("disk", "special_file"),
]
HARD = [("hard", "hard_linked"), ("hard_outside", "hard_linked"), ("to_hard", "hard_linked")]
NAMES = [
    ("a\0b", "nul_in_name"),
    ("keep.txt\0.png", "nul_in_name"),
    ("a\nb", "control_in_name"),
    ("a\rb", "control_in_name"),
    ("a\tb/c", "control_in_name"),
    ("a\x1b[2Jb", "control_in_name"),
    ("a\x7fb", "control_in_name"),
    ("a\x85b", "control_in_name"),
    ("a\u2028b", "control_in_name"),
    ("txt.\u202eexe", "bidi_in_name"),
    ("a\u2066b", "bidi_in_name"),
    ("a\u200eb", "bidi_in_name"),
    ("a\u061cb", "bidi_in_name"),
    ("a\u200bb", "invisible_in_name"),
    ("a\u200db", "invisible_in_name"),
    ("\ufeffa", "invisible_in_name"),
    ("a\u00adb", "invisible_in_name"),
    ("a\u2060b", "invisible_in_name"),
    ("a\u3164b", "invisible_in_name"),
    ("a\ufe0fb", "invisible_in_name"),
    ("a\U000e0041b", "invisible_in_name"),
    ("a\ud800b", "not_utf8"),
    ("a\udcffb", "not_utf8"),
    ("n" * 256, "name_too_long"),
    ("€" * 86, "name_too_long"),
    ("d" * 256 + "/x", "name_too_long"),
    ("d/" * 2048 + "x", "path_too_long"),
    (".perdure~w1.2.3.0123456789abcdef", "reserved_name"),
    (".PERDURE~x", "reserved_name"),
    ("sub/.perdure~", "reserved_name"),
]
PROTECTED = [
    (path, "protected_path")
    for path in (
        ".perdure/journal.db",
        ".perdure",
        ".Perdure/x",
        "sub/.perdure/x",
        ".git/config",
        ".git/hooks/pre-commit",
        ".git",
        ".GIT/config",
        "sub/.Git/config",
        "git~1/config",
        ".git./config",
        ".git /config",
        ".git::$INDEX_ALLOCATION/config",
        ".git\\config",
        "．git/config",
        ".ｇｉｔ/config",
        "{ws}/.git/config",
        "sub/../.git/config",
        "to_git/config",
        "to_git_config",
        "git_by_name/x",
        "to_git_by_name/x",
        ".mcp.json",
        ".MCP.JSON",
        "sub/.mcp.json",
        "mcp.md",
        "mcp.json",
        "perdure.toml",
        ".cursor/mcp.json",
        ".vscode/mcp.json",
        ".vscode/tasks.json",
        ".envrc",
        "sub/.envrc",
        "to_envrc",
        ".github/workflows/ci.yml",
        ".GitHub/Workflows/ci.yml",
        "to_workflows/ci.yml",
        ".husky/pre-commit",
        ".githooks/pre-push",
        ".gitlab-ci.yml",
        ".circleci/config.yml",
        ".claude/settings.json",
    )
]
ATTEMPTS = LEXICAL + LINKS + MAGIC + SPECIAL + HARD + NAMES + PROTECTED
WAYS = [
    pytest.param(
        True, id="kernel", marks=pytest.mark.skipif(not can_open_beneath(), reason="no openat2 here")
    ),
    pytest.param(False, id="walk"),
]


def minefield(base: Path) -> Path:
    """A workspace with everything in it that leads somewhere else."""
    base = base.resolve()
    ws, outside, evil = base / "ws", base / "outside", base / "ws-evil"
    for directory in (
        ws / "sub" / "inner",
        outside / "deep",
        evil,
        ws / ".git" / "hooks",
        ws / ".github/workflows",
    ):
        directory.mkdir(parents=True)
    for file in (ws / "keep.txt", ws / ".git" / "config", ws / ".envrc", outside / "f", evil / "f"):
        file.write_text("old")
    links = {
        "out_file": outside / "f",
        "out_file_relative": "../outside/f",
        "out_dir": outside,
        "out_dir_relative": "../outside",
        "up": "..",
        "chain": "chain_2",
        "chain_2": "out_dir",
        "sub/deep_link": "../../outside",
        "to_deep_link": "sub/deep_link",
        "dangling_out": "../outside/new",
        "dotted": "sub/../../outside",
        "absolute_and_up": f"{ws}/../outside",
        "sibling": evil,
        "slash": "/",
        "etc": "/etc",
        "loop": "loop",
        "loop_a": "loop_b",
        "loop_b": "loop_a",
        "to_root": ".",
        "to_sub": "sub/",
        "to_keep": "keep.txt",
        "magic_root": "/proc/self/root",
        "magic_cwd": "/proc/self/cwd",
        "magic_fd": "/proc/self/fd/0",
        "magic_stdin": "/dev/stdin",
        "magic_exe": "/proc/self/exe",
        "magic_init": "/proc/1/root",
        "magic_dev_fd": "/dev/fd",
        "to_fifo": "fifo",
        "to_socket": "socket",
        "to_hard": "hard",
        "to_git": ".git",
        "to_git_config": ".git/config",
        "git_by_name": "sub/.git",
        "sub/.git": "inner",
        "to_git_by_name": "git_by_name",
        "to_envrc": ".envrc",
        "to_workflows": ".github/workflows",
        **{f"far_{n}": f"far_{n + 1}" for n in range(41)},
        "far_41": "keep.txt",
    }
    for name, target in links.items():
        (ws / name).symlink_to(target)
    os.mkfifo(ws / "fifo")
    here = os.getcwd()
    os.chdir(ws)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
    os.chdir(here)
    for name, kind, major, minor in (("null", 0o020666, 1, 3), ("disk", 0o060600, 7, 0)):
        try:
            os.mknod(ws / name, kind, os.makedev(major, minor))
        except PermissionError:
            (ws / name).symlink_to("fifo")
    (ws / "one_name").write_text("old")
    (ws / "hard").hardlink_to(ws / "one_name")
    (ws / "hard_outside").hardlink_to(outside / "f")
    return ws


def tree(base: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for directory, names, files in os.walk(base):
        for name in (*names, *files):
            path = Path(directory, name)
            mode = path.lstat().st_mode
            found[str(path)] = (mode, path.read_bytes() if stat.S_ISREG(mode) else b"")
    return found


def write(workspace: Roots, path: str, content: bytes = b"new", *, force: bool = False) -> str:
    with workspace.locate(path, force=force) as place:
        place.make_parents()
        with PendingFile(place.dir_fd, place.name) as pending:
            pending.write(content)
            pending.replace() if place.found else pending.create()
        return place.path


def reason(error: ToolError) -> str:
    return str(error.envelope.context["reason"])


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return minefield(tmp_path_factory.mktemp("field"))


@pytest.fixture(scope="module")
def untouched(field: Path) -> Iterator[None]:
    before = tree(field.parent)
    yield
    assert tree(field.parent) == before


@pytest.fixture(params=WAYS)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Roots]:
    (tmp_path / "ws").mkdir()
    opened = Roots([tmp_path / "ws"], by_kernel=request.param)
    yield opened
    opened.close()


def test_the_table_has_enough_attempts() -> None:
    assert len(ATTEMPTS) >= 86


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("by_kernel", WAYS)
@pytest.mark.parametrize(("path", "expected"), ATTEMPTS, ids=lambda value: ascii(value)[1:41])
def test_an_attempt_to_escape_is_refused(field: Path, path: str, expected: str, by_kernel: bool) -> None:
    workspace = Roots([field], by_kernel=by_kernel)
    descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    spelt = path.replace("{ws}", str(field)).replace("{outside}", str(field.parent / "outside"))

    with pytest.raises(ToolError) as refused:
        write(workspace, spelt)

    assert reason(refused.value) == expected
    context = refused.value.envelope.context
    if expected == OUT:
        assert f"the workspace ({field})" in context["message"]
    # Beside the workspace and what the caller sent, no path of the machine: not where a link leads.
    told = repr(context).replace(spelt, "").replace(str(field), "")
    assert str(field.parent) not in told
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors, "a descriptor was left open"
    workspace.close()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    ws = tmp_path / "ws"
    for name in ("tmpfs", "bound", "plain"):
        (ws / name).mkdir(parents=True)
    for name in ("bound_file", "plain/f"):
        (ws / name).write_text("old")
    (ws / "to_tmpfs").symlink_to("tmpfs")
    mounts = [
        ["-t", "tmpfs", "-o", "size=64k", "tmpfs", "tmpfs"],
        ["--bind", "plain", "bound"],
        ["--bind", "plain/f", "bound_file"],
    ]
    done: list[str] = []
    try:
        for arguments in mounts:
            if subprocess.run(["mount", *arguments], cwd=ws, capture_output=True).returncode:
                pytest.skip("mounting is not permitted here")
            done.append(arguments[-1])
        yield ws
    finally:
        for name in done:
            subprocess.run(["umount", name], cwd=ws, check=True)


@pytest.mark.parametrize("path", ["tmpfs/new", "tmpfs/deep/new", "to_tmpfs/new", "bound/f", "bound_file"])
def test_another_file_system_within_the_workspace_is_refused(mounted: Path, path: str) -> None:
    workspace = Roots([mounted])
    if path.startswith("bound") and not can_open_beneath():
        pytest.skip("only openat2 tells a bind mount of the same device")

    with pytest.raises(ToolError) as refused:
        write(workspace, path)

    assert reason(refused.value) == "mount_crossing"
    workspace.close()


def test_the_walk_tells_another_file_system_by_its_device(mounted: Path) -> None:
    workspace = Roots([mounted], by_kernel=False)
    for path in ("tmpfs/new", "to_tmpfs/new"):
        with pytest.raises(ToolError) as refused:
            write(workspace, path)
        assert reason(refused.value) == "mount_crossing"
    workspace.close()


def test_paths_of_every_style_lead_to_one_canonical_place(workspace: Roots, tmp_path: Path) -> None:
    (tmp_path / "ws" / "a" / "b").mkdir(parents=True)
    (tmp_path / "ws" / "c").symlink_to("a/b")

    for path in ("a/b/f", "./a//b/./f", "a/b/../b/f", "c/f", f"{tmp_path}/ws/a/b/f", f"{tmp_path}/ws/c/f"):
        with workspace.locate(path) as place:
            assert (place.root, place.path, place.name, place.found) == (0, "a/b/f", "f", None)


def test_a_last_link_is_kept_and_its_target_written(workspace: Roots, tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    (ws / "sub").mkdir()
    (ws / "sub" / "target").write_text("old")
    (ws / "link").symlink_to("sub/target")
    (ws / "absolute").symlink_to(ws / "sub" / "target")
    (ws / "dangling").symlink_to("sub/fresh")

    assert write(workspace, "link", b"one") == "sub/target"
    assert (ws / "sub" / "target").read_text() == "one"
    assert write(workspace, "absolute", b"two") == "sub/target"
    assert (ws / "sub" / "target").read_text() == "two"
    assert write(workspace, "dangling", b"three") == "sub/fresh"
    assert os.readlink(ws / "link") == "sub/target"
    assert (ws / "dangling").is_symlink()
    assert (ws / "sub" / "fresh").read_text() == "three"


def test_a_last_link_is_refused_where_either_could_be_meant(workspace: Roots, tmp_path: Path) -> None:
    (tmp_path / "ws" / "target").write_text("old")
    (tmp_path / "ws" / "link").symlink_to("target")

    with pytest.raises(ToolError) as refused:
        workspace.locate("link", follow=False)

    assert refused.value.envelope.context["kind"] == "symlink"


def test_missing_parents_are_made_and_can_be_taken_back(workspace: Roots, tmp_path: Path) -> None:
    (tmp_path / "ws" / "a").mkdir()
    with workspace.locate("a/b/c/f") as place:
        assert place.missing == ("b", "c")
        assert not (tmp_path / "ws" / "a" / "b").exists()

        made = place.make_parents(sync=True)

        assert made == ("a/b", "a/b/c")
        assert os.path.samestat(os.stat(place.dir_fd), os.stat(tmp_path / "ws" / "a" / "b" / "c"))
    assert workspace.remove_directories(0, made) == ("a/b/c", "a/b")
    assert os.listdir(tmp_path / "ws") == ["a"]


def test_directories_that_hold_something_are_not_taken_back(workspace: Roots, tmp_path: Path) -> None:
    with workspace.locate("b/c/f") as place:
        made = place.make_parents()
    (tmp_path / "ws" / "b" / "theirs").touch()

    assert workspace.remove_directories(0, made) == ("b/c",)


def test_a_parent_that_becomes_a_link_before_it_is_made_is_not_followed(
    workspace: Roots, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    with workspace.locate("a/b/f") as place:
        (tmp_path / "ws" / "a").symlink_to(tmp_path / "outside")

        with pytest.raises(ToolError):
            place.make_parents()

    assert os.listdir(tmp_path / "outside") == []


def test_an_absolute_path_belongs_to_the_root_that_holds_it(tmp_path: Path) -> None:
    for name in ("one", "two", "one/inner"):
        (tmp_path / name).mkdir()
    workspace = Roots([tmp_path / "one", tmp_path / "two", tmp_path / "one" / "inner"])

    def found(path: str) -> tuple[int, str]:
        with workspace.locate(path) as place:
            assert workspace.absolute(place) == str(
                tmp_path / ("one", "two", "one/inner")[place.root] / place.path
            )
            return place.root, place.path

    assert found("f") == (0, "f")
    assert found(f"{tmp_path}/two/f") == (1, "f")
    assert found(f"{tmp_path}/one/inner/f") == (2, "f")
    assert found("inner/f") == (2, "f"), "one file has one name"
    workspace.close()


def test_a_root_that_is_reached_by_a_link_is_known_by_both_names(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    workspace = Roots([tmp_path / "alias"])

    for name in ("real", "alias"):
        with workspace.locate(f"{tmp_path}/{name}/f") as place:
            assert place.path == "f"
    workspace.close()


@pytest.mark.parametrize("becomes", ["workspace_gone", "workspace_replaced"])
def test_nothing_is_reached_in_a_workspace_that_is_not_at_its_path_any_more(
    workspace: Roots, tmp_path: Path, becomes: str
) -> None:
    (tmp_path / "ws").rename(tmp_path / "elsewhere")
    if becomes == "workspace_replaced":
        (tmp_path / "ws").mkdir()

    for path in ("f", str(tmp_path / "ws" / "f")):
        with pytest.raises(ToolError) as refused:
            write(workspace, path)
        assert reason(refused.value) == becomes

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_force_opens_guarded_paths_and_nothing_more(workspace: Roots, tmp_path: Path) -> None:
    write(workspace, ".envrc", force=True)
    write(workspace, ".github/workflows/ci.yml", force=True)

    assert (tmp_path / "ws" / ".envrc").read_text() == "new"
    for path in (".git/config", ".perdure/journal.db"):
        with pytest.raises(ToolError) as refused:
            write(workspace, path, force=True)
        assert refused.value.envelope.context["can_force"] is False


def test_policy_opens_what_it_names_and_nothing_more(tmp_path: Path) -> None:
    workspace = Roots([tmp_path], Protection(allowed=(".github/workflows/", ".git/hooks/")))
    write(workspace, ".github/workflows/ci.yml")
    write(workspace, ".git/hooks/pre-commit")

    for path in (".git/config", ".envrc"):
        with pytest.raises(ToolError):
            write(workspace, path)
    workspace.close()


@pytest.mark.parametrize(
    "path",
    [
        "docs/mcp.md",
        ".gitignore",
        ".github/README.md",
        "git",
        "perdure/x",
        ".vscode/settings.json",
        "x.git/config",
    ],
)
def test_names_that_only_resemble_protected_ones_are_free(workspace: Roots, path: str) -> None:
    assert write(workspace, path) == path


@pytest.mark.parametrize(
    "name", ["n" * 255, "€" * 85, "naïve.txt", "日本語.md", "with space", "-rf", "a\\b", "…"]
)
def test_ordinary_and_long_names_are_free(workspace: Roots, tmp_path: Path, name: str) -> None:
    write(workspace, name)

    assert os.listdir(tmp_path / "ws") == [name]


def test_reading_is_confined_the_same_way_but_may_meet_hard_links(field: Path) -> None:
    workspace = Roots([field])
    with workspace.locate("hard", purpose="read") as place:
        fd = place.open()
        assert os.read(fd, 10) == b"old"
        os.close(fd)
    workspace.locate(".git/config", purpose="read").close()

    for path in ("out_file", "../outside/f", "fifo", "magic_stdin", ".perdure/journal.db", "absent", "sub"):
        with pytest.raises(ToolError):
            workspace.locate(path, purpose="read")
    workspace.close()


def test_a_file_that_becomes_a_pipe_after_it_was_located_does_not_block(
    workspace: Roots, tmp_path: Path
) -> None:
    (tmp_path / "ws" / "f").write_text("old")
    with workspace.locate("f", purpose="read") as place:
        (tmp_path / "ws" / "f").unlink()
        os.mkfifo(tmp_path / "ws" / "f")

        with pytest.raises(ToolError) as refused:
            place.open()

    assert reason(refused.value) == "special_file"


def test_a_missing_root_is_an_error_of_whoever_starts_us(tmp_path: Path) -> None:
    with pytest.raises(OSError) as failed:
        Roots([tmp_path, tmp_path / "absent"])

    assert failed.value.errno == errno.ENOENT
