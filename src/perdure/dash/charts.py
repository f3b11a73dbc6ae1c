"""Small line charts as SVG, drawn here so that a page needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from perdure.dash.html import Markup, element

WIDTH: Final = 480
HEIGHT: Final = 124
TOP: Final = 8
BOTTOM: Final = 104
NO_DATA: Final = "–"


class Line(msgspec.Struct, frozen=True):
    """`kind` names its colour in the style sheet; None in `values` is a moment without data."""

    label: str
    kind: str
    values: Sequence[float | None]


def chart(title: str, unit: str, *lines: Line) -> Markup:
    """One picture; its title says in words what the eye sees."""
    known = [value for line in lines for value in line.values if value is not None]
    top = nice(max(known, default=0.0))
    said = ", ".join(f"{line.label} now {_now(line, unit)}" for line in lines)
    middle = (TOP + BOTTOM) / 2
    return element(
        "figure",
        element(
            "figcaption",
            element("span", title),
            element("span", [_key(line, unit) for line in lines], class_="keys"),
        ),
        element(
            "svg",
            element("title", f"{title}: {said}; the scale ends at {number(top)} {unit}"),
            [element("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="grid") for y in (TOP, middle, BOTTOM)],
            [
                element("polyline", points=points, class_=f"line {line.kind}")
                for line in lines
                for points in _runs(line.values, top)
            ],
            element("text", f"{number(top)} {unit}", x=4, y=TOP + 14, class_="scale"),
            element("text", f"{number(top / 2)} {unit}", x=4, y=middle + 14, class_="scale"),
            element("text", f"{len(lines[0].values) // 60} min ago", x=4, y=HEIGHT - 3, class_="scale"),
            element("text", "now", x=WIDTH - 4, y=HEIGHT - 3, class_="scale end"),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            role="img",
        ),
        class_="chart",
    )


def nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    edge = 1.0
    while edge < value:
        edge *= 10
    return next((edge * share for share in (0.1, 0.2, 0.5, 1.0) if edge * share >= max(value, 1.0)), edge)


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}".removesuffix(".0")


def milliseconds(value: float | None) -> str:
    return NO_DATA if value is None else f"{number(value)} ms"


def _now(line: Line, unit: str) -> str:
    value = line.values[-1]
    return NO_DATA if value is None else f"{number(value)} {unit}"


def _key(line: Line, unit: str) -> Markup:
    return element("span", f"{line.label} ", element("b", _now(line, unit)), class_=f"key {line.kind}")


def _runs(values: Sequence[float | None], top: float) -> Iterator[str]:
    """The points of each unbroken run. A single value becomes a short dash, or it would not be seen."""
    step, tall = WIDTH / max(1, len(values) - 1), BOTTOM - TOP
    run: list[str] = []
    for place, value in enumerate([*values, None]):
        if value is not None:
            y = f"{BOTTOM - tall * value / top:.1f}"
            run.append(f"{place * step:.1f},{y}")
            continue
        if len(run) == 1:
            run.append(f"{place * step:.1f},{run[0].partition(',')[2]}")
        if run:
            yield " ".join(run)
        run = []
