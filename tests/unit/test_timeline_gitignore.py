"""Patterns of `.gitignore`: the verdicts are git's own, on a real repository."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from perdure.workspace.timeline.coverage import is_ignored
from perdure.workspace.timeline.gitignore import Patterns

PATHS = (
    "a",
    "b.log",
    "c.tar.gz",
    "debug.log",
    "#x",
    "!y",
    "sp ",
    "k[1]",
    "kx",
    "new\nline.txt",
    "d/a",
    "d/b.log",
    "d/e/a",
    "d/e/b.log",
    "d/e/f/a",
    "build/a",
    "build/keep/a",
    "x/build/b",
    "doc/frotz/a",
    "doc/x/frotz/b",
    "foo/bar/baz",
    "foo/bar2",
    "größe/äb",
)
PATTERNS = (
    "a", "*.log", "!*.log", "!debug.log", "/a", "d/", "d/e", "/d/*", "!d/b.log", "build/", "!build/keep/", "**/a", "d/**",
    "d/**/a", "**/f", "foo/*", "foo/**/baz", "doc/*/frotz", "frotz", "frotz/", "\\#x", "#x", "\\!y", "sp\\ ", "sp ", "k[1]",
    "k\\[1\\]", "k[[:alpha:]]", "k[!0-9]", "?", "*", "!/d", "*.tar.gz", "*.gz", "c*.*z", "größe", "x/build", "**", "[",
    "d//e", "new*", "/**/b.log", "!d/", "*a*", "[a-c]", "b.*", "bu*d/", "/foo/bar?",
)  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    return tmp_path


def git_ignores(repository: Path) -> set[str]:
    asked = "\0".join(PATHS).encode()
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "-z", "--stdin"],
        cwd=repository,
        input=asked,
        capture_output=True,
    )
    return set(done.stdout.decode().rstrip("\0").split("\0")) - {""}


def we_ignore(repository: Path) -> set[str]:
    """As the scan does: from the root on, a folder that is ignored decides for all that is in it."""
    chains: dict[str, tuple[Patterns, ...]] = {}

    def chain(folder: str) -> tuple[Patterns, ...]:
        if folder not in chains:
            above = chain(folder.rpartition("/")[0]) if folder else ()
            file = repository / folder / ".gitignore"
            prefix = f"{folder}/" if folder else ""
            own = (Patterns(file.read_text().split("\n"), prefix),) if file.exists() else ()
            chains[folder] = (*own, *above)
        return chains[folder]

    found = set()
    for path in PATHS:
        names = path.split("/")
        for end in range(1, len(names) + 1):
            part = "/".join(names[:end])
            folder = "/".join(names[: end - 1])
            if is_ignored(chain(folder), part, names[end - 1], end < len(names)):
                found.add(path)
                break
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_one_pattern_matches_as_in_git(repository: Path, pattern: str) -> None:
    (repository / ".gitignore").write_text(pattern + "\n")
    assert we_ignore(repository) == git_ignores(repository)


def test_patterns_together_and_in_nested_files_match_as_in_git(repository: Path) -> None:
    chance = random.Random(24)
    for _ in range(60):
        for folder in ("", "d", "d/e"):
            lines = chance.sample(PATTERNS, chance.randint(0, 5))
            (repository / folder / ".gitignore").write_text("\n".join(lines) + "\n")
        texts = [(repository / folder / ".gitignore").read_text() for folder in ("", "d", "d/e")]
        assert we_ignore(repository) == git_ignores(repository), texts


def test_a_hostile_pattern_takes_no_time() -> None:
    patterns = Patterns(["*a" * 40 + "b", "/".join(["**", "x"] * 30)])
    assert patterns.verdict("a" * 255, "a" * 255, False) is None
    assert patterns.verdict("x/" * 1000 + "y", "y", False) is None
