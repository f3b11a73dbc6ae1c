"""What a misbehaving server costs the calls of another: p99 with each misbehaviour beside the quiet p99.

    python -m bench.isolation [--calls 3000] [--only flood-noise,crash-loop]

One host, two mounted servers. Quiet blocks and blocks in which the other server misbehaves take turns, so
that both see the same machine. The requirement is a p99 within twice the quiet one. Each line also shows the
p50 and the longest call.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.client import Client
from bench.report import Report, machine, ms, p50

FAKE = Path(__file__).resolve().parent.parent / "src" / "perdure" / "testing" / "fake_server.py"
LIMIT = 2.0
BLOCK_SECONDS = 0.4
WARM_CALLS = 300
TEXT = {"text": "x" * 200}
SETTINGS = "[limits]\nrestarts_per_minute = 1000000\nframe_bytes = 1000000\n"


class Caller(Client):
    """Looks past what is not an answer without parsing it: the client's own time is not the host's."""

    def receive(self, seconds: float = 20.0) -> dict[str, Any]:
        deadline = time.perf_counter() + seconds
        while b'"method"' in (line := self._line(deadline))[:40]:
            pass
        self.arrived = time.perf_counter()
        frame: dict[str, Any] = json.loads(line)
        return frame

    def time_calls(self, until: Callable[[int], bool]) -> list[float]:
        """The seconds of each call, one after the other, until enough were made."""
        samples: list[float] = []
        while not until(len(samples)):
            start = time.perf_counter()
            self.call("good__echo", TEXT)
            samples.append(self.arrived - start)
        return samples


# --- misbehaviours: each begins at once and is over after BLOCK_SECONDS ------------------------------------

Begin = Callable[[Caller], Callable[[int], bool]]


def _for_a_while(seconds: float = BLOCK_SECONDS) -> Callable[[int], bool]:
    end = time.perf_counter() + seconds
    return lambda _: time.perf_counter() >= end


def _call(client: Caller, tool: str, **arguments: Any) -> None:
    client.send("tools/call", {"name": f"bad__{tool}", "arguments": arguments})


def hang(client: Caller) -> Callable[[int], bool]:
    for _ in range(8):
        _call(client, "slow", ms=BLOCK_SECONDS * 1000)
    return _for_a_while()


def wedge(client: Caller) -> Callable[[int], bool]:
    _call(client, "wedge", ms=BLOCK_SECONDS * 1000)
    for _ in range(8):
        _call(client, "echo", text="waits")
    return _for_a_while()


def stop_reading(client: Caller) -> Callable[[int], bool]:
    _call(client, "stop_reading", ms=BLOCK_SECONDS * 1000)
    for _ in range(8):
        _call(client, "echo", text="x" * 50_000)
    return _for_a_while()


def flood(kind: str, line_bytes: int) -> Begin:
    def begin(client: Caller) -> Callable[[int], bool]:
        _call(client, "flood", kind=kind, seconds=BLOCK_SECONDS, line_bytes=line_bytes)
        return _for_a_while()

    return begin


def oversize(client: Caller) -> Callable[[int], bool]:
    _call(client, "answer_badly", kind="oversize", bytes=50_000_000)
    return _for_a_while()


def killed_in_bursts(client: Caller) -> Callable[[int], bool]:
    """A call that kills it waits whenever it comes back; between the blocks it does good work again."""
    end = _for_a_while()

    def is_over(calls: int) -> bool:
        if calls % 20 == 0:
            _call(client, "die", signal="SIGKILL")
        return end(calls)

    return is_over


CASES: dict[str, Begin] = {
    "hang": hang,
    "wedge": wedge,
    "stop-reading": stop_reading,
    "flood-noise": flood("noise", 100),
    "flood-short-noise": flood("noise", 1),
    "flood-notifications": flood("notifications", 100),
    "flood-big-notifications": flood("notifications", 10_000),
    "flood-junk": flood("junk_json", 100),
    "oversize": oversize,
    "killed-in-bursts": killed_in_bursts,
}
CRASH_LOOP = "crash-loop"

# --- measuring ---------------------------------------------------------------------------------------------


@dataclass
class Samples:
    quiet: list[float] = field(default_factory=list)
    disturbed: list[float] = field(default_factory=list)


def measure(client: Caller, begin: Begin, calls: int) -> Samples:
    found = Samples()
    while min(len(found.quiet), len(found.disturbed)) < calls:
        client.call_until_ready("bad__echo", TEXT)  # whatever it did before is over
        client.time_calls(lambda made: made >= 20)
        found.quiet += client.time_calls(lambda made: made >= 250)
        found.disturbed += client.time_calls(begin(client))
    return found


def measure_crash_loop(scratch: Path, quiet: Caller, calls: int) -> Samples:
    """A server that dies at every start, from the first moment on, beside a host without one."""
    found = Samples()
    folder = scratch / "crashing"
    folder.mkdir()
    crashing = ["--crash-at-start", "1000000", "--state", str(folder / "starts")]
    with start(folder, crashing) as client:
        client.initialize()
        client.call_until_ready("good__echo", TEXT)
        while min(len(found.quiet), len(found.disturbed)) < calls:
            found.disturbed += client.time_calls(lambda made: made >= 250)
            found.quiet += quiet.time_calls(lambda made: made >= 250)
    return found


def p99(samples: list[float]) -> float:
    return sorted(samples)[int(0.99 * (len(samples) - 1))]


def shown(samples: list[float]) -> str:
    return f"p50 {ms(p50(samples))}  p99 {ms(p99(samples))}  max {ms(max(samples))}  n {len(samples)}"


def start(scratch: Path, bad: Sequence[str] = ()) -> Caller:
    settings = scratch / "config" / "perdure" / "perdure.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(SETTINGS)
    command = [sys.executable, "-P", "-m", "perdure", "run"]
    for name, options in (("bad", bad), ("good", ())):
        command += ["--mount", f"{name}={shlex.join([sys.executable, '-S', str(FAKE), *options])}"]
    own = {"PERDURE_HOME": str(scratch / "home"), "XDG_CONFIG_HOME": str(scratch / "config")}
    return Caller(command, cwd=scratch, env={**os.environ, **own})


def main() -> int:
    names = [*CASES, CRASH_LOOP]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=3000, help="per case and side: 3000")
    parser.add_argument("--only", default=",".join(names), help="some of: " + ",".join(names))
    options = parser.parse_args()
    report = Report()
    print(f"isolation benchmark\n  machine  {machine()}")
    for name in options.only.split(","):
        with (
            tempfile.TemporaryDirectory(prefix="perdure-isolation-") as scratch,
            start(Path(scratch)) as client,
        ):
            client.initialize()
            client.call_until_ready("good__echo", TEXT)
            client.time_calls(lambda made: made >= WARM_CALLS)
            if name == CRASH_LOOP:
                found = measure_crash_loop(Path(scratch), client, options.calls)
            else:
                found = measure(client, CASES[name], options.calls)
        report.title(name)
        report.figure("quiet", shown(found.quiet))
        report.figure("disturbed", shown(found.disturbed))
        report.ratio("p99", "disturbed / quiet", p99(found.disturbed) / p99(found.quiet), LIMIT)
    report.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
