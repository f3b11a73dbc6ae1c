"""Which backend serves a place: by the scheme of a URL, by the ending of a file.

Others register theirs as entry points of the group `perdure.registry_backends`; the name is the scheme
(`postgres`) or the ending (`.toml`), the object a function `(location, environ) -> Backend` that opens nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final

from perdure.registry.errors import UnknownBackend
from perdure.registry.port import Backend

GROUP: Final = "perdure.registry_backends"
FILE_NAMES: Final = ("mcp.md", "mcp.json")
Factory = Callable[[str, Mapping[str, str]], Backend]

# scheme or ending: "module:function"; loaded only when used.
BUILT_IN: Final = {
    ".md": "perdure.registry.filesystem:open_markdown",
    ".json": "perdure.registry.filesystem:open_json",
    ".jsonc": "perdure.registry.filesystem:open_json",
}


def locate(given: str | None, workspace: str, environ: Mapping[str, str]) -> str:
    """The registry's place: the one that was named, else a file of the workspace, else the user's.

    A folder stands for the file in it. Where there is none anywhere, the user's `mcp.md` is where one would be made.
    """
    named = given or environ.get("PERDURE_REGISTRY")
    if named and "://" in named:
        return named
    if named:
        named = os.path.abspath(os.path.expanduser(named))
        return _in_folder(named) or os.path.join(named, FILE_NAMES[0]) if os.path.isdir(named) else named
    user = user_folder(environ)
    return _in_folder(workspace) or _in_folder(user) or os.path.join(user, FILE_NAMES[0])


def user_folder(environ: Mapping[str, str]) -> str:
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "perdure")


def _in_folder(folder: str) -> str | None:
    paths = (os.path.join(folder, name) for name in FILE_NAMES)
    return next((path for path in paths if os.path.lexists(path)), None)


def open_backend(location: str, environ: Mapping[str, str]) -> Backend:
    """The backend of a file or URL. Raises UnknownBackend; opens nothing yet."""
    return factory(location)(location, environ)


def factory(location: str) -> Factory:
    scheme, mark, _ = location.partition("://")
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
