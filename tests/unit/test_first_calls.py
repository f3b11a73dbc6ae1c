"""Calls of one tool that are its first ones, at the same time."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: what is tested for is a crash of the whole process.
_MANY_FIRST_CALLS = """
import sys, threading
from typing import Annotated, Literal
import msgspec
from perdure.model.tools import arg
from perdure.present.normalize import arguments

sys.setswitchinterval(1e-6)

class Inner(msgspec.Struct, frozen=True):
    path: Annotated[str, arg("a file")]

for number in range(500):
    name = f"Params{number}"
    fields = [("path", Annotated[str, arg("a file", path="relative")]), ("mode", 'Literal["a", "b"] | None', None)]
    fields += [(f"inner{n}", "Inner | None", None) for n in range(10)]
    params = msgspec.defstruct(name, fields, module=__name__, frozen=True)
    start = threading.Barrier(4)

    def call():
        start.wait()
        assert arguments(params, {"path": "x", "mode": "a"}).path == "x"

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("alive")
"""


def test_the_first_calls_of_a_tool_may_come_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MANY_FIRST_CALLS], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-500:]
