"""`perdure handoff`: what one agent leaves to the next, shown to a person or written by a script."""

from __future__ import annotations

import argparse
import sys
from json import dumps
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import msgspec

from perdure.cli.options import add_workspace
from perdure.cli.output import Screen, clean
from perdure.cli.parser import new_parser
from perdure.cli.tool_command import run_tool
from perdure.protocol.envelope import ToolError

if TYPE_CHECKING:
    from perdure.worker.compose import Settings

DEFAULT_PATH = "HANDOFF.md"
MARKS = {"done": "[x]", "in_progress": "[>]", "blocked": "[!]", "pending": "[ ]"}
LISTS = (("next_steps", "next"), ("open_questions", "questions"), ("blockers", "blockers"))
USAGE_ERROR = 2


def parser() -> argparse.ArgumentParser:
    found = new_parser("handoff", "What one agent leaves to the next.")
    commands = found.add_subparsers(metavar="COMMAND", required=True, dest="command")
    show = commands.add_parser(
        "show",
        help="the handoff, what is ready to be done, and which files changed since",
        description="The handoff, what is ready to be done, and which files are no longer what it says.",
    )
    show.add_argument("path", nargs="?", help=f"{DEFAULT_PATH} of the workspace")
    write = commands.add_parser(
        "write",
        help="write it, with the checks that agents get",
        description="Write a handoff, with the checks that agents get. FILE is its envelope as JSON or YAML, or a "
        "whole handoff with front matter; - or none reads standard input. Exit code 3: another task's handoff "
        "stands there, or the file is not the expected one.",
    )
    write.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="the envelope (default: -, standard input)"
    )
    write.add_argument("--path", help=f"the file to write (default: {DEFAULT_PATH} of the workspace)")
    write.add_argument("--body-file", metavar="FILE", help="the free text after the envelope")
    write.add_argument("--archive", action="store_true", help="keep a copy of the handoff that it replaces")
    write.add_argument("--expect", metavar="SHA256", help="write only if the file has this sha256 now")
    for command in (show, write):
        add_workspace(command)
    return found


def main(argv: list[str]) -> int:
    options = parser().parse_args(argv)
    return show(options) if options.command == "show" else write(options)


def show(options: argparse.Namespace) -> int:
    return run_tool(options, "handoff_read", {"path": options.path}, _show)


def write(options: argparse.Namespace) -> int:
    if options.file == "-" and sys.stdin is not None and sys.stdin.isatty():
        print(
            "perdure handoff write: give FILE, or the envelope on standard input: JSON or YAML with task_id, agent, status "
            "and summary (docs/reference/handoff.md)",
            file=sys.stderr,
        )
        return USAGE_ERROR
    try:
        envelope, body = _given(options)
    except OSError as error:
        print(f"perdure handoff: {error.filename}: {error.strerror}", file=sys.stderr)
        return USAGE_ERROR
    except (ValueError, ToolError) as error:
        source = "standard input" if options.file == "-" else options.file
        print(f"perdure handoff: {source}: {_reason(error)}", file=sys.stderr)
        return USAGE_ERROR
    given = {
        "envelope": envelope,
        "body": body,
        "path": options.path,
        "archive": options.archive or None,
        "expected_prev_sha256": options.expect,
    }
    return run_tool(options, "handoff_write", given)


def _given(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from perdure.present.normalize import strict_object
    from perdure.text import front_matter

    text, body = _read(options.file), ""
    if not text.strip():
        raise ValueError(
            "it is empty; expected the envelope: JSON or YAML with task_id, agent, status and summary"
        )
    if text.startswith("---") and "\n---" in text:
        front, body = front_matter.split(text)
        envelope = front_matter.parse(front)
    elif text.lstrip().startswith("{"):
        envelope = strict_object(msgspec.Raw(text.encode()))
    else:
        envelope = front_matter.parse(text)
    if options.body_file is not None:
        body = _read(options.body_file)
    return envelope, body


def _read(file: str) -> str:
    with open(0 if file == "-" else file, "rb") as source:
        return source.read().decode("utf-8-sig")


def _reason(error: Exception) -> str:
    if isinstance(error, ToolError):
        context = error.envelope.context
        line = f", line {context['line']}" if "line" in context else ""
        return f"{context.get('message', error.envelope.error)}{line}"
    return "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)


# --- showing ------------------------------------------------------------------------------------------------


def _show(found: dict[str, Any], _: Settings) -> None:
    screen, envelope = Screen(), found["envelope"]
    head = f"{clean(found['handoff_path'])}  {clean(envelope['task_id'])}  {envelope['status']}"
    author = envelope.get("agent")
    screen.line(f"{head}  by {clean(author)}" if author else head, "bold")
    _wrapped(screen, str(envelope["summary"]))
    if found["drift_warnings"]:
        screen.line("changed since", "bold yellow")
        for one in found["drift_warnings"]:
            screen.line(f"  {clean(one['path'])}  {one['reason'].replace('_', ' ')}", "yellow")
    ready = found["ready_steps"]
    if envelope.get("steps"):
        screen.line("steps", "bold")
        for step in envelope["steps"]:
            _show_step(screen, step, step["id"] in ready)
    for key, title in LISTS:
        if envelope.get(key):
            screen.line(title, "bold")
            for item in envelope[key]:
                _wrapped(screen, _text(item), mark="- ")
    if found["body"].strip():
        screen.line()
        for line in found["body"].strip("\n").split("\n"):
            screen.out.write(screen.styled(clean(line.expandtabs()), "") + "\n")


def _show_step(screen: Screen, step: dict[str, Any], is_ready: bool) -> None:
    needs = f"  after {', '.join(map(clean, step['depends_on']))}" if step.get("depends_on") else ""
    mark = MARKS.get(step.get("status", "pending"), "[ ]")
    text = f"  {mark} {clean(step['id'])}  {clean(step.get('description', ''))}{needs}"
    screen.line(f"{text}  ready" if is_ready else text, "green" if is_ready else "")


def _text(item: Any) -> str:
    if isinstance(item, str):
        return item
    return dumps(item, ensure_ascii=False)


def _wrapped(screen: Screen, text: str, mark: str = "") -> None:
    for line in text.splitlines():
        for part in wrap(clean(line), screen.width - 2 - len(mark)) or [""]:
            screen.line(f"  {mark}{part}")
            mark = " " * len(mark)
