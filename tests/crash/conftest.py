"""What several crash tests need besides a bed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import perdure
from testbed import Bed


@pytest.fixture
def installed(bed: Bed) -> Path:
    """A copy of the package from which the host runs, so that what is installed can be changed."""
    copy = bed.root / "installed"
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(perdure.__file__).parent, copy / "perdure", ignore=unwanted)
    bed.environ["PYTHONPATH"] = str(copy)
    return copy / "perdure"
