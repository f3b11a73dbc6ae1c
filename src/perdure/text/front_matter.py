"""YAML between two lines of dashes, and the text after it: read safely, changed without losing a comment.

Size, nesting and references are bounded by its tokens, before a parser could suffer from them. Values come out as JSON
knows them; a time is its ISO 8601 text.
"""

from __future__ import annotations

import datetime
import io
import math
import re
from typing import Any, Final

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_tool, either

MOST_BYTES: Final = 256 * 1024
MOST_DEPTH: Final = 40
MOST_REFERENCES: Final = 100
MOST_VALUES: Final = 20_000
_NEXT: Final = either(call_tool("read", path="HANDOFF.md"), call_tool("handoff_write", envelope=FILL))
_FENCE = re.compile(r"---[ \t]*\n")
_END = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE)


def split(text: str) -> tuple[str, str]:
    """The YAML and the body after it, each as it stands. Raises ToolError where there is no front matter."""
    begin = _FENCE.match(text)
    end = _END.search(text, begin.end()) if begin is not None else None
    if begin is None or end is None:
        raise _bad(
            "no_front_matter",
            "the file does not begin with YAML between two lines of ---, as a handoff does.",
        )
    return text[begin.end() : end.start()], text[end.end() :]


def join(front: str, body: str) -> str:
    return f"---\n{front}---\n{body}"


def read(front: str) -> dict[str, Any]:
    """The mapping, as JSON knows it."""
    found: dict[str, Any] = _plain(_load(front))
    return found


def write(values: dict[str, Any], before: str | None = None) -> str:
    """A mapping as YAML. With what stood there before, comments, order and unchanged values stay as they were."""
    document = _load(before) if before is not None else _yaml().map()
    for key in [key for key in document if str(key) not in values]:
        del document[key]
    for key, value in values.items():
        if key not in document or _plain(document[key]) != value:
            document[key] = value
    out = io.StringIO()
    _yaml().dump(document, out)
    return out.getvalue()


def _load(front: str) -> Any:
    from ruamel.yaml.error import YAMLError

    try:
        _check_bounds(front)
        found = _yaml().load(front)
    except (YAMLError, ValueError, RecursionError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = {"line": mark.line + 2} if mark is not None else {}  # the line of dashes is the first
        # The parser's own words may quote the file.
        raise _bad("yaml_error", "the front matter of the handoff is not valid YAML.", **where) from None
    if found is None:
        found = _yaml().map()
    if not isinstance(found, dict):
        raise _bad("not_a_mapping", "the front matter of the handoff is not a mapping of names to values.")
    return found


def _check_bounds(front: str) -> None:
    """By its tokens, which are found one after the other: no depth of nesting troubles that."""
    if len(front.encode()) > MOST_BYTES:
        raise _bad("too_large", f"the front matter of the handoff is larger than {MOST_BYTES:,} bytes.")
    depth = references = 0
    for token in _yaml().scan(front):
        kind = type(token).__name__
        depth += kind.endswith(("SequenceStartToken", "MappingStartToken"))
        depth -= kind.endswith("EndToken") and not kind.startswith(("Stream", "Document"))
        references += kind == "AliasToken"
        if depth > MOST_DEPTH:
            raise _bad(
                "too_deep", f"the front matter of the handoff is nested deeper than {MOST_DEPTH} levels."
            )
        if references > MOST_REFERENCES:
            raise _bad("too_many_references", "the front matter of the handoff has too many YAML references.")
    if references and _contains_itself(_yaml().compose(front), set(), set()):
        raise _bad(
            "refers_to_itself", "a value in the front matter of the handoff contains a reference to itself."
        )


def _contains_itself(node: Any, around: set[int], done: set[int]) -> bool:
    """Whether a node is inside itself: an alias is the same object as its anchor's node. Each is walked once."""
    if id(node) in around:
        return True
    if id(node) in done or not isinstance(node.value, list):
        return False
    parts = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
    if any(_contains_itself(part, around | {id(node)}, done) for part in parts):
        return True
    done.add(id(node))
    return False


class _Plain:
    """Values as JSON knows them, counted: a few references can stand for more than any memory holds."""

    def __init__(self) -> None:
        self._left = MOST_VALUES

    def of(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _bad(
                "too_large_expanded",
                f"the front matter of the handoff stands for more than {MOST_VALUES:,} values.",
            )
        if isinstance(value, dict):
            return {str(key): self.of(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set)):
            return [self.of(item) for item in value]
        return _scalar(value)


def _plain(value: Any) -> Any:
    try:
        return _Plain().of(value)
    except RecursionError:
        raise _bad(
            "too_deep", "the front matter of the handoff is nested too deeply through its references."
        ) from None


def _scalar(value: Any) -> Any:
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def _yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 1000
    yaml.allow_unicode = True
    return yaml


def _bad(reason: str, message: str, next_step: str = _NEXT, **context: Any) -> ToolError:
    return refuse(
        "invalid_input",
        reason,
        message,
        next_step=next_step,
        reason_hint="syntax",
        suggested_action="fix_syntax",
        **context,
    )
