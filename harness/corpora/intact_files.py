"""Check real files that are right: each error that is found in one is false.

    python -m harness.corpora.intact_files FOLDER… [--each 250] [--show]

Takes as many files of each format as asked for from below the folders, spread over all there are. Files that others keep
as examples of what is wrong (`fail`, `invalid`, `error` in the path) are left out. A file with an error is false unless
the language's own tool rejects it as well. A grammar's warnings are counted, but not as errors: as a new file, the file
would be written.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from perdure.validate import regressions
from perdure.validate.detect import detect
from perdure.validate.report import LEVELS, UNKNOWN
from perdure.validate.sandbox import Checker

MOST_BYTES: Final = 300_000
TOOL_SECONDS: Final = 60
_WRONG: Final = re.compile(
    r"(?i)fail|invalid|error|broken|bad|malformed|syntax|corrupt|conflict|template|jinja"
)
# Each gets the file's name as its last argument and rejects a wrong file by its exit status.
_TOOLS: Final = {
    "json": [
        "node",
        "-e",
        "JSON.parse(require('fs').readFileSync(process.argv[1], 'utf8').replace(/^\\uFEFF/, ''))",
    ],
    "javascript": ["node", "--check"],
    "python": [sys.executable, "-c", "import ast, sys; ast.parse(open(sys.argv[1], 'rb').read())"],
    "xml": ["xmllint", "--noout", "--nonet"],
    "shell": ["bash", "-n"],
    "ruby": ["ruby", "-c"],
    "php": ["php", "-l"],
}


class Tally(msgspec.Struct):
    checked: int = 0
    warned: int = 0
    unchecked: int = 0
    rejected: int = 0  # by the language's own tool as well
    false: list[tuple[str, str]] = []


def files_by_format(folders: Iterable[Path]) -> dict[str, list[Path]]:
    by_format: dict[str, list[Path]] = defaultdict(list)
    for path in _files(folders):
        form = detect("", target_path=str(path))
        if form != UNKNOWN:
            by_format[form].append(path)
    return by_format


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for root, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if name != ".git")
            for name in sorted(files):
                path = Path(root, name)
                inside = str(path.relative_to(folder))
                if not path.is_symlink() and not _WRONG.search(inside) and path.stat().st_size < MOST_BYTES:
                    yield path


def is_accepted_by_own_tool(form: str, path: Path) -> bool | None:
    """None where the tool is not installed, or there is none."""
    if form == "toml":
        try:
            tomllib.loads(path.read_text())
        except tomllib.TOMLDecodeError:
            return False
        return True
    tool = _TOOLS.get(form)
    if tool is None or shutil.which(tool[0]) is None:
        return None
    run = subprocess.run([*tool, str(path)], capture_output=True, timeout=TOOL_SECONDS, check=False)
    return run.returncode == 0


def tally(checker: Checker, form: str, paths: list[Path], each: int) -> Tally:
    counts = Tally()
    for path in _spread(paths, each):
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError):
            continue
        report = checker.check(text, target_path=str(path))
        if report.format != form:
            continue
        counts.checked += 1
        counts.warned += report.valid is None and bool(report.errors)
        counts.unchecked += report.valid is None and not report.errors
        if regressions(None, report):
            if is_accepted_by_own_tool(form, path) is False:
                counts.rejected += 1
            else:
                counts.false.append((str(path), report.summary))
    return counts


def _spread(paths: list[Path], each: int) -> list[Path]:
    step = max(1, len(paths) // each)
    return paths[::step][:each]


def main() -> int:
    parser = argparse.ArgumentParser(description="False errors in real files that are right.")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--each", type=int, default=250, help="number of files of each format [default: 250]")
    parser.add_argument("--format", choices=sorted(LEVELS), action="append", help="only this one; repeatable")
    parser.add_argument("--show", action="store_true", help="print each file with an error")
    options = parser.parse_args()
    by_format = files_by_format(options.folders)
    false = files = formats = 0
    with Checker(timeout_s=20.0) as checker:
        for form in options.format or sorted(by_format):
            counts = tally(checker, form, by_format[form], options.each)
            false += len(counts.false)
            files += counts.checked
            formats += counts.checked > 0
            print(
                f"{form:12} {LEVELS[form]:7} {counts.checked:4} files  {len(counts.false)} false  {counts.warned} warned  "
                f"{counts.unchecked} not checked  {counts.rejected} rejected by the language's own tool too",
                flush=True,
            )
            for path, summary in counts.false if options.show else ():
                print(f"    {path}: {summary}")
    print(f"{files} files of {formats} formats: {false} false errors")
    return 1 if false else 0


if __name__ == "__main__":
    sys.exit(main())
