"""A client of either era in front of a server of either era: everything is there, valid, and works."""

from __future__ import annotations

import pytest
from testbed import ERAS, Bed, Era

pytestmark = [
    pytest.mark.parametrize("era", ERAS, ids=lambda era: f"{era}-client"),
    pytest.mark.parametrize("server", ERAS, ids=lambda era: f"{era}-server"),
]


def test_the_lists_are_those_of_the_server_under_public_names(bed: Bed, era: Era, server: Era) -> None:
    fake = bed.fake(f"--era={server}")
    direct = bed.start(fake.argv)
    direct.era = server
    if server == "handshake":
        direct.initialize()
    client = bed.run(fake, era=era)
    tools = {tool["name"]: tool for tool in client.get("tools/list")["tools"]}
    for tool in direct.get("tools/list")["tools"]:
        assert tools.pop("fake__" + tool["name"]) == {**tool, "name": "fake__" + tool["name"]}
    assert not [name for name in tools if name.startswith("fake__")]
    assert {"health", "telemetry", "mounts"} <= set(tools)
