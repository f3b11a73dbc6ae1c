"""`perdure completion`: made from the parsers, so that no command and no option can be missing."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from commands import perdure

from perdure.cli.completion import SHELLS, Node, places, script, tree
from perdure.cli.main import COMMANDS
from testbed import Bed

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def root() -> Node:
    return tree()


def flags(root: Node) -> Iterator[tuple[str, str]]:
    for at, node in places(root):
        for option in node.options:
            for flag in option.flags:
                yield at, flag


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_its_parser(name: str) -> None:
    parser = import_module(COMMANDS[name][0]).parser()
    assert parser.prog == f"perdure {name}"


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_every_option_is_in_every_script(root: Node, shell: str) -> None:
    text = script(shell, root)
    for at, _ in places(root):
        assert at.rpartition("/")[2] in text
    for at, flag in flags(root):
        shown = flag if shell != "fish" else f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
        assert shown in text, f"{at} {flag}"


def test_what_it_says_of_options_is_what_their_help_says(bed: Bed, root: Node) -> None:
    for at, node in places(root):
        if at:
            shown = perdure(bed, *at.split("/")[1:], "--help").stdout
            assert all(flag in shown for option in node.options for flag in option.flags), at


def completed(bed: Bed, *words: str) -> list[str]:
    """What bash offers for the last word."""
    typed = " ".join(shlex.quote(word) for word in ("perdure", *words))
    test = (
        f"source {shlex.quote(str(bed.root / 'completion'))}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; "
        '_perdure; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", test],
        cwd=bed.workspace,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stderr == ""
    return sorted(filter(None, done.stdout.split("\n")))


def test_bash_completes_commands_options_values_and_files(bed: Bed) -> None:
    (bed.root / "completion").write_text(perdure(bed, "completion", "bash").stdout)
    (bed.workspace / "a file.json").touch()
    (bed.workspace / "a folder").mkdir()

    assert set(COMMANDS) <= set(completed(bed, ""))
    assert completed(bed, "sta") == ["state", "status"]
    assert completed(bed, "state", "im") == ["import"]
    assert completed(bed, "state", "--json", "im") == ["import"]
    assert completed(bed, "state", "import", "--over") == ["--overwrite"]
    assert completed(bed, "run", "--ren") == ["--render"]
    assert completed(bed, "run", "--render", "") == ["json", "porcelain"]
    assert completed(bed, "run", "--workspace", "a") == ["a folder"]
    assert completed(bed, "handoff", "write", "a") == ["a file.json", "a folder"]
    assert completed(bed, "completion", "z") == ["zsh"]
    assert completed(bed, "verify", "--js") == ["--json"]
    assert completed(bed, "no-such-command", "x") == []


@pytest.mark.parametrize(("shell", "check"), [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_every_script_is_one_that_its_shell_can_read(
    root: Node, tmp_path: Path, shell: str, check: list[str]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "completion"
    path.write_text(script(shell, root))
    done = subprocess.run([shell, *check, str(path)], capture_output=True, text=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_refused(bed: Bed) -> None:
    done = perdure(bed, "completion", "tcsh")
    assert done.returncode == 2
    assert "bash" in done.stderr
