"""What a client is told that calls a tool which is not here: the nearest name, or the tool that does what it wants.

Models know the tools of other servers and clients by heart (`write_file`, `str_replace`, `bash`) and call them unasked.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

MOST_SHOWN: Final = 64
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class _Advice(NamedTuple):
    """A sentence for a group of names; it is given where every tool in it is here."""

    sentence: str
    tools: tuple[str, ...]
    names: str


_ADVICE: Final = (
    _Advice(
        "use safe_write (whole file) or edit (passages)",
        ("safe_write", "edit"),
        "write_file create_file write save_file put_file file_write fs_write write_to_file write_text_file "
        "create_text_file overwrite_file create append_file append_to_file",
    ),
    _Advice(
        "use edit (passages) or safe_write (whole file)",
        ("edit", "safe_write"),
        "edit_file str_replace str_replace_editor str_replace_based_edit_tool multi_edit multiedit replace_in_file "
        "search_replace search_and_replace find_and_replace replace update_file modify_file insert insert_line edit_block",
    ),
    _Advice(
        "use transaction with op=patch, or edit (passages)",
        ("transaction", "edit"),
        "apply_patch apply_diff patch patch_file",
    ),
    _Advice(
        "use read",
        ("read",),
        "read_file read_text_file read_media_file read_multiple_files get_file get_file_content get_file_contents "
        "view view_file open_file file_read fs_read cat",
    ),
    _Advice("use read, which tells size and sha256", ("read",), "get_file_info file_info stat"),
    _Advice(
        "use transaction with op=delete", ("transaction",), "delete_file remove_file delete remove rm unlink"
    ),
    _Advice("use transaction with op=move", ("transaction",), "move_file rename_file move rename mv"),
    _Advice(
        "safe_write creates the folders of its path",
        ("safe_write",),
        "create_directory make_directory create_folder create_dir mkdir",
    ),
    _Advice("use undo", ("undo",), "undo_edit undo_change revert rollback rewind_file"),
    _Advice(
        "no tool here lists or searches files; use those of your client, then read",
        ("read",),
        "list_directory list_directory_with_sizes list_dir list_files list_allowed_directories directory_tree ls dir tree "
        "glob find find_files search_files search file_search grep grep_search ripgrep codebase_search",
    ),
    _Advice(
        "no tool here runs commands; use that of your client",
        (),
        "bash shell sh run run_command run_shell_command run_terminal_cmd run_in_terminal execute_command execute exec "
        "terminal command powershell python run_python execute_code",
    ),
)
_BY_NAME: Final = {name: advice for advice in _ADVICE for name in advice.names.split()}


def describe_unknown(name: str, tools: Collection[str]) -> str:
    """The message for an unknown tool. `tools` are the names of those that are here."""
    from difflib import get_close_matches

    missing = f"no tool {name[:MOST_SHOWN]} here"
    # A client may have put the server's name before it, as in `mcp__perdure__write_file`.
    plain = _CAPITAL.sub("_", re.split(r"__|[./:]", name[:256])[-1]).replace("-", "_").lower()
    if plain in tools:
        return f"{missing}: did you mean {plain}?"
    advice = _BY_NAME.get(plain)
    if advice is not None and all(tool in tools for tool in advice.tools):
        return f"{missing}: {advice.sentence}."
    for text in dict.fromkeys((name[:MOST_SHOWN], plain[:MOST_SHOWN])):
        for near in get_close_matches(text, tools, 1, 0.6):
            return f"{missing}: did you mean {near}?"
    return f"{missing}, nor one with a similar name: tools/list has them all, and health says which servers are missing."
