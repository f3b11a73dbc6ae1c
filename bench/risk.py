"""The risk check's benchmark: perdure beside resilient-write's scorer and detect-secrets, in one run.

    python -m bench.risk [--quick] [--only speed,adversarial,recall,benign] [--seed N]

Positives and hard negatives come from `harness.corpora` (formats with random bodies); the benign files are
whatever this machine has of programs, documents and data. A text is warned about when its verdict is `medium` or
worse and blocked when it is `high`; of detect-secrets any finding counts as a block, since it knows one grade.
SHORT is a finding, not a failure.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from bench import peers, risk_corpus, risk_sections
from bench.report import Report, machine

SECTIONS = ("speed", "adversarial", "recall", "benign")


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything: megabytes of files for us and for the peers, samples of each format."""

    megabytes: int
    peer_megabytes: float
    each: int


FULL = Size(megabytes=60, peer_megabytes=1.5, each=10)
QUICK = Size(megabytes=12, peer_megabytes=0.3, each=2)


def main() -> int:
    options = _options()
    for peer in (peers.RESILIENT_WRITE, peers.DETECT_SECRETS):
        peers.ensure(peer)
    print(f"perdure risk benchmark{' (quick)' if options.quick else ''}")
    print(f"  machine  {machine()}")
    for peer in (peers.RESILIENT_WRITE, peers.DETECT_SECRETS):
        print(f"  peer     {peers.versions(peer)}")
    size = QUICK if options.quick else FULL
    report = Report()
    files = risk_corpus.benign_files(size.megabytes)
    sections = {
        "speed": lambda: risk_sections.speed(report, files, size.peer_megabytes),
        "adversarial": lambda: risk_sections.adversarial(report),
        "recall": lambda: risk_sections.recall(report, options.seed, size.each),
        "benign": lambda: risk_sections.benign(report, files, size.peer_megabytes, options.seed),
    }
    for name, measure in sections.items():
        if name not in options.only:
            continue
        try:
            measure()
        except (OSError, ValueError, RuntimeError) as error:
            report.failed(name, error)
    report.close()
    return 1 if report.broken else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The risk check's benchmark, beside its peers.")
    parser.add_argument("--quick", action="store_true", help="fewer files and samples")
    parser.add_argument("--only", type=_sections, default=SECTIONS, help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--seed", type=int, default=1, help="of the labelled corpus")
    return parser.parse_args()


def _sections(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - set(SECTIONS):
        raise argparse.ArgumentTypeError(f"no section {', '.join(sorted(unknown))}")
    return names


if __name__ == "__main__":
    sys.exit(main())
