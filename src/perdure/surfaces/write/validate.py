"""The `validate` tool, and the syntax check of a write. Parsers run in child processes, never in the worker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from perdure.present.tool_errors import tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, call_again, either
from perdure.protocol.tools import arg
from perdure.storage.errors import StorageError
from perdure.text import codec
from perdure.workspace.contents import Content
from perdure.workspace.drafts import content_or_draft
from perdure.workspace.workspace import Workspace

if TYPE_CHECKING:
    from perdure.validate import Problem, Report

Validate = Literal["off", "warn", "refuse"]
MOST_BYTES: Final = 16 * 1024 * 1024
MOST_TOLD: Final = 20


class ValidateParams(msgspec.Struct, frozen=True):
    content: Annotated[str, arg()] | None = None
    draft: Annotated[str, arg()] | None = None
    format_hint: Annotated[str, arg("json, python, …; default: by target_path.")] | None = None
    target_path: Annotated[str, arg(path="relative")] | None = None


def validate(workspace: Workspace, given: ValidateParams, call: Call) -> dict[str, Any]:
    if (given.content is None) == (given.draft is None):
        raise content_or_draft(both=given.draft is not None)
    if given.draft is not None:
        content = _text(workspace, workspace.draft(given.draft))
    else:
        content = given.content or ""
        if len(content) > MOST_BYTES:
            raise _too_large()
    report = workspace.checker.check(content, format_hint=given.format_hint, target_path=given.target_path)
    payload: dict[str, Any] = msgspec.to_builtins(report)
    return payload


def broken(
    workspace: Workspace, path: str, before: Content | None, after: Content, *, refuses: bool
) -> list[str]:
    """The warnings about a file's syntax after a change; raises if the change breaks it and `refuses` is set."""
    try:
        content = _text(workspace, after)
    except (ToolError, StorageError) as error:
        return [f"not validated: {tool_error(error).envelope.context['message']}"]
    report = workspace.checker.check(content, target_path=path)
    if report.valid:
        return []
    if not report.errors:
        return [f"not validated: {report.summary}"]
    refused = _regressions(workspace, path, before, report)
    if refused and refuses:
        raise _broken(path, report, refused)
    problems = refused or [p for p in report.errors if report.valid is None or p.severity == "error"]
    return [_line(report, problem) for problem in problems[:MOST_TOLD]]


def _regressions(workspace: Workspace, path: str, before: Content | None, report: Report) -> list[Problem]:
    """The problems for which the write is refused; an empty file counts as new."""
    from perdure.validate import regressions

    try:
        text = _text(workspace, before) if before is not None else ""
    except (ToolError, StorageError):
        return []
    if not text.strip():
        return regressions(None, report)
    return regressions(workspace.checker.check(text, format_hint=report.format, target_path=path), report)


def _text(workspace: Workspace, content: Content) -> str:
    if content.size > MOST_BYTES:
        raise _too_large()
    return codec.decode(b"".join(workspace.store.pieces(content))).body


def _line(report: Report, problem: Problem) -> str:
    return f"{report.format}, line {problem.line}, column {problem.col}: {problem.message}"


def _broken(path: str, report: Report, problems: list[Problem]) -> ToolError:
    return refuse(
        "blocked",
        "breaks_syntax",
        f"{path} would not be valid {report.format}: line {problems[0].line}: {problems[0].message.rstrip('.')}.",
        next_step=either(call_again(content=FILL), "validate=warn to write it anyway"),
        reason_hint="syntax",
        suggested_action="fix_syntax",
        path=path,
        format=report.format,
        errors=msgspec.to_builtins(problems[:MOST_TOLD]),
    )


def _too_large() -> ToolError:
    return refuse(
        "invalid_input",
        "too_large",
        "the content is larger than 16 MiB, the limit of the syntax check.",
        next_step=call_again(content=FILL),
        suggested_action="split",
        reason_hint="size_limit",
    )
