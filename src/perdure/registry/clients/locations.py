"""Where each client keeps its servers and its hooks: the user's file, and a project's.

A path begins with `{home}`, `{config}` (`XDG_CONFIG_HOME`), `{support}` (where desktop programs keep what is the user's), or
with the folder of a client that a variable can move.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

_USER: Final = {
    "claude-code": "{claude}/.claude.json",
    "claude-desktop": "{support}/Claude/claude_desktop_config.json",
    "cursor": "{home}/.cursor/mcp.json",
    "vscode": "{support}/Code/User/mcp.json",
    "windsurf": "{home}/.codeium/windsurf/mcp_config.json",
    "codex": "{codex}/config.toml",
    "continue": "{home}/.continue/config.yaml",
    "zed": "{config}/zed/settings.json",
    "gemini": "{home}/.gemini/settings.json",
    "goose": "{config}/goose/config.yaml",
    "opencode": "{config}/opencode/opencode.json",
    "cline": "{support}/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
}
_WINDOWS: Final = {
    "zed": "{support}/Zed/settings.json",
    "goose": "{support}/Block/goose/config/config.yaml",
}
_PROJECT: Final = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "zed": ".zed/settings.json",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode.json",
}
_USER_HOOKS: Final = {
    "claude-code": "{claude_settings}/settings.json",
    "codex": "{codex}/hooks.json",
    "gemini": "{home}/.gemini/settings.json",
    "cursor": "{home}/.cursor/hooks.json",
}
_PROJECT_HOOKS: Final = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/hooks.json",
    "gemini": ".gemini/settings.json",
    "cursor": ".cursor/hooks.json",
}


def user_file(client: str, environ: Mapping[str, str], platform: str = sys.platform) -> str:
    """The client's file of this user."""
    files = _USER | (_WINDOWS if platform == "win32" else {})
    return _prefer_commented(_expand(files[client], environ, platform))


def project_file(client: str, folder: str) -> str | None:
    """The client's file of a project; None if it has none."""
    path = _PROJECT.get(client)
    return _prefer_commented(os.path.join(folder, *path.split("/"))) if path else None


def hooks_file(client: str, environ: Mapping[str, str], platform: str = sys.platform) -> str | None:
    """The user's file that holds the client's hooks; None if it has no hooks."""
    path = _USER_HOOKS.get(client)
    return _expand(path, environ, platform) if path else None


def project_hooks_file(client: str, folder: str) -> str | None:
    path = _PROJECT_HOOKS.get(client)
    return os.path.join(folder, *path.split("/")) if path else None


def _expand(path: str, environ: Mapping[str, str], platform: str) -> str:
    is_windows = platform == "win32"
    home = environ.get("USERPROFILE" if is_windows else "HOME") or os.path.expanduser("~")
    config = environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    support = {
        "darwin": f"{home}/Library/Application Support",
        "win32": environ.get("APPDATA") or f"{home}/AppData/Roaming",
    }.get(platform, config)
    expanded = path.format(
        home=home,
        config=config,
        support=support,
        claude=environ.get("CLAUDE_CONFIG_DIR") or home,
        claude_settings=environ.get("CLAUDE_CONFIG_DIR") or f"{home}/.claude",
        codex=environ.get("CODEX_HOME") or f"{home}/.codex",
    )
    return os.path.normpath(expanded)


def _prefer_commented(path: str) -> str:
    """OpenCode also takes a `.jsonc`, which comes first if it is there."""
    with_comments = f"{path}c" if path.endswith("opencode.json") else ""
    return with_comments if with_comments and os.path.exists(with_comments) else path
