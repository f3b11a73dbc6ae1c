"""A content that arrives: gone from memory when its call is over, without waiting for anybody to look for garbage."""

from __future__ import annotations

import gc
import mmap
import sys
from pathlib import Path

from perdure.storage.blobs import Blobs
from perdure.surfaces.write.arriving import Arrivals

TEXT = "a line of text\n" * 100_000


def test_the_text_of_a_call_that_is_over_is_held_by_nobody(tmp_path: Path) -> None:
    arrivals = Arrivals(Blobs(tmp_path / "blobs").arriving, looks=True)
    text = "".join([TEXT, "of this call\n"])
    memory = mmap.mmap(-1, len(text))
    memory.write(text.encode())
    before = sys.getrefcount(text)
    gc.disable()
    try:
        arriving = arrivals.begin(None)
        arriving.reach(memoryview(memory)[:4096])
        arriving.end(memoryview(memory))
        arriving.becomes(text)
        assert arrivals.of(text) is arriving
        assert arriving.put() is not None
        assert arriving.ahead() is not None
        arriving.close()
        assert arrivals.of(text) is None
        del arriving
        assert sys.getrefcount(text) == before
    finally:
        gc.enable()
