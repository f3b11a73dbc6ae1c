"""The eight stories. Each is told by two functions, one for each kind of agent, from the same material."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.stories.agents import Outcome, Plain, WithPerdure

# Put together here, so that no file of this project has the shape of a token in it.
TOKEN: Final = "ghp_" + "aB3dE5gH7jK9mN1p" + "Q3sT5vX7zB9dF1hJ3lN5"
PARAGRAPH: Final = "The harbour was quiet; line %06d of the report says what was seen there, and when.\n"
REPORT: Final = "".join(PARAGRAPH % number for number in range(1000))
LEAKING: Final = REPORT.replace(PARAGRAPH % 412, f"authorization: Bearer {TOKEN}\n")
LARGE: Final = "".join(PARAGRAPH % number for number in range(12_000))
ONE_CALL: Final = 64 * 1024
MODULES: Final = tuple(f"module_{number}.py" for number in range(1, 6))
MOST_TRIES: Final = 10


class Story(NamedTuple):
    name: str
    perdure: Callable[[Path], Outcome]
    plain: Callable[[Path, Sequence[str]], Outcome]


# --- a token trips a filter ---------------------------------------------------------------------------------


def token_with_perdure(folder: Path) -> Outcome:
    with closing(WithPerdure(folder)) as agent:
        agent.failure()
        refused = agent.use("safe_write", path="report.tex", content=LEAKING)
        leaked = TOKEN in agent.text("report.tex")
        agent.use("safe_write", path="report.tex", draft=refused["context"]["redacted_draft"])
        is_good = not leaked and PARAGRAPH % 999 in agent.text("report.tex")
        return agent.outcome(
            is_good, f"refused at line {refused['context']['detected'][0]['line']}, written redacted"
        )


def token_plain(folder: Path, command: Sequence[str]) -> Outcome:
    with closing(Plain(folder, command)) as agent:
        agent.failure()
        agent.use("write_file", path="report.tex", content=LEAKING)
        leaked = TOKEN in agent.text("report.tex")
        agent.use("write_file", path="report.tex", content=LEAKING.replace(TOKEN, "[REDACTED]"))
        return agent.outcome(not leaked, "the token was in the tree until someone looked")


# --- a large write is cut ------------------------------------------------------------------------------------


def cut_with_perdure(folder: Path) -> Outcome:
    with closing(WithPerdure(folder, kill_at="commit.decided")) as agent:
        done = agent.use("safe_write", path="report.tex", content=LARGE)
        is_good = done["ok"] and agent.text("report.tex") == LARGE
        return agent.outcome(is_good, "one call, answered with what is on disk")


def cut_plain(folder: Path, command: Sequence[str]) -> Outcome:
    with closing(Plain(folder, command, die_after=len(LARGE) // 2)) as agent:
        if agent.use("write_file", path="report.tex", content=LARGE) is None:
            agent.use("write_file", path="report.tex", content=LARGE)
        return agent.outcome(agent.text("report.tex") == LARGE, "half a file, a new session, all of it again")


# --- a file too large for one call -----------------------------------------------------------------------------


def _pieces() -> list[str]:
    return [LARGE[at : at + ONE_CALL] for at in range(0, len(LARGE), ONE_CALL)]


def large_with_perdure(folder: Path) -> Outcome:
    with closing(WithPerdure(folder, kill_at="commit.decided")) as agent:
        for piece in _pieces():
            agent.use("chunk_append", session="report", content=piece)
        agent.use("chunk_compose", session="report", output_path="report.tex", cleanup=True)
        return agent.outcome(agent.text("report.tex") == LARGE, "pieces kept, composed in one step")


def large_plain(folder: Path, command: Sequence[str]) -> Outcome:
    """There is no append: each piece replaces a mark at the end. Whoever loses the server must look what is there."""
    mark = "<<more>>"
    pieces = _pieces()
    with closing(Plain(folder, command, die_after=len(LARGE) * 3, die_in_call=9)) as agent:
        written = 0
        agent.use("write_file", path="report.tex", content=mark)
        while written < len(pieces):
            more = mark if written + 1 < len(pieces) else ""
            edit = {"oldText": mark, "newText": pieces[written] + more}
            answer = agent.use("edit_file", path="report.tex", edits=[edit])
            if answer is None:
                text = agent.use("read_text_file", path="report.tex") or ""
                whole = [n for n in range(len(pieces)) if text == "".join(pieces[:n]) + mark]
                written = whole[0] if whole else 0
                if not whole:
                    agent.use("write_file", path="report.tex", content=mark)
            else:
                written += 1
        return agent.outcome(agent.text("report.tex") == LARGE, "what was there was cut, and sent again")


# --- raw evidence that must not be in the tree -------------------------------------------------------------------


def _in_tree(folder: Path) -> bool:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return any(TOKEN in path.read_text() for path in files)


def evidence_with_perdure(folder: Path) -> Outcome:
    with closing(WithPerdure(folder)) as agent:
        agent.failure()
        kept = agent.use("scratch_put", content=LEAKING, label="raw capture")
        report = f"{PARAGRAPH % 1}The capture is kept as {kept['sha256']}.\n"
        agent.use("safe_write", path="report.tex", content=report)
        got = agent.use("scratch_get", label="raw capture")["content"] == LEAKING
        return agent.outcome(got and not _in_tree(folder), "out of the tree, under its hash")


def evidence_plain(folder: Path, command: Sequence[str]) -> Outcome:
    with closing(Plain(folder, command)) as agent:
        agent.failure()
        agent.use("write_file", path="EVIDENCE.md", content=LEAKING)
        agent.use("write_file", path="report.tex", content=f"{PARAGRAPH % 1}The capture is in EVIDENCE.md.\n")
        return agent.outcome(not _in_tree(folder), "in the tree, for the next commit to take along")


# --- a task is interrupted ---------------------------------------------------------------------------------------


def _module(name: str) -> str:
    return f'"""{name}: a part of the work."""\n\n' + "".join(f"value_{n} = {n}\n" for n in range(200))


def interrupted_with_perdure(folder: Path) -> Outcome:
    with closing(WithPerdure(folder)) as first:
        written = [first.use("safe_write", path=name, content=_module(name)) for name in MODULES]
        good = [{"path": one["path"], "sha256": one["sha256"]} for one in written]
        envelope: dict[str, Any] = {
            "task_id": "rename", "status": "partial", "agent": "first", "summary": "three of five are done",
            "next_steps": ["the last two"], "last_good_state": good,
            "steps": [
                {"id": name, "status": "done" if number < 3 else "pending"} for number, name in enumerate(MODULES)
            ],
        }  # fmt: skip
        first.use("handoff_write", envelope=envelope)
    (folder / MODULES[1]).write_text("somebody else was here\n")
    with closing(WithPerdure(folder)) as second:
        second.failure()
        found = second.use("handoff_read")
        drifted = [one["path"] for one in found["drift_warnings"]]
        is_good = drifted == [MODULES[1]] and found["ready_steps"] == list(MODULES[3:])
        return second.outcome(is_good, f"knows what is left, and that {', '.join(drifted)} changed")


def interrupted_plain(folder: Path, command: Sequence[str]) -> Outcome:
    with closing(Plain(folder, command)) as first:
        for name in MODULES:
            first.use("write_file", path=name, content=_module(name))
        first.use("write_file", path="NOTES.md", content="Three of five are done; the last two are left.\n")
    (folder / MODULES[1]).write_text("somebody else was here\n")
    with closing(Plain(folder, command)) as second:
        second.failure()
        second.use("read_text_file", path="NOTES.md")
        for name in MODULES:
            second.use("read_text_file", path=name)
        return second.outcome(False, "has read everything, and cannot tell what changed since")


# --- an agent sends the same rejected content again and again ----------------------------------------------------


def stubborn_with_perdure(folder: Path) -> Outcome:
    with closing(WithPerdure(folder)) as agent:
        agent.failure()
        answer = agent.use("safe_write", path="report.tex", content=LEAKING)
        while answer["error"] != "quota_exceeded" and agent.calls < MOST_TRIES:
            answer = agent.use("safe_write", path="report.tex", draft=answer["draft"])
        envelope = {
            "task_id": "report", "status": "blocked", "agent": "stubborn", "summary": "the report is refused",
            "next_steps": [], "last_good_state": [], "blockers": [f"draft {answer['draft']} has a secret in it"],
        }  # fmt: skip
        handed = agent.use("handoff_write", envelope=envelope)
        is_good = answer["error"] == "quota_exceeded" and bool(handed["ok"])
        return agent.outcome(is_good, "told to stop, and handed over")


def stubborn_plain(folder: Path, command: Sequence[str]) -> Outcome:
    with closing(Plain(folder, command)) as agent:
        agent.use("write_file", path="report.tex", content="something else\n")
        agent.failure()
        edit = {"oldText": REPORT, "newText": "shorter"}
        while agent.calls < MOST_TRIES:
            agent.use("edit_file", path="report.tex", edits=[edit])
        return agent.outcome(False, "nobody said when to stop")


# --- two agents in one file --------------------------------------------------------------------------------------


def two_with_perdure(folder: Path) -> Outcome:
    with closing(WithPerdure(folder)) as one, closing(WithPerdure(folder)) as other:
        one.use("safe_write", path="notes.md", content="# Notes\n")
        other.use("read", path="notes.md")
        one.use("edit", path="notes.md", edits=[{"old": "# Notes\n", "new": "# Notes\none\n"}])
        other.failure()
        refused = other.use("safe_write", path="notes.md", content="# Notes\nother\n", mode="overwrite")
        other.use("read", path="notes.md")
        other.use("edit", path="notes.md", edits=[{"old": "# Notes\n", "new": "# Notes\nother\n"}])
        is_good = not refused["ok"] and set(other.text("notes.md").split()) >= {"one", "other"}
        return other.outcome(is_good, "the second was told, looked again, and both edits are there")


def two_plain(folder: Path, command: Sequence[str]) -> Outcome:
    with closing(Plain(folder, command)) as one, closing(Plain(folder, command)) as other:
        one.use("write_file", path="notes.md", content="# Notes\n")
        other.use("read_text_file", path="notes.md")
        one.use("write_file", path="notes.md", content="# Notes\none\n")
        other.failure()
        other.use("write_file", path="notes.md", content="# Notes\nother\n")
        is_good = set(other.text("notes.md").split()) >= {"one", "other"}
        return other.outcome(is_good, "the first one's edit is gone, and nobody knows")


# --- a worker is killed in the middle ----------------------------------------------------------------------------

_OLD, _NEW = "value_7 = 7\n", "renamed_7 = 7\n"


def _prepared(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        (folder / name).write_text(_module(name))


def _renamed(folder: Path) -> int:
    return sum(_NEW in (folder / name).read_text() for name in MODULES)


def killed_with_perdure(folder: Path) -> Outcome:
    _prepared(folder)
    with closing(WithPerdure(folder, kill_at="commit.file_landed")) as agent:
        ops = [{"op": "edit", "path": name, "edits": [{"old": _OLD, "new": _NEW}]} for name in MODULES]
        done = agent.use("transaction", ops=ops)
        is_good = done["ok"] and _renamed(folder) == len(MODULES)
        return agent.outcome(is_good, "all five, in the one call that was sent")


def killed_plain(folder: Path, command: Sequence[str]) -> Outcome:
    _prepared(folder)
    with closing(Plain(folder, command, die_after=len(_module(MODULES[0])) * 5 // 2, die_in_call=3)) as agent:
        left = list(MODULES)
        while left:
            answer = agent.use("edit_file", path=left[0], edits=[{"oldText": _OLD, "newText": _NEW}])
            if answer is not None:
                left.pop(0)
                continue
            texts = {name: agent.use("read_text_file", path=name) or "" for name in MODULES}
            left = [name for name, text in texts.items() if _NEW not in text]
            for name in left:
                if _OLD not in texts[name]:  # it was cut: only who still has it can bring it back
                    agent.use("write_file", path=name, content=_module(name))
        return agent.outcome(_renamed(folder) == len(MODULES), "a cut file, found by reading all of them")


STORIES: Final = (
    Story("a token trips a filter", token_with_perdure, token_plain),
    Story("a large write is cut", cut_with_perdure, cut_plain),
    Story("a file too large for one call", large_with_perdure, large_plain),
    Story("raw evidence", evidence_with_perdure, evidence_plain),
    Story("a task is interrupted", interrupted_with_perdure, interrupted_plain),
    Story("the same rejected content", stubborn_with_perdure, stubborn_plain),
    Story("two agents in one file", two_with_perdure, two_plain),
    Story("a worker killed in the middle", killed_with_perdure, killed_plain),
)
