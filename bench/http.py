"""The benchmark of `perdure serve`: beside the SDK's own server and a FastMCP proxy with the same tool, in one run.

    python -m bench.http [--quick] [--only calls,sessions,attached] [--perdure PATH]

Calls are trivial, so that what is measured is what stands in front of the tool. Each line says PASS or SHORT against
its requirement. SHORT is a finding, not a failure: the exit code is 0 unless something broke.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import peers, sections, web
from bench.report import Report, machine, ms, p50

SECTIONS = ("calls", "sessions", "attached")
CLIENTS = (1, 8, 64)
ROUNDS = 3
OWN_FLOOR = 0.7
PROXY_FLOOR = 2.0
SESSION_LIMIT_KB = 200.0
ATTACHED_LIMIT = 0.5


def main() -> int:
    options = sections.options(__doc__, SECTIONS, "fewer calls")
    peers.ensure(peers.FASTMCP)
    sections.limit_time()
    report = Report()
    print(f"perdure serve benchmark{' (quick)' if options.quick else ''}")
    print(f"  machine  {machine()}")
    print(f"  peer     {peers.versions(peers.FASTMCP)}")
    perdure, calls = str(options.perdure), 384 if options.quick else 1920
    measures: dict[str, Callable[[Path], None]] = {
        "calls": lambda scratch: measure_calls(scratch, perdure, report, calls),
        "sessions": lambda scratch: measure_sessions(
            scratch, perdure, report, 200 if options.quick else 1000
        ),
        "attached": lambda scratch: measure_attached(scratch, perdure, report),
    }
    return sections.run(measures, options.only, report)


def measure_calls(scratch: Path, perdure: str, report: Report, calls: int) -> None:
    echo = shlex.join(web.own_echo())
    ours, own, proxy = web.free_port(), web.free_port(), web.free_port()
    commands = {
        ours: [perdure, "serve", "--port", str(ours), "--workspace", str(scratch), "--wrap", echo],
        own: [sys.executable, str(web.SERVERS / "echo_http.py"), str(own)],
        proxy: [peers.FASTMCP.python, str(web.SERVERS / "fastmcp_http.py"), str(proxy), *web.own_echo()],
    }
    report.title("calls per second, and the slowest hundredth")
    with (
        web.served(commands[ours], ours, scratch),
        web.served(commands[own], own, scratch),
        web.served(commands[proxy], proxy, scratch),
    ):
        for clients in CLIENTS:
            rates: dict[int, list[float]] = {port: [] for port in commands}
            slow: dict[int, list[float]] = {port: [] for port in commands}
            for _ in range(ROUNDS):
                for port in commands:
                    rate, times = web.load(port, "echo", clients, calls if port != proxy else calls // 4)
                    rates[port].append(rate)
                    slow[port].append(sorted(times)[int(len(times) * 0.99) - 1])
            mine, theirs, proxied = (p50(rates[port]) for port in (ours, own, proxy))
            late = " beside ".join(ms(p50(slow[port])) for port in (ours, own, proxy))
            report.figure(f"p99 with {clients} clients", f"{late} (perdure, SDK alone, FastMCP proxy)")
            text = f"{mine:.0f}/s beside {theirs:.0f}/s, {mine / theirs:.2f}x, at least {OWN_FLOOR}x"
            report.above(f"{clients} clients, the SDK's server", text, mine / theirs, OWN_FLOOR)
            text = f"{mine:.0f}/s beside {proxied:.0f}/s, {mine / proxied:.2f}x, at least {PROXY_FLOOR:.0f}x"
            report.above(f"{clients} clients, FastMCP's proxy", text, mine / proxied, PROXY_FLOOR)


def measure_sessions(scratch: Path, perdure: str, report: Report, count: int) -> None:
    port = web.free_port()
    command = [perdure, "serve", "--port", str(port), "--workspace", str(scratch)]
    report.title("idle sessions")
    with web.served(command, port, scratch) as pid:
        web.open_sessions(port, 50)
        before = web.memory_kb(pid)
        web.open_sessions(port, count)
        each = (web.memory_kb(pid) - before) / count
        text = f"{each:.0f} KB each over {count}, at most {SESSION_LIMIT_KB:.0f} KB"
        report.at_most("memory of an idle session", text, each, SESSION_LIMIT_KB)


def measure_attached(scratch: Path, perdure: str, report: Report) -> None:
    """Five clients on one serving process, beside five hosts with a worker each."""
    report.title("five stdio clients")
    port = web.free_port()
    env = {**os.environ, "PERDURE_HOME": str(scratch / "home")}
    command = [perdure, "serve", "--port", str(port), "--workspace", str(scratch)]
    with web.served(command, port, scratch) as pid:
        while not (scratch / "home" / "serve" / "attach.sock").exists():
            time.sleep(0.05)
        attached = [_stdio([perdure, "attach"], scratch, env) for _ in range(5)]
        shared = web.memory_kb(pid) + sum(web.memory_kb(one.pid) for one in attached)
        for one in attached:
            _close(one)
    own = [_stdio([perdure, "run", "--workspace", str(scratch)], scratch, env) for _ in range(5)]
    apart = sum(web.memory_kb(one.pid) for one in own)
    for one in own:
        _close(one)
    text = f"{shared / 1024:.0f} MB attached beside {apart / 1024:.0f} MB of hosts"
    report.ratio("memory", text, shared / apart, ATTACHED_LIMIT)


def _stdio(argv: list[str], scratch: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """A client's process after its first call, so that everything it needs is there."""
    process = subprocess.Popen(argv, cwd=scratch, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    opening = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    opening += b'"clientInfo":{"name":"bench","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    call = b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_state","arguments":{"key":"k"}}}\n'
    process.stdin.write(opening + call)
    process.stdin.flush()
    while b'"id":2' not in process.stdout.readline():
        pass
    time.sleep(0.2)
    return process


def _close(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait(15)
    process.stdout.close()


if __name__ == "__main__":
    sys.exit(main())
