"""The official read API over a registry: every entry is a server with one version, its latest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from perdure.registry.backend import Backend
from perdure.registry.catalog.records import NAME, OFFICIAL
from perdure.registry.catalog.semver import moment
from perdure.registry.entry import Entry
from perdure.registry.entry_json import to_wire
from perdure.registry.portable import without_secrets
from perdure.registry.server.messages import Refused, Request, page_size
from perdure.registry.templates import Reference, Template
from perdure.risk.short_text import is_secret_name

MAX_PAGE: Final = 100
USUAL_PAGE: Final = 30
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII)


class OfficialView:
    def __init__(self, open_backend: Callable[[], Backend], changed_at: Callable[[], str]) -> None:
        self._open = open_backend
        self._changed_at = changed_at

    def _records(self) -> list[dict[str, Any]]:
        at = self._changed_at()
        found: dict[str, dict[str, Any]] = {}
        for entry in self._open().load_all():
            found.setdefault(full_name(entry), record(without_secrets(entry), at))
        return [found[name] for name in sorted(found)]

    def page(self, request: Request) -> dict[str, Any]:
        limit = page_size(request, USUAL_PAGE, most=MAX_PAGE)
        wanted = request.query.get("search", "").lower()
        wanted_version = request.query.get("version", "")
        since = request.query.get("updated_since", "")
        if since and not _MOMENT.fullmatch(since):
            raise Refused(400, "updated_since is a moment like 2026-01-31T12:00:00Z")
        after = request.query.get("cursor", "")
        rest = [
            one
            for one in self._records()
            if wanted in one["server"]["name"].lower()
            and wanted_version in ("", "latest", one["server"]["version"])
            and one["server"]["name"] > after
            and (not since or moment(one["_meta"][OFFICIAL]["updatedAt"]) >= moment(since))
        ]
        return _listed(rest[:limit], rest[limit - 1]["server"]["name"] if len(rest) > limit else "")

    def version(self, name: str, version: str = "latest") -> dict[str, Any]:
        for one in self._records():
            if one["server"]["name"] == name and version in ("latest", one["server"]["version"]):
                return one
        raise Refused(404, "Server not found")

    def versions(self, name: str) -> dict[str, Any]:
        return _listed([self.version(name)], "")


def _listed(records: list[dict[str, Any]], cursor: str) -> dict[str, Any]:
    return {
        "servers": records,
        "metadata": {"count": len(records), **({"nextCursor": cursor} if cursor else {})},
    }


# --- An entry as a record of the official registry: written strictly, by the schema of 2025-12-11 ---


SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
PUBLISHER: Final = "io.modelcontextprotocol.registry/publisher-provided"
LOCAL: Final = "local"
_KINDS: Final = {"npx": "npm", "uvx": "pypi", "docker": "oci", "dnx": "nuget"}
_RUNNER_WORDS: Final = frozenset({"-y", "--yes", "run", "-i", "--rm", "--from"})


def record(entry: Entry, updated_at: str) -> dict[str, Any]:
    """The reply for one version, which is the latest, being the only one."""
    server: dict[str, Any] = {
        "$schema": SCHEMA,
        "name": full_name(entry),
        "description": (entry.description or entry.title or entry.name)[:100],
        "version": version(entry),
    }
    if entry.title:
        server["title"] = entry.title[:100]
    if entry.transport != "stdio":
        server["remotes"] = [_remote(entry)]
    elif (package := _package(entry)) is not None:
        server["packages"] = [package]
    else:
        command = entry.command.text if entry.command is not None else ""
        provided = {"command": command, "args": [arg.text for arg in entry.args]}
        server["_meta"] = {PUBLISHER: {"perdure": provided}}
    official = {
        "status": "active",
        "publishedAt": updated_at,
        "updatedAt": updated_at,
        "statusChangedAt": updated_at,
        "isLatest": True,
    }
    return {"server": server, "_meta": {OFFICIAL: official}}


def full_name(entry: Entry) -> str:
    """The name it has in the catalog it came from, or one below `local/`."""
    if entry.provenance is not None and NAME.fullmatch(entry.provenance.name):
        return entry.provenance.name
    return f"{LOCAL}/{re.sub(r'[^a-zA-Z0-9._-]', '-', entry.name)}"


def version(entry: Entry) -> str:
    """The version it was installed in, or one that changes with the entry."""
    if entry.provenance is not None and entry.provenance.version:
        return entry.provenance.version
    import hashlib

    digest = hashlib.sha256(msgspec.json.encode(to_wire(entry))).hexdigest()
    return f"0.0.0-{digest[:12]}" if digest[0].isalpha() else f"0.0.0-x{digest[:11]}"


def _remote(entry: Entry) -> dict[str, Any]:
    url, variables = _text(entry.url or Template(""))
    found: dict[str, Any] = {"type": entry.transport, "url": url}
    if variables:
        found["variables"] = variables
    if entry.headers:
        found["headers"] = [_key_value(name, value) for name, value in entry.headers.items()]
    return found


def _package(entry: Entry) -> dict[str, Any] | None:
    """None where the command is not a package of a known kind in an exact version."""
    command = (entry.command.text if entry.command is not None else "").rpartition("/")[2]
    kind = _KINDS.get(command)
    words = [arg.text for arg in entry.args]
    at = next(_pinned(kind, words), None) if kind else None
    if kind is None or at is None:
        return None
    identifier, found_version = _split(kind, words[at])
    package: dict[str, Any] = {
        "registryType": kind,
        "identifier": identifier,
        "transport": {"type": "stdio"},
    }
    if found_version:
        package["version"] = found_version
    front = [word for word in words[:at] if word not in _RUNNER_WORDS] if kind != "oci" else []
    behind = [word for word in words[at + 1 :] if not (kind == "nuget" and word in ("--yes", "--"))]
    if front:
        package["runtimeArguments"] = [_positional(word) for word in front]
    if behind:
        package["packageArguments"] = [_positional(word) for word in behind]
    if entry.env:
        package["environmentVariables"] = [_key_value(name, value) for name, value in entry.env.items()]
    return package


def _pinned(kind: str, words: list[str]) -> Iterator[int]:
    """Where the word is that names the package and its version."""
    form = {
        "npm": r"(?:@[\w.~-]+/)?[\w.~-]+@v?\d[\w.+-]*",
        "pypi": r"[\w.-]+(?:\[[\w.,-]+\])?(?:==|@)v?\d[\w.+!-]*",
        "oci": r"[a-z0-9][a-z0-9._/:-]*(?::[\w.-]*\d[\w.-]*|@sha256:[a-f0-9]{64})",
        "nuget": r"[\w.-]+@v?\d[\w.+-]*",
    }[kind]
    for at, word in enumerate(words):
        if re.fullmatch(form, word, re.ASCII) and (
            kind != "oci" or (at and words[at - 1] not in ("-p", "-v"))
        ):
            yield at


def _split(kind: str, word: str) -> tuple[str, str]:
    if kind == "oci":
        return word, ""
    identifier, _, found = word.replace("==", "@").rpartition("@")
    return identifier, found


def _positional(word: str) -> dict[str, Any]:
    value, variables = _text(Template(word))
    found: dict[str, Any] = {"type": "positional", "value": value}
    if variables:
        found["variables"] = variables
    return found


def _key_value(name: str, value: Template) -> dict[str, Any]:
    """`NAME=$NAME` is an input of that name; anything else is a text with variables."""
    parts = value.parts
    alone = parts[0] if len(parts) == 1 else None
    if isinstance(alone, Reference):
        found: dict[str, Any] = {
            "name": name,
            "isSecret": is_secret_name(name) or is_secret_name(alone.variable),
        }
        if alone.default:
            found["default"] = alone.default
        else:
            found["isRequired"] = True
        return found
    text, variables = _text(value)
    return {"name": name, "value": text, **({"variables": variables} if variables else {})}


def _text(template: Template) -> tuple[str, dict[str, Any]]:
    text, variables = "", {}
    for part in template.parts:
        if not isinstance(part, Reference):
            text += part.text
            continue
        text += f"{{{part.variable}}}"
        one: dict[str, Any] = {"isSecret": is_secret_name(part.variable)}
        if part.default:
            one["default"] = part.default
        else:
            one["isRequired"] = True
        variables[part.variable] = one
    return text, variables
