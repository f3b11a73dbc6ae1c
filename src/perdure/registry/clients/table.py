"""The supported clients, as data: the syntax of the file, where its servers are, and which key of an entry holds what."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from perdure.protocol.tool_groups import Profile
from perdure.registry.clients import references
from perdure.registry.clients.config_text import ConfigText
from perdure.registry.clients.json_syntax import JsonSyntax
from perdure.registry.clients.references import LITERAL_ONLY, ReferenceSyntax
from perdure.registry.clients.toml_syntax import TomlSyntax
from perdure.registry.clients.yaml_syntax import YamlSyntax

MILLISECONDS = 1000
SECONDS = 1


class Timing(msgspec.Struct, frozen=True):
    """A key that holds a time, and how many of its units make a second."""

    key: str
    per_second: int

    def encode(self, seconds: float) -> int | float:
        """Seconds keep a fraction; smaller units are rounded."""
        units = seconds * self.per_second
        return units if self.per_second == 1 and not float(units).is_integer() else max(1, round(units))

    def decode(self, value: Any) -> float | None:
        """None for anything but a positive number."""
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            return None
        return value / self.per_second


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an entry; None if the client has no key for it.

    `types` are the words for a transport under the key `type`; `urls` the key of the URL by transport, which also
    says which remote transports there are. `env_names` is a list of variables that are passed on under their own
    name; `header_names` maps a header to a variable; `bearer_name` names the variable with a bearer token.
    `always` is written into each new entry, unless the entry says otherwise.
    """

    command: str = "command"
    args: str | None = "args"
    env: str = "env"
    cwd: str | None = None
    urls: dict[str, str] = msgspec.field(default_factory=lambda: {"streamable-http": "url", "sse": "url"})
    headers: tuple[str, ...] = ("headers",)
    types: dict[str, str] = {}
    enabled: str | None = None
    disabled: str | None = None
    startup: Timing | None = None
    call: Timing | None = None
    allow: str | None = None
    deny: str | None = None
    required: str | None = None
    description: str | None = None
    name: str | None = None
    env_names: str | None = None
    header_names: str | None = None
    bearer_name: str | None = None
    always: dict[str, Any] = {}
    references: ReferenceSyntax = LITERAL_ONLY

    @property
    def keys(self) -> frozenset[str]:
        """Every key of an entry that Perdure writes; all others are the client's own and stay."""
        single = (
            self.command, self.args, self.env, self.cwd, self.enabled, self.disabled, self.allow, self.deny,
            self.required, self.description, self.name, self.env_names, self.header_names, self.bearer_name,
        )  # fmt: skip
        times = (timing.key for timing in (self.startup, self.call) if timing is not None)
        keys = {*single, *times, *self.urls.values(), self.headers[0], *self.always}
        return frozenset(key for key in (*keys, "type" if self.types else None) if key)


HTTP: Final = {"streamable-http": "http", "sse": "sse"}
REMOTE: Final = {"streamable-http": "remote", "sse": "remote"}

# The folder in which the client starts a server: the open project, one that a variable names, or any.
Start = Literal["project", "variable", "anywhere"]


class Client(msgspec.Struct, frozen=True):
    """`text` edits its file; `shape` says what an entry looks like in it.

    `profile` is what `perdure install` chooses: core, unless the client searches tools instead of loading all of them.
    """

    name: str
    title: str
    text: ConfigText
    shape: Shape
    start: Start = "project"
    profile: Profile = "core"


def _json(root: str = "mcpServers") -> ConfigText:
    return ConfigText(JsonSyntax(), root)


CLIENTS: Final = {
    client.name: client
    for client in (
        Client(
            "claude-code",
            "Claude Code",
            _json(),
            Shape(
                types={"stdio": "stdio", **HTTP},
                call=Timing("timeout", MILLISECONDS),
                references=references.BRACED,
            ),
            profile="full",  # tool search: schemas of MCP tools are loaded when the model asks for them
        ),
        # No tool search is documented for local servers: all their tools are in the context.
        Client("claude-desktop", "Claude Desktop", _json(), Shape(types=HTTP), "anywhere"),
        # Sends about 40 tools to the model, over all servers.
        Client("cursor", "Cursor", _json(), Shape(references=references.EDITOR), "variable"),
        # A chat request may have 128 tools, those of the editor and its extensions included.
        Client(
            "vscode",
            "VS Code",
            _json("servers"),
            Shape(types={"stdio": "stdio", **HTTP}, cwd="cwd", references=references.EDITOR),
            "variable",
        ),
        # Cascade has access to 100 tools at a time, over all servers.
        Client(
            "windsurf",
            "Windsurf",
            _json(),
            Shape(
                urls={"streamable-http": "serverUrl", "sse": "serverUrl"},
                disabled="disabled",
                deny="disabledTools",
                references=references.EDITOR,
            ),
            "anywhere",
        ),
        Client(
            "codex",
            "Codex",
            ConfigText(TomlSyntax(), "mcp_servers"),
            Shape(
                cwd="cwd",
                urls={"streamable-http": "url"},
                headers=("http_headers",),
                enabled="enabled",
                required="required",
                startup=Timing("startup_timeout_sec", SECONDS),
                call=Timing("tool_timeout_sec", SECONDS),
                allow="enabled_tools",
                deny="disabled_tools",
                env_names="env_vars",
                header_names="env_http_headers",
                bearer_name="bearer_token_env_var",
            ),
            profile="full",  # tool_search: above 100 tools, MCP tools are deferred until the model searches
        ),
        # No limit and no tool search is documented: all tools are in the context. The same holds for Zed and Cline, and for
        # OpenCode, where tool search is an experiment that is off.
        Client(
            "continue",
            "Continue",
            ConfigText(YamlSyntax(), "mcpServers", is_list=True),
            Shape(
                types={"stdio": "stdio", "streamable-http": "streamable-http", "sse": "sse"},
                cwd="cwd",
                headers=("requestOptions", "headers"),
                startup=Timing("connectionTimeout", MILLISECONDS),
                references=references.SECRETS,
            ),
            "anywhere",
        ),
        Client(
            "zed",
            "Zed",
            _json("context_servers"),
            Shape(types=HTTP, enabled="enabled", always={"source": "custom"}),
        ),
        # The model's service takes 512 tools, and none of them is loaded on demand.
        Client(
            "gemini",
            "Gemini CLI",
            _json(),
            Shape(
                types=HTTP,
                cwd="cwd",
                call=Timing("timeout", MILLISECONDS),
                allow="includeTools",
                deny="excludeTools",
                description="description",
                references=references.SHELL,
            ),
        ),
        # Its documentation recommends fewer than 25 tools, and its session warns above 50.
        Client(
            "goose",
            "Goose",
            ConfigText(YamlSyntax(), "extensions"),
            Shape(
                types={"stdio": "stdio", "streamable-http": "streamable_http", "sse": "sse"},
                command="cmd",
                env="envs",
                urls={"streamable-http": "uri", "sse": "uri"},
                enabled="enabled",
                call=Timing("timeout", SECONDS),
                allow="available_tools",
                description="description",
                name="name",
                env_names="env_keys",
                always={
                    "enabled": True,
                    "description": "",
                },  # the client refuses a file without a description
            ),
        ),
        Client(
            "opencode",
            "OpenCode",
            _json("mcp"),
            Shape(
                types={"stdio": "local", **REMOTE},
                args=None,
                env="environment",
                enabled="enabled",
                startup=Timing("timeout", MILLISECONDS),
                always={"enabled": True},
                references=references.CURLY,
            ),
        ),
        Client(
            "cline",
            "Cline",
            _json(),
            Shape(
                types={"streamable-http": "streamableHttp", "sse": "sse"},
                cwd="cwd",
                disabled="disabled",
                call=Timing("timeout", SECONDS),
            ),
            "anywhere",
        ),
    )
}
