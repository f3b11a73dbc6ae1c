"""The diff of a client's file without the secrets in it, ours or the user's.

Lines are compared as they are and shown masked: a secret that changed shows as a changed line, and not as itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Final

from perdure.registry.clients.codec import URL_KEYS
from perdure.registry.clients.config_text import Path, Scalar, Splice, Uneditable, common_prefix, splice
from perdure.registry.clients.references import parse_template
from perdure.registry.clients.table import Client
from perdure.registry.redaction import REDACTED, mask_args, mask_url, mask_value, scrub
from perdure.risk.short_text import is_secret_value

CONTEXT: Final = 3
_HIDDEN_BELOW: Final = frozenset({"env", "envs", "environment", "headers", "http_headers", "requestOptions"})


def make_diff(client: Client, before: str, after: str, file: str) -> str:
    """A unified diff; empty if nothing changes. Only the lines around the change are masked: a file can be large."""
    if before == after:
        return ""
    old, new = _lines(before), _lines(after)
    start = common_prefix(old, new)
    end = common_prefix(old[start:][::-1], new[start:][::-1])
    first = max(0, start - CONTEXT)
    old_last, new_last = (min(len(lines), len(lines) - end + CONTEXT) for lines in (old, new))
    masked_old = _mask_lines(client, before, first, old_last)
    masked_new = _mask_lines(client, after, first, new_last)
    lines = [f"--- {file}\n", f"+++ {file}\n"]
    matcher = SequenceMatcher(None, old[first:old_last], new[first:new_last])
    for group in matcher.get_grouped_opcodes(CONTEXT):
        (_, i, _, j, _), (_, _, i_end, _, j_end) = group[0], group[-1]
        lines.append(f"@@ -{first + i + 1},{i_end - i} +{first + j + 1},{j_end - j} @@\n")
        for kind, i, i_end, j, j_end in group:
            if kind == "equal":
                lines += [f" {line}" for line in masked_old[i:i_end]]
                continue
            lines += [f"-{line}" for line in masked_old[i:i_end]]
            lines += [f"+{line}" for line in masked_new[j:j_end]]
    return "".join(
        line.replace("\r\n", "\n") if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )


def mask_text(client: Client, text: str) -> str:
    """The text with the same lines, and no value in it that may be a secret."""
    return "".join(_mask_lines(client, text, 0, len(_lines(text))))


def _mask_lines(client: Client, text: str, first: int, last: int) -> list[str]:
    starts = [0, *accumulate(map(len, _lines(text)))]
    start, end = starts[first], starts[last]
    try:
        scalars = client.text.syntax.scalars(text)
    except (Uneditable, RecursionError):
        return _lines(re.sub(r"[^\n]+", REDACTED, text[start:end]))
    inside = [scalar for scalar in scalars if scalar.end > start and scalar.start < end]
    # A value over several lines is masked as a whole.
    whole_start = min([start, *(scalar.start for scalar in inside)])
    whole_end = max([end, *(scalar.end for scalar in inside)])
    splices = [*_masks(client, text, scalars, inside), *_gaps(text, inside, whole_start, whole_end)]
    moved = [Splice(change.start - whole_start, change.end - whole_start, change.new) for change in splices]
    lines = _lines(splice(text[whole_start:whole_end], *moved))
    above = text.count("\n", whole_start, start)
    return lines[above : above + last - first]


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _masks(client: Client, text: str, scalars: list[Scalar], inside: list[Scalar]) -> Iterator[Splice]:
    args = dict(_mask_args(client, scalars, {scalar.path[:-1] for scalar in inside}))
    for scalar in inside:
        value = args[scalar.path] if scalar.path in args else _mask(client, scalar)
        raw = text[scalar.start : scalar.end]
        if value != scalar.value:
            quote = raw[0] if raw[0] in "\"'" else ""
            quoted = json.dumps(value, ensure_ascii=False) if quote == '"' else f"{quote}{value}{quote}"
            raw = quoted + "\n" * raw.count("\n")
        yield Splice(scalar.start, scalar.end, raw)


def _gaps(text: str, inside: list[Scalar], start: int, end: int) -> Iterator[Splice]:
    """Comments and keys, between the values."""
    for scalar in sorted(inside, key=lambda scalar: scalar.start):
        yield Splice(start, scalar.start, scrub(text[start : scalar.start]))
        start = scalar.end
    yield Splice(start, end, scrub(text[start:end]))


def _mask_args(client: Client, scalars: list[Scalar], paths: set[Path]) -> Iterator[tuple[Path, str]]:
    """Arguments are masked together: the one after `--token` is a secret."""
    lists: dict[Path, list[Scalar]] = {}
    for scalar in scalars:
        if scalar.path[:-1] in paths and scalar.path[-2:-1] in (("args",), ("command",)):
            lists.setdefault(scalar.path[:-1], []).append(scalar)
    for args in lists.values():
        templates = [parse_template(arg.value, client.shape.references).template for arg in args]
        for arg, template, value in zip(args, templates, mask_args(templates), strict=True):
            yield arg.path, arg.value if value == template.text else value


def _mask(client: Client, scalar: Scalar) -> str:
    template = parse_template(scalar.value, client.shape.references).template
    if _is_hidden(client, scalar):
        value = mask_value(template) if scalar.value else REDACTED
    elif scalar.path and scalar.path[-1] in URL_KEYS:
        value = mask_url(template)
    else:
        return scrub(scalar.value)
    return scalar.value if value == template.text else value


def _is_hidden(client: Client, scalar: Scalar) -> bool:
    """Whether a value must not be shown because of the keys above it. The name of a server says nothing about it."""
    path, shape = scalar.path, client.shape
    if len(path) > 2 and path[0] == client.text.root:
        path = (path[0], *path[2:])
    keys = [key for key in path if isinstance(key, str)]
    if {shape.env_names, shape.header_names, shape.bearer_name} & set(keys):
        return False  # names of variables
    if any(key in _HIDDEN_BELOW for key in keys[:-1]):
        return True
    return any(is_secret_value(key, scalar.value) for key in keys)
