"""Threads for what is done beside something else: kept for the next, and never of another process."""

from __future__ import annotations

import os
import threading

from perdure.storage.beside import Beside

SOON = 10.0


def test_a_thread_that_is_done_is_left_to_the_next() -> None:
    names = {Beside(threading.get_native_id).result() for _ in range(50)}
    assert len(names) < 25
    gate = threading.Event()
    many = [Beside(lambda: gate.wait(SOON) and threading.get_native_id()) for _ in range(8)]
    gate.set()
    assert len({each.result() for each in many}) == 8


def test_a_forked_process_makes_threads_of_its_own() -> None:
    Beside(threading.get_native_id).result()
    child = os.fork()
    if not child:
        os._exit(0 if Beside(os.getpid).result() == os.getpid() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
