"""A unified diff applied to a file's content (in LF), or a refusal that says where it does not fit.

A hunk goes to the line it names, else to the only place where its old lines stand. Nothing is guessed: every old
line must be there as the patch has it, and a hunk that fits several places is refused, as is one from the end of a
file that fits there and at its line, too. An error names file, hunk and line, never what stands there. Patches in
an envelope are applied by `apply_patch.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_tool
from perdure.text import lines
from perdure.text.patch_parser import FilePatch, Hunk, Operation, parse
from perdure.text.similarity import find_nearest

__all__ = ["FilePatch", "Hunk", "Operation", "apply", "parse"]

_LINES_SHOWN: Final = 100
_NAME_SHOWN: Final = 200


def apply(patch: FilePatch, content: str) -> str:
    """The content after a unified diff; "" for a deleted file. A new file is made from ""."""
    if patch.op == "create":
        if content:
            raise stale(patch, "file_not_empty", "the patch makes a file that is already there")
        return "".join(line for hunk in patch.hunks for line in hunk.new)
    if patch.op == "delete" and not patch.hunks:
        return ""
    result = _replaced(patch, lines.split(content))
    if patch.op == "delete" and result:
        raise stale(patch, "not_all_deleted", "the file has more lines than the patch deletes")
    return result


def _replaced(patch: FilePatch, have: list[str]) -> str:
    result: list[str] = []
    at = shift = 0
    for hunk in patch.hunks:
        expected = hunk.line - (1 if hunk.old else 0) + shift
        start = _place(patch, hunk, have, at, expected)
        shift += start - expected
        result += have[at:start]
        result += hunk.new
        at = start + len(hunk.old)
    return "".join(result + have[at:])


# --- where a hunk goes --------------------------------------------------------------------------------------


def _place(patch: FilePatch, hunk: Hunk, have: list[str], at: int, expected: int) -> int:
    if not hunk.old:
        return _without_context(patch, hunk, have)
    if expected >= at and _stands(hunk, have, expected):
        end = len(have) - len(hunk.old)
        if hunk.ends_bare and end > expected and _stands(hunk, have, end):
            # The number and the end speak against each other: either may be meant.
            raise misplaced(patch, hunk.number, (expected, end), "its old lines")
        return expected
    return _only(patch, hunk, have, at, expected)


def _without_context(patch: FilePatch, hunk: Hunk, have: list[str]) -> int:
    """Only an empty file has one place for lines that come without any around them."""
    if have:
        raise stale(
            patch, "no_context", f"hunk {hunk.number} has no line that says where it goes", hunk=hunk.number
        )
    return 0


def _only(patch: FilePatch, hunk: Hunk, have: list[str], at: int, expected: int) -> int:
    places = list(_places(hunk, have, at))
    if len(places) > 1:
        raise misplaced(patch, hunk.number, places, "its old lines")
    if not places:
        raise diverging(patch, hunk.number, hunk.old, have, max(expected, at), at)
    return places[0]


def _places(hunk: Hunk, have: Sequence[str], at: int) -> Iterator[int]:
    key = max(range(len(hunk.old)), key=lambda index: len(hunk.old[index]))
    for index in range(at + key, len(have)):
        if have[index] == hunk.old[key] and _stands(hunk, have, index - key):
            yield index - key


def _stands(hunk: Hunk, have: Sequence[str], start: int) -> bool:
    end = start + len(hunk.old)
    if hunk.new and not hunk.new[-1].endswith("\n") and end != len(have):
        return False  # what has no newline can only be the end of the file
    return end <= len(have) and all(a == b for a, b in zip(have[start:end], hunk.old, strict=True))


# --- refusals ----------------------------------------------------------------------------------------------


def stale(patch: FilePatch, reason: str, message: str, **context: Any) -> ToolError:
    shown = patch.path.rsplit("/", 1)[-1] if patch.path.startswith("/") else patch.path
    return refuse(
        "stale_precondition",
        reason,
        message,
        next_step=call_tool("read", path=FILL if patch.path.startswith("/") else shown[:_NAME_SHOWN]),
        suggested_action="reread",
        file=shown[:_NAME_SHOWN],
        **context,
    )


def misplaced(patch: FilePatch, number: int, places: Sequence[int], what: str) -> ToolError:
    """`what` of a hunk stands at several places, or at none."""
    shown = [place + 1 for place in places[:_LINES_SHOWN]]
    if not places:
        message = f"{what} of hunk {number} stands nowhere behind the hunk before it"
        return stale(patch, "hunk_does_not_apply", message, hunk=number)
    message = f"{what} of hunk {number} fit several places; give more lines around the change"
    return stale(patch, "ambiguous_hunk", message, hunk=number, lines=shown, more=len(places) > len(shown))


def diverging(
    patch: FilePatch, number: int, old: Sequence[str], have: list[str], expected: int, at: int = 0
) -> ToolError:
    """The old lines of a hunk stand nowhere; names the first line that differs where they come closest."""
    near = find_nearest("".join(have[at:]), [line.removesuffix("\n") for line in old])
    start = expected if near is None else at + near.start
    for line, want in enumerate(old, start):
        if line >= len(have) or have[line] != want:
            break
    else:
        line = start
    why = "is not as the patch has it"
    if line >= len(have):
        why = "is behind the end of the file"
    elif have[line].removesuffix("\n") == old[line - start].removesuffix("\n"):
        why = "ends the file without a newline, or the patch says so and it does not"
    return stale(
        patch,
        "hunk_does_not_apply",
        f"hunk {number} does not fit: line {line + 1} {why}",
        hunk=number,
        diverges_at_line=line + 1,
        hunk_line=line - start + 1,
    )
