"""One server in a registry: how it is started, and how its tools may be used.

Every `Entry` is valid: its construction checks it and raises `InvalidName` or `InvalidEntry`. Texts that may hold references
are templates, which are never resolved here (`perdure.registry.resolved_entry` does that).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sized
from typing import Any, Final, Literal

import msgspec
from msgspec import structs

from perdure.protocol.replay import CONVERGENT, NEVER, Convergent, ProbeRequired, ReplayClass
from perdure.registry.errors import InvalidEntry, InvalidName
from perdure.registry.templates import Template

Transport = Literal["stdio", "streamable-http", "sse"]

TRANSPORTS: Final = ("stdio", "streamable-http", "sse")
TRANSPORT_NAMES: Final[dict[str, Transport]] = {
    "stdio": "stdio", "streamable-http": "streamable-http", "streamable_http": "streamable-http",
    "streamablehttp": "streamable-http", "http": "streamable-http", "sse": "sse",
}  # fmt: skip
MAX_NAME: Final = 128
# The system's limit for one argument or variable, and a bound for their number.
MAX_TEXT: Final = 128 * 1024
MAX_TEXTS: Final = 1024
# Every character that some reader takes for a line break; in a value it would begin a new section.
LINE_BREAKS: Final = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"

_NAME: Final = re.compile(r"[a-zA-Z0-9_.+@-]+")
_BREAK: Final = re.compile(f"[{LINE_BREAKS}]")
_NOT_TEXT: Final = re.compile("[\x00\ud800-\udfff]")
VARIABLE_NAME: Final = re.compile(r"[^\s=,\"'\x00-\x1f]+")
HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TOOL: Final = re.compile(r"[^\s,=]+")
_DOCUMENT: Final = re.compile(r"https://[^/?#]+/[^#]+")
_WEB: Final = re.compile(r"https?://[^/?#]", re.IGNORECASE)
# Settings of a sign-in to a remote server that discovery does not provide.
OAUTH_KEYS: Final = (
    "client_id",
    "client_secret",
    "client_metadata_url",
    "scopes",
    "issuer",
    "grant",
    "redirect_port",
)
GRANTS: Final = ("authorization_code", "client_credentials")


class Tools(msgspec.Struct, frozen=True):
    """The listed tools: all, only those allowed, or all but those denied."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Timeouts(msgspec.Struct, frozen=True):
    """In seconds; None leaves it to the settings."""

    startup: float | None = None
    call: float | None = None
    idle: float | None = None


class Replay(msgspec.Struct, frozen=True):
    """Which calls may be replayed: by the server's annotations or only as declared; and tool by tool."""

    mode: Literal["annotations", "declared"] = "annotations"
    tools: dict[str, ReplayClass] = {}


class Provenance(msgspec.Struct, frozen=True):
    """The origin of an entry: the catalog, the full name there, the exact version, the package and its hash."""

    catalog: str = ""
    name: str = ""
    version: str = ""
    package: str = ""
    digest: str = ""
    installed_at: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """`extra` holds the keys of other programs, unchanged; they are kept when the entry is written."""

    name: str
    title: str = ""
    description: str = ""
    enabled: bool = True
    transport: Transport = "stdio"
    command: Template | None = None
    args: tuple[Template, ...] = ()
    cwd: Template | None = None
    env: dict[str, Template] = {}
    url: Template | None = None
    headers: dict[str, Template] = {}
    oauth: dict[str, Template] = {}
    tools: Tools = Tools()
    timeouts: Timeouts = Timeouts()
    start: Literal["eager", "lazy"] = "eager"
    restart: Literal["always", "never"] = "always"
    replay: Replay = Replay()
    pin: bool = False
    required: bool = False
    provenance: Provenance | None = None
    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        check_name(self.name)
        for field, values in (
            ("args", self.args),
            ("env", self.env),
            ("headers", self.headers),
            ("tools", (*self.tools.allow, *self.tools.deny)),
            ("replay", self.replay.tools),
        ):
            check_count(values, field, self.name)
        for field, text in self.texts():
            check_text(text, field, self.name)
        _check_transport(self)
        _check_names(self)
        _check_oauth(self)
        _check_times(self)
        _check_replay(self)

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every text, with the field it belongs to."""
        yield "title", self.title
        yield "description", self.description
        for field, template in self.templates():
            yield field, template.text
        for name in (*self.env, *self.headers, *self.tools.allow, *self.tools.deny, *self.replay.tools):
            yield "a name", name
        for probe in self.probes():
            yield from (
                ("a probe", text) for text in (probe.tool, *probe.arguments, *probe.arguments.values())
            )
        if self.provenance is not None:
            yield from (("provenance", text) for text in structs.astuple(self.provenance))
        yield from (("a key", key) for key in self.extra)

    def templates(self) -> Iterator[tuple[str, Template]]:
        """Every text that may hold references, with its field."""
        for field, template in (("command", self.command), ("cwd", self.cwd), ("url", self.url)):
            if template is not None:
                yield field, template
        yield from (("args", arg) for arg in self.args)
        yield from ((f"env {name}", value) for name, value in self.env.items())
        yield from ((f"header {name}", value) for name, value in self.headers.items())
        yield from ((f"oauth {name}", value) for name, value in self.oauth.items())

    def probes(self) -> Iterator[ProbeRequired]:
        yield from (replay for replay in self.replay.tools.values() if isinstance(replay, ProbeRequired))

    def unset(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The variables without which it cannot be resolved, each once."""
        names = (name for _, template in self.templates() for name in template.unset(environ))
        return tuple(dict.fromkeys(names))

    def variables(self) -> tuple[str, ...]:
        """The variables that it refers to, in order, each once."""
        return tuple(
            dict.fromkeys(ref.variable for _, template in self.templates() for ref in template.references())
        )


def format_replay(replay: ReplayClass) -> str:
    """`convergent`, `never` or `probe TOOL {"argument": "/pointer"}`."""
    if isinstance(replay, ProbeRequired):
        arguments = f" {json.dumps(replay.arguments, ensure_ascii=False)}" if replay.arguments else ""
        return f"probe {replay.tool}{arguments}"
    return "convergent" if isinstance(replay, Convergent) else "never"


def parse_replay(name: str, text: str) -> ReplayClass:
    """The reverse of `format_replay`. Raises InvalidEntry."""
    word, _, rest = text.strip().partition(" ")
    tool, _, arguments = rest.strip().partition(" ")
    match word.lower():
        case "convergent" if not tool:
            return CONVERGENT
        case "never" if not tool:
            return NEVER
        case "probe" if tool:
            try:
                return ProbeRequired(
                    tool, msgspec.json.decode(arguments.strip() or "{}", type=dict[str, str])
                )
            except (msgspec.MsgspecError, ValueError, RecursionError):
                problem = "a probe's arguments are not an object of JSON Pointers"
        case _:
            problem = "replay is neither convergent, never nor probe TOOL"
    raise InvalidEntry(f"{name}: {problem}", entry=name, hint='replay TOOL: probe OTHER {"key": "/key"}')


def check_name(name: str) -> None:
    """Raise InvalidName before anything is opened (MUST 1)."""
    if not isinstance(name, str) or not name:
        raise InvalidName("the name is empty")
    hint = "letters, digits and _ . + @ - are allowed, no dot in front, no two dots in a row"
    if len(name) > MAX_NAME:
        raise InvalidName(f"the name is longer than {MAX_NAME} characters", hint=hint)
    if _BREAK.search(name):
        raise InvalidName("the name holds a line break", hint=hint)
    if not _NAME.fullmatch(name) or name.startswith(".") or ".." in name:
        raise InvalidName(
            f"not a usable name: {name.encode('ascii', 'backslashreplace').decode()}", hint=hint
        )


def check_count(items: Sized, field: str, entry: str) -> None:
    """Called before the items are read: a host reads an entry while its sessions wait."""
    if len(items) > MAX_TEXTS:
        raise InvalidEntry(f"{field} of {entry} holds more than {MAX_TEXTS:,} items", entry=entry)


def check_text(text: str, field: str, entry: str) -> None:
    """No line break of any kind, no zero byte or surrogate, and not too long."""
    if len(text) > MAX_TEXT:
        raise InvalidEntry(f"{field} of {entry} is longer than {MAX_TEXT:,} characters", entry=entry)
    if _BREAK.search(text):
        raise InvalidEntry(f"{field} of {entry} holds a line break", entry=entry, hint="keep it on one line")
    if _NOT_TEXT.search(text):
        raise InvalidEntry(f"{field} of {entry} is not text", entry=entry, hint="no zero byte, valid UTF-8")


def _refuse(entry: Entry, problem: str, hint: str = "") -> None:
    raise InvalidEntry(f"{entry.name}: {problem}", entry=entry.name, hint=hint)


def _check_transport(entry: Entry) -> None:
    """A local server has a command, a remote one a URL."""
    if entry.transport not in TRANSPORTS:
        _refuse(entry, "transport is not known", f"one of {', '.join(TRANSPORTS)}")
    if entry.transport == "stdio":
        if entry.command is None or not entry.command.text.strip():
            _refuse(entry, "command is missing", "a stdio server needs a command, a remote one a url")
        if entry.url is not None:
            _refuse(entry, "url and command are both given", "set transport to streamable-http or sse")
        return
    if entry.command is not None or entry.args:
        _refuse(entry, "a remote server has no command", "set transport to stdio")
    if entry.url is None or not entry.url.text:
        _refuse(entry, "url is missing", "a remote server needs a url")
    elif not entry.url.text.startswith("$") and not _WEB.match(entry.url.text):
        _refuse(entry, "url is not http or https")
    elif any(part.isspace() for part in entry.url.text):
        _refuse(entry, "url holds a space")


def _check_names(entry: Entry) -> None:
    if not all(VARIABLE_NAME.fullmatch(name) for name in entry.env):
        _refuse(entry, "env holds a name that no variable can have")
    if not all(HEADER_NAME.fullmatch(name) for name in entry.headers):
        _refuse(entry, "headers hold a name that no header can have")
    if not all(_TOOL.fullmatch(name) for name in (*entry.tools.allow, *entry.tools.deny)):
        _refuse(entry, "tools holds a name that no tool can have")


def _check_oauth(entry: Entry) -> None:
    oauth = entry.oauth
    if not oauth:
        return
    if entry.transport == "stdio":
        _refuse(entry, "oauth is for a remote server", "give a local one its credentials by env: NAME=$NAME")
    if unknown := [key for key in oauth if key not in OAUTH_KEYS]:
        _refuse(entry, f"oauth does not know {unknown[0]}", f"one of {', '.join(OAUTH_KEYS)}")
    grant = oauth.get("grant", Template(GRANTS[0])).text
    if grant not in GRANTS:
        _refuse(entry, "oauth grant is not known", f"one of {', '.join(GRANTS)}")
    if "client_secret" in oauth and "client_id" not in oauth:
        _refuse(entry, "oauth has a client_secret and no client_id")
    if grant == "client_credentials" and not {"client_id", "client_secret", "issuer"} <= set(oauth):
        _refuse(
            entry,
            "oauth by client_credentials needs client_id, client_secret and issuer",
            "issuer is the authorization server that may see the secret: issuer=https://…",
        )
    if (url := oauth.get("client_metadata_url")) is not None and not _DOCUMENT.fullmatch(url.text):
        _refuse(entry, "oauth client_metadata_url is not the address of a document", "https://host/path.json")
    if (port := oauth.get("redirect_port")) is not None and not _is_port(port.text):
        _refuse(entry, "oauth redirect_port is not a port")


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 65536


def _check_times(entry: Entry) -> None:
    for name, seconds in structs.asdict(entry.timeouts).items():
        if seconds is not None and not 0 < seconds <= 1e9:
            _refuse(entry, f"timeout {name} is not a number of seconds above 0")


def _check_replay(entry: Entry) -> None:
    if not all(_TOOL.fullmatch(tool) for tool in entry.replay.tools):
        _refuse(entry, "replay names a tool that no server can have")
    for probe in entry.probes():
        if not _TOOL.fullmatch(probe.tool):
            _refuse(entry, "a probe needs the name of a tool", 'replay TOOL: probe OTHER {"key": "/key"}')
        if not all(path == "" or path.startswith("/") for path in probe.arguments.values()):
            _refuse(entry, "a probe's arguments are JSON Pointers", 'like {"key": "/key"}')
