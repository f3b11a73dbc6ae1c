"""What a change of a client's file looks like, without the secrets that stand in it, ours or anybody's.

Lines are compared as they are and shown masked: a value that changed shows as changed, and not as itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

from perdure.registry.clients.hearing import URL_KEYS
from perdure.registry.clients.references import heard
from perdure.registry.clients.splices import Scalar, Splice, Uneditable, spliced
from perdure.registry.clients.table import Client
from perdure.registry.redaction import (
    REDACTED,
    is_secret_name,
    scrubbed,
    shown_args,
    shown_url,
    shown_value,
)

CONTEXT: Final = 3
_HIDDEN_BELOW: Final = frozenset({"env", "envs", "environment", "headers", "http_headers", "requestOptions"})


def unified(client: Client, before: str, after: str, file: str) -> str:
    """A unified diff; empty where nothing changes."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    lines = [f"--- {file}\n", f"+++ {file}\n"]
    shown_old, shown_new = _lines(masked(client, before)), _lines(masked(client, after))
    assert (len(old), len(new)) == (len(shown_old), len(shown_new)), "masking keeps the lines"
    start = _shared(old, new)
    end = _shared(old[start:][::-1], new[start:][::-1])
    first = max(0, start - CONTEXT)
    matcher = SequenceMatcher(
        None, old[first : len(old) - end + CONTEXT], new[first : len(new) - end + CONTEXT]
    )
    for group in matcher.get_grouped_opcodes(CONTEXT):
        a, b = first + group[0][1], first + group[0][3]
        a_end, b_end = first + group[-1][2], first + group[-1][4]
        lines.append(f"@@ -{a + 1},{a_end - a} +{b + 1},{b_end - b} @@\n")
        for kind, i, i_end, j, j_end in group:
            if kind == "equal":
                lines += [f" {one}" for one in shown_old[first + i : first + i_end]]
                continue
            lines += [f"-{one}" for one in shown_old[first + i : first + i_end]]
            lines += [f"+{one}" for one in shown_new[first + j : first + j_end]]
    return "".join(
        line.replace("\r\n", "\n") if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )


def masked(client: Client, text: str) -> str:
    """The text with the same lines, and no value in it that may be a secret."""
    try:
        found = client.text.scalars(text)
    except Uneditable:
        return re.sub(r"[^\n]+", REDACTED, text)
    return spliced(text, [*_masks(client, text, found), *_gaps(text, found)])


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _masks(client: Client, text: str, found: list[Scalar]) -> Iterator[Splice]:
    arguments = dict(_arguments(client, found))
    for one in found:
        shown = arguments.get(one.path)
        if shown is None:
            shown = _shown(client, one)
        if shown != one.value or (not one.value and _is_hidden(client, one)):
            raw = text[one.start : one.end]
            quote = raw[0] if raw[0] in "\"'" else ""
            written = json.dumps(shown, ensure_ascii=False) if quote == '"' else f"{quote}{shown}{quote}"
            yield Splice(one.start, one.end, written + "\n" * raw.count("\n"))
        else:
            yield Splice(one.start, one.end, text[one.start : one.end])


def _gaps(text: str, found: list[Scalar]) -> Iterator[Splice]:
    """Comments and keys, between the values."""
    at = 0
    for one in sorted(found, key=lambda scalar: scalar.start):
        yield Splice(at, one.start, scrubbed(text[at : one.start]))
        at = one.end
    yield Splice(at, len(text), scrubbed(text[at:]))


def _arguments(client: Client, found: list[Scalar]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Arguments are judged together: what follows `--token` is one."""
    lists: dict[tuple[str | int, ...], list[Scalar]] = {}
    for one in found:
        if len(one.path) > 1 and isinstance(one.path[-1], int) and one.path[-2] in ("args", "command"):
            lists.setdefault(one.path[:-1], []).append(one)
    for scalars in lists.values():
        templates = [heard(one.value, client.shape.references).template for one in scalars]
        for one, template, shown in zip(scalars, templates, shown_args(templates), strict=True):
            yield one.path, one.value if shown == template.text else shown


def _shown(client: Client, one: Scalar) -> str:
    template = heard(one.value, client.shape.references).template
    if _is_hidden(client, one):
        shown = shown_value(template) if one.value else REDACTED
    elif one.path and one.path[-1] in URL_KEYS:
        shown = shown_url(template)
    else:
        return scrubbed(one.value)
    return one.value if shown == template.text else shown


def _is_hidden(client: Client, one: Scalar) -> bool:
    """Whether a value must not be shown because of the keys it stands under."""
    shape = client.shape
    keys = [key for key in one.path if isinstance(key, str)]
    if {shape.env_names, shape.header_names, shape.bearer_name} & set(keys):
        return False  # names of variables
    if any(key in _HIDDEN_BELOW for key in keys[:-1]):
        return True
    return bool(one.value) and any(is_secret_name(key) for key in keys)


def _shared(one: list[str], other: list[str]) -> int:
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )
