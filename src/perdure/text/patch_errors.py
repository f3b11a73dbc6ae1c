"""Errors of a patch that cannot be read or does not fit the file.

An error names the file, the hunk and the line, never the content of the file or the patch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, call_tool
from perdure.text.similarity import find_nearest

_MAX_LISTED_LINES: Final = 100
_MAX_PATH_LENGTH: Final = 200


def make_syntax_error(line: int, problem: str) -> ToolError:
    """`line` of the patch, from one, cannot be read."""
    return refuse(
        "invalid_input",
        "bad_patch",
        f"the patch cannot be read at its line {line}: {problem}.",
        next_step=call_again(ops=FILL),
        reason_hint="syntax",
        suggested_action="fix_syntax",
        patch_line=line,
    )


def make_mismatch(path: str, reason: str, message: str, **context: Any) -> ToolError:
    """The patch does not fit the file at `path`. Of an absolute path only the name is shown."""
    name = path.rsplit("/", 1)[-1] if path.startswith("/") else path
    return refuse(
        "stale_precondition",
        reason,
        message,
        next_step=call_tool("read", path=FILL if path.startswith("/") else name[:_MAX_PATH_LENGTH]),
        suggested_action="reread",
        file=name[:_MAX_PATH_LENGTH],
        **context,
    )


def make_missing_place(path: str, hunk: int, subject: str) -> ToolError:
    """`subject` of a hunk occurs nowhere behind the hunk before it."""
    message = f"{subject} of hunk {hunk} stands nowhere behind the hunk before it"
    return make_mismatch(path, "hunk_does_not_apply", message, hunk=hunk)


def make_ambiguous_place(path: str, hunk: int, subject: str, places: Sequence[int]) -> ToolError:
    """`subject` of a hunk fits several places, given as line indexes."""
    message = f"{subject} of hunk {hunk} fit several places; give more lines around the change"
    listed = [place + 1 for place in places[:_MAX_LISTED_LINES]]
    has_more = len(places) > len(listed)
    return make_mismatch(path, "ambiguous_hunk", message, hunk=hunk, lines=listed, more=has_more)


def make_divergence(
    path: str, hunk: int, old: Sequence[str], file_lines: list[str], expected: int, search_start: int = 0
) -> ToolError:
    """The old lines of a hunk occur nowhere. Name the first line that differs at the most similar place.

    `expected` is the index of the line where they should be; the search begins at `search_start`.
    """
    nearest = find_nearest("".join(file_lines[search_start:]), [line.removesuffix("\n") for line in old])
    start = expected if nearest is None else search_start + nearest.start
    for index, old_line in enumerate(old, start):
        if index >= len(file_lines) or file_lines[index] != old_line:
            break
    else:
        index = start
    problem = "is not as the patch has it"
    if index >= len(file_lines):
        problem = "is behind the end of the file"
    elif file_lines[index].removesuffix("\n") == old[index - start].removesuffix("\n"):
        problem = "ends the file without a newline, or the patch says so and it does not"
    return make_mismatch(
        path,
        "hunk_does_not_apply",
        f"hunk {hunk} does not fit: line {index + 1} {problem}",
        hunk=hunk,
        diverges_at_line=index + 1,
        hunk_line=index - start + 1,
    )
