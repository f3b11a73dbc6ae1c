"""Run the corpus of shell operations: `python -m harness.timeline [--folder DIR]… [--only WORDS]`.

Each operation is recorded by real hook processes and undone, once alone and once with a later edit by another program, in a
new workspace below each folder (default: the temporary directory, and /dev/shm where that is a tmpfs)."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from harness.timeline.corpus import OPERATIONS
from harness.timeline.shell import Violation, check, missing_programs


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", action="append", help="a folder on a file system to test")
    parser.add_argument("--only", help="operations whose name has these words")
    options = parser.parse_args()
    default = [tempfile.gettempdir(), *(["/dev/shm"] if os.path.isdir("/dev/shm") else [])]
    count = skipped = 0
    violations: list[str] = []
    for parent in options.folder or default:
        for operation in OPERATIONS:
            if options.only is not None and options.only not in operation.name:
                continue
            if missing := missing_programs(operation):
                print(f"skipped: {operation.name} needs {', '.join(missing)}")
                skipped += 1
                continue
            for with_later_edit in (False, True):
                with tempfile.TemporaryDirectory(prefix="perdure-corpus-", dir=parent) as folder:
                    count += 1
                    try:
                        check(operation, Path(folder), with_later_edit=with_later_edit)
                    except Violation as violation:
                        later = ", with a later edit" if with_later_edit else ""
                        violations.append(f"{operation.name}{later} in {parent}: {violation}")
                        print(f"VIOLATION {violations[-1]}", flush=True)
    print(f"{count} runs of {len(OPERATIONS)} operations, {skipped} skipped, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
