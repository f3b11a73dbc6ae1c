"""The name of a workspace's store: a hash of the canonical path of its root."""

from __future__ import annotations

import hashlib
import os


def store_id(root: str) -> str:
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
