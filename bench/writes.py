"""Files written through a server, beside a peer and beside the system calls a durable write cannot do without."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench import peers
from bench.client import Client
from bench.report import Report, ms, p50

SMALL = 1024
MEDIUM = 100 * 1024
LARGE = 5 * 1024 * 1024
HUGE = 200 * 1024 * 1024
BLOCK = 25
WARM = 10
IN_FLIGHT = 8
PEER_LIMIT = 0.25
RAW_LIMIT = 2.4
RATE_FLOOR = 10.0
MEDIUM_LIMIT = 0.4
LARGE_LIMIT = 1.0
RSS_LIMIT_MB = 100.0


class Writer:
    """One server with a workspace of its own; every write makes a new file."""

    def __init__(self, client: Client, tool: str) -> None:
        self.client = client
        self._tool = tool
        self._written = 0

    def arguments(self, content: str) -> dict[str, str]:
        self._written += 1
        return {"path": f"d{self._written % 10}/f{self._written}.txt", "content": content}

    def write(self, content: str) -> float:
        """The seconds from the first byte sent to the answer; to make the frame is the client's own affair."""
        request = self.client.prepare(
            "tools/call", {"name": self._tool, "arguments": self.arguments(content)}
        )
        start = time.perf_counter()
        self.client.post(request, 120)
        return self.client.arrived - start

    def rate(self, content: str, calls: int) -> float:
        """Calls per second with `IN_FLIGHT` of them on the way at any time."""
        sent = done = 0
        start = time.perf_counter()
        while done < calls:
            while sent < calls and sent - done < IN_FLIGHT:
                self.client.send("tools/call", {"name": self._tool, "arguments": self.arguments(content)})
                sent += 1
            frame = self.client.receive(60)
            if "result" not in frame or frame["result"].get("isError"):
                raise ValueError(f"a write was refused: {str(frame)[:300]}")
            done += 1
        return calls / (self.client.arrived - start)


class Raw:
    """The bare sequence in this process: write a temporary file, sync it, rename it, sync the directory."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = str(folder)
        self._dir = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        self._written = 0

    def write(self, content: str) -> float:
        self._written += 1
        data = content.encode()
        start = time.perf_counter()
        temp = os.path.join(self._folder, "temp")
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        os.rename(temp, os.path.join(self._folder, f"f{self._written}.txt"))
        os.fsync(self._dir)
        return time.perf_counter() - start


def environment(scratch: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG_", "PERDURE_", "RW_"))}
    return {**kept, "HOME": str(scratch / "home")}


@contextmanager
def perdure_at(scratch: Path, perdure: str, workspace: Path) -> Iterator[Client]:
    workspace.mkdir(exist_ok=True)
    with Client([perdure, "run"], cwd=workspace, env=environment(scratch)) as client:
        client.initialize()
        yield client


@contextmanager
def opened(scratch: Path, perdure: str) -> Iterator[tuple[Writer, Writer]]:
    theirs = scratch / "theirs"
    theirs.mkdir()
    with ExitStack() as stack:
        mine = stack.enter_context(perdure_at(scratch, perdure, scratch / "mine"))
        argv = [str(peers.RESILIENT_WRITE.bin / "resilient-write")]
        peer = stack.enter_context(Client(argv, cwd=theirs, env=environment(scratch)))
        peer.initialize()
        yield Writer(mine, "safe_write"), Writer(peer, "rw.safe_write")


def text_of(size: int) -> str:
    """Fresh text, so that no store has it already: random digits in lines, which nobody takes for a token."""
    raw = os.urandom(size // 2 + 1).hex()
    return "\n".join(raw[at : at + 75] for at in range(0, size, 76))[: size - 1] + "\n"


def measure_small(scratch: Path, perdure: str, report: Report, *, calls: int) -> None:
    with opened(scratch, perdure) as (mine, theirs):
        subjects = {"perdure": mine.write, "resilient-write": theirs.write, "raw": Raw(scratch / "raw").write}
        samples = _interleaved(subjects, SMALL, calls)
    found = {name: p50(values) for name, values in samples.items()}
    report.title(f"1 KB safe_write, durable: p50 of {calls} new files each, in interleaved blocks of {BLOCK}")
    report.figure("p50", ", ".join(f"{name} {ms(value)}" for name, value in found.items()))
    for name, limit in (("resilient-write", PEER_LIMIT), ("raw", RAW_LIMIT)):
        text = f"{ms(found['perdure'])}, {ms(found[name])}"
        report.ratio(f"perdure over {name}", text, found["perdure"] / found[name], limit)


def measure_medium(scratch: Path, perdure: str, report: Report, *, calls: int) -> None:
    _measure_beside_peer(scratch, perdure, report, "100 KB", MEDIUM, MEDIUM_LIMIT, calls)


def measure_large(scratch: Path, perdure: str, report: Report, *, calls: int) -> None:
    _measure_beside_peer(scratch, perdure, report, "5 MB", LARGE, LARGE_LIMIT, calls)


def _measure_beside_peer(
    scratch: Path, perdure: str, report: Report, name: str, size: int, limit: float, calls: int
) -> None:
    with opened(scratch, perdure) as (mine, theirs):
        subjects = {"perdure": mine.write, "resilient-write": theirs.write, "raw": Raw(scratch / "raw").write}
        samples = _interleaved(subjects, size, calls, block=4)
    medians = {subject: p50(values) for subject, values in samples.items()}
    report.title(f"{name} safe_write: p50 of {calls} new files each, interleaved")
    report.figure("p50", ", ".join(f"{subject} {ms(value)}" for subject, value in medians.items()))
    mine_s, theirs_s = medians["perdure"], medians["resilient-write"]
    report.ratio("perdure over resilient-write", f"{ms(mine_s)}, {ms(theirs_s)}", mine_s / theirs_s, limit)


def _interleaved(
    subjects: dict[str, object], size: int, calls: int, block: int = BLOCK
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in subjects}
    for write in subjects.values():
        for _ in range(min(WARM, calls)):
            write(text_of(size))  # type: ignore[operator]
    while len(samples["raw"]) < calls:
        for name, write in subjects.items():
            samples[name] += [write(text_of(size)) for _ in range(block)]  # type: ignore[operator]
    return samples


def measure_in_flight(scratch: Path, perdure: str, report: Report, *, calls: int) -> None:
    rates: dict[str, list[float]] = {"perdure": [], "resilient-write": []}
    with opened(scratch, perdure) as (mine, theirs):
        for _ in range(5):
            rates["perdure"].append(mine.rate(text_of(SMALL), calls))
            rates["resilient-write"].append(theirs.rate(text_of(SMALL), calls // 4))
    found = {name: p50(values) for name, values in rates.items()}
    report.title(f"1 KB safe_write, {IN_FLIGHT} in flight: median rate of 5 blocks each, interleaved")
    ratio = found["perdure"] / found["resilient-write"]
    text = f"{found['perdure']:,.0f}/s, {found['resilient-write']:,.0f}/s  ratio {ratio:.2f}x, at least {RATE_FLOOR:.0f}x"
    report.above("perdure over resilient-write", text, ratio, RATE_FLOOR)


def measure_memory(scratch: Path, perdure: str, report: Report) -> None:
    """A file grows to 200 MB by appends, is cut, and the whole of it is restored: each a copy of everything."""
    piece = text_of(LARGE)
    with perdure_at(scratch, perdure, scratch / "mine") as client:
        last = {}
        for _ in range(HUGE // LARGE):
            arguments = {"path": "huge.txt", "content": piece, "mode": "append", "render": "json"}
            last = client.call("safe_write", arguments, 120)["structuredContent"]
        client.call("safe_write", {"path": "huge.txt", "content": "cut\n", "mode": "overwrite"}, 120)
        start = time.perf_counter()
        client.call("restore", {"path": "huge.txt", "journal_id": last["journal_id"]}, 120)
        seconds = time.perf_counter() - start
        peaks = {name: peak_mb(pid) for name, pid in (("host", client.pid), ("worker", worker_of(client)))}
    if (scratch / "mine" / "huge.txt").stat().st_size != HUGE:
        raise ValueError("the restored file is not 200 MB")
    report.title("200 MB: 40 appends of 5 MB, then the whole file restored")
    report.figure("restore", ms(seconds))
    for name, peak in peaks.items():
        report.at_most(f"peak memory of the {name}", f"{peak:.1f} MB, limit 100 MB", peak, RSS_LIMIT_MB)


def worker_of(client: Client) -> int:
    health = client.call("health", {"render": "json", "detail": "full"})["structuredContent"]
    return int(next(mount["pid"] for mount in health["mounts"] if mount["name"] == "perdure"))


def peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"no VmHWM for process {pid}")
