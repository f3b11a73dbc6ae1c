"""Shared state: keys with their values and who changed them, namespaces, leases, and who waits."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.dash.components import badge, block, card, code, field, search, session_link
from perdure.dash.context import PageContext, mask_all
from perdure.dash.html import Content, Markup, Row, element, link, table
from perdure.dash.times import lasting, when
from perdure.dash.web import Ask, NotThere, Page, Part

DEFAULT: Final = "default"
MOST_VALUE: Final = 120
EMPTY: Final = "No keys in this namespace yet. Values that agents share with set_state appear here."


async def state(context: PageContext, ask: Ask) -> Page:
    namespace, prefix = ask.get("namespace", DEFAULT), ask.get("prefix")
    found = await context.tools.call(
        "list_state", namespace=namespace, prefix=prefix, cursor=ask.get("after"), values=True
    )
    known = await context.read_store(context.stores.state)
    names = [one["key"] for one in found["keys"]]
    writers = await context.read_store(lambda: context.stores.writers(namespace, names))
    values = await mask_all(str(one["value"]) for one in found["keys"])
    rows = (
        Row(one["key"], _key_row(one, namespace, value, writers.get(one["key"], "")))
        for one, value in zip(found["keys"], values, strict=True)
    )
    empty = EMPTY if not prefix else "No key begins like this."
    keys = table("Keys", ("Key", "Value", "Version", "Changed", "By"), rows, empty)
    query = {"namespace": namespace, "prefix": prefix}
    after = found.get("next_cursor")
    more = link("More keys", "/state", {**query, "after": after}, class_="more") if after else None
    spaces = [one["namespace"] for one in known["namespaces"]]
    prefixes = dict.fromkeys(f"{name.partition('/')[0]}/" for name in names if "/" in name)
    fields = (
        field("Namespace", "namespace", namespace, spaces),
        field("Key begins with", "prefix", prefix, prefixes),
    )
    return Page(
        "State",
        (
            Part("find", card("Find", search("Keys", "Show", "/state", *fields))),
            Part("keys", card(["Keys of ", code(namespace)], keys, more), news="key"),
            Part("namespaces", card("Namespaces", _namespaces(known["namespaces"], namespace))),
            Part("leases", card("Leases", _leases(known["leases"]))),
            Part("lease", await _lease(context, ask, namespace)),
            Part("waiters", card("Waiting for a change", _waiters(context))),
        ),
    )


async def key(context: PageContext, ask: Ask) -> Page:
    namespace, name = ask.get("namespace", DEFAULT), ask.exact("key")
    if not name:
        raise NotThere
    past = (await context.tools.call("state_history", namespace=namespace, key=name, limit=50))["versions"]
    shown = await mask_all(str(one.get("value") or "") for one in past)
    rows = (
        (
            one["version"],
            when(one["updated_at"]),
            one["client"],
            code(one["tool"]),
            element("i", "deleted") if one["deleted"] else code(_clip(value, 200)),
        )
        for one, value in zip(past, shown, strict=True)
    )
    heads = ("Version", "Changed", "By", "Tool", "Value")
    history = table("Versions, newest first", heads, rows, "This key never existed.")
    now = element("p", "Deleted.") if not past or past[0]["deleted"] else block("Value", _pretty(shown[0]))
    return Page(
        name,
        (
            Part("value", card("Value", element("p", "Namespace ", code(namespace)), now)),
            Part("history", card("History", history), news="version"),
        ),
    )


def _key_row(one: dict[str, Any], namespace: str, value: str, writer: str) -> tuple[Content, ...]:
    return (
        link(code(one["key"]), "/state/key", {"namespace": namespace, "key": one["key"]}),
        code(_clip(value, MOST_VALUE)),
        one["version"],
        when(one["updated_at"]),
        writer,
    )


def _clip(value: str, most: int) -> str:
    return value if len(value) <= most else f"{value[:most]}…"


def _pretty(value: str) -> str:
    try:
        return msgspec.json.format(value.encode(), indent=2).decode()
    except msgspec.MsgspecError:
        return value


def _namespaces(known: list[dict[str, Any]], shown: str) -> Markup:
    rows = (
        (
            link(code(one["namespace"]), "/state", {"namespace": one["namespace"]})
            if one["namespace"] != shown
            else element("b", one["namespace"]),
            one.get("keys", ""),
            one.get("leases", ""),
        )
        for one in known
    )
    return table("Namespaces of the store", ("Namespace", "Keys", "Leases"), rows, "There is none yet.")


def _leases(known: list[dict[str, Any]]) -> Markup:
    rows = (
        (
            link(code(one["name"]), "/state", {"namespace": one["namespace"], "lease": one["name"]}),
            one["namespace"],
            one["owner"],
            lasting(one["expires_in_s"]) if one["expires_in_s"] is not None else "no end",
        )
        for one in known
    )
    empty = "No lease is held. Locks that agents take with the lease tool appear here."
    return table("Leases that are held", ("Lease", "Namespace", "Owner", "Left"), rows, empty)


async def _lease(context: PageContext, ask: Ask, namespace: str) -> Markup:
    name = ask.get("lease")
    hidden = element("input", type="hidden", name="namespace", value=namespace)
    form = search("Leases", "Look up", "/state", hidden, field("Lease", "lease", name))
    if not name:
        return card("Find a lease", form)
    found = await context.tools.call("lease", action="status", name=name, namespace=namespace)
    owner = f" by {found['owner']} until " if found.get("owner") else None
    status = element("p", code(name), " ", badge(found["status"]), owner, when(found.get("expires_at")))
    return card("Find a lease", form, status)


def _waiters(context: PageContext) -> Markup:
    rows = (
        (
            code(str(one.arguments.get("key") or f"{one.arguments.get('prefix', '')}…")),
            str(one.arguments.get("namespace") or DEFAULT),
            one.client,
            session_link(one.session),
            one.seconds,
        )
        for one in context.calls()
        if one.name == "state_wait"
    )
    heads = ("Key", "Namespace", "Client", "Session", "Seconds")
    return table(
        "Calls of state_wait", heads, rows, "No agent waits for a key. Calls of state_wait appear here."
    )
