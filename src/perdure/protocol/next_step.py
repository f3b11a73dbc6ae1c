"""The next step after a failed call: one line that a caller can follow.

    safe_write path=a.py mode=overwrite draft=d_01   (or edit path=a.py edits=...)
    read path=a.py   (then safe_write path=a.py content=...)
    ask the user whether .git may be written

Text is quoted as in a shell, `key:=JSON` is any other value, and `key=...` is for the caller to fill in. After three
spaces, in parentheses, stand alternatives (`or`) or the call after this one (`then`). The place where a call fails often
knows neither its tool nor its arguments: `call_again` writes `again` in the place of the tool, and `complete` puts in the
call where it is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

FILL: Final = "..."
"""Stands for a value that only the caller has."""
AGAIN: Final = "again"
_ASK: Final = "ask the user "
_OTHERS: Final = "   ("
_THEN: Final = "   (then "
_LONGEST: Final = 200
# Arguments whose text may be repeated in an error. Any other text might be content, or a secret.
_REPEATED: Final = frozenset(
    [
        "action",
        "client",
        "cursor",
        "draft",
        "encoding",
        "expected_prev_sha256",
        "file_path",
        "filter_client",
        "filter_mode",
        "filter_path",
        "format_hint",
        "from",
        "journal_id",
        "key",
        "label",
        "mode",
        "name",
        "namespace",
        "op",
        "output_path",
        "owner",
        "path",
        "prefix",
        "session",
        "session_filter",
        "sha256",
        "since",
        "target_path",
        "to",
        "ttl",
        "validate",
    ]
)
# What other tools than those with `content` are given to write.
_PAYLOADS: Final = frozenset({"edits", "old_string", "ops", "output_path", "envelope"})
_DROPPED: Final = frozenset({"render", "detail", "idempotency_key"})


class ToolCall(NamedTuple):
    tool: str
    arguments: dict[str, Any]


class Question(NamedTuple):
    """For the user."""

    text: str


def call_tool(tool: str, /, **arguments: Any) -> str:
    """One call as a line. `from_` is the argument `from`, which is a keyword of Python."""
    return " ".join([tool, *(_argument(name.removesuffix("_"), value) for name, value in arguments.items())])


def call_again(**changes: Any) -> str:
    """The call that failed, with these arguments changed; None leaves one out."""
    return call_tool(AGAIN, **changes)


def ask_user(question: str) -> str:
    return _ASK + question


def either(first: str, *others: str) -> str:
    return f"{first}{_OTHERS}{'; '.join(f'or {other}' for other in others)})" if others else first


def then(first: str, following: str) -> str:
    """Two calls, the second with what the first gave."""
    return f"{first}{_THEN}{following})"


def parse_following(line: str) -> ToolCall | Question | None:
    """The step after the first one. Raises ValueError."""
    _, mark, following = line.partition(_THEN)
    return parse(following.removesuffix(")")) if mark else None


def parse(line: str) -> ToolCall | Question:
    """The first step of a line. Raises ValueError."""
    if line.startswith(_ASK):
        return Question(line[len(_ASK) :])
    import shlex

    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    tool = lexer.get_token()
    if not tool:
        raise ValueError("a next step names a tool")
    arguments: dict[str, Any] = {}
    while (token := lexer.get_token()) is not None and not token.startswith("("):
        name, value = parse_argument(token)
        arguments[name] = value
    return ToolCall(tool, arguments)


def parse_argument(token: str) -> tuple[str, Any]:
    """The name and the value of `key=text` or `key:=JSON`. Raises ValueError."""
    from json import loads

    name, equals, value = token.partition("=")
    is_json, name = name.endswith(":"), name.removesuffix(":")
    if not equals or not name.isidentifier():
        raise ValueError(f"{token[:80]} is not an argument: write KEY=VALUE, or KEY:=JSON")
    try:
        return name, loads(value) if is_json else value
    except ValueError:
        raise ValueError(f"the value of {name}:= is not JSON") from None


def complete(line: str, tool: str, given: Mapping[str, Any], draft: str | None = None) -> str:
    """The line with the failed call in the place of `again`. A payload that was kept is named by its draft."""
    first, mark, following = line.partition(_THEN)
    if mark:
        return then(
            complete(first, tool, given, draft), complete(following.removesuffix(")"), tool, given, draft)
        )
    if line.split(" ", 1)[0] != AGAIN:
        return line
    parsed = parse(line)
    assert isinstance(parsed, ToolCall)
    arguments = {
        name: _repeated(name, value)
        for name, value in given.items()
        if name not in _DROPPED and name.isidentifier()
    }
    if any(parsed.arguments.get(name) is not None for name in ("content", "draft")):
        arguments = {name: value for name, value in arguments.items() if name not in ("content", "draft")}
    elif "content" in arguments and draft is not None:
        del arguments["content"]
        arguments["draft"] = draft
    changes = parsed.arguments
    if changes.get("content") == FILL and _PAYLOADS & arguments.keys():
        changes = {name: value for name, value in changes.items() if name != "content"}
    arguments |= changes
    called = call_tool(tool, **{name: value for name, value in arguments.items() if value is not None})
    _, mark, others = line.partition(_OTHERS)
    return called + mark + others


def _repeated(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return value if name in _REPEATED and len(value) <= _LONGEST else FILL
    return value if value is None or isinstance(value, int | float) else FILL


def _argument(name: str, value: Any) -> str:
    from json import dumps  # here, since a host starts without it
    from shlex import quote

    if isinstance(value, str) and value.isprintable():
        return f"{name}={value if value == FILL else quote(value)}"
    text = dumps(value, ensure_ascii=False, separators=(",", ":"))
    return f"{name}:={quote(''.join(c if c.isprintable() else _escaped(c) for c in text))}"


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
