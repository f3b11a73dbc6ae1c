"""Every MUST and every defect of the registry this one is measured by has its test, found by its number.

MUST 1-12      `test_must_N_…` in test_registry_backends.py, over every backend
H1-7 M1-17 L1-5   `test_h1_…` in test_registry_defects.py, or in test_catalog_defects.py for what is HTTP's
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

FOLDER = Path(__file__).parent
MUSTS = [f"must_{number}" for number in range(1, 13)]
DEFECTS = [
    f"{kind}{number}" for kind, last in (("h", 7), ("m", 17), ("l", 5)) for number in range(1, last + 1)
]


def numbers(*files: str) -> set[str]:
    """The numbers in the names of the tests that these files define."""
    found = set()
    for file in files:
        for node in ast.walk(ast.parse((FOLDER / file).read_text())):
            if isinstance(node, ast.FunctionDef) and (
                named := re.match(r"test_(must_\d+|[hml]\d+)_", node.name)
            ):
                found.add(named[1])
    return found


def test_every_must_is_in_the_suite_by_its_number() -> None:
    assert [one for one in MUSTS if one not in numbers("test_registry_backends.py")] == []


def test_every_defect_is_turned_round_in_a_test_of_its_number() -> None:
    found = numbers("test_registry_defects.py", "test_catalog_defects.py")
    assert [one for one in DEFECTS if one not in found] == []
    assert found - set(DEFECTS) == set()


def test_a_missing_number_would_be_seen() -> None:
    assert "must_12" not in numbers("test_registry_defects.py")
    assert {"h7", "l3"} - numbers("test_registry_defects.py") == {"h7"}
