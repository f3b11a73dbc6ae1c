"""The tools of the write surface have a second name each, `rw.` and the first."""

from __future__ import annotations

from functools import partial
from typing import Final

from perdure.surfaces.declarations import declare_read, declare_write

writes: Final = partial(declare_write, alias_prefix="rw.")
reads: Final = partial(declare_read, alias_prefix="rw.")
