"""The measurements of the risk benchmark. Peers run in their own environment, fed and timed there."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from pathlib import Path

import peers
import repository  # noqa: F401
import risk_corpus
from report import Report, p50

from harness.corpora.benign_corpus import hard_negatives
from harness.corpora.secret_corpus import Sample, filled, positives
from perdure import risk

RUNNER = Path(__file__).parent / "servers" / "risk_peer.py"
PEERS = (peers.RESILIENT_WRITE, peers.DETECT_SECRETS)
PEER_SECONDS = 600
MB = risk_corpus.MEGABYTE
WARNED = ("medium", "high")
SMALL = 1024
PASSES = 5  # other work on the machine only ever slows a pass down
ADVERSARIAL_PEER = 20_000  # a fraction of a megabyte is as much as the peers get through


def speed(report: Report, files: list[str], peer_megabytes: float) -> None:
    report.title("speed, CPU time")
    size = sum(len(text.encode()) for text in files)
    risk.scan("")
    rates = sorted(size / MB / _cpu(files) for _ in range(PASSES))
    text = f"{rates[-1]:.0f} MB/s, best of {PASSES} passes (worst {rates[0]:.0f})"
    report.above("benign files", f"{text}, over {size / MB:.0f} MB in {len(files)} files", rates[-1], 100)
    small = next(text for text in files if len(text) >= SMALL)[:SMALL]
    times = [_cpu([small] * 200) / 200 for _ in range(25)]
    report.at_most("1 KB, median", f"{p50(times) * 1e6:.1f} us", p50(times) * 1e6, 20)
    some = _first(files, peer_megabytes)
    for peer in PEERS:
        answers = _peer(peer, some)
        theirs = sum(len(text.encode()) for text in some) / MB / sum(answer["seconds"] for answer in answers)
        report.figure(f"  {peer.name}", f"{theirs:.2f} MB/s over {peer_megabytes} MB")


def _first(files: list[str], megabytes: float) -> list[str]:
    """Some of all the files, small ones, since a long line stops the peers for minutes."""
    chosen: list[str] = []
    size = 0
    for text in files[:: max(1, len(files) // 400)]:
        if len(text) < 40_000 and size < megabytes * MB:
            chosen.append(text)
            size += len(text)
    return chosen


def adversarial(report: Report) -> None:
    report.title("adversarial inputs, CPU time for 1 MB")
    texts = risk_corpus.adversarial()
    for name, text in texts.items():
        seconds = _cpu([text])
        report.at_most(name, f"{seconds * 1000:.0f} ms", seconds, 0.5)
    own = risk.RiskSettings(extend_patterns={"own": (risk.ExtraPattern("nested", "(a+)+$"),)})
    risk.scan("", own)
    begun = time.process_time()
    risk.scan("a" * MB + "b", own)
    seconds = time.process_time() - begun
    report.at_most("a policy's own (a+)+$", f"{seconds * 1000:.0f} ms", seconds, 0.5)
    _starvation(report)
    for peer in PEERS:
        answers = _peer(peer, ["a" * ADVERSARIAL_PEER])
        report.figure(f"  {peer.name}", f"{answers[0]['seconds'] * 1000:.0f} ms for 'a' * {ADVERSARIAL_PEER}")


def _starvation(report: Report) -> None:
    """Ten thousand near misses must not hide the one that is real."""
    chance = random.Random(9)
    decoys = "\n".join(f"ghp_{filled(chance, '%n30')}" for _ in range(10_000))
    found = risk.scan(f"{decoys}\nghp_{filled(chance, '%n36')}\n")
    report.above("one key after 10,000 decoys", f"{found.total} found, {found.verdict}", found.total, 0)


def recall(report: Report, seed: int, each: int) -> None:
    samples = list(positives(seed, each))
    formats = {sample.format for sample in samples}
    report.title(f"recall, {len(samples)} positives of {len(formats)} formats (seed {seed})")
    reports = [risk.scan(sample.text) for sample in samples]
    warned = [found.verdict in WARNED for found in reports]
    blocked = [found.verdict == "high" for found in reports]
    share = sum(warned) / len(samples)
    report.above("warned or blocked", f"{share:.2%}", share, 0.97)
    report.figure("  blocked", f"{sum(blocked) / len(samples):.2%}")
    report.figure("  most missed", _missed(samples, warned))
    for peer in PEERS:
        answers = _peer(peer, [sample.text for sample in samples])
        theirs = sum(answer["warned"] for answer in answers) / len(samples)
        at_block = sum(answer["blocked"] for answer in answers) / len(samples)
        report.figure(f"  {peer.name}", f"warned {theirs:.2%}, blocked {at_block:.2%}")


def _missed(samples: list[Sample], found: list[bool]) -> str:
    missed = Counter(sample.format for sample, good in zip(samples, found, strict=True) if not good)
    return ", ".join(f"{name} {count}" for name, count in missed.most_common(8)) or "none"


def benign(report: Report, files: list[str], peer_megabytes: float, seed: int) -> None:
    negatives = [sample.text for sample in hard_negatives(seed)]
    report.title(f"false alarms, {len(files)} benign files and {len(negatives)} hard negatives (seed {seed})")
    for label, texts in (("benign files", files), ("hard negatives", negatives)):
        verdicts = Counter(risk.scan(text).verdict for text in texts)
        warned = sum(verdicts[name] for name in WARNED) / len(texts)
        blocked = verdicts["high"] / len(texts)
        report.at_most(f"{label} warned", f"{warned:.3%}", warned, 0.01)
        report.at_most(f"{label} blocked", f"{blocked:.3%}", blocked, 0.001)
    for peer in PEERS:
        for label, texts in (("files", _first(files, peer_megabytes)), ("hard negatives", negatives)):
            answers = _peer(peer, texts)
            warned = sum(answer["warned"] for answer in answers) / len(texts)
            blocked = sum(answer["blocked"] for answer in answers) / len(texts)
            report.figure(
                f"  {peer.name}, {len(texts)} {label}", f"warned {warned:.2%}, blocked {blocked:.2%}"
            )


def _cpu(texts: list[str]) -> float:
    begun = time.process_time()
    for text in texts:
        risk.scan(text)
    return time.process_time() - begun


def _peer(peer: peers.Peer, texts: list[str]) -> list[dict[str, float]]:
    """One process for all texts; each answer has its CPU seconds and whether it warned and blocked."""
    done = subprocess.run(
        [peer.python, str(RUNNER), peer.name],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=PEER_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(f"{peer.name}: {done.stderr[-500:]}")
    answers: list[dict[str, float]] = json.loads(done.stdout)
    return answers
