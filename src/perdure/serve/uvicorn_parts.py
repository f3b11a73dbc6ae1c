"""The parts of uvicorn that serve, without its command line.

Its package imports all of it at once: a parser of options, a supervisor of processes and what they need are a tenth of
the memory of the whole serving process, for nothing. So are modules by which uvicorn reads settings from files and
writes dates, which it never does here: `connections.Server` says the date, and all settings come from us.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Final

UNUSED: Final = {
    "configparser": "RawConfigParser",
    "email.utils": "formatdate",
    "json": "load",
    "logging.config": "dictConfig",
    "pathlib": "Path",
}


def _prepare() -> None:
    """The package's name with its folder, so that its modules are found; what it would import itself is not."""
    found = find_spec("uvicorn") if "uvicorn" not in sys.modules else None
    if found is not None:
        sys.modules["uvicorn"] = module_from_spec(found)


@contextmanager
def _without_unused() -> Iterator[None]:
    """What uvicorn imports and does not use here. Others who import it meanwhile or later get the real ones."""
    withheld = [name for name in UNUSED if name not in sys.modules]
    for name in withheld:
        sys.modules[name] = ModuleType(name)
        setattr(sys.modules[name], UNUSED[name], None)
    try:
        yield
    finally:
        for name in withheld:
            del sys.modules[name]


_prepare()
with _without_unused():
    from uvicorn.config import Config
    from uvicorn.protocols.http.h11_impl import H11Protocol
    from uvicorn.server import Server

vars(sys.modules["uvicorn"]).update(Config=Config, Server=Server)  # by these names its own modules know them

__all__ = ["Config", "H11Protocol", "Server"]
