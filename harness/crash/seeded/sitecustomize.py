"""Runs at the start of every Python that finds this folder in its path: seeds the bug that the environment names."""

import os

from harness.crash import bugs

bugs.install(os.environ[bugs.VARIABLE])
