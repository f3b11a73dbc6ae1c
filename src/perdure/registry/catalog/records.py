"""The records of the official registry, read tolerantly.

A tenth of what is published breaks the schema: empty repositories, numbers where texts belong, flags as texts. A field that
cannot be read gets its default; only a record without a usable name or version is refused (`BadRecord`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

OFFICIAL: Final = "io.modelcontextprotocol.registry/official"
NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", re.ASCII)
MAX_NAME: Final = 200
MAX_VERSION: Final = 255
MAX_TEXT: Final = 4096
FORMATS: Final = ("string", "number", "boolean", "filepath")
# Texts of a catalog end up on terminals: no control characters, nothing that changes the reading direction.
_UNSHOWN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


class BadRecord(ValueError):
    """A record without a usable name or version; the reason can be shown."""


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
    """One word of a command line, or a named option with its value. `is_bare`: an option with nothing but its name."""

    type: Literal["positional", "named"] = "positional"
    value_hint: str = ""
    is_repeated: bool = False
    is_bare: bool = False


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The transport of a server: stdio, or a URL."""

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


def read_record(value: object) -> Record:
    """A reply of the API, or a bare `server.json`."""
    reply = _object(value)
    server = _object(reply.get("server", reply))
    meta = _object(_object(reply.get("_meta")).get(OFFICIAL))
    name, version, status = server.get("name"), server.get("version"), meta.get("status")
    if not isinstance(name, str) or len(name) > MAX_NAME or not NAME.fullmatch(name):
        raise BadRecord("it has no usable name")
    if not isinstance(version, str) or not version or text(version) != version or len(version) > MAX_VERSION:
        raise BadRecord(f"{name} has no usable version")
    return Record(
        name=name,
        version=version,
        title=text(server.get("title")),
        description=text(server.get("description")),
        website=text(server.get("websiteUrl")),
        repository=text(_object(server.get("repository")).get("url")),
        packages=tuple(_packages(server.get("packages"))),
        remotes=tuple(map(_endpoint, _objects(server.get("remotes")))),
        status=status if status in ("deprecated", "deleted") else "active",
        status_message=text(meta.get("statusMessage")),
        is_latest=meta.get("isLatest") is True,
        published_at=text(meta.get("publishedAt")),
        updated_at=text(meta.get("updatedAt")),
    )


def text(value: object) -> str:
    """A text that can be shown on one line, or an empty one."""
    return _UNSHOWN.sub(" ", value).strip()[:MAX_TEXT] if isinstance(value, str) else ""


def _packages(value: object) -> Iterator[Package]:
    for package in _objects(value):
        kind, identifier = package.get("registryType"), package.get("identifier")
        if isinstance(kind, str) and isinstance(identifier, str) and kind and identifier:
            yield Package(
                registry_type=text(kind).lower(),
                identifier=identifier,
                version=text(package.get("version")),
                file_sha256=text(package.get("fileSha256")).lower(),
                base_url=text(package.get("registryBaseUrl")),
                runtime_hint=text(package.get("runtimeHint")),
                endpoint=_endpoint(_object(package.get("transport"))),
                runtime_arguments=tuple(map(_argument, _objects(package.get("runtimeArguments")))),
                package_arguments=tuple(map(_argument, _objects(package.get("packageArguments")))),
                environment=_inputs(package.get("environmentVariables")),
            )


def _endpoint(endpoint: Mapping[str, Any]) -> Endpoint:
    return Endpoint(
        type=text(endpoint.get("type")) or "stdio",
        url=text(endpoint.get("url")),
        headers=_inputs(endpoint.get("headers")),
        variables=_variables(endpoint.get("variables")),
    )


def _inputs(value: object) -> tuple[Input, ...]:
    """Those with a name."""
    return tuple(Input(**_fields(item)) for item in _objects(value) if text(item.get("name")))


def _variables(value: object) -> dict[str, Input]:
    return {
        name: Input(**(_fields(_object(item)) | {"name": name}))
        for name, item in _object(value).items()
        if name and text(name) == name
    }


def _argument(argument: Mapping[str, Any]) -> Argument:
    fields, kind = _fields(argument), argument.get("type")
    is_named = kind == "named" or (kind != "positional" and fields["name"].startswith("-"))
    return Argument(
        **fields,
        type="named" if is_named else "positional",
        value_hint=text(argument.get("valueHint")),
        is_repeated=_flag(argument.get("isRepeated")),
        is_bare={key for key, value in argument.items() if value not in (None, "")} <= {"type", "name"},
    )


def _fields(source: Mapping[str, Any]) -> dict[str, Any]:
    choices = source.get("choices")
    values = map(_value, choices) if isinstance(choices, list) else ()
    return {
        "name": text(source.get("name")),
        "description": text(source.get("description")),
        "is_required": _flag(source.get("isRequired")),
        "is_secret": _flag(source.get("isSecret")),
        "format": source["format"] if source.get("format") in FORMATS else "string",
        "value": _value(source.get("value")),
        "default": _value(source.get("default")),
        "placeholder": text(source.get("placeholder")),
        "choices": tuple(choice for choice in values if choice is not None),
        "variables": _variables(source.get("variables")),
    }


def _value(value: object) -> str | None:
    """Unchanged: a line break in it is refused when an entry is made."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return value if isinstance(value, str) and value else None


def _flag(value: object) -> bool:
    """Some records have the text "true"; "false" is not true."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
