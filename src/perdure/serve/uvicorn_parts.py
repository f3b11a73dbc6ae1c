"""The parts of uvicorn that serve, without its command line.

Its package imports all of it at once: a parser of options, a supervisor of processes and what they need are a tenth of
the memory of the whole serving process, for nothing.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec


def _prepare() -> None:
    """The package's name with its folder, so that its modules are found; what it would import itself is not."""
    found = find_spec("uvicorn") if "uvicorn" not in sys.modules else None
    if found is not None:
        sys.modules["uvicorn"] = module_from_spec(found)


_prepare()
from uvicorn.config import Config  # noqa: E402
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: E402
from uvicorn.server import Server  # noqa: E402

vars(sys.modules["uvicorn"]).update(Config=Config, Server=Server)  # by these names its own modules know them

__all__ = ["Config", "H11Protocol", "Server"]
