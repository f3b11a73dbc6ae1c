"""How the state tools' answers are shown. The five compatible ones say `status` where others say `ok`."""

from __future__ import annotations

from typing import Final

from perdure.present.shape import Field, Payload, Shape
from perdure.surfaces.state import failures

KEY = Field("key")
STATUS = Field("status")
VALUE = Field("value", "block")
VERSION = Field("version")
REVISION = Field("revision")
MESSAGE = Field("message")
REASON = Field("reason")
UPDATED = Field("updated_at", full_only=True)
EXPIRES = Field("expires_at", full_only=True)
ACTUAL = (Field("expected_version", full_only=True), Field("actual_version", full_only=True))

GOT: Final = Shape(
    "{status} {key}  version {version}  revision {revision}",
    (STATUS, KEY, VERSION, REVISION, UPDATED, EXPIRES, VALUE),
    ok=False,
)
SET: Final = Shape(
    "{status} {key}  version {version}  revision {revision}",
    (STATUS, KEY, VERSION, REVISION, MESSAGE, REASON, *ACTUAL, UPDATED, EXPIRES),
    ok=False,
    failure=failures.not_done("written"),
)
LISTED: Final = Shape(
    "{keys} keys  revision {revision}",
    (
        STATUS,
        REVISION,
        Field(
            "keys",
            "table",
            columns=(KEY, VERSION, REVISION, Field("updated_at"), Field("value", "json"), EXPIRES),
        ),
        Field("next_cursor"),
        MESSAGE,
    ),
    ok=False,
)
DELETED: Final = Shape(
    "{status} {key}  deleted {deleted}  revision {revision}",
    (STATUS, KEY, Field("deleted"), VERSION, REVISION, MESSAGE, *ACTUAL),
    ok=False,
    failure=failures.not_done("deleted"),
)
_CHANGE = (KEY, VERSION, REVISION, Field("deleted"))
WAITED: Final = Shape(
    "{status}  revision {revision}  {changes} changes",
    (STATUS, REVISION, Field("changes", "table", columns=_CHANGE)),
)


def _transacted(payload: Payload) -> str:
    return "{status}  revision {revision}  {results} writes" + (
        "  {failed} failed" if "failed" in payload else ""
    )


TRANSACTED: Final = Shape(
    _transacted,
    (
        STATUS,
        Field("succeeded"),
        REVISION,
        Field("results", "table", columns=(Field("op"), KEY, VERSION, Field("deleted"))),
        Field("failed", "table", columns=(KEY, REASON, Field("actual_version"))),
    ),
    failure=failures.transaction,
)
PATCHED: Final = Shape(
    "{status} {key}  version {version}  revision {revision}",
    (STATUS, KEY, VERSION, REVISION, MESSAGE, *ACTUAL, UPDATED, EXPIRES, VALUE),
    failure=failures.not_done("written"),
)
_VERSION = (
    VERSION,
    REVISION,
    Field("value", "json"),
    Field("deleted"),
    Field("updated_at"),
    Field("client"),
    Field("session", full_only=True),
    Field("tool"),
    Field("diff", "json"),
)
HISTORY: Final = Shape(
    "{key}  {versions} versions",
    (STATUS, KEY, REVISION, Field("versions", "table", columns=_VERSION)),
)
LEASE: Final = Shape(
    "{status} {name}  owner {owner}  token {token}  until {expires_at}",
    (STATUS, Field("name"), Field("owner"), Field("token"), Field("expires_at"), REVISION),
    failure=failures.lease,
)
ONCE: Final = Shape(
    "{status} {key}  token {token}  until {expires_at}",
    (STATUS, KEY, Field("token"), Field("expires_at"), Field("outcome", "json"), REVISION),
    failure=failures.once,
)
