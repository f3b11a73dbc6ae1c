"""`perdure guard`: git refuses a commit of a file that another client has reserved."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from commands import perdure
from test_reservation_hooks import other_client

from testbed import Bed

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(bed: Bed, *words: str) -> subprocess.CompletedProcess[str]:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")
    return subprocess.run(
        ["git", *identity, *words],
        cwd=bed.workspace,
        env=bed.environ,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def repository(bed: Bed) -> Bed:
    assert git(bed, "init", "-q").returncode == 0
    (bed.workspace / "app.py").write_text("one\n")
    assert git(bed, "add", ".").returncode == 0
    return bed


def test_a_commit_of_a_reserved_file_is_refused(repository: Bed) -> None:
    bed = repository
    assert perdure(bed, "guard", "install").returncode == 0
    with other_client(bed) as other:
        other("reserve", "app.py", "--reason", "a move")
        refused = git(bed, "commit", "-m", "x")
        assert refused.returncode != 0
        assert "app.py is reserved by perdure-cli" in refused.stderr
        assert "--no-verify" in refused.stderr
        # a file of its own, the owner and --no-verify go on
        (bed.workspace / "b.py").write_text("b\n")
        git(bed, "reset", "-q")
        git(bed, "add", "b.py")
        done = git(bed, "commit", "-m", "b")
        assert done.returncode == 0, done.stderr
        git(bed, "add", "app.py")
        assert git(bed, "commit", "--no-verify", "-m", "x").returncode == 0
    # and when the reservation is over
    (bed.workspace / "app.py").write_text("two\n")
    assert git(bed, "commit", "-am", "y").returncode == 0


@pytest.mark.thorough
def test_the_owner_commits_what_it_has_reserved(repository: Bed) -> None:
    bed = repository
    assert perdure(bed, "guard", "install").returncode == 0
    assert perdure(bed, "reserve", "app.py").returncode == 0
    done = git(bed, "commit", "-m", "x")
    assert done.returncode == 0, done.stderr


@pytest.mark.thorough
def test_an_existing_hook_keeps_its_lines(repository: Bed) -> None:
    bed = repository
    hook = bed.workspace / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    text = "#!/usr/bin/env bash\nset -e\necho mine >&2\n"
    hook.write_text(text)
    hook.chmod(0o755)
    for _ in range(2):
        assert perdure(bed, "guard", "install").returncode == 0
    assert hook.read_text().count("perdure guard\n") == 2
    done = git(bed, "commit", "-m", "x")
    assert done.returncode == 0
    assert "mine" in done.stderr
    assert perdure(bed, "guard", "uninstall").returncode == 0
    assert hook.read_text() == text
    assert perdure(bed, "guard", "uninstall").returncode == 0
    hook.unlink()
    assert perdure(bed, "guard", "install").returncode == 0
    assert perdure(bed, "guard", "uninstall").returncode == 0
    assert not hook.exists()


def test_a_hook_in_another_language_is_left_alone(repository: Bed) -> None:
    bed = repository
    hook = bed.workspace / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/usr/bin/env python3\n")
    done = perdure(bed, "guard", "install")
    assert done.returncode == 4
    assert "no shell script" in done.stderr
    assert hook.read_text() == "#!/usr/bin/env python3\n"


def test_outside_a_repository_it_says_so(bed: Bed) -> None:
    done = perdure(bed, "guard", "install")
    assert done.returncode == 4
    assert "no git repository" in done.stderr
