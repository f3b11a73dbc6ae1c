"""Where a serving process can be found by those who attach to it; imports nothing, since they must start at once."""

from __future__ import annotations

import os

from perdure.storage.user_dirs import private_dir


def attach_path() -> str:
    """`PERDURE_ATTACH` names another; a socket's path must be short."""
    return os.environ.get("PERDURE_ATTACH") or os.path.join(private_dir("serve"), "attach.sock")
