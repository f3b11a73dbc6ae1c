"""Where a process with this home keeps the store of a workspace, and the anchor of its journal."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.storage.store_id import store_id


def store_of(workspace: Path | str, home: Path | str) -> Path:
    """`home` is the process's PERDURE_HOME."""
    return (Path(home) / "workspaces").resolve() / store_id(os.path.realpath(workspace))


def anchor_of(workspace: Path | str, home: Path | str) -> Path:
    return Path(home) / "anchors" / store_id(os.path.realpath(workspace))


def relocate(former: Path, workspace: Path, home: Path) -> None:
    """Give a copied workspace the copy of its store, which has the name of the former path."""
    store_of(former, home).rename(store_of(workspace, home))
    if (anchor := anchor_of(former, home)).exists():
        anchor.rename(anchor_of(workspace, home))
