"""Whether content is well-formed, and where it is not: 18 formats, each by the best parser there is for it.

check(content, format_hint=None, target_path="a.json")   the check itself, in this process
isolated.Checker().check(...)                            the same in a child with limits on time and memory
worse(before, after)                                     what a change breaks that was whole before
"""

from perdure.validate.checking import check
from perdure.validate.compare import worse
from perdure.validate.report import Problem, Report

__all__ = ["Problem", "Report", "check", "worse"]
