"""Limits that the system sets to this process: open files, memory, processor time."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

MOST_FILES: Final = 65_536


def raise_file_limit() -> None:
    """Allow as many open files as the system grants without a privilege.

    The usual soft limit of 1024 is for programs that use `select`. A child that needs it can lower its own.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def file_limit() -> int | None:
    """How many files this process may have open; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def limit_memory(size: int) -> None:
    """Bound the address space. macOS refuses any such limit, and a process cannot raise one that is lower already."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def disable_core_dumps() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def resident_bytes() -> int:
    """Memory in use now. Not the peak: Linux passes the peak of a parent on to its children."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * resource.getpagesize()


@contextmanager
def processor_time(seconds: float) -> Iterator[None]:
    """End this process if it computes for longer than this in the block; `is_processor_timeout` tells its parent.

    A timer starts anew for each block. The limit of a whole process counts in ticks, which after a minute are seconds
    ahead of the time that the system reports.
    """
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the process may have been started with it ignored
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def is_processor_timeout(returncode: int | None) -> bool:
    """Whether `processor_time` ended the child with this return code."""
    return returncode == -signal.SIGPROF
