"""The records of the official registry (`server.json`), read tolerantly.

A tenth of what is published breaks the schema in some way: empty repositories, arguments without a type, numbers
where texts belong. A field that cannot be meant becomes its default; only a record without a usable name or
version is refused (`BadRecord`). The record as it came is kept beside what was understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", re.ASCII)
MAX_NAME: Final = 200
MAX_TEXT: Final = 4096
FORMATS: Final = ("string", "number", "boolean", "filepath")
# A catalog's words end up on terminals: no control characters, nothing that turns the reading direction.
_UNSHOWN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


class BadRecord(ValueError):
    """A record that names nothing; the reason is fit to be shown."""


class Input(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that the user gives, or that is fixed (`value`)."""

    name: str = ""
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    format: Literal["string", "number", "boolean", "filepath"] = "string"
    value: str | None = None
    default: str | None = None
    placeholder: str = ""
    choices: tuple[str, ...] = ()
    variables: dict[str, Input] = {}


class Argument(Input, frozen=True, kw_only=True, omit_defaults=True):
    """One word of a command line, or a named option with its value."""

    type: Literal["positional", "named"] = "positional"
    value_hint: str = ""
    is_repeated: bool = False
    is_bare: bool = False  # nothing is said of it but its name: a flag


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How to speak with it: stdio, or a URL."""

    type: str = "stdio"
    url: str = ""
    headers: tuple[Input, ...] = ()
    variables: dict[str, Input] = {}


class Package(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something to install and start."""

    registry_type: str
    identifier: str
    version: str = ""
    file_sha256: str = ""
    base_url: str = ""
    runtime_hint: str = ""
    endpoint: Endpoint = Endpoint()
    runtime_arguments: tuple[Argument, ...] = ()
    package_arguments: tuple[Argument, ...] = ()
    environment: tuple[Input, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of one server."""

    name: str
    version: str
    title: str = ""
    description: str = ""
    website: str = ""
    repository: str = ""
    packages: tuple[Package, ...] = ()
    remotes: tuple[Endpoint, ...] = ()
    status: Literal["active", "deprecated", "deleted"] = "active"
    status_message: str = ""
    is_latest: bool = False
    published_at: str = ""
    updated_at: str = ""


def read_record(found: object) -> Record:
    """From a reply of the API, or from a bare `server.json`."""
    whole = _mapping(found)
    server = _mapping(whole.get("server", whole))
    meta = _mapping(_mapping(whole.get("_meta")).get(OFFICIAL))
    name, version = server.get("name"), server.get("version")
    if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise BadRecord("it has no usable name")
    if not isinstance(version, str) or not version or text(version) != version or len(version) > 255:
        raise BadRecord(f"{name} has no usable version")
    status = meta.get("status")
    return Record(
        name=name,
        version=version,
        title=text(server.get("title")),
        description=text(server.get("description")),
        website=text(server.get("websiteUrl")),
        repository=text(_mapping(server.get("repository")).get("url")),
        packages=tuple(_packages(server.get("packages"))),
        remotes=tuple(_endpoint(one) for one in _mappings(server.get("remotes"))),
        status=status if status in ("deprecated", "deleted") else "active",
        status_message=text(meta.get("statusMessage")),
        is_latest=meta.get("isLatest") is True,
        published_at=text(meta.get("publishedAt")),
        updated_at=text(meta.get("updatedAt")),
    )


def _packages(found: object) -> Iterable[Package]:
    for one in _mappings(found):
        kind, identifier = one.get("registryType"), one.get("identifier")
        if isinstance(kind, str) and isinstance(identifier, str) and kind and identifier:
            yield Package(
                registry_type=text(kind).lower(),
                identifier=identifier,
                version=text(one.get("version")),
                file_sha256=text(one.get("fileSha256")).lower(),
                base_url=text(one.get("registryBaseUrl")).strip(),
                runtime_hint=text(one.get("runtimeHint")),
                endpoint=_endpoint(_mapping(one.get("transport"))),
                runtime_arguments=tuple(_arguments(one.get("runtimeArguments"))),
                package_arguments=tuple(_arguments(one.get("packageArguments"))),
                environment=tuple(_inputs(one.get("environmentVariables"))),
            )


def _endpoint(found: Mapping[str, Any]) -> Endpoint:
    return Endpoint(
        type=text(found.get("type")) or "stdio",
        url=text(found.get("url")),
        headers=tuple(_inputs(found.get("headers"))),
        variables=_variables(found.get("variables")),
    )


def _inputs(found: object) -> Iterable[Input]:
    """Those with a name; one without says nothing."""
    return (Input(**_fields(one)) for one in _mappings(found) if text(one.get("name")))


def _arguments(found: object) -> Iterable[Argument]:
    for one in _mappings(found):
        fields = _fields(one)
        is_named = one.get("type") == "named" or (
            one.get("type") != "positional" and fields["name"].startswith("-")
        )
        yield Argument(
            **fields,
            type="named" if is_named else "positional",
            value_hint=text(one.get("valueHint")),
            is_repeated=_true(one.get("isRepeated")),
            is_bare=not {key for key, value in one.items() if value not in (None, "")} - {"type", "name"},
        )


def _fields(found: Mapping[str, Any]) -> dict[str, Any]:
    choices = found.get("choices")
    return {
        "name": text(found.get("name")),
        "description": text(found.get("description")),
        "is_required": _true(found.get("isRequired")),
        "is_secret": _true(found.get("isSecret")),
        "format": found["format"] if found.get("format") in FORMATS else "string",
        "value": _value(found.get("value")),
        "default": _value(found.get("default")),
        "placeholder": text(found.get("placeholder")),
        "choices": tuple(one for one in map(_value, choices) if one is not None)
        if isinstance(choices, list)
        else (),
        "variables": _variables(found.get("variables")),
    }


def _variables(found: object) -> dict[str, Input]:
    return {
        name: Input(**(_fields(_mapping(one)) | {"name": name}))
        for name, one in _mapping(found).items()
        if isinstance(name, str) and name and text(name) == name
    }


def text(found: object) -> str:
    """A text that can be shown on one line, or nothing."""
    return _UNSHOWN.sub(" ", found).strip()[:MAX_TEXT] if isinstance(found, str) else ""


def _value(found: object) -> str | None:
    """A value as it is: what breaks a line is refused later, where an entry is made of it."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int | float):
        return str(found)
    return found if isinstance(found, str) and found else None


def _true(found: object) -> bool:
    """`bool("false")` is true; only true is."""
    return found is True or (isinstance(found, str) and found.lower() == "true")


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _mappings(found: object) -> list[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
