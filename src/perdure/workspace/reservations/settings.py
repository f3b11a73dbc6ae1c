"""Who reserves, and what a shell command may do: `[reservations]` of the settings file."""

from __future__ import annotations

from typing import Literal

import msgspec


class ReservationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["off", "explicit", "automatic"] = "explicit"
    """`automatic`: the first write to a file reserves it for a while."""
    shell: Literal["tell", "restore"] = "tell"
    """`restore`: what a shell command changed under another client's reservation is put back."""
    scope: Literal["workspace", "repository"] = "workspace"
    """`repository`: kept in the state store, for all clones of the repository that use the same one."""
