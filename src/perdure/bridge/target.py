"""How the host starts a bridge: what to connect to, and the exit code that asks for a sign-in."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

# By the environment: a command line is for everyone to read.
TARGET_ENV: Final = "PERDURE_BRIDGE"
SIGN_IN_CODE: Final = 77


class Target(msgspec.Struct, frozen=True):
    url: str
    name: str = "this server"
    transport: Literal["streamable-http", "sse"] = "streamable-http"
    headers: dict[str, str] = {}
    oauth: dict[str, str] = {}
    grant: str = ""

    @property
    def has_credentials(self) -> bool:
        """Whether a header says who we are already."""
        return any(name.lower() == "authorization" for name in self.headers)
