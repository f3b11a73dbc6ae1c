"""What every test of running hosts shares."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from testbed import Bed

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[_FAILED] = not report.passed
    return report


@pytest.fixture
def bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    """A corner for this test alone. After a test that passed, the host is held to the protocol."""
    found = Bed(tmp_path)
    try:
        yield found
        if not request.node.stash.get(_FAILED, True):
            found.close()
    finally:
        found.abandon()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
