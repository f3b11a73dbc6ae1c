"""The official conformance suite on both sides of Perdure.

    python tests/conformance/suite.py [REVISION ...]

As a server: the fixture server alone over the SDK's own HTTP, then through `perdure serve`. As a client: `perdure run` with
the suite's own servers in its registry (`client.py`). One line per scenario with the checks it passed; exit code 1 where a
check that the server passes alone is lost, or a scenario that a revision requires of clients does not pass.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import node
from ruamel.yaml import YAML

from perdure.testing.http_client import ServeProcess, free_port

REVISIONS = ("2025-11-25", "2026-07-28")
CLIENT_REVISION = "2026-07-28"
CLIENTS = 3  # scenarios at once: each is a host, a worker, a bridge and a command
SUITE = "@modelcontextprotocol/conformance"
VERSION = "0.2.0-alpha.12"
SERVER = Path(__file__).with_name("server.py")
CLIENT = Path(__file__).with_name("client.py")
UNAVAILABLE = 4
EXTENSION = "tasks-"  # of an extension that the fixture does not offer: see `extensions.py`
_FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_BAD = ("FAILURE", "WARNING")


@dataclass(frozen=True)
class Verdict:
    """What the suite says of one scenario."""

    passed: frozenset[str]
    failed: frozenset[str]

    @property
    def is_good(self) -> bool:
        return not self.failed


Verdicts = dict[str, Verdict]


@dataclass(frozen=True)
class Comparison:
    """One revision, with and without Perdure."""

    revision: str
    alone: Verdicts
    through: Verdicts

    @property
    def lost(self) -> list[str]:
        """Checks that fail only through Perdure; a scenario that was not run there is lost as a whole."""
        found = []
        for scenario, alone in self.alone.items():
            through = self.through.get(scenario)
            failed = {"all of it"} if through is None else through.failed - alone.failed
            found += [f"{scenario}: {check}" for check in sorted(failed)]
        return found

    def lines(self) -> Iterator[str]:
        for scenario, alone in self.alone.items():
            through = self.through.get(scenario)
            yield f"{self.revision}  {scenario:<46} alone {_said(alone)}  through Perdure {_said(through)}"
        for where, verdicts in (("alone", self.alone), ("through Perdure", self.through)):
            good = sum(verdict.is_good for verdict in verdicts.values())
            yield f"{self.revision}  {where}: {good} of {len(verdicts)} scenarios"


def _said(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not run"
    failed = f", {len(verdict.failed)} failed" if verdict.failed else ""
    return f"{'ok ' if verdict.is_good else 'BAD'} {len(verdict.passed):>2}{failed}"


# --- running it ---------------------------------------------------------------------------------------------


def command() -> list[str]:
    """How the suite is started; raises `node.Unavailable`."""
    found = node.installed(node.CACHE / "conformance", {SUITE: VERSION})
    return [node.at_least(22), str(found / "node_modules" / SUITE / "dist" / "index.js")]


def judge(started: list[str], url: str, revision: str, folder: Path) -> Verdicts:
    """Run every scenario of a revision and read what was written down about it."""
    asked = [*started, "server", "--url", url, "--requirements", revision, "-o", str(folder)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=200)
    found: Verdicts = {}
    for path in sorted(folder.glob("*/checks.json")):
        named = _FOLDER.fullmatch(path.parent.name)
        if named is not None and not named[1].startswith(EXTENSION):
            found[named[1]] = _verdict(json.loads(path.read_text()))
    if not found:
        raise RuntimeError(f"the suite did not run: {done.stdout[-500:]}{done.stderr[-500:]}")
    return found


def _verdict(checks: list[dict[str, str]]) -> Verdict:
    # Several checks may have the same id: it has failed where one of them has.
    names = [(f"{check['id']} {check['name']}", check["status"]) for check in checks]
    failed = frozenset(name for name, status in names if status in _BAD)
    passed = frozenset(name for name, status in names if status == "SUCCESS")
    return Verdict(passed - failed, failed)


@contextmanager
def alone() -> Iterator[str]:
    """The fixture server over the SDK's own HTTP."""
    port = free_port()
    process = subprocess.Popen([sys.executable, str(SERVER), "--port", str(port)], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/mcp"
    try:
        _wait_for(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=5)
        except urllib.error.HTTPError:
            return  # it speaks HTTP
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                raise
            time.sleep(0.05)


@contextmanager
def through(root: Path) -> Iterator[str]:
    """The same server behind `perdure serve --wrap`."""
    served = ServeProcess(root, "--wrap", shlex.join((sys.executable, str(SERVER))))
    try:
        yield f"http://127.0.0.1:{served.port}/mcp"
    finally:
        served.stop()


def compare(revisions: tuple[str, ...] = REVISIONS) -> list[Comparison]:
    started = command()
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = {"alone": stack.enter_context(alone()), "through": stack.enter_context(through(root))}
        runs = [(where, revision) for where in urls for revision in revisions]
        pool = stack.enter_context(ThreadPoolExecutor(len(runs)))
        judged = {
            (where, revision): pool.submit(
                judge, started, urls[where], revision, root / f"{where}-{revision}"
            )
            for where, revision in runs
        }
        return [
            Comparison(revision, judged["alone", revision].result(), judged["through", revision].result())
            for revision in revisions
        ]


def client_scenarios() -> list[str]:
    """What the revision requires of a client, as the suite itself lists it."""
    listed = node.CACHE / "conformance" / "node_modules" / SUITE / "requirements" / f"{CLIENT_REVISION}.yaml"
    return list(YAML(typ="safe").load(listed)["client"])


def judge_client(started: list[str], scenario: str, folder: Path) -> Verdict:
    """One scenario with a client of its own. A client that timed out or failed has failed, whatever was checked."""
    asked = [*started, "client", "--scenario", scenario, "--spec-version", CLIENT_REVISION]
    command = shlex.join((sys.executable, str(CLIENT)))
    done = subprocess.run(
        [*asked, "--command", command, "--timeout", "300000", "-o", str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    checks = [json.loads(path.read_text()) for path in folder.rglob("checks.json")]
    verdict = _verdict([check for one in checks for check in one])
    if done.returncode == 0 and verdict.passed:
        return verdict
    said = "".join(path.read_text()[-1000:] for path in folder.rglob("std*.txt"))
    return Verdict(verdict.passed, verdict.failed | {f"the run as a whole: {said or done.stderr[-1000:]}"})


def judge_clients() -> Verdicts:
    started = command()
    with tempfile.TemporaryDirectory() as root, ThreadPoolExecutor(CLIENTS) as pool:
        judged = {
            scenario: pool.submit(judge_client, started, scenario, Path(root) / str(number))
            for number, scenario in enumerate(client_scenarios())
        }
        return {scenario: run.result() for scenario, run in judged.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revisions", nargs="*", metavar="REVISION", help=f"one of {', '.join(REVISIONS)}")
    revisions = tuple(parser.parse_args().revisions) or REVISIONS
    try:
        found = compare(revisions)
        clients = judge_clients() if CLIENT_REVISION in revisions else {}
    except node.Unavailable as missing:
        print(f"the conformance suite cannot be run: {missing}", file=sys.stderr)
        return UNAVAILABLE
    for comparison in found:
        print("\n".join(comparison.lines()))
    lost = [f"{comparison.revision}  {check}" for comparison in found for check in comparison.lost]
    print("\n".join(f"LOST {one}" for one in lost) or "nothing is lost through Perdure")
    for scenario, verdict in clients.items():
        print(f"{CLIENT_REVISION}  client {scenario:<39} {_said(verdict)}")
    failed = [f"{scenario}: {check}" for scenario, one in clients.items() for check in sorted(one.failed)]
    if clients:
        print(
            f"{CLIENT_REVISION}  client: {sum(one.is_good for one in clients.values())} of {len(clients)} scenarios"
        )
        print("\n".join(f"FAILED {one}" for one in failed))
    return 1 if lost or failed else 0


if __name__ == "__main__":
    sys.exit(main())
