"""The tools and resources of all surfaces of a worker, by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from perdure.protocol.calls import KeyStatus
from perdure.protocol.envelope import SCHEMA_URI, schema_text
from perdure.protocol.replay import STILL_UNKNOWN
from perdure.protocol.tool_groups import CORE, GROUP_OF, Profile, enabled_groups
from perdure.protocol.tools import definition
from perdure.surfaces.port import Resource, Surface, Tool

ERROR_SCHEMA = Resource(
    uri=SCHEMA_URI,
    name="error-schema",
    description="JSON Schema of the envelope that every failed tool call answers with.",
    read=schema_text,
    mime_type="application/schema+json",
)


class Bound(msgspec.Struct, frozen=True):
    """A tool and its surface, whose journal knows the outcome of its calls."""

    tool: Tool
    surface: Surface


class ToolTable:
    """Built once. Two tools of one name are refused here, not at a call.

    With `only`, no other tool is listed or called. Tools outside `profile` can be called, and are not listed.
    """

    def __init__(
        self, surfaces: Sequence[Surface], only: Sequence[str] = (), profile: Profile = "full"
    ) -> None:
        groups = enabled_groups(profile, {})
        self._tools: dict[str, Bound] = {}
        self._named: dict[str, Bound] = {}
        self._resources: dict[str, Resource] = {}
        for surface in surfaces:
            for tool in surface.tools():
                bound = Bound(tool, surface)
                names = (tool.spec.name, *tool.spec.aliases)
                if only and not set(names) & set(only):
                    continue
                if GROUP_OF.get(tool.spec.name, CORE) in groups:
                    self._tools[tool.spec.name] = bound
                for name in names:
                    if self._named.setdefault(name, bound) is not bound:
                        raise ValueError(f"two tools are called {name}")
        for resource in (ERROR_SCHEMA, *(r for surface in surfaces for r in surface.resources())):
            if self._resources.setdefault(resource.uri, resource) is not resource:
                raise ValueError(f"two resources are at {resource.uri}")

    def tool(self, name: str) -> Tool | None:
        """A tool by its name or one of its aliases, dotted ones included."""
        bound = self._named.get(name)
        return bound.tool if bound else None

    def probe(self, name: str, key: str) -> KeyStatus:
        bound = self._named.get(name)
        return bound.surface.probe(key) if bound else STILL_UNKNOWN

    def resource(self, uri: str) -> Resource | None:
        return self._resources.get(uri)

    def tool_definitions(self) -> list[dict[str, Any]]:
        return [definition(bound.tool.spec) for bound in self._tools.values()]

    def resource_definitions(self) -> list[dict[str, Any]]:
        return [
            {"uri": r.uri, "name": r.name, "description": r.description, "mimeType": r.mime_type}
            for r in self._resources.values()
        ]

    def __iter__(self) -> Iterator[Tool]:
        return (bound.tool for bound in self._tools.values())
