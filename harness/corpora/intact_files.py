"""Real files that are right, checked: each error that is found in one is false.

    python -m harness.corpora.intact_files FOLDER… [--each 100] [--show]

Of each format as many files as asked for are taken from below the folders, spread over all there are. What others keep
as examples of what is wrong (`fail`, `invalid`, `error` in the path) is left out. A finding that is only doubted is
counted, but not as false.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.corpora.broken_files import SAMPLES
from perdure.validate.detect import detect
from perdure.validate.isolated import Checker

MOST_BYTES: Final = 300_000
_WRONG: Final = re.compile(
    r"(?i)fail|invalid|error|broken|bad|malformed|syntax|corrupt|conflict|template|jinja"
)
_FAMILIES: Final = {"jsonc": "json", "json5": "json", "jsonl": "json", "tsx": "typescript"}


class Tally(msgspec.Struct):
    checked: int = 0
    unchecked: int = 0
    doubtful: int = 0
    false: list[tuple[str, str]] = []


def found(folders: Iterable[Path]) -> dict[str, list[Path]]:
    by_format: dict[str, list[Path]] = defaultdict(list)
    for path in _files(folders):
        form = detect("", target_path=str(path))
        form = _FAMILIES.get(form, form)
        if form in SAMPLES:
            by_format[form].append(path)
    return by_format


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for root, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if name not in (".git", "node_modules"))
            for name in sorted(files):
                path = Path(root, name)
                inside = str(path.relative_to(folder))
                if not path.is_symlink() and not _WRONG.search(inside) and path.stat().st_size < MOST_BYTES:
                    yield path


def tallied(checker: Checker, paths: list[Path], each: int) -> Tally:
    tally = Tally()
    step = max(1, len(paths) // each)
    for path in paths[::step][:each]:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            continue
        report = checker.check(text, target_path=str(path))
        tally.checked += 1
        tally.unchecked += report.valid is None and not report.errors
        tally.doubtful += report.valid is None and bool(report.errors)
        if report.valid is False:
            tally.false.append((str(path), report.summary))
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description="False errors in real files that are right.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--each", type=int, default=100)
    parser.add_argument("--show", action="store_true", help="print each file with an error")
    options = parser.parse_args()
    by_format = found(options.folders)
    false = 0
    with Checker(timeout_s=20.0) as checker:
        for form in SAMPLES:
            tally = tallied(checker, by_format[form], options.each)
            false += len(tally.false)
            print(
                f"{form:12} {tally.checked:4} files  {len(tally.false)} false  {tally.doubtful} doubtful  "
                f"{tally.unchecked} not checked",
                flush=True,
            )
            for path, summary in tally.false if options.show else ():
                print(f"    {path}: {summary}")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
