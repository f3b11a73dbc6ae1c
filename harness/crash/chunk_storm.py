"""A large file sent in pieces while its worker is killed again and again, then composed: byte for byte, in little memory.

python -m harness.crash.chunk_storm [--megabytes 200] [--kills 100] [--seed N]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.user_settings import user_settings
from perdure.testing.raw_client import RawClient

PIECE: Final = 256 * 1024
CALL_S: Final = 300
_LIMITS: Final = "[limits]\nrestarts_per_minute = 100000\n"
LINE: Final = 76


class Result(msgspec.Struct, frozen=True):
    bytes: int
    chunks: int
    kills: int
    is_exact: bool
    peak_mb: float
    seconds: float
    compose_seconds: float


class Sender:
    """A client of `perdure run` that knows its worker."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        command = [sys.executable, "-P", "-m", "perdure", "run", "--workspace", str(self.workspace)]
        environ = {**os.environ, "PERDURE_HOME": str(folder / "home"), **user_settings(folder, _LIMITS)}
        self.client = RawClient([*command, "--render", "json", "--detail", "full"], env=environ)
        self.client.initialize()
        self.peak_kb = 0

    def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.answer(self.client.start_call(tool, arguments))

    def answer(self, identity: Any) -> dict[str, Any]:
        response = self.client.wait(identity, CALL_S)
        if "error" in response:
            raise RuntimeError(f"a call was not answered: {response['error']}")
        found: dict[str, Any] = response["result"]["structuredContent"]
        if not found.get("ok", True):
            raise RuntimeError(f"a call was refused: {found['context']}")
        return found

    def worker(self) -> int | None:
        mounts = self.use("health")["mounts"]
        pid: int | None = next((one.get("pid") for one in mounts if one["name"] == "perdure"), None)
        return pid

    def look(self) -> int | None:
        """The worker's process, after noting how much memory it ever had."""
        pid = self.worker()
        if pid is not None:
            self.peak_kb = max(self.peak_kb, peak_kb(pid))
        return pid


def peak_kb(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def text_of(chance: random.Random, size: int) -> str:
    """Lines of digits that repeat nowhere: nothing can pass by being left out or sent twice."""
    digits = chance.randbytes(size // 2).hex()
    return "\n".join(digits[at : at + LINE] for at in range(0, len(digits), LINE)) + "\n"


def storm(folder: Path, megabytes: int, kills: int, seed: int) -> Result:
    chance = random.Random(seed)
    sender = Sender(folder)
    began = time.monotonic()
    digest = hashlib.sha256()
    count = megabytes * 1024 * 1024 // PIECE
    deaths = set(chance.sample(range(count), min(kills, count)))
    sent = killed = owed = 0
    try:
        for number in range(count):
            piece = text_of(chance, PIECE)
            digest.update(piece.encode())
            sent += len(piece)
            owed += number in deaths
            pid = sender.look() if owed else None
            identity = sender.client.start_call("chunk_append", {"session": "large", "content": piece})
            if pid is not None:
                time.sleep(chance.random() * 0.02)  # at any time on the way of this call
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
                    owed -= 1
            index = sender.answer(identity)["index"]
            if index != number + 1:
                raise RuntimeError(f"piece {number + 1} was kept as {index}")
        composing = time.monotonic()
        done = sender.use(
            "chunk_compose", session="large", output_path="large.txt", cleanup=True, classify=True
        )
        compose_seconds = time.monotonic() - composing
        sender.look()
        with open(sender.workspace / "large.txt", "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        is_exact = found == digest.hexdigest() == done["sha256"]
    finally:
        sender.client.kill()
    seconds = time.monotonic() - began
    return Result(sent, count, killed, is_exact, sender.peak_kb / 1024, seconds, compose_seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description="A large file in pieces, under kill -9.")
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=None)
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    with tempfile.TemporaryDirectory() as folder:
        result = storm(Path(folder), options.megabytes, options.kills, seed)
    print(
        f"{result.bytes:,} bytes in {result.chunks} chunks, {result.kills} kills, seed {seed}: "
        f"{'byte for byte' if result.is_exact else 'DIFFERENT'}; worker's peak {result.peak_mb:.0f} MB, "
        f"{result.seconds:.0f} s, composed in {result.compose_seconds:.1f} s"
    )
    return 0 if result.is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
