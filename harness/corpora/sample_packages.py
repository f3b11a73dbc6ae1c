"""Real files of formats that a machine may have few of, from Debian packages: downloaded and unpacked, not installed.

    python -m harness.corpora.sample_packages FOLDER
    python -m harness.corpora.intact_files FOLDER…

LaTeX comes from the documentation of TeX Live, TOML from the manifests of Rust crates, spread over all there are.
A package that is in the folder already is not fetched again. Needs `apt-get` and `dpkg-deb`.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LATEX: Final = ("texlive-humanities-doc",)
CRATES: Final = 130
FETCH_SECONDS: Final = 600


def crates(most: int) -> list[str]:
    """Names of packages with a crate each; those with a `+` are only features of others."""
    listed = subprocess.run(
        ["apt-cache", "pkgnames", "librust-"], capture_output=True, text=True, check=True
    ).stdout.split()
    named = sorted(name for name in listed if name.endswith("-dev") and "+" not in name)
    return named[:: max(1, len(named) // most)][:most]


def unpacked(folder: Path, names: Sequence[str]) -> list[str]:
    """Fetch and unpack what is not in the folder yet; the names of what was."""
    missing = [name for name in names if not (folder / name).is_dir()]
    if not missing:
        return []
    with tempfile.TemporaryDirectory(dir=folder) as fetched:
        # A name without a package of its own makes it say no for all, so what came is taken.
        subprocess.run(
            ["apt-get", "download", "--quiet", *missing],
            cwd=fetched,
            timeout=FETCH_SECONDS,
            check=False,
            stdout=subprocess.DEVNULL,
        )
        packages = sorted(Path(fetched).glob("*.deb"))
        for package in packages:
            _unpack(package, folder / package.name.partition("_")[0])
    return [package.name.partition("_")[0] for package in packages]


def _unpack(package: Path, target: Path) -> None:
    """Whole or not at all: the name is given last."""
    making = package.with_suffix(".making")
    subprocess.run(["dpkg-deb", "-x", str(package), str(making)], check=True)
    for file in making.rglob("*.gz"):
        if file.is_file() and not file.is_symlink():
            with gzip.open(file) as packed, open(file.with_suffix(""), "wb") as plain:
                shutil.copyfileobj(packed, plain)
            file.unlink()
    making.rename(target)


def main() -> int:
    parser = argparse.ArgumentParser(description="Real LaTeX and TOML files from Debian packages.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        print("this needs apt-get and dpkg-deb, which are not here", file=sys.stderr)
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    done = unpacked(options.folder, [*LATEX, *crates(CRATES)])
    print(f"{len(done)} packages fetched, {len(list(options.folder.iterdir()))} there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
