"""With a server that misbehaves beside it, no call of another session of `perdure serve` waits longer than a second."""

from __future__ import annotations

import pytest

from harness.host.serve_isolation import CASES, LIMIT_S, measure

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("name", CASES)
def test_calls_of_other_sessions_go_on(name: str) -> None:
    waits = measure(name, seconds=1.0, sessions=6)
    assert max(waits) < LIMIT_S, f"{len(waits)} calls, longest {max(waits):.2f} s"
