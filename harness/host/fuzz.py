"""Mutated frames on the host's pipes, good calls among them, and an account of every answer.

    python -m harness.host.fuzz --frames 100000 [--seed N] [--side client|child|both]

| side | who says the mutated frames | who makes the good calls |
|---|---|---|
| client | the client, between its calls | the same client, to a server that hears none of it |
| child | a mounted server, between its answers | the client, to that server |

The host must live, answer every good call once and rightly, answer every mutated frame that is still a
readable request once, and never say anything to the client that is not JSON-RPC.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from harness.host import fuzz_server
from harness.host.mutations import Corpus, Mutator, Object, judge
from harness.host.storm import Score
from harness.user_settings import user_settings
from perdure.testing import fake_server
from perdure.testing.raw_client import Ended, RawClient, envelope

FRAME_BYTES: Final = 65536
ANSWER_S: Final = 30.0
BURST: Final = 20
IN_FLIGHT: Final = 8

_SETTINGS: Final = f"""\
[limits]
frame_bytes = {FRAME_BYTES}
restarts_per_minute = 1000000
unproductive_starts = 1000000
pending = 100000
"""
_TO_FAKE: Final = {"perdure/mount": "fake"}


def _request(identity: str, method: str, params: Object | None = None) -> Object:
    frame: Object = {"jsonrpc": "2.0", "id": identity, "method": method}
    return frame if params is None else {**frame, "params": params}


def _call(identity: str, tool: str, **arguments: Any) -> Object:
    return _request(
        identity, "tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": 0}}
    )


def _notice(method: str, **params: Any) -> Object:
    return {"jsonrpc": "2.0", "method": method, "params": params}


# Nothing in here waits, and no id named in params is one that is ever asked for.
CORPUS: Final[Corpus] = (
    lambda i: _request(i, "ping"),
    lambda i: _request(i, "tools/list", {}),
    lambda i: _request(i, "resources/list"),
    lambda i: _request(i, "resources/read", {"uri": "fake://a"}),
    lambda i: _request(i, "resources/subscribe", {"uri": "fake://b"}),
    lambda i: _request(i, "prompts/get", {"name": "fake__greet", "arguments": {"who": "you"}}),
    lambda i: _request(
        i,
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "fake__greet"}, "argument": {"name": "who", "value": "a"}},
    ),
    lambda i: _request(i, "logging/setLevel", {"level": "warning"}),
    lambda i: _request(
        i, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}}
    ),
    lambda i: _request(i, "server/discover", envelope()),
    lambda i: _request(i, "tools/call", envelope({"name": "fake__echo", "arguments": {"text": i}})),
    lambda i: _request(i, "tools/call", envelope({"name": "health", "arguments": {"render": "json"}})),
    lambda i: _request(i, "x/echo", {"value": [i, {"n": 1.50}], "_meta": _TO_FAKE}),
    lambda i: _call(i, "fake__echo", text=i),
    lambda i: _call(i, "fake__effect", key=i),
    lambda i: _call(i, "fake__custom_meta", key=i),
    lambda i: _call(i, "fake__log", level="info", data={"a": [1]}),
    lambda i: _call(i, "health", render="json", detail="full"),
    lambda i: _call(i, "telemetry"),
    lambda i: _call(i, "mounts", action="list"),
    lambda i: _call(i, "no_such_tool"),
    lambda i: _notice("notifications/initialized"),
    lambda i: _notice("notifications/cancelled", requestId=f"c{i}", reason="none"),
    lambda i: _notice("notifications/progress", progressToken=i, progress=1),
    lambda i: _notice("notifications/roots/list_changed"),
    lambda i: _notice("notifications/x/ping", value=i),
    lambda i: {"jsonrpc": "2.0", "id": i, "result": {"roots": []}},
    lambda i: {"jsonrpc": "2.0", "id": i, "error": {"code": -32603, "message": "no"}},
)


class Listener(RawClient):
    """Counts answers instead of keeping them, but for the good calls; refuses whatever it is asked."""

    def __init__(self, argv: list[str], env: dict[str, str], cwd: Path) -> None:
        self.counts: Counter[str] = Counter()
        super().__init__(argv, env, cwd)

    def _file(self, line: bytes) -> None:
        super()._file(line)
        if self.frames:
            frame = self.frames.pop()
            if "method" in frame:
                self.notifications.clear()
            elif "id" in frame:
                self._count(frame)
        self.strays.clear()

    def _count(self, frame: Object) -> None:
        identity = frame["id"]
        self.counts[json.dumps(identity)] += 1
        if isinstance(identity, str) and not identity.startswith("good-"):
            self.answers.pop(identity, None)

    def _respond(self, frame: Object) -> None:
        super()._respond(frame)
        self.requests.clear()


class Fuzz:
    """One host, one session."""

    def __init__(self, root: Path, mounts: dict[str, list[str]]) -> None:
        self.score = Score()
        self._good: dict[str, str] = {}
        workspace = root / "workspace"
        workspace.mkdir()
        words = [w for name, argv in mounts.items() for w in ("--mount", f"{name}={shlex.join(argv)}")]
        self.client = Listener(
            [sys.executable, "-P", "-m", "perdure", "run", *words],
            {**os.environ, "PERDURE_HOME": str(root / "home"), **user_settings(root, _SETTINGS)},
            workspace,
        )
        self.client.initialize(timeout=ANSWER_S)

    # Good calls

    def good_call(self, tool: str) -> str:
        identity = f"good-{len(self._good)}"
        self._good[identity] = f"text of {identity} é😀"
        self.client.start("tools/call", {"name": tool, "arguments": {"text": self._good[identity]}}, identity)
        return identity

    def check_good(self) -> None:
        for identity, text in self._good.items():
            answers = self.client.answers.get(identity, [])
            said = [((a.get("result") or {}).get("content") or [{}])[0].get("text") for a in answers]
            if said != [text]:
                self.score.blame(f"{identity} was answered with {answers}")
        self.score.counts["good calls answered"] = len(self._good)

    # The end of a run

    def finish(self) -> None:
        client = self.client
        try:
            health = client.request(
                "tools/call", _call("", "health", render="json", detail="full")["params"], "good-h"
            )
            found = health["result"]["structuredContent"]
            self.score.figures["quarantined"] = json.dumps(found.get("quarantined", {}))
            self.score.figures["restarts of servers"] = str(found["restart_count"])
            self.score.figures["pending at the end"] = str(found["pending"])
            if "invariant" in found.get("quarantined", {}):
                self.score.blame("the host found itself inconsistent")
            if (code := client.close()) != 0:
                self.score.blame(f"the host ended with {code}")
        except (Ended, TimeoutError, OSError) as error:
            self.score.blame(f"the host did not hold: {str(error)[:200]}")
            client.kill()
        deep = [line for line in client.noise if max(line.count(b"["), line.count(b"{")) > 50]
        if len(client.noise) > len(deep):
            self.score.blame(f"said to the client: {[n for n in client.noise if n not in deep][:3]}")
        if "perdure/host/" in client.stderr or "perdure/kernel/" in client.stderr:
            self.score.blame(f"stderr: {client.stderr[-700:]}")


def _fake(root: Path, name: str) -> list[str]:
    return [
        sys.executable,
        "-S",
        fake_server.__file__,
        "--name",
        name,
        "--effects",
        str(root / f"{name}.effects"),
    ]


# --- the client's pipe --------------------------------------------------------------------------------------


def fuzz_client(root: Path, frames: int, seed: int) -> Score:
    fuzz = Fuzz(root, {"fake": _fake(root, "fake"), "calm": _fake(root, "calm")})
    client, score = fuzz.client, fuzz.score
    mutator = Mutator(random.Random(seed), CORPUS, FRAME_BYTES)
    wanted: Counter[str] = Counter()
    texts: dict[str, bytes] = {}
    unreadable = 0
    waiting: list[str] = []
    try:
        for number in range(frames):
            data = mutator.line()
            for line in data.split(b"\n"):
                verdict = judge(line, FRAME_BYTES)
                if verdict.kind == "request":
                    wanted[json.dumps(verdict.id)] += 1
                    texts[json.dumps(verdict.id)] = line
                unreadable += verdict.kind == "other"
            cut = random.Random(number).randrange(len(data)) if number % 7 == 0 else 0
            for piece in (data[:cut], data[cut:]) if cut else (data,):
                client.send_bytes(piece)
            if number % BURST == 0:
                waiting.append(fuzz.good_call("calm__echo"))
                if len(waiting) >= IN_FLIGHT:
                    client.wait(waiting.pop(0), ANSWER_S)
        for identity in waiting:
            client.wait(identity, ANSWER_S)
        missing = _wait_for_all(client, wanted)
        if missing:
            score.blame(
                f"{len(missing)} readable requests have no answer: {[texts[i][:400] for i in missing[:5]]}"
            )
    except (Ended, TimeoutError, OSError) as error:
        score.blame(f"the session did not hold: {str(error)[:200]}")
    fuzz.check_good()
    extra = [i for i, n in wanted.items() if client.counts[i] > n]
    if extra:
        score.blame(f"{len(extra)} requests were answered more than once: {extra[:5]}")
    score.counts["mutated frames sent"] = frames
    score.counts["of them readable requests"] = sum(wanted.values())
    score.counts["of them unreadable or no request"] = unreadable
    score.counts["answers to unreadable frames"] = sum(n for i, n in client.counts.items() if i not in wanted)
    fuzz.finish()
    return score


def _wait_for_all(client: Listener, wanted: Counter[str]) -> list[str]:
    """The requests that have no answer, when that is none or the time is over."""
    until = time.monotonic() + ANSWER_S
    while True:
        missing = [i for i in wanted if not client.counts[i]]
        if not missing or time.monotonic() > until:
            return missing
        time.sleep(0.05)


# --- a child's pipe -----------------------------------------------------------------------------------------


def fuzz_child(root: Path, frames: int, seed: int) -> Score:
    argv = [sys.executable, "-S", fuzz_server.__file__, "--seed", str(seed), "--limit", str(FRAME_BYTES)]
    fuzz = Fuzz(root, {"fuzz": [*argv, "--burst", str(BURST)]})
    client, score = fuzz.client, fuzz.score
    waiting: list[str] = []
    try:
        for _ in range(max(1, frames // BURST)):
            waiting.append(fuzz.good_call("fuzz__echo"))
            if len(waiting) >= IN_FLIGHT:
                client.wait(waiting.pop(0), ANSWER_S)
        for identity in waiting:
            client.wait(identity, ANSWER_S)
        report = _report(client)
        score.counts["mutated frames sent"] = report["said"]
        score.counts["of them readable requests"] = report["requests"]
        for what in ("unanswered", "answered twice"):
            if report[what]:
                score.blame(f"requests of the server {what}: {report[what]}")
    except (Ended, TimeoutError, OSError) as error:
        score.blame(f"the session did not hold: {str(error)[:200]}")
    fuzz.check_good()
    fuzz.finish()
    return score


def _report(client: RawClient) -> Object:
    """The server's own account, when every question of its has come back or none came for a while."""
    until = time.monotonic() + ANSWER_S
    number = 0
    while True:
        number += 1
        answer = client.request(
            "tools/call", {"name": "fuzz__report", "arguments": {}}, f"good-r{number}", ANSWER_S
        )
        report: Object = answer["result"]["structuredContent"]
        if not report["unanswered"] or time.monotonic() > until:
            return report
        time.sleep(0.1)


# --- the command ----------------------------------------------------------------------------------------------


def run(side: str, frames: int, seed: int) -> Score:
    with tempfile.TemporaryDirectory(prefix="perdure-fuzz-") as folder:
        started = time.monotonic()
        score = (fuzz_client if side == "client" else fuzz_child)(Path(folder), frames, seed)
        score.figures["seconds"] = f"{time.monotonic() - started:.1f}"
        return score


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="fuzz", description="Mutated frames on a host's pipes, every answer counted."
    )
    parser.add_argument("--frames", type=int, default=100_000, help="on each side: 100000")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run: random")
    parser.add_argument("--side", choices=("client", "child", "both"), default="both")
    options = parser.parse_args(argv)
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    failed = False
    for side in ("client", "child") if options.side == "both" else (options.side,):
        print(f"fuzz  side {side}  frames {options.frames}  seed {seed}", flush=True)
        score = run(side, options.frames, seed)
        score.show()
        failed = failed or bool(score.violations)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
