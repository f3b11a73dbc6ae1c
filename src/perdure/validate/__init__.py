"""Whether content is well-formed, and where it is not, in 18 formats.

check(content, format_hint=None, target_path="a.json")   the check itself, in this process
isolated.Checker().check(...)                            the same in a child with limits on time and memory
regressions(before, after)                               the errors that a change adds
"""

from perdure.validate.checking import check
from perdure.validate.compare import regressions
from perdure.validate.report import Problem, Report

__all__ = ["Problem", "Report", "check", "regressions"]
