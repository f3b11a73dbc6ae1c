"""The checks of one call's contents: size, risk, syntax. Used by every tool that writes.

    checks.sent(path, content)     before the lock: a content as it was sent
    checks.commit(plan, …)         submit a plan, with every changed file checked as it will be

A file that is changed in place can be checked only where it is staged, under the lock, and nothing slow may happen
there. A slow check is deferred: it runs outside the lock, then the plan is staged again. Checked files are known by their
hashes, so a file that changed meanwhile is checked again.
"""

from __future__ import annotations

import re
from concurrent.futures import Future
from typing import Any, Final, Literal, NamedTuple

import msgspec

from perdure import risk
from perdure.present.tool_errors import tool_error
from perdure.protocol.calls import Call
from perdure.protocol.envelope import ToolError, refuse
from perdure.protocol.next_step import FILL, ask_user, call_again
from perdure.risk import Report
from perdure.storage.errors import StorageError
from perdure.surfaces.write import screening
from perdure.surfaces.write.validate import Validate, broken
from perdure.workspace.change import Plan
from perdure.workspace.contents import Content
from perdure.workspace.drafts import Refusal, Rejected
from perdure.workspace.planning import PlanView
from perdure.workspace.workspace import Workspace

Verdict = Literal["low", "medium", "high"]
SMALL: Final = 64 * 1024
_NAMES: Final = "the path or message"
SECRET_IN_NAME: Final = "secret_in_name"
_PLAIN: Final = re.compile(r"(?:[A-Za-z_]{1,14}[0-9]{0,4}(?:[./\n]|\Z))*", re.ASCII)


def is_plain(names: str) -> bool:
    """Short words of letters and few digits: no secret is one, so there is nothing to look for."""
    return _PLAIN.fullmatch(names) is not None


class _Change(NamedTuple):
    """One file before and after. Its hashes say whether it was checked."""

    path: str
    before: Content | None
    after: Content

    @property
    def key(self) -> tuple[str, str | None, str]:
        return self.path, self.before.sha256 if self.before is not None else None, self.after.sha256


class _CheckedPlan:
    """A plan whose changed files are checked after it was staged."""

    def __init__(self, plan: Plan, checks: Checks) -> None:
        self.paths = plan.paths
        self._plan = plan
        self._checks = checks

    def stage(self, tree: PlanView) -> dict[str, Any]:
        payload = self._plan.stage(tree)
        warnings = self._checks.check(tree)
        payload["warnings"] = [*payload.get("warnings", ()), *self._checks.warnings, *warnings]
        return payload


class Checks:
    def __init__(
        self,
        workspace: Workspace,
        call: Call,
        paths: frozenset[str],
        *,
        classify: bool = True,
        reject_at: Verdict = "high",
        validate: Validate = "off",
        told: str = "",
        always: bool = False,
    ) -> None:
        """`told` is what else of the call is written down; `always` has the risk check made whatever the policy says."""
        self._workspace = workspace
        self._call = call
        self._paths = paths
        self._told = told
        wanted = workspace.policy.classify
        self._classify = always or wanted == "always" or (wanted and classify)
        self._reject_at = reject_at
        self._validate = validate
        self._screened: set[str] = set()
        self._passed: dict[tuple[str, str | None, str], list[str]] = {}
        self.warnings: list[str] = []
        self._are_names_known = False

    def sent(self, path: str, content: Content, text: str | None = None) -> None:
        """Refuse a content, and keep it; or remember what is to be said about it. `text` where it is at hand."""
        try:
            self.screen(path, content, text)
        except Rejected as error:
            self.reject(error).result()

    def screen(self, path: str, content: Content, text: str | None = None) -> None:
        """The same, without keeping what is refused."""
        try:
            self._check_names()
        except ToolError as error:
            raise Rejected(error.envelope, "", content) from None
        report: Report | None = None
        try:
            self._check_size(path, content)
            if self._classify:
                report = self._whole(content, text)
                self._check_risk(report, path)
                self.warnings += screening.warnings(report)
        except (ToolError, StorageError) as error:
            raise Rejected(tool_error(error).envelope, path, content, report) from None
        self._screened.add(content.sha256)

    def reject(self, error: Rejected) -> Future[Any]:
        """Keep what was refused. The future fails with the error that says so."""
        redacted = self._redacted(error.content, error.report) if error.report is not None else None
        return self._workspace.committer.submit(Refusal(self._workspace, self._call, error, redacted))

    def _whole(self, content: Content, text: str | None) -> Report:
        if text is not None and content.size <= screening.MOST_COMPARED:
            return risk.scan(text, self._workspace.policy)
        return screening.whole(self._workspace.store.pieces(content), self._workspace.policy)

    def _redacted(self, content: Content, report: Report) -> Content | None:
        """The content with its secrets replaced, so that it need not be sent again for that; None for a large one."""
        if content.size > screening.WINDOW:
            return None
        try:
            text = b"".join(self._workspace.store.pieces(content)).decode()
        except UnicodeDecodeError:
            return None
        return self._workspace.store.take(risk.redact(text, report).encode())

    def commit(self, plan: Plan, **options: Any) -> Future[dict[str, Any]]:
        """Submit a plan with every file checked as it will be."""
        self._check_names()
        return self._workspace.commit(self._call, _CheckedPlan(plan, self), **options)

    # --- in the plan ---------------------------------------------------------------------------------------

    def check(self, tree: PlanView) -> list[str]:
        """The warnings about the files as they will be. Raises where one is refused, and defers slow checks."""
        found: list[str] = []
        missing: list[_Change] = []
        changed = tree.changed()
        moved = {known.old.sha256 for known in changed if known.old is not None}
        for known in changed:
            if known.now is None or known.now.sha256 in moved:
                continue
            change = _Change(known.path, known.old, known.now)
            if change.key not in self._passed:
                if not self._is_quick(change):
                    missing.append(change)
                    continue
                self._make(change)
            found += self._passed[change.key]
        if missing:
            tree.deferred.request("checks", lambda: self._make_all(missing))
        return found

    def _is_quick(self, change: _Change) -> bool:
        """Whether what is left to check may be checked under the lock."""
        if self._validate != "off":
            return False
        is_known = not self._classify or change.after.sha256 in self._screened
        return is_known or max(change.after.size, change.before.size if change.before else 0) <= SMALL

    # --- the checks ----------------------------------------------------------------------------------------

    def _make_all(self, changes: list[_Change]) -> None:
        for change in changes:
            self._make(change)

    def _make(self, change: _Change) -> None:
        said: list[str] = []
        try:
            self._check_size(change.path, change.after)
            if self._classify and change.after.sha256 not in self._screened:
                report = self._added(change)
                self._check_risk(report, change.path)
                said += screening.warnings(report)
            if self._validate != "off":
                said += broken(
                    self._workspace,
                    change.path,
                    change.before,
                    change.after,
                    refuses=self._validate == "refuse",
                )
        except (ToolError, StorageError) as error:
            raise Rejected(tool_error(error).envelope, change.path, change.after) from None
        self._passed[change.key] = said

    def _added(self, change: _Change) -> Report:
        store, settings = self._workspace.store, self._workspace.policy
        before, after = change.before, change.after
        if before is None:
            return screening.whole(store.pieces(after), settings)
        if max(before.size, after.size) > screening.MOST_COMPARED:
            rest = screening.after_difference(store.pieces(before), store.pieces(after))
            return screening.whole(rest, settings)
        old, new = (screening.readable(b"".join(store.pieces(content))) for content in (before, after))
        return screening.added(old, new, settings)

    def _check_names(self) -> None:
        """Names stand in the journal: no secret may be one."""
        if not self._classify or self._are_names_known:
            return
        names = "\n".join((*sorted(self._paths), self._told))
        if not self._workspace.policy.extend_patterns and is_plain(names):
            self._are_names_known = True
            return
        report = risk.scan(names, self._workspace.policy)
        if report.verdict == "high":
            raise _blocked(
                report,
                "high",
                SECRET_IN_NAME,
                _risk_sentence(report, _NAMES),
                call_again(path=FILL, message=None),
            )
        self._are_names_known = True

    def _check_size(self, path: str, content: Content) -> None:
        most = self._workspace.policy.max_bytes
        if most is not None and content.size > most:
            raise refuse(
                "quota_exceeded",
                "too_large",
                f"{path} would have {content.size:,} bytes, and the policy allows {most:,} (max_bytes).",
                next_step=ask_user(
                    f"whether {path} may have more than {most:,} bytes (max_bytes in the policy), or write several files."
                ),
                reason_hint="size_limit",
                suggested_action="split",
                path=path,
                bytes=content.size,
                max_bytes=most,
            )

    def _is_refused(self, report: Report) -> bool:
        return screening.VERDICTS.index(report.verdict) >= screening.VERDICTS.index(self._reject_at)

    def _check_risk(self, report: Report, path: str) -> None:
        if self._is_refused(report):
            raise _blocked(
                report,
                self._reject_at,
                "risk",
                _risk_sentence(report, path),
                call_again(content=FILL),
                path=path,
            )


def _risk_sentence(report: Report, where: str) -> str:
    """What was found first, masked, and how much more there is."""
    if not report.findings:
        return f"the risk of {where} is {report.verdict}, which this call refuses (classify_reject_at)."
    first = report.findings[0]
    kind = first.kind.replace("_", " ")
    match = f", {first.masked}" if first.masked else ""
    more = len(report.findings) - 1
    others = f", and {more} other place{'' if more == 1 else 's'}" if more else ""
    what = (
        f"looks like a secret ({kind}{match})" if report.verdict == "high" else f"is a risk ({kind}{match})"
    )
    place = f"line {first.line}, column {first.column} of {where}" if where != _NAMES else where
    return f"{place} {what}{others}."


def _blocked(
    report: Report, reject_at: Verdict, reason: str, message: str, next_step: str, **context: Any
) -> ToolError:
    places = screening.told(report)
    return refuse(
        "blocked",
        reason,
        message,
        next_step=next_step,
        reason_hint="content_filter",
        suggested_action="redact",
        detected_patterns=tuple(sorted({one.kind for one in report.findings})),
        score=report.score,
        verdict=report.verdict,
        classify_reject_at=reject_at,
        detected=places[: screening.MOST_TOLD],
        suggested_actions=msgspec.to_builtins(report.suggested_actions),
        **context,
    )
