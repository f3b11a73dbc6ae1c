"""What every test of running hosts shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import Bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """A corner for this test alone. After a test that passed, the host is held to the protocol."""
    found = Bed(tmp_path)
    try:
        yield found
        found.close()
    finally:
        found.abandon()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
