"""The packages agree with the project: versions, generated files, what registries and clients demand of them."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import jsonschema
import pytest
from ruamel.yaml import YAML

from perdure import __version__
from perdure.cli.run import parser

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
FILES = [
    *(path for path in PACKAGING.rglob("*") if path.is_file() and path.suffix != ".pyc"),
    *(ROOT / ".github").rglob("*.yml"),
    *(ROOT / ".claude-plugin").iterdir(),
    ROOT / "docs" / "how-to" / "install-in-every-agent.md",
]
# The rules of the published schema of 2025-12-11 for the parts that server.json uses.
TEXT = {"type": "string", "minLength": 1}
INPUT = {
    "properties": {
        "description": {"type": "string"},
        "default": {"type": "string"},
        "value": {"type": "string"},
        "choices": {"type": "array", "items": {"type": "string"}},
        "format": {"enum": ["string", "number", "boolean", "filepath"]},
        "isSecret": {"type": "boolean"},
    }
}
ARGUMENT = {
    "allOf": [INPUT],
    "oneOf": [
        {"properties": {"type": {"const": "positional"}}, "required": ["type", "value"]},
        {"properties": {"type": {"const": "named"}, "name": TEXT}, "required": ["type", "name"]},
    ],
}
PACKAGE = {
    "required": ["registryType", "identifier", "transport"],
    "properties": {
        "registryType": TEXT,
        "identifier": TEXT,
        "version": {**TEXT, "not": {"const": "latest"}},
        "runtimeHint": TEXT,
        "transport": {"required": ["type"], "properties": {"type": {"const": "stdio"}}},
        "packageArguments": {"type": "array", "items": ARGUMENT},
        "environmentVariables": {"type": "array", "items": {"allOf": [INPUT], "required": ["name"]}},
    },
    "additionalProperties": False,
}
SERVER = {
    "type": "object",
    "required": ["name", "description", "version"],
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {"type": "string", "maxLength": 200, "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$"},
        "title": {**TEXT, "maxLength": 100},
        "description": {**TEXT, "maxLength": 100},
        "version": {"type": "string", "maxLength": 255, "pattern": r"^\d+\.\d+\.\d+"},
        "packages": {"type": "array", "items": PACKAGE},
    },
    "additionalProperties": False,
}


@lru_cache
def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate_packages", PACKAGING / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    files: dict[str, str] = module.generated()
    return files


def document(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / path).read_text())
    return found


def test_the_generated_files_are_what_the_code_says() -> None:
    stale = [path for path, text in generated().items() if (ROOT / path).read_text() != text]
    assert stale == [], "run: python packaging/generate.py"


def test_every_package_has_the_version_of_the_project() -> None:
    server, bundle = (
        document("packaging/server.json"),
        tomllib.loads((PACKAGING / "mcpb/pyproject.toml").read_text()),
    )
    assert {
        tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        document("packaging/claude-plugin/.claude-plugin/plugin.json")["version"],
        document("packaging/gemini-extension/gemini-extension.json")["version"],
        document("packaging/mcpb/manifest.json")["version"],
        bundle["project"]["version"],
        *(dependency.partition("==")[2] for dependency in bundle["project"]["dependencies"]),
        server["version"],
        *(package["version"] for package in server["packages"]),
    } == {__version__}


def test_server_json_keeps_the_rules_of_the_published_schema() -> None:
    jsonschema.Draft7Validator(SERVER).validate(document("packaging/server.json"))
    for key, value in (("name", "perdure"), ("description", "x" * 101), ("extra", 1)):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.Draft7Validator(SERVER).validate({**document("packaging/server.json"), key: value})


def test_the_readme_names_the_entry_of_the_registry() -> None:
    """The registry finds this line in the package's description, and so knows that both have one owner."""
    assert f"mcp-name: {document('packaging/server.json')['name']}" in (ROOT / "README.md").read_text()


def test_the_arguments_in_server_json_are_arguments_of_perdure() -> None:
    (package,) = document("packaging/server.json")["packages"]
    command, *named = package["packageArguments"]
    assert command["value"] == "run"
    for argument in named:
        value = argument.get("default", "/tmp")
        parser().parse_args([argument["name"], value])


def test_no_package_holds_an_address_but_those_that_are_needed() -> None:
    """A package is named, never where it is downloaded from."""
    needed = re.compile(
        r"https://static\.modelcontextprotocol\.io/schemas/|http://127\.0\.0\.1|https://cursor\.com/en/install-mcp"
        r"|https://insiders\.vscode\.dev/redirect/mcp/install"
    )
    addresses = [
        (path.name, address)
        for path in FILES
        for address in re.findall(r"https?://[^\s\"')]+", path.read_text())
        if not needed.match(address)
    ]
    assert addresses == []


# --- links ------------------------------------------------------------------------------------------------------


def linked_configs() -> dict[str, dict[str, Any]]:
    page = (ROOT / "docs" / "how-to" / "install-in-every-agent.md").read_text()
    found = {}
    for address in re.findall(r"\]\((https://[^)]+install[^)]*)\)", page):
        query = parse_qs(urlsplit(address).query)
        (config,) = query["config"]
        assert query["name"] == ["perdure"]
        text = base64.b64decode(config) if "cursor" in address else unquote(config)
        found[urlsplit(address).hostname or ""] = json.loads(text)
    return found


def test_the_links_install_a_server_that_starts() -> None:
    configs = linked_configs()
    assert set(configs) == {"cursor.com", "insiders.vscode.dev"}
    for config in configs.values():
        assert (config["command"], config["args"][:2]) == ("uvx", ["perdure", "run"])
        parser().parse_args(config["args"][2:])


# --- containers -------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = (PACKAGING / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], " ".join(line.partition(" ")[2].split())) for line in lines]


def test_the_image_runs_as_a_user_with_volumes_and_a_health_check() -> None:
    last_stage = instructions()[[word for word, _ in instructions()].index("FROM", 2) :]
    values = dict(last_stage)
    assert values["USER"] == "perdure"
    assert json.loads(values["VOLUME"]) == ["/var/lib/perdure", "/work"]
    assert "/healthz" in values["HEALTHCHECK"]
    assert [json.loads(values["ENTRYPOINT"]), json.loads(values["CMD"])[0]] == [["perdure"], "serve"]


def test_the_image_gets_only_what_is_in_the_repository() -> None:
    copied = [
        word
        for name, line in instructions()
        if name == "COPY" and "--from" not in line
        for word in line.split()[:-1]
    ]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    ignored = (PACKAGING / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
    assert [name for name in copied if f"!{name.removeprefix('./')}" not in ignored] == []


def test_compose_asks_for_every_secret_and_waits_for_the_database() -> None:
    services = YAML(typ="safe").load((PACKAGING / "docker" / "compose.yaml").read_text())["services"]
    environment = services["perdure"]["environment"]
    assert environment["PERDURE_TOKEN"].startswith("${PERDURE_TOKEN:?")
    assert environment["PERDURE_STATE"].startswith("postgresql://perdure:${POSTGRES_PASSWORD:?")
    assert services["perdure"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert all(port.startswith("127.0.0.1:") for port in services["perdure"]["ports"])
