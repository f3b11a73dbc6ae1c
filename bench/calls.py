"""Calls through a host, beside direct calls and a FastMCP proxy: time added, gain in flight, memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.client import Client
from bench.report import Report, ms, p50
from bench.subjects import Bench, Subject

ADDED_LIMIT = 0.25
RSS_LIMIT_MB = 30.0
RSS_CALLS = 200
IN_FLIGHT = 8
BLOCK = 50
TRIAL_CALLS = 300
WARM_CALLS = 20
SESSIONS = ("connected", "stateful", "default")
TEXT = {"text": "x" * 200}


@dataclass(frozen=True, slots=True)
class Line:
    """A started subject with its backend ready."""

    subject: Subject
    client: Client

    def echo(self, calls: int) -> list[float]:
        """The seconds of each of a number of calls, one after the other."""
        tool = self.subject.tool("echo")
        samples = []
        for _ in range(calls):
            start = time.perf_counter()
            self.client.call(tool, TEXT)
            samples.append(self.client.arrived - start)
        return samples

    def rate(self, tool: str, arguments: dict[str, str], *, calls: int, in_flight: int) -> float:
        """Calls per second."""
        name = self.subject.tool(tool)
        return calls / self.client.pipelined(name, arguments, calls=calls, in_flight=in_flight)

    def rss_mb(self) -> float:
        """Resident memory of the process that was started, without its children."""
        for line in Path(f"/proc/{self.client.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError(f"no VmRSS for process {self.client.pid}")


@contextmanager
def opened(bench: Bench, *subjects: Subject) -> Iterator[list[Line]]:
    with ExitStack() as stack:
        lines = []
        for subject in subjects:
            client = stack.enter_context(bench.start(subject))
            client.initialize()
            client.call_until_ready(subject.tool("echo"), TEXT)
            line = Line(subject, client)
            line.echo(WARM_CALLS)
            lines.append(line)
        yield lines


def best_proxy(bench: Bench, report: Report) -> Subject:
    """FastMCP's fastest way to keep its backend, found by a short trial of each."""
    with opened(bench, *(bench.fastmcp(session) for session in SESSIONS)) as lines:
        samples: dict[str, list[float]] = {line.subject.name: [] for line in lines}
        for _ in range(TRIAL_CALLS // BLOCK):
            for line in lines:
                samples[line.subject.name] += line.echo(BLOCK)
    found = {name: p50(values) for name, values in samples.items()}
    best = min(lines, key=lambda line: found[line.subject.name]).subject
    report.title(
        f"FastMCP proxy: the backend process is kept alive; trial of {TRIAL_CALLS} calls per session form"
    )
    report.figure("p50 of a call", ", ".join(f"{name} {ms(value)}" for name, value in found.items()))
    report.figure("used below", best.name)
    return best


def measure_added(bench: Bench, report: Report, proxy: Subject, *, calls: int) -> None:
    with opened(bench, bench.direct(), bench.mounted(), bench.wrapped(), proxy) as lines:
        samples: dict[str, list[float]] = {line.subject.name: [] for line in lines}
        for _ in range(calls // BLOCK):
            for line in lines:
                samples[line.subject.name] += line.echo(BLOCK)
    found = {name: p50(values) for name, values in samples.items()}
    direct = found["direct"]
    theirs = found[proxy.name] - direct
    report.title(f"time added to a call: p50 of {calls} echo calls each, in interleaved blocks of {BLOCK}")
    report.figure("p50 of a call", ", ".join(f"{name} {ms(value)}" for name, value in found.items()))
    for name in ("perdure run", "perdure wrap"):
        mine = found[name] - direct
        report.ratio(f"added by {name}", f"{ms(mine)}, {proxy.name} {ms(theirs)}", mine / theirs, ADDED_LIMIT)


def measure_in_flight(bench: Bench, report: Report, proxy: Subject, *, blocks: int, calls: int) -> None:
    with opened(bench, bench.direct(), bench.mounted(), bench.wrapped(), proxy) as lines:
        report.title(f"{IN_FLIGHT} calls in flight over 1: median rate of {blocks} blocks each, interleaved")
        for tool, arguments, size in (("work", {}, calls // 4), ("echo", TEXT, calls)):
            _report_gain(report, tool, _rates(lines, tool, arguments, blocks=blocks, calls=size))


def _rates(
    lines: list[Line], tool: str, arguments: dict[str, str], *, blocks: int, calls: int
) -> dict[str, tuple[float, float]]:
    """Rates of each subject with one and with `IN_FLIGHT` calls in flight."""
    single: dict[str, list[float]] = {line.subject.name: [] for line in lines}
    many: dict[str, list[float]] = {line.subject.name: [] for line in lines}
    for _ in range(blocks):
        for line in lines:
            name = line.subject.name
            single[name].append(line.rate(tool, arguments, calls=calls, in_flight=1))
            many[name].append(line.rate(tool, arguments, calls=calls, in_flight=IN_FLIGHT))
    return {name: (p50(single[name]), p50(many[name])) for name in single}


def _report_gain(report: Report, tool: str, rates: Mapping[str, tuple[float, float]]) -> None:
    what = {"work": "2 ms in a thread", "echo": "plain echo"}[tool]
    for name, (one, many) in rates.items():
        text = f"{one:,.0f}/s -> {many:,.0f}/s  gain {many / one:.2f}x"
        if name.startswith("perdure"):
            report.above(f"{what}: {name}", f"{text}, must exceed 1", many / one, 1.0)
        else:
            report.figure(f"{what}: {name}", text)


def measure_memory(bench: Bench, report: Report, proxy: Subject) -> None:
    report.title(f"memory of the host process after {RSS_CALLS} calls")
    for subject in (bench.mounted(), bench.wrapped(), proxy):
        with opened(bench, subject) as (line,):
            line.echo(RSS_CALLS)
            rss = line.rss_mb()
        if subject is proxy:
            report.figure(f"RSS of {subject.name}", f"{rss:.1f} MB")
        else:
            limit = f"limit {RSS_LIMIT_MB:.0f} MB"
            report.at_most(f"RSS of {subject.name}", f"{rss:.1f} MB, {limit}", rss, RSS_LIMIT_MB)
