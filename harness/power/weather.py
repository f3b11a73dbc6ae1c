"""What a kernel does on its own within half a minute, all the time: this file or that is written out, in no order.

Not in the process that writes: to close a database's file there would drop the locks that SQLite holds on it.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from harness.power import devices

PAUSE_S: Final = 0.02
WHOLE: Final = 0.05
"""How often it is everything at once, with a commit of the file system's own journal."""


@contextmanager
def weather(root: str, seed: int) -> Iterator[None]:
    ended = threading.Event()
    thread = threading.Thread(
        target=_blow, args=(root, random.Random(seed), ended), name="weather", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _blow(root: str, chance: random.Random, ended: threading.Event) -> None:
    while not ended.wait(chance.random() * PAUSE_S):
        files = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
        try:
            fd = os.open(chance.choice([root, *files]), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue  # gone since
        try:
            if chance.random() < WHOLE:
                devices.sync_file_system(fd)
            else:
                devices.start_writing_out(fd)
        finally:
            os.close(fd)
