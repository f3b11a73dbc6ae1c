"""How the state tools' answers are shown. The five compatible ones say `status` where others say `ok`."""

from __future__ import annotations

from shlex import quote
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
UPDATED = Field("updated_at", "time", full_only=True)
EXPIRES = Field("expires_at", "time", full_only=True)
ACTUAL = (Field("expected_version", full_only=True), Field("actual_version", full_only=True))

GOT: Final = Shape(
    "{status} {key}  version {version}  revision {revision}",
    (STATUS, KEY, VERSION, REVISION, UPDATED, EXPIRES, VALUE),
    ok=False,
)
SET: Final = Shape(
    "{status} {key}  version {version}  revision {revision}",
    (STATUS, KEY, VERSION, REVISION, MESSAGE, REASON, *ACTUAL, UPDATED, EXPIRES, Field("enable")),
    ok=False,
    failure=failures.not_done("written"),
)
LISTED: Final = Shape(
    "{keys:key}  revision {revision}",
    (
        Field("status", quiet=True),
        REVISION,
        Field(
            "keys",
            "table",
            columns=(
                KEY,
                VERSION,
                REVISION,
                Field("updated_at", "time"),
                Field("value", "json_text"),
                EXPIRES,
            ),
        ),
        Field("next_cursor", quiet=True),
        MESSAGE,
    ),
    ok=False,
    hint=lambda payload: (
        f"more keys: give cursor={quote(payload['next_cursor'])}" if payload.get("next_cursor") else None
    ),
)


def _deleted(payload: Payload) -> str:
    if payload["status"] == "ok":
        verb = "deleted {key}" if payload["deleted"] else "{key} was not there"
        return f"{verb}  version {{version}}  revision {{revision}}"
    return "{status} {key}  revision {revision}"


DELETED: Final = Shape(
    _deleted,
    (Field("status", quiet=True), KEY, Field("deleted", quiet=True), VERSION, REVISION, MESSAGE, *ACTUAL),
    ok=False,
    failure=failures.not_done("deleted"),
)
_CHANGE = (KEY, VERSION, REVISION, Field("deleted"))
WAITED: Final = Shape(
    "{status}  revision {revision}  {changes:change}",
    (STATUS, REVISION, Field("changes", "table", columns=_CHANGE)),
)


def _transacted(payload: Payload) -> str:
    return "{status}  revision {revision}  {results:write}" + (
        "  {failed:condition} failed" if "failed" in payload else ""
    )


TRANSACTED: Final = Shape(
    _transacted,
    (
        STATUS,
        Field("succeeded", quiet=True),
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
    Field("value", "json_text"),
    Field("deleted"),
    Field("updated_at", "time"),
    Field("client"),
    Field("session", full_only=True),
    Field("tool"),
    Field("diff", "json"),
)
HISTORY: Final = Shape(
    "{key}  {versions:version}",
    (
        Field("status", quiet=True),
        KEY,
        Field("revision", quiet=True),
        Field("versions", "table", columns=_VERSION),
    ),
)
LEASE: Final = Shape(
    "{status} {name}  owner {owner}  token {token}  until {expires_at}",
    (
        STATUS,
        Field("name"),
        Field("owner"),
        Field("token"),
        Field("expires_at", "time"),
        Field("revision", quiet=True),
    ),
    failure=failures.lease,
)
ONCE: Final = Shape(
    "{status} {key}  token {token}  until {expires_at}",
    (
        STATUS,
        KEY,
        Field("token"),
        Field("expires_at", "time"),
        Field("outcome", "json_text"),
        Field("revision", quiet=True),
    ),
    failure=failures.once,
)
