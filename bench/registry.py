"""The registry's benchmark: the records of an official registry, loaded, planned and searched.

    python -m bench.registry [--crawl FILE] [--quick]

The records of 2,800 servers are made from a fixed seed, unless `--crawl` or PERDURE_CRAWL names a crawl of a real registry:
JSON, gzipped or not, a list of records as the official API gives them. The command is measured against a catalog on
loopback that serves the same records. SHORT is a finding, not a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.report import Report, machine, ms, p50, p95
from harness.corpora.catalog_records import load_records
from perdure.registry.catalog.mirror import CatalogStore, search
from perdure.registry.catalog.records import read_record
from perdure.registry.packages.aliases import short_name
from perdure.registry.packages.choice import choose
from perdure.registry.packages.launch_plan import NotRunnable, make_entry

ROOT = Path(__file__).resolve().parents[1]

QUERIES = (
    *("postgres", "github", "weather forecast", "slack", "filesystem", "browser automation", "sql", "notion"),
    *(
        "mcp server",
        "io.github",
        "airtable-mcp-server",
        "search the web",
        "zzzz",
        "pdf",
        "kubernetes",
        "stripe payments",
    ),
)
WARM_MS = 20


def main() -> int:
    options = _options()
    records = load_records(options.crawl)
    print(f"perdure registry benchmark{' (quick)' if options.quick else ''}")
    print(f"  machine  {machine()}")
    print(f"  catalog  {len(records)} records, {len({one['server']['name'] for one in records})} servers")
    report = Report()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as scratch:
        _load(report, records, scratch)
        _plans(report, records)
        _searches(report, scratch, 5 if options.quick else 40)
        _command(report, records, Path(scratch), 3 if options.quick else 10)
    report.close()
    return 1 if report.broken else 0


def _load(report: Report, records: list[dict[str, Any]], scratch: str) -> None:
    report.title("Load")
    began = time.perf_counter()
    read = [read_record(one) for one in records]
    report.figure("read every record", f"{ms(time.perf_counter() - began)}, {len(read)} of {len(records)}")
    store = CatalogStore("bench", scratch)
    began = time.perf_counter()
    progress = store.begin()
    for at in range(0, len(records), 100):
        progress = store.add_page(progress, records[at : at + 100], str(at))
    store.finish(progress)
    report.figure("copy and index, a transaction per page", ms(time.perf_counter() - began))
    store.close()


def _plans(report: Report, records: list[dict[str, Any]]) -> None:
    report.title("server.json to a runnable entry")
    kinds: Counter[str] = Counter()
    refused = 0
    began = time.perf_counter()
    for one in records:
        record = read_record(one)
        try:
            plan = choose(record, lambda command: True)
            if plan.bundle is None:
                make_entry(plan, short_name(record.name), {}, "")
            kinds[plan.kind] += 1
        except NotRunnable:
            refused += 1
    took = time.perf_counter() - began
    said = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())
    report.figure("pinned entries", f"{kinds.total()} ({said}) in {ms(took)}")
    report.figure("with a reason why not", str(refused))
    report.at_most(
        "neither", str(len(records) - kinds.total() - refused), len(records) - kinds.total() - refused, 0
    )


def _searches(report: Report, scratch: str, rounds: int) -> None:
    report.title("Search")
    cold = []
    for _ in range(rounds):
        store = CatalogStore("bench", scratch)
        began = time.perf_counter()
        search(store, "postgres", 20)
        cold.append(time.perf_counter() - began)
        store.close()
    report.figure("cold: open the index and search", f"{ms(p50(cold))} median, {ms(p95(cold))} p95")
    store = CatalogStore("bench", scratch)
    warm = []
    for _ in range(rounds):
        for asked in QUERIES:
            began = time.perf_counter()
            search(store, asked, 20)
            warm.append(time.perf_counter() - began)
    store.close()
    text = f"{ms(p50(warm))} median, {ms(p95(warm))} p95, {ms(max(warm))} worst of {len(warm)}"
    report.at_most(f"warm, p95 at most {WARM_MS} ms", text, p95(warm) * 1000, WARM_MS)


def _command(report: Report, records: list[dict[str, Any]], scratch: Path, rounds: int) -> None:
    report.title("The command, a process each")
    sys.path.insert(0, str(ROOT / "tests"))
    from catalog_servers import official, scripted

    env = {**os.environ, "PERDURE_HOME": str(scratch / "home")}
    perdure = Path(sys.executable).parent / "perdure"
    with scripted(official(records)) as server:
        command = [str(perdure), "registry", "search", "postgres", "--catalog", server.url, "--json"]
        began = time.perf_counter()
        subprocess.run(command, env=env, check=True, capture_output=True)
        report.figure("first search: copy the catalog over HTTP", ms(time.perf_counter() - began))
        later = []
        for _ in range(rounds):
            began = time.perf_counter()
            done = subprocess.run(command, env=env, check=True, capture_output=True)
            later.append(time.perf_counter() - began)
            assert json.loads(done.stdout)["servers"]
    report.figure("later searches", f"{ms(p50(later))} median, {ms(p95(later))} p95")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The registry's benchmark, on records made here or on a crawl of the official registry."
    )
    parser.add_argument("--crawl", metavar="FILE")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
