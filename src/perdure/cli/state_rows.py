"""`perdure state get`, `list`, `history` and `export` the short way:
a key that is there, in a store that is a file of this version.

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
VERSIONS = 20
NOT_FOUND = 1
SHARED = {"state": None, "namespace": "default", "json": False, "workspace": ()}
FIRST = ("status", "key", "version", "revision", "updated_at", "expires_at", "value")


def answered(argv: list[str]) -> bool | int:
    """Whether the command was answered here; a number is its exit code."""
    match argv[:1]:
        case ["get"]:
            options = quickly(argv[1:], SHARED, ("key",))
            return options is not None and _get(options)
        case ["list"]:
            options = quickly(argv[1:], {**SHARED, "prefix": None})
            return options is not None and _list(options)
        case ["history"]:
            options = quickly(argv[1:], SHARED, ("key",))
            return options is not None and _history(options)
        case ["export"]:
            options = quickly(argv[1:], {**SHARED, "namespace": None})
            return options is not None and _export(options)
        case _:
            return False


def _store(options: Any) -> str | None:
    from perdure.cli.whereabouts import whereabouts

    return whereabouts(options, "state").state_file if options.workspace is None else None


def _get(options: Any) -> bool | int:
    from perdure.storage.sqlite import glance

    path = _store(options)
    found = glance.entry(path, options.namespace, options.key) if path is not None else {}
    if path is not None and not found.get("found", True) and options.namespace and options.key:
        return _no_store(options)
    if not found.get("row"):
        return False
    payload = _payload({"status": "ok"}, found["row"])
    lines = [f"ok {payload['key']}  version {payload['version']}  revision {payload['revision']}"]
    for name in FIRST:
        if name in payload:
            lines.append(f"{name}: {_shown(payload[name], name)}")
    return _tell(options, payload, lines, [payload["key"], payload["value"]])


def _no_store(options: Any) -> bool | int:
    """To ask for a key is no reason to make a store."""
    payload = {"status": "not_found", "key": options.key, "revision": 0}
    lines = [
        f"not_found {options.key}  revision 0",
        "status: not_found",
        f"key: {options.key}",
        "revision: 0",
    ]
    return NOT_FOUND if _tell(options, payload, lines, [options.key]) else False


def _list(options: Any) -> bool:
    from perdure.storage.sqlite import glance

    path = _store(options)
    found = (
        glance.entries(path, options.namespace, options.prefix or "", LIMIT + 1) if path is not None else {}
    )
    if path is not None and not found.get("found", True):
        found = {"revision": 0, "rows": []}
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
    columns = ["key", "version", "revision", "updated_at"]
    columns += ["expires_at"] if any("expires_at" in row for row in rows) else []
    if rows:
        lines.append(" | ".join(columns))
    for row in rows:
        lines.append(" | ".join(str(row.get(name, "-")) for name in columns))
    if len(found["rows"]) > LIMIT:
        payload["next_cursor"] = _cursor(rows[-1]["key"])
        lines.append(f"next_cursor: {payload['next_cursor']}")
    return _tell(options, payload, lines, [row["key"] for row in rows])


def _history(options: Any) -> bool:
    from perdure.storage.sqlite import glance

    path = _store(options)
    found = glance.versions(path, options.namespace, options.key, VERSIONS) if path is not None else {}
    if not found.get("rows"):
        return False
    rows = [
        {
            "version": version,
            "revision": revision,
            "value": value,
            "deleted": value is None,
            "updated_at": _iso(updated),
            "client": client,
            "session": session,
            "tool": tool,
        }
        for version, revision, value, updated, client, session, tool in found["rows"]
    ]
    payload = {
        "ok": True,
        "status": "ok",
        "key": options.key,
        "revision": rows[0]["revision"],
        "versions": rows,
    }
    lines = [f"{options.key}  {len(rows)} versions", "status: ok", f"key: {options.key}"]
    lines += [
        f"revision: {rows[0]['revision']}",
        f"versions: {len(rows)} {'row' if len(rows) == 1 else 'rows'}",
    ]
    lines.append(" | ".join(rows[0]))
    for row in rows:
        lines.append(" | ".join(dumps(row[n]) if n == "value" else _cell(row[n]) for n in row))
    texts = [options.key, *(row["client"] for row in rows)]
    values = [row["value"] or "" for row in rows]
    if not options.json and any("|" in text or len(text) > 1500 or not _is_simple(text) for text in values):
        return False
    return _tell(options, payload, lines, texts)


def _cell(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _export(options: Any) -> bool:
    """As it goes: an export may be longer than memory."""
    import sys

    from perdure.cli.progress import Progress
    from perdure.storage.sqlite import glance

    path = _store(options)
    if path is None:
        return False
    with Progress(beside=sys.stdout) as progress:
        number = 0

        def tell(row: tuple[Any, ...]) -> None:
            nonlocal number
            number += 1
            if options.namespace in (None, row[0]):
                print(_exported(row))
            progress.at("export", number)

        found = glance.every_entry(path, tell)
    return "told" in found or not found["found"]


def _exported(row: tuple[Any, ...]) -> str:
    from _json import encode_basestring

    namespace, key, version, _, updated, expires, value = row
    texts = {"key": key, "value": value, "namespace": namespace}
    parts = [f'"{name}":{encode_basestring(text)}' for name, text in texts.items()]
    parts += [f'"version":{version}', f'"updated_at":"{_iso(updated)}"']
    if expires is not None:
        parts.append(f'"expires_at":"{_iso(expires)}"')
    return "{" + ",".join(parts) + "}"


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
    if not all(_is_simple(text) and len(text) < 4000 for text in texts):
        return False
    print("\n".join(lines))
    return True


def _is_simple(text: str) -> bool:
    return text.isascii() and text.isprintable()


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
