"""Another process makes a directory and a link out of the workspace change places while files are written through it.

    python -m harness.races.swap_race --attempts 200000

Every attempt asks where its file came to lie, by the directory's identity. `--way naive` checks the path first and
opens it then, as most programs do: it shows that the race is real.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

from perdure.platform.files import exchange
from perdure.protocol.envelope import ToolError
from perdure.storage.errors import StorageError
from perdure.storage.files.pending import PendingFile
from perdure.workspace.paths.roots import Roots

Way = Literal["kernel", "walk", "naive"]
WAYS: Final[tuple[Way, ...]] = ("kernel", "walk", "naive")


class Outcome(msgspec.Struct, frozen=True):
    attempts: int
    landed: int
    refused: int
    escaped: int
    seconds: float


def race(base: Path, attempts: int, way: Way = "kernel") -> Outcome:
    """Write `attempts` files through directories that keep changing places with links to elsewhere."""
    inside, outside = _prepare(base)
    swapper = subprocess.Popen(
        [sys.executable, "-m", "harness.races.swap_race", "--swap", str(inside)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    workspace = Roots([inside], by_kernel=way == "kernel")
    forbidden = {_key(os.stat(path)) for path in (outside, outside / "deep")}
    landed = refused = escaped = 0
    started = time.perf_counter()
    try:
        assert swapper.stdout is not None
        assert swapper.stdout.readline() == b"swapping\n"
        for number in range(attempts):
            path = ("d/new", "d/deep/new", "f")[number % 3]
            try:
                place = _naive(inside, path) if way == "naive" else _confined(workspace, path)
            except (ToolError, StorageError, OSError):
                refused += 1
                continue
            landed += 1
            escaped += place in forbidden
        assert swapper.poll() is None
    finally:
        workspace.close()
        swapper.kill()
        swapper.communicate()
    escaped += (outside / "f").read_text() != "outside"
    return Outcome(attempts, landed, refused, escaped, time.perf_counter() - started)


def _confined(workspace: Roots, path: str) -> tuple[int, int]:
    with workspace.locate(path) as place, PendingFile(place.dir_fd, place.name) as pending:
        pending.write(b"inside")
        if place.name == "f":
            pending.replace()
        else:
            pending.create()
            os.unlink(place.name, dir_fd=place.dir_fd)
        return _key(os.stat(place.dir_fd))


def _naive(inside: Path, path: str) -> tuple[int, int]:
    target = inside / path
    if not target.resolve().is_relative_to(inside):
        raise PermissionError
    target.write_text("inside")
    where = _key(target.parent.stat())
    if target.name != "f":
        target.unlink()
    return where


def _prepare(base: Path) -> tuple[Path, Path]:
    inside, outside = (base / "inside").resolve(), (base / "outside").resolve()
    for root in (inside / "d", outside):
        (root / "deep").mkdir(parents=True)
    (outside / "f").write_text("outside")
    (inside / "f").write_text("inside")
    (inside / "f_link").symlink_to(outside / "f")
    (inside / "d_link").symlink_to(outside)
    return inside, outside


def _swap(inside: str) -> None:
    """Until it is killed."""
    fd = os.open(inside, os.O_RDONLY | os.O_DIRECTORY)
    print("swapping", flush=True)
    while True:
        exchange(fd, "d", "d_link")
        exchange(fd, "f", "f_link")


def _key(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m harness.races.swap_race", description=__doc__)
    parser.add_argument("--attempts", type=int, default=200_000)
    parser.add_argument("--way", choices=WAYS, default="kernel")
    parser.add_argument("--swap", metavar="DIR", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.swap:
        _swap(options.swap)
    with tempfile.TemporaryDirectory() as base:
        outcome = race(Path(base), options.attempts, options.way)
    print(
        f"{outcome.attempts:,} attempts ({options.way})  {outcome.landed:,} landed  {outcome.refused:,} refused  "
        f"{outcome.escaped:,} escaped  {outcome.seconds:.1f} s"
    )
    return 1 if outcome.escaped else 0


if __name__ == "__main__":
    sys.exit(main())
