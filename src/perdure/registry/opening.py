"""Which backend serves a place: by the scheme of a URL, by the ending of a file.

Others register theirs as entry points of the group `perdure.registry_backends`; the name is the scheme
(`postgres`) or the ending (`.toml`), the object a function `(location, environ) -> Backend` that opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from perdure.registry.errors import UnknownBackend
from perdure.registry.locating import FILE_NAMES
from perdure.registry.port import Backend

Factory = Callable[[str, Mapping[str, str]], Backend]

GROUP: Final = "perdure.registry_backends"

# scheme or ending: "module:function"; loaded only when used.
BUILT_IN: Final = {
    ".md": "perdure.registry.filesystem:open_markdown",
    ".json": "perdure.registry.filesystem:open_json",
    ".jsonc": "perdure.registry.filesystem:open_json",
    "http": "perdure.registry.http_catalog:open_http",
    "https": "perdure.registry.http_catalog:open_http",
}


def open_backend(location: str, environ: Mapping[str, str]) -> Backend:
    """The backend of a file or URL. Raises UnknownBackend; opens nothing yet."""
    return factory(location)(location, environ)


def factory(location: str) -> Factory:
    scheme, mark, _ = location.partition("://")
    if not mark and os.path.isdir(location):
        raise UnknownBackend(
            f"{location} is a folder; a registry is a file",
            hint=f"name the file in it: {os.path.join(location, FILE_NAMES[0])}",
        )
    kind = scheme.lower() if mark else os.path.splitext(location)[1].lower()
    named = BUILT_IN.get(kind)
    if named is not None:
        return _loaded(named)
    found = _registered(kind)
    if found is None:
        raise UnknownBackend(
            f"no registry backend for {kind or 'a file without an ending'}",
            hint=f"a file that ends in {' or '.join(sorted(k for k in BUILT_IN if k.startswith('.')))}, "
            f"or a backend of the entry point group {GROUP}",
        )
    return found


def _loaded(named: str) -> Factory:
    from importlib import import_module

    module, _, function = named.partition(":")
    made: Factory = getattr(import_module(module), function)
    return made


def _registered(kind: str) -> Factory | None:
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        if point.name.lower() == kind:
            made: Factory = point.load()
            return made
    return None
