"""Where each client keeps its file: the user's, and a project's."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

_PROJECT: Final = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "zed": ".zed/settings.json",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode.json",
}
_HOOKS: Final = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "cursor": ".cursor/hooks.json",
}


def user_file(client: str, environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """The client's file of this user. Of a client with two possible names, the one that is there."""
    home = _home(environ, platform)
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    support = _support(home, config, environ, platform)
    match client:
        case "claude-code":
            moved = environ.get("CLAUDE_CONFIG_DIR")
            return os.path.join(moved or home, ".claude.json")
        case "claude-desktop":
            return os.path.join(support, "Claude", "claude_desktop_config.json")
        case "cursor":
            return os.path.join(home, ".cursor", "mcp.json")
        case "vscode":
            return os.path.join(support, "Code", "User", "mcp.json")
        case "windsurf":
            return os.path.join(home, ".codeium", "windsurf", "mcp_config.json")
        case "codex":
            return os.path.join(environ.get("CODEX_HOME") or os.path.join(home, ".codex"), "config.toml")
        case "continue":
            return os.path.join(home, ".continue", "config.yaml")
        case "zed":
            return os.path.join(support if platform == "win32" else config, _zed(platform), "settings.json")
        case "gemini":
            return os.path.join(home, ".gemini", "settings.json")
        case "goose":
            windows = os.path.join(support, "Block", "goose", "config", "config.yaml")
            return windows if platform == "win32" else os.path.join(config, "goose", "config.yaml")
        case "opencode":
            return _existing(os.path.join(config, "opencode", "opencode"), ".jsonc", ".json")
        case "cline":
            extension = ("User", "globalStorage", "saoudrizwan.claude-dev", "settings")
            return os.path.join(support, "Code", *extension, "cline_mcp_settings.json")
    raise KeyError(client)


def project_file(client: str, folder: str) -> str | None:
    """The client's file of a project; None where it has none."""
    if client == "opencode":
        return _existing(os.path.join(folder, "opencode"), ".jsonc", ".json")
    relative = _PROJECT.get(client)
    return os.path.join(folder, *relative.split("/")) if relative else None


def hooks_file(client: str, environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """The user's file that holds the client's hooks; None where it has no hooks."""
    relative = _HOOKS.get(client)
    if relative is None:
        return None
    folder, _, file = relative.partition("/")
    moved = environ.get({"claude-code": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME"}.get(client, ""))
    return os.path.join(moved or os.path.join(_home(environ, platform), folder), file)


def project_hooks_file(client: str, folder: str) -> str | None:
    relative = _HOOKS.get(client)
    return None if relative is None else os.path.join(folder, *relative.split("/"))


def _home(environ: Mapping[str, str], platform: str) -> str:
    known = environ.get("USERPROFILE" if platform == "win32" else "HOME")
    return known or os.path.expanduser("~")


def _support(home: str, config: str, environ: Mapping[str, str], platform: str) -> str:
    """Where desktop programs keep what is the user's."""
    if platform == "darwin":
        return os.path.join(home, "Library", "Application Support")
    if platform == "win32":
        return environ.get("APPDATA") or os.path.join(home, "AppData", "Roaming")
    return config


def _zed(platform: str) -> str:
    return "Zed" if platform == "win32" else "zed"


def _existing(stem: str, *endings: str) -> str:
    return next((stem + ending for ending in endings if os.path.exists(stem + ending)), stem + endings[-1])
