"""A file sent in pieces and composed, through the whole host, beside a peer."""

from __future__ import annotations

import time
from pathlib import Path

from bench import peers, writes
from bench.client import Client
from bench.report import Report, ms, p50

CHUNKS = 200
CHUNK = 4096
LIMIT = 0.4


def measure(scratch: Path, perdure: str, report: Report, *, rounds: int) -> None:
    """Each round is a new session of `CHUNKS` pieces, one after the other, and its compose."""
    samples: dict[str, list[float]] = {"perdure": [], "resilient-write": []}
    with writes.opened(scratch, perdure) as (mine, theirs):
        for number in range(rounds + 1):
            pieces = [writes.text_of(CHUNK) for _ in range(CHUNKS)]
            for name, client, prefix in (
                ("perdure", mine.client, ""),
                ("resilient-write", theirs.client, "rw."),
            ):
                seconds = _build(client, prefix, f"s{number}", pieces)
                if number:  # the first one warms both up
                    samples[name].append(seconds)
    ours, peer = p50(samples["perdure"]), p50(samples["resilient-write"])
    report.title(
        f"{CHUNKS} chunks of {CHUNK} bytes and their compose: p50 of {rounds} files each, interleaved"
    )
    report.ratio(f"perdure over {peers.RESILIENT_WRITE.name}", f"{ms(ours)}, {ms(peer)}", ours / peer, LIMIT)


def _build(client: Client, prefix: str, session: str, pieces: list[str]) -> float:
    start = time.perf_counter()
    for index, piece in enumerate(pieces, 1):
        _call(client, f"{prefix}chunk_write", {"session": session, "index": index, "content": piece})
    _call(
        client,
        f"{prefix}chunk_compose",
        {"session": session, "output_path": f"{session}.txt", "cleanup": True},
    )
    return time.perf_counter() - start


def _call(client: Client, tool: str, arguments: dict[str, object]) -> None:
    answer = client.post(client.prepare("tools/call", {"name": tool, "arguments": arguments}), 120)
    if answer.get("isError") or "error" in answer:
        raise ValueError(f"{tool} was refused: {str(answer)[:300]}")
