"""Puts the root of the repository on the path, so that a benchmark finds `harness` from wherever it is started."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
