"""What a run prints: figures with their medians, and one verdict per requirement."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence

PASS, SHORT, BROKEN = "PASS", "SHORT", "BROKEN"
WIDTH = 44


def p50(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def p95(samples: Sequence[float]) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]


def ms(seconds: float) -> str:
    """Milliseconds with three significant digits at most."""
    value = seconds * 1000
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def machine() -> str:
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    return f"python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}, load {load}"


class Report:
    """Prints as the run goes and remembers the verdicts."""

    def __init__(self) -> None:
        self._verdicts: list[str] = []

    @property
    def broken(self) -> bool:
        return BROKEN in self._verdicts

    def title(self, text: str) -> None:
        print(f"\n{text}", flush=True)

    def figure(self, label: str, text: str) -> None:
        """A figure that no requirement judges."""
        self._line("", label, text)

    def ratio(self, label: str, text: str, value: float, limit: float) -> None:
        """At most `limit` times the peer's figure."""
        self._judge(value <= limit, label, f"{text}  ratio {value:.2f}x, limit {limit:.2f}x")

    def at_most(self, label: str, text: str, value: float, limit: float) -> None:
        self._judge(value <= limit, label, text)

    def above(self, label: str, text: str, value: float, floor: float) -> None:
        self._judge(value >= floor, label, text)

    def failed(self, label: str, error: Exception) -> None:
        self._verdicts.append(BROKEN)
        self._line(BROKEN, label, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        counts = ", ".join(
            f"{self._verdicts.count(verdict)} {verdict}"
            for verdict in (PASS, SHORT, BROKEN)
            if verdict in self._verdicts
        )
        print(f"\n{counts or 'nothing was judged'}")

    def _judge(self, good: bool, label: str, text: str) -> None:
        verdict = PASS if good else SHORT
        self._verdicts.append(verdict)
        self._line(verdict, label, text)

    def _line(self, verdict: str, label: str, text: str) -> None:
        print(f"  {verdict:6} {label:{WIDTH}} {text}", flush=True)
