"""What is used for the first time by several threads at once: msgspec would end the whole process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src" / "perdure"
THREADED = (
    *("dash", "present", "protocol", "registry", "risk", "text", "workspace"),
    *("serve", "storage", "surfaces", "validate", "worker"),
)
EXCEPT = {"protocol/msgspec_types.py": "works them out", "validate/child.py": "a process with one thread"}
BUILT_IN = {"str", "int", "float", "bool", "bytes", "object", "dict", "list", "tuple", "Any", "Raw"}

# In processes of their own: what is tested for is a crash.
_MANY_FIRST_CALLS = """
import sys, threading
from typing import Annotated, Literal
import msgspec
from perdure.protocol.tools import arg
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

_FIRST_HANDOFFS = """
import os, sys, threading
from perdure.surfaces.write import handoff

sys.setswitchinterval(1e-6)
GIVEN = {"task_id": "t", "agent": "a", "status": "partial", "summary": "s", "next_steps": [], "last_good_state": []}

def first():
    start = threading.Barrier(4)

    def check():
        start.wait()
        handoff._checked(GIVEN)

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)

for _ in range(60):
    if (pid := os.fork()) == 0:
        first()
    assert os.waitpid(pid, 0)[1] == 0
print("alive")
"""


@pytest.mark.thorough
@pytest.mark.parametrize("program", [_MANY_FIRST_CALLS, _FIRST_HANDOFFS], ids=["calls of a tool", "handoffs"])
def test_what_is_first_may_come_at_once(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[-500:]


def _named_types(file: Path) -> list[ast.expr]:
    """The types that functions of a file have msgspec work out, as they name them."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    calls = {call for one in functions for call in ast.walk(one) if isinstance(call, ast.Call)}
    found = []
    for call in calls:
        module, _, name = ast.unparse(call.func).rpartition(".")
        if name in ("Decoder", "type_info", "schema", "schema_components") and call.args:
            found += call.args[0].elts if isinstance(call.args[0], ast.Tuple) else call.args[:1]
        if name in ("decode", "convert") and module.startswith("msgspec"):
            found += [word.value for word in call.keywords if word.arg == "type"]
    return found


def _is_safe(named: ast.expr) -> bool:
    if isinstance(named, ast.Call):
        return ast.unparse(named.func) == "prepare_type"
    return {one.id for one in ast.walk(named) if isinstance(one, ast.Name)} <= BUILT_IN


@pytest.mark.thorough
def test_whatever_may_run_in_threads_names_types_that_are_worked_out() -> None:
    files = [file for room in THREADED for file in sorted((ROOT / room).rglob("*.py"))]
    named = {
        str(file.relative_to(ROOT)): [ast.unparse(one) for one in _named_types(file) if not _is_safe(one)]
        for file in files
        if str(file.relative_to(ROOT)) not in EXCEPT
    }
    assert {place: types for place, types in named.items() if types} == {}
    assert any(_named_types(file) for file in files)
