"""The official read API over a registry: every entry is a server with one version, its latest."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from perdure.registry.official.records import OFFICIAL
from perdure.registry.official.versions import moment
from perdure.registry.port import Backend
from perdure.registry.portable import portable
from perdure.registry.serving.exchange import Refused, Request, page_size
from perdure.registry.serving.server_json import full_name, record

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
            found.setdefault(full_name(entry), record(portable(entry), at))
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
