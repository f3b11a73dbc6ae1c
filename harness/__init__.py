"""Trials of Perdure itself: explorer, storms, power cuts, failing system calls, models, corpora. Not packaged.

    python -m harness.kernel        python -m harness.crash        python -m harness.power        …

Run it from the root of the repository. Importing it adds that root to PYTHONPATH, so that the processes which a trial
starts with `-m harness.…` find it as well.
"""

import os
from pathlib import Path

_ROOT = str(Path(__file__).parents[1])
_PATHS = os.environ.get("PYTHONPATH", "").split(os.pathsep)

if _ROOT not in _PATHS:
    os.environ["PYTHONPATH"] = os.pathsep.join([_ROOT, *filter(None, _PATHS)])
