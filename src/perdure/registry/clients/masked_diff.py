"""What a change of a client's file looks like, without the secrets that stand in it, ours or anybody's.

Lines are compared as they are and shown masked: a value that changed shows as changed, and not as itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Final

from perdure.registry.clients.decoder import URL_KEYS
from perdure.registry.clients.references import parse_template
from perdure.registry.clients.table import Client
from perdure.registry.clients.text_edit import Scalar, Splice, Uneditable, shared_prefix, spliced
from perdure.registry.redaction import (
    REDACTED,
    mask_args,
    mask_url,
    mask_value,
    scrub,
)
from perdure.risk.short_text import is_secret_value

CONTEXT: Final = 3
# Below these comes the name of a server, which says nothing about its values.
_ROOTS: Final = frozenset({"mcpServers", "servers", "context_servers", "mcp", "extensions", "mcp_servers"})
_HIDDEN_BELOW: Final = frozenset({"env", "envs", "environment", "headers", "http_headers", "requestOptions"})


def unified(client: Client, before: str, after: str, file: str) -> str:
    """A unified diff; empty where nothing changes."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    start = shared_prefix(old, new)
    end = shared_prefix(old[start:][::-1], new[start:][::-1])
    first = max(0, start - CONTEXT)
    old_last, new_last = (min(len(lines), len(lines) - end + CONTEXT) for lines in (old, new))
    shown_old = _shown_lines(client, before, first, old_last)
    shown_new = _shown_lines(client, after, first, new_last)
    lines = [f"--- {file}\n", f"+++ {file}\n"]
    matcher = SequenceMatcher(None, old[first:old_last], new[first:new_last])
    for group in matcher.get_grouped_opcodes(CONTEXT):
        (_, i, _, j, _), (_, _, i_end, _, j_end) = group[0], group[-1]
        lines.append(f"@@ -{first + i + 1},{i_end - i} +{first + j + 1},{j_end - j} @@\n")
        for kind, i, i_end, j, j_end in group:
            if kind == "equal":
                lines += [f" {one}" for one in shown_old[i:i_end]]
                continue
            lines += [f"-{one}" for one in shown_old[i:i_end]]
            lines += [f"+{one}" for one in shown_new[j:j_end]]
    return "".join(
        line.replace("\r\n", "\n") if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )


def masked(client: Client, text: str) -> str:
    """The text with the same lines, and no value in it that may be a secret."""
    return "".join(_shown_lines(client, text, 0, len(_lines(text))))


def _shown_lines(client: Client, text: str, first: int, last: int) -> list[str]:
    """Some lines of a text, masked. Only they are looked at closely: a client's file can be large."""
    starts = [0, *accumulate(map(len, _lines(text)))]
    start, end = starts[first], starts[last]
    try:
        found = client.text.scalars(text, start, end)
    except (Uneditable, RecursionError):
        return _lines(re.sub(r"[^\n]+", REDACTED, text[start:end]))
    inside = [one for one in found if one.end > start and one.start < end]
    whole_start = min([start, *(one.start for one in inside)])
    whole_end = max([end, *(one.end for one in inside)])
    splices = [*_masks(client, text, found, inside), *_gaps(text, inside, whole_start, whole_end)]
    moved = [Splice(one.start - whole_start, one.end - whole_start, one.new) for one in splices]
    lines = _lines(spliced(text[whole_start:whole_end], moved))
    above = text.count("\n", whole_start, start)
    return lines[above : above + last - first]


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _masks(client: Client, text: str, found: list[Scalar], inside: list[Scalar]) -> Iterator[Splice]:
    arguments = dict(_arguments(client, found))
    for one in inside:
        shown = arguments.get(one.path)
        if shown is None:
            shown = _shown(client, one)
        raw = text[one.start : one.end]
        if shown != one.value:
            quote = raw[0] if raw[0] in "\"'" else ""
            written = json.dumps(shown, ensure_ascii=False) if quote == '"' else f"{quote}{shown}{quote}"
            raw = written + "\n" * raw.count("\n")
        yield Splice(one.start, one.end, raw)


def _gaps(text: str, inside: list[Scalar], start: int, end: int) -> Iterator[Splice]:
    """Comments and keys, between the values."""
    for one in sorted(inside, key=lambda scalar: scalar.start):
        yield Splice(start, one.start, scrub(text[start : one.start]))
        start = one.end
    yield Splice(start, end, scrub(text[start:end]))


def _arguments(client: Client, found: list[Scalar]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Arguments are judged together: what follows `--token` is one."""
    lists: dict[tuple[str | int, ...], list[Scalar]] = {}
    for one in found:
        if len(one.path) > 1 and isinstance(one.path[-1], int) and one.path[-2] in ("args", "command"):
            lists.setdefault(one.path[:-1], []).append(one)
    for scalars in lists.values():
        templates = [parse_template(one.value, client.shape.references).template for one in scalars]
        for one, template, shown in zip(scalars, templates, mask_args(templates), strict=True):
            yield one.path, one.value if shown == template.text else shown


def _shown(client: Client, one: Scalar) -> str:
    template = parse_template(one.value, client.shape.references).template
    if _is_hidden(client, one):
        shown = mask_value(template) if one.value else REDACTED
    elif one.path and one.path[-1] in URL_KEYS:
        shown = mask_url(template)
    else:
        return scrub(one.value)
    return one.value if shown == template.text else shown


def _is_hidden(client: Client, one: Scalar) -> bool:
    """Whether a value must not be shown because of the keys it stands under."""
    shape = client.shape
    path = (one.path[0], *one.path[2:]) if len(one.path) > 2 and one.path[0] in _ROOTS else one.path
    keys = [key for key in path if isinstance(key, str)]
    if {shape.env_names, shape.header_names, shape.bearer_name} & set(keys):
        return False  # names of variables
    if any(key in _HIDDEN_BELOW for key in keys[:-1]):
        return True
    return any(is_secret_value(key, one.value) for key in keys)
