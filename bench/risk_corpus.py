"""What the risk benchmark reads: real benign files of this machine, and inputs made to take long."""

from __future__ import annotations

import base64
import os
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import repository  # noqa: F401

from harness.corpora.secret_corpus import filled
from harness.corpora.secret_formats import MARKED

MEGABYTE = 1_000_000
LARGEST = 2 * MEGABYTE
SUFFIXES = frozenset(
    (
        *(".py", ".js", ".ts", ".mjs", ".json", ".md", ".rst", ".txt", ".html", ".css", ".c", ".h", ".toml"),
        *(".cfg", ".ini", ".yaml", ".yml", ".xml", ".sh", ".pl", ".pm", ".go", ".rs", ".map"),
    )
)
ROOTS = (
    Path(sysconfig.get_paths()["stdlib"]),
    Path(sysconfig.get_paths()["purelib"]),
    Path("/usr/share/doc"),
    Path("/usr/lib/node_modules"),
    Path("/usr/include"),
    Path("/usr/share/perl"),
    Path("/usr/lib/python3"),
    Path.home() / ".pyenv" / "versions",
)


def benign_files(megabytes: int) -> list[str]:
    """Texts of this machine, each root giving its share as long as it has any; the same ones in every run."""
    texts: list[str] = []
    size = 0
    walks = [_texts(root) for root in ROOTS if root.is_dir()]
    share = megabytes * MEGABYTE // max(1, len(walks))
    for number, walk in enumerate(walks):
        last = number == len(walks) - 1
        upto = megabytes * MEGABYTE if last else min(size + share, megabytes * MEGABYTE)
        while size < upto and (text := next(walk, None)) is not None:
            texts.append(text)
            size += len(text.encode())
    if size < megabytes * MEGABYTE:
        raise RuntimeError(f"this machine has only {size / MEGABYTE:.0f} MB of benign files")
    return texts


def _texts(root: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            # Keys of test suites are keys; what is measured here is everything else.
            if path.suffix not in SUFFIXES or path.is_symlink() or "certdata" in folder:
                continue
            try:
                if 0 < path.stat().st_size <= LARGEST:
                    yield path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue


def adversarial() -> dict[str, str]:
    """A megabyte of each: what makes a careless pattern take quadratic time, or confirm for ever."""
    chance = random.Random(5)
    forms = [line.split(" ", 1)[1] for line in MARKED.split("\n") if line]
    decoys = " ".join(filled(chance, form)[:-3] for _ in range(60) for form in forms)
    assigned = " ".join(f"api_token={filled(chance, '%n20')}" for _ in range(MEGABYTE // 30))
    return {
        "'a' * 1 MB": "a" * MEGABYTE,
        "decoys of every format": decoys[:MEGABYTE],
        "one wall of base64": base64.b64encode(chance.randbytes(MEGABYTE * 3 // 4)).decode(),
        "base64 in lines": base64.encodebytes(chance.randbytes(MEGABYTE * 3 // 4)).decode()[:MEGABYTE],
        "headers of keys": _repeated("-----BEGIN RSA PRIVATE KEY-----\n"),
        "eyJ": _repeated("eyJ"),
        "sk-": _repeated("sk-"),
        "key=": _repeated("key="),
        "password: {": _repeated("password: {"),
        "assigned values": assigned[:MEGABYTE],
        "user:password@": _repeated("x://a:aB3xY9kL2@c "),
        "wrapped marks": _repeated(base64.b64encode(b"ghp_ghp_ghp_").decode()),
    }


def _repeated(unit: str) -> str:
    return (unit * (MEGABYTE // len(unit) + 1))[:MEGABYTE]
