"""What every test of running hosts shares."""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from harness.state.postgres import Postgres, running_postgres
from testbed import Bed

_FAILED = pytest.StashKey[bool]()

# How long an example takes says something about the machine, not about the code. Seeds are fixed.
_PROPERTIES = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _PROPERTIES, max_examples=25)
settings.register_profile("thorough", _PROPERTIES, max_examples=100)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("quick" if "not thorough" in config.option.markexpr else "thorough")
    # A background job ignores SIGINT, and its children inherit that; some tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs Node or a PostgreSQL server is thorough."""
    for item in items:
        if item.get_closest_marker("node") or "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.thorough)


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real server, started for the first test that asks for it."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
