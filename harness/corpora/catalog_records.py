"""Records of an official registry, made by chance from a fixed seed, or read from a crawl of a real one.

    records = load_records()     the crawl that PERDURE_CRAWL names, else 2,800 made servers

The shares of package types, transports, inputs and flaws are those of a crawl from December 2025: a tenth of what is
published breaks the schema in some way, and many servers go by the same short name.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
CRAWL: Final = "PERDURE_CRAWL"
SERVERS: Final = 2800
SEED: Final = 2025

_OWNERS: Final = (
    "acme",
    "north",
    "blue-fin",
    "Quartz",
    "lab42",
    "openfold",
    "tidal",
    "mira",
    "oak",
    "zenith",
    "Hexa",
)
_TOPICS: Final = (
    "postgres", "github", "weather", "slack", "filesystem", "browser", "sql", "notion", "pdf", "kubernetes", "stripe",
    "search", "calendar", "mail", "docs", "memory", "jira", "figma", "maps", "airtable", "redis", "docker", "aws",
    "translate", "finance", "news", "crm", "tickets", "images", "audio",
)  # fmt: skip
_COMMON: Final = ("mcp", "mcp-server", "server")
_VERBS: Final = (
    "Read and write",
    "Search",
    "Manage",
    "Query",
    "Automate",
    "Connect to",
    "Explore",
    "Monitor",
)
_ENDS: Final = (
    "for AI assistants",
    "with natural language",
    "over MCP",
    "— schnell & einfach",
    "in real time",
    "漢字",
)
_KEYS: Final = (
    "API_KEY",
    "TOKEN",
    "BASE_URL",
    "LOG_LEVEL",
    "TIMEOUT",
    "REGION",
    "WORKSPACE",
    "X-API-Key",
    "",
)
_HINTS: Final = (None, None, None, "npx", "uvx", "docker", "bun", "python", "binary")


def load_records(crawl: str | None = None) -> list[dict[str, Any]]:
    """Records as the official API gives them: of a crawl (JSON, gzipped or not) if one is named, else made here."""
    path = crawl or os.environ.get(CRAWL)
    if not path:
        return make_records()
    data = Path(path).read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    records: list[dict[str, Any]] = json.loads(text)
    return records


def make_records(servers: int = SERVERS, seed: int = SEED) -> list[dict[str, Any]]:
    """One record for each version of each server; the same for the same seed."""
    chance = random.Random(seed)
    return [record for number in range(servers) for record in _server(chance, number)]


def _server(chance: random.Random, number: int) -> list[dict[str, Any]]:
    topic, owner = chance.choice(_TOPICS), f"{chance.choice(_OWNERS)}{number}"
    short = (
        chance.choice(_COMMON)
        if chance.random() < 0.15
        else f"{topic}-{chance.choice(('mcp', 'server', 'ai'))}"
    )
    host = "io.github" if chance.random() < 0.7 else chance.choice(("com", "ai.smith", "dev"))
    server = {
        "$schema": "https://schemas.test/2025-10-17/server.schema.json",
        "name": f"{host}.{owner}/{short}",
        "description": f"{chance.choice(_VERBS)} {topic} {chance.choice(_ENDS)}"[:100],
        "repository": {}
        if chance.random() < 0.1
        else {"url": f"https://github.com/{owner}/{short}", "source": "github"},
        **({"title": topic.capitalize()} if chance.random() < 0.2 else {}),
    }
    count = 1 + min(int(chance.expovariate(1.2)), 8)
    published = 1_755_000_000 + chance.randrange(10_000_000)
    series = f"{chance.randrange(3)}.{chance.randrange(20)}"
    return [
        _version(chance, server, owner, f"{series}.{at}", published + at * 86_400, at == count - 1)
        for at in range(count)
    ]


def _version(
    chance: random.Random, server: dict[str, Any], owner: str, version: str, seconds: int, is_latest: bool
) -> dict[str, Any]:
    at = datetime.fromtimestamp(seconds + chance.random(), UTC).isoformat().replace("+00:00", "Z")
    kinds: dict[str, Any] = {}
    if chance.random() < 0.72:
        kinds["packages"] = [
            _package(chance, server["name"], owner, version) for _ in range(1 + (chance.random() < 0.1))
        ]
    if "packages" not in kinds or chance.random() < 0.1:
        kinds["remotes"] = [_remote(chance, owner)]
    status = "active" if chance.random() < 0.98 else chance.choice(("deprecated", "deleted"))
    meta = {"status": status, "publishedAt": at, "updatedAt": at, "isLatest": is_latest}
    return {"server": {**server, "version": version, **kinds}, "_meta": {OFFICIAL: meta}}


def _package(chance: random.Random, name: str, owner: str, version: str) -> dict[str, Any]:
    kind = chance.choices(("npm", "pypi", "oci", "mcpb", "nuget", "cargo"), (1095, 519, 379, 161, 45, 3))[0]
    short = name.rpartition("/")[2].lower()
    identifier = {
        "npm": f"@{owner.lower()}/{short}",
        "pypi": f"{owner.lower()}-{short}",
        "oci": f"ghcr.test/{owner.lower()}/{short}:{version}",
        "mcpb": f"https://github.com/{owner}/{short}/releases/download/v{version}/{short}.mcpb",
        "nuget": f"{owner}.{short.replace('-', '.')}",
        "cargo": short,
    }[kind]
    package: dict[str, Any] = {"registryType": kind, "identifier": identifier, "transport": {"type": "stdio"}}
    if kind not in ("oci", "mcpb"):
        package["version"] = "latest" if chance.random() < 0.003 else version
    if kind == "mcpb":
        package["fileSha256"] = hashlib.sha256(f"{identifier} {version}".encode()).hexdigest()
    if hint := chance.choice(_HINTS):
        package["runtimeHint"] = hint
    if chance.random() < 0.07:
        package["transport"] = {"type": "streamable-http", "url": "http://localhost:{port}/mcp"}
    if chance.random() < 0.55:
        package["environmentVariables"] = [_variable(chance) for _ in range(chance.randrange(1, 5))]
    if chance.random() < 0.2:
        package["packageArguments"] = [_argument(chance) for _ in range(chance.randrange(1, 4))]
    return package


def _variable(chance: random.Random) -> dict[str, Any]:
    key = chance.choice(_KEYS)
    name = f"{chance.choice(_TOPICS).upper()}_{key}" if key.isupper() else key
    found: dict[str, Any] = {"name": name, "description": f"Your {key or 'value'}", "format": "string"}
    if chance.random() < 0.25:
        found["isRequired"] = True
    if "KEY" in key.upper() or key == "TOKEN":
        found["isSecret"] = True
    elif chance.random() < 0.3:
        found["default"] = chance.choice(("info", "30", 8080, "eu"))
    return found


def _argument(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        return {"type": "positional", "valueHint": "path", "isRequired": chance.random() < 0.5}
    kind = "" if chance.random() < 0.01 else "named"
    return {"type": kind, "name": chance.choice(("--port", "--mode", "--verbose")), "default": "a"}


def _remote(chance: random.Random, owner: str) -> dict[str, Any]:
    kind = "streamable-http" if chance.random() < 0.84 else "sse"
    remote: dict[str, Any] = {"type": kind, "url": f"https://{owner.lower()}.example/mcp"}
    if chance.random() < 0.45:  # most name a variable that they do not declare
        value = "Bearer {api_key}" if chance.random() < 0.6 else "{team}"
        remote["headers"] = [{"name": "Authorization", "value": value, "isSecret": True}]
    return remote
