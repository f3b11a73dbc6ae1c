"""YAML front matter: parse it safely, and change it without losing comments.

Size, nesting and references are checked on the token stream, before the parser builds anything: YAML aliases can expand
to more than memory holds. Values are JSON values; a time becomes its ISO 8601 text.
"""

from __future__ import annotations

import datetime
import io
import math
import re
from typing import Any, Final

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_tool, either

MAX_BYTES: Final = 256 * 1024
MAX_DEPTH: Final = 40
MAX_REFERENCES: Final = 100
MAX_VALUES: Final = 20_000
_NEXT_STEP: Final = either(call_tool("read", path="HANDOFF.md"), call_tool("handoff_write", envelope=FILL))
_BEGIN = re.compile(r"---[ \t]*\n")
_END = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE)


def split(text: str) -> tuple[str, str]:
    """Split a document into its YAML and its body, both unchanged. Raises ToolError if it has no front matter."""
    begin = _BEGIN.match(text)
    end = _END.search(text, begin.end()) if begin is not None else None
    if begin is None or end is None:
        raise _make_error(
            "no_front_matter",
            "the file does not begin with YAML between two lines of ---, as a handoff does.",
        )
    return text[begin.end() : end.start()], text[end.end() :]


def join(front: str, body: str) -> str:
    return f"---\n{front}---\n{body}"


def parse(front: str) -> dict[str, Any]:
    """Parse the YAML into a mapping of JSON values."""
    values: dict[str, Any] = _to_json(_load(front))
    return values


def render(values: dict[str, Any], before: str | None = None) -> str:
    """Write a mapping as YAML. Comments, order and unchanged values of the YAML `before` are kept."""
    document = _load(before) if before is not None else _make_yaml().map()
    for key in [key for key in document if str(key) not in values]:
        del document[key]
    for key, value in values.items():
        if key not in document or _to_json(document[key]) != value:
            document[key] = value
    out = io.StringIO()
    _make_yaml().dump(document, out)
    return out.getvalue()


def _load(front: str) -> Any:
    """Load the YAML as a round-trip mapping, which keeps comments."""
    from ruamel.yaml.error import YAMLError

    try:
        _check_bounds(front)
        document = _make_yaml().load(front)
    except (YAMLError, ValueError, RecursionError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        position = {"line": mark.line + 2} if mark is not None else {}  # the first line is the dashes
        # The parser's message is not passed on: it may quote the file.
        raise _make_error(
            "yaml_error", "the front matter of the handoff is not valid YAML.", **position
        ) from None
    if document is None:
        document = _make_yaml().map()
    if not isinstance(document, dict):
        raise _make_error(
            "not_a_mapping", "the front matter of the handoff is not a mapping of names to values."
        )
    return document


def _check_bounds(front: str) -> None:
    """Check the token stream. The scanner is iterative, so deep nesting cannot exhaust its stack."""
    if len(front.encode()) > MAX_BYTES:
        raise _make_error("too_large", f"the front matter of the handoff is larger than {MAX_BYTES:,} bytes.")
    depth = references = 0
    for token in _make_yaml().scan(front):
        kind = type(token).__name__
        depth += kind.endswith(("SequenceStartToken", "MappingStartToken"))
        depth -= kind.endswith("EndToken") and not kind.startswith(("Stream", "Document"))
        references += kind == "AliasToken"
        if depth > MAX_DEPTH:
            raise _make_error(
                "too_deep", f"the front matter of the handoff is nested deeper than {MAX_DEPTH} levels."
            )
        if references > MAX_REFERENCES:
            raise _make_error(
                "too_many_references", "the front matter of the handoff has too many YAML references."
            )
    if references and _contains_itself(_make_yaml().compose(front), set(), set()):
        raise _make_error(
            "refers_to_itself", "a value in the front matter of the handoff contains a reference to itself."
        )


def _contains_itself(node: Any, ancestors: set[int], visited: set[int]) -> bool:
    """Whether a node is its own descendant: an alias is the same object as the node of its anchor."""
    if id(node) in ancestors:
        return True
    if id(node) in visited or not isinstance(node.value, list):
        return False
    children = [part for child in node.value for part in (child if isinstance(child, tuple) else (child,))]
    if any(_contains_itself(child, ancestors | {id(node)}, visited) for child in children):
        return True
    visited.add(id(node))
    return False


class _JsonConverter:
    """Converts values to JSON values and counts them: a few aliases can expand to more than memory holds."""

    def __init__(self) -> None:
        self._values_left = MAX_VALUES

    def convert(self, value: Any) -> Any:
        self._values_left -= 1
        if self._values_left < 0:
            raise _make_error(
                "too_large_expanded",
                f"the front matter of the handoff stands for more than {MAX_VALUES:,} values.",
            )
        if isinstance(value, dict):
            return {str(key): self.convert(item) for key, item in value.items()}
        if isinstance(value, (list, tuple, set)):
            return [self.convert(item) for item in value]
        return _convert_scalar(value)


def _to_json(value: Any) -> Any:
    try:
        return _JsonConverter().convert(value)
    except RecursionError:
        raise _make_error(
            "too_deep", "the front matter of the handoff is nested too deeply through its references."
        ) from None


def _convert_scalar(value: Any) -> Any:
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


def _make_yaml() -> Any:
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.preserve_quotes = True
    yaml.width = 1000
    yaml.allow_unicode = True
    return yaml


def _make_error(reason: str, message: str, **context: Any) -> ToolError:
    return refuse(
        "invalid_input",
        reason,
        message,
        next_step=_NEXT_STEP,
        reason_hint="syntax",
        suggested_action="fix_syntax",
        **context,
    )
