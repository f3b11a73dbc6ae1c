"""Extensions of two mounted servers, through real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import Bed


@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_apps_of_two_servers_with_the_same_addresses(bed: Bed, tmp_path: Path, era: Any) -> None:
    show = {"name": "show", "behaves": "whoami", "_meta": {"ui": {"resourceUri": "ui://a"}}}
    catalog = tmp_path / "catalog.json"
    catalog.write_text(json.dumps([show]))
    options = (f"--era={era}", "--prefix-uri=ui", f"--catalog={catalog}")
    client = bed.run(bed.fake(*options, name="one"), bed.fake(*options, name="two"), era=era)

    listed = {tool["name"]: tool for tool in client.get("tools/list")["tools"]}
    pages = [listed[f"{name}__show"]["_meta"]["ui"]["resourceUri"] for name in ("one", "two")]
    assert pages == ["ui://a", "ui://two/a"]
    assert {*pages} <= {*client.names("resources/list", "resources", "uri")}

    client.use("two__touch_resource", {"uri": "ui://a"})
    read = [client.get("resources/read", {"uri": uri})["contents"][0] for uri in pages]
    assert [content["uri"] for content in read] == pages
    assert [content["text"][-1] for content in read] == ["0", "1"]

    refused = client.ask("tools/call", {"name": "show", "arguments": {}})
    assert refused["error"]["data"]["mounts"] == ["one", "two"]
