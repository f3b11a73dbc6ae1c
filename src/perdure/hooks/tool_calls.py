"""What the input of a tool says about files: those that it names, and whether the tool may change any."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_PATHS: Final = 64
MAX_PATH: Final = 1024
# Perdure's entry in a client has this name (`perdure install`); a client may put more before it.
SERVER: Final = "perdure"
OWN_WRITERS: Final = frozenset(
    {"safe_write", "safe_replace", "edit", "transaction", "chunk_compose", "undo", "restore", "rewind"}
)
PATCH_TOOL: Final = "apply_patch"
# Tools of widely used MCP servers that read files and nothing else.
MCP_READERS: Final = frozenset(
    {
        *("read_file", "read_text_file", "read_media_file", "read_multiple_files", "get_file_info"),
        *("list_directory", "list_directory_with_sizes", "directory_tree", "list_allowed_directories"),
        *("search_files", "git_status", "git_diff", "git_diff_staged", "git_diff_unstaged", "git_log", "git_show"),
    }
)  # fmt: skip
_PATH_KEYS: Final = frozenset(
    {
        *("file_path", "notebook_path", "path", "paths", "file", "files", "filename", "absolute_path"),
        *("target_file", "target_directory", "dir_path", "directory", "folder"),
        *("source", "destination", "old_path", "new_path", "from", "to"),
    }
)  # fmt: skip
_PATCH_FILE: Final = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)[ \t\r]*$", re.M)
_NESTED_KEYS: Final = ("edits", "operations", "files")
_MCP_NAME: Final = re.compile(r"mcp__(?P<server>.+?)__(?P<tool>.+)|mcp_(?P<gemini>[^_]+)_(?P<called>.+)")


def named_files(tool_input: Any) -> tuple[str, ...]:
    """As the tool's input spells them: its fields, and the headers of a patch. The recorder reads the words of a command
    line itself, without the secrets in it."""
    files: list[str] = []
    if isinstance(tool_input, str):  # a patch as the whole input
        files += _patch_files(tool_input)
    elif isinstance(tool_input, Mapping):
        files += _fields(tool_input)
        for text in (command_line(tool_input), *map(tool_input.get, ("input", "patch"))):
            if isinstance(text, str):
                files += _patch_files(text)
    return tuple(dict.fromkeys(files))[:MAX_PATHS]


def _patch_files(text: str) -> list[str]:
    """The files in the headers of a patch as `apply_patch` reads it."""
    return [header[1] for header in _PATCH_FILE.finditer(text)] if "*** " in text else []


def _fields(tool_input: Mapping[str, Any]) -> Iterator[str]:
    for key, value in tool_input.items():
        if key in _PATH_KEYS:
            for path in value if isinstance(value, list) else [value]:
                if isinstance(path, str) and 0 < len(path) <= MAX_PATH and not {"\0", "\n"} & set(path):
                    yield path.removeprefix("file://")
    for key in _NESTED_KEYS:
        entries = tool_input.get(key)
        for entry in entries[:MAX_PATHS] if isinstance(entries, list) else ():
            if isinstance(entry, Mapping):
                yield from _fields({name: entry[name] for name in entry if name not in _NESTED_KEYS})


def command_line(tool_input: Any) -> str | None:
    if not isinstance(tool_input, Mapping):
        return None
    command = tool_input.get("command", tool_input.get("cmd"))
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        import shlex

        return shlex.join(command)
    return command if isinstance(command, str) else None


def mcp_tool(name: str) -> tuple[str, str] | None:
    """The server and the tool: `mcp__server__tool` in most clients, `mcp_server_tool` in Gemini CLI, and `MCP:tool` in
    Cursor, which does not name the server."""
    if name.startswith("MCP:"):
        return "", name.removeprefix("MCP:")
    if (match := _MCP_NAME.fullmatch(name)) is None:
        return None
    return (match["server"], match["tool"]) if match["server"] else (match["gemini"], match["called"])


def own_tool(name: str) -> str | None:
    """The name of Perdure's own tool, where the call is one. A tool of a server that Perdure mounts is not."""
    if (qualified := mcp_tool(name)) is None:
        return None
    server, tool = qualified
    if server and not server.lower().endswith(SERVER):
        return None
    from perdure.protocol.tool_groups import GROUP_OF

    tool = tool.removeprefix("rw.").removeprefix("rw_")
    return tool if tool in GROUP_OF or tool in OWN_WRITERS else None


def may_change_files(name: str, readers: frozenset[str]) -> bool:
    """Only tools that are known to read do not."""
    if name in readers:
        return False
    if (own := own_tool(name)) is not None:
        return own in OWN_WRITERS
    qualified = mcp_tool(name)
    return qualified is None or qualified[1].rpartition("__")[2] not in MCP_READERS
