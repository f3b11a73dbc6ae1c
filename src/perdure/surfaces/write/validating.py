"""`validate`, and what a write breaks: form checked by parsers in children, never in the worker itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec

from perdure.model.envelope import ToolError, refuse
from perdure.model.tools import arg
from perdure.surfaces.port import Call
from perdure.surfaces.write import text
from perdure.surfaces.write.service import WriteService
from perdure.surfaces.write.store import Content

if TYPE_CHECKING:
    from perdure.validate import Problem, Report

Validate = Literal["off", "warn", "refuse"]
MOST_BYTES: Final = 16 * 1024 * 1024
MOST_TOLD: Final = 20


class ValidateParams(msgspec.Struct, frozen=True):
    content: Annotated[str, arg()] | None = None
    draft: Annotated[str, arg()] | None = None
    format_hint: Annotated[str, arg("json, python, …")] | None = None
    target_path: Annotated[str, arg(path="relative")] | None = None


def validate(service: WriteService, given: ValidateParams, call: Call) -> dict[str, Any]:
    if (given.content is None) == (given.draft is None):
        raise refuse("invalid_input", "content_or_draft", "give content, or the id of a draft, and not both")
    if given.draft is not None:
        content = _text(service, service.draft(given.draft))
    else:
        content = given.content or ""
        if len(content) > MOST_BYTES:
            raise _too_large()
    report = service.checker.check(content, format_hint=given.format_hint, target_path=given.target_path)
    found: dict[str, Any] = msgspec.to_builtins(report)
    return found


def broken(
    service: WriteService, path: str, before: Content | None, after: Content, *, refuses: bool
) -> list[str]:
    """What is to be said about a file's form after a change. What the change breaks is refused, if that is wanted."""
    try:
        content = _text(service, after)
    except ToolError as error:
        return [f"not validated: {error.envelope.context['message']}"]
    now = service.checker.check(content, target_path=path)
    if now.valid is None:
        return [f"not validated: {now.summary}"]
    news = _news(service, path, _stood(service, before), content, now) if not now.valid else []
    if news and refuses:
        raise _broken(path, now, news)
    said = news or [problem for problem in now.errors if problem.severity == "error"]
    return [_line(now, problem) for problem in said[:MOST_TOLD]]


def _stood(service: WriteService, before: Content | None) -> str:
    """What stood there before, as far as it was text."""
    try:
        return _text(service, before) if before is not None else ""
    except ToolError:
        return ""


def _news(service: WriteService, path: str, before: str, after: str, now: Report) -> list[Problem]:
    """The errors that were not there. Nothing has none, so all that is wrong after nothing is new."""
    from perdure.validate import worse

    if not before.strip():
        return [problem for problem in now.errors if problem.severity == "error"]
    old = service.checker.check(before, format_hint=now.format, target_path=path)
    return worse(old, now, (before, after))


def _text(service: WriteService, content: Content) -> str:
    if content.size > MOST_BYTES:
        raise _too_large()
    return text.decode(b"".join(service.store.pieces(content))).body


def _line(report: Report, problem: Problem) -> str:
    return f"{report.format}, line {problem.line}, column {problem.col}: {problem.message}"


def _broken(path: str, report: Report, problems: list[Problem]) -> ToolError:
    return refuse(
        "blocked",
        "breaks_syntax",
        f"the file would not be valid {report.format}: line {problems[0].line}: {problems[0].message}",
        reason_hint="syntax",
        suggested_action="fix_syntax",
        path=path,
        format=report.format,
        errors=msgspec.to_builtins(problems[:MOST_TOLD]),
    )


def _too_large() -> ToolError:
    return refuse(
        "invalid_input", "too_large", "content above 16 MiB is not validated", reason_hint="size_limit"
    )
