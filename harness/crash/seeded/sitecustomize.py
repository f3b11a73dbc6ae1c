"""Runs at the start of every Python that finds this folder in its path: seeds the bug that the environment names."""

import os

from harness.crash.seeded_bugs import BUGS, VARIABLE

BUGS[os.environ[VARIABLE]].apply()
