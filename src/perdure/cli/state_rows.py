"""`perdure state get` and `list` the short way: a key that is there, in a store that is a file of this version.

Everything else, mistakes included, is left to the tool, whose answers are the same to the letter; a test compares them.
"""

from __future__ import annotations

import time

from perdure.cli.parsing import quickly
from perdure.cli.plain_json import dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIMIT = 100
SHARED = {"state": None, "namespace": "default", "json": False, "workspace": ()}
FIRST = ("status", "key", "version", "revision", "updated_at", "expires_at", "value")


def answered(argv: list[str]) -> bool:
    """Whether the command was answered here."""
    match argv[:1]:
        case ["get"]:
            options = quickly(argv[1:], SHARED, ("key",))
            return options is not None and _get(options)
        case ["list"]:
            options = quickly(argv[1:], {**SHARED, "prefix": None})
            return options is not None and _list(options)
        case _:
            return False


def _store(options: Any) -> str | None:
    from perdure.cli.whereabouts import whereabouts

    return whereabouts(options, "state").state_file if options.workspace is None else None


def _get(options: Any) -> bool:
    from perdure.storage.sqlite import glance

    path = _store(options)
    found = glance.entry(path, options.namespace, options.key) if path is not None else {}
    if not found.get("row"):
        return False
    payload = _payload({"status": "ok"}, found["row"])
    lines = [f"ok {payload['key']}  version {payload['version']}  revision {payload['revision']}"]
    for name in FIRST:
        if name in payload:
            lines.append(f"{name}: {_shown(payload[name], name)}")
    return _tell(options, payload, lines, [payload["key"], payload["value"]])


def _list(options: Any) -> bool:
    from perdure.storage.sqlite import glance

    path = _store(options)
    found = (
        glance.entries(path, options.namespace, options.prefix or "", LIMIT + 1) if path is not None else {}
    )
    if "rows" not in found:
        return False
    rows = [_payload({}, row) for row in found["rows"][:LIMIT]]
    payload: dict[str, Any] = {"status": "ok", "revision": found["revision"], "keys": rows}
    lines = [
        f"{len(rows):,} keys  revision {found['revision']}",
        "status: ok",
        f"revision: {found['revision']}",
    ]
    lines.append(f"keys: {len(rows):,} {'row' if len(rows) == 1 else 'rows'}")
    if rows:
        lines.append("key | version | revision | updated_at | value | expires_at")
    for row in rows:
        cells = [row["key"], str(row["version"]), str(row["revision"]), row["updated_at"], "null"]
        lines.append(" | ".join([*cells, row.get("expires_at", "-")]))
    if len(found["rows"]) > LIMIT:
        payload["next_cursor"] = _cursor(rows[-1]["key"])
        lines.append(f"next_cursor: {payload['next_cursor']}")
    return _tell(options, payload, lines, [row["key"] for row in rows])


def _payload(before: dict[str, Any], row: tuple[Any, ...]) -> dict[str, Any]:
    key, version, revision, updated, expires, value = row
    found = {**before, "key": key, "version": version, "revision": revision, "updated_at": _iso(updated)}
    if expires is not None:
        found["expires_at"] = _iso(expires)
    return {**found, "value": value} if value is not None else found


def _tell(options: Any, payload: dict[str, Any], lines: list[str], texts: list[str]) -> bool:
    if options.json:
        print(dumps(payload))
        return True
    if not all(_is_bare(text) or text is payload.get("value") for text in texts):
        return False  # how those are written is for one place to know
    if not all(text.isascii() and text.isprintable() and len(text) < 4000 for text in texts):
        return False
    print("\n".join(lines))
    return True


def _is_bare(text: str) -> bool:
    return text not in ("", "-") and text.isprintable() and not any(mark in text for mark in ' "\\…|')


def _shown(value: Any, name: str) -> str:
    if isinstance(value, int):
        return str(value)
    is_plain = name != "value" or (
        value == value.strip() and _is_bare(value.replace(" ", "_").replace("|", "_"))
    )
    return str(value) if is_plain else dumps(value).replace("|", "\\u007c")


def _iso(ts: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ts // 1_000_000)) + f".{ts % 1_000_000:06}Z"


def _cursor(key: str) -> str:
    from binascii import b2a_base64

    return b2a_base64(key.encode(), newline=False).decode().replace("+", "-").replace("/", "_")
