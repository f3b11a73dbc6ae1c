"""Limits that the system sets to this process."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

MOST_FILES: Final = 65_536


def raise_descriptor_limit() -> None:
    """As many open files as the system allows without asking anybody: the usual soft limit of 1024 is for programs that
    use `select`, and children that need it can lower theirs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
