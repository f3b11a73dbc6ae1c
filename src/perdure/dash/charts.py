"""Small line charts as SVG, drawn here so that a page needs nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from perdure.dash.html import Markup, element

WIDTH: Final = 480
HEIGHT: Final = 120
TOP: Final = 8
BOTTOM: Final = 104


class Line(msgspec.Struct, frozen=True):
    """`kind` names its colour in the style sheet."""

    label: str
    kind: str
    values: Sequence[float]


def chart(title: str, unit: str, *lines: Line) -> Markup:
    """One picture; its title says in words what the eye sees."""
    top = nice(max((max(line.values, default=0.0) for line in lines), default=0.0))
    said = ", ".join(f"{line.label} now {number(line.values[-1])} {unit}" for line in lines)
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
            [element("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="grid") for y in (TOP, BOTTOM)],
            [
                element("polyline", points=_points(line.values, top), class_=f"line {line.kind}")
                for line in lines
            ],
            element("text", f"{number(top)} {unit}", x=4, y=TOP + 12, class_="scale"),
            element("text", f"{len(lines[0].values)} s ago", x=4, y=HEIGHT - 3, class_="scale"),
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


def _key(line: Line, unit: str) -> Markup:
    now = f"{number(line.values[-1])} {unit}"
    return element("span", f"{line.label} ", element("b", now), class_=f"key {line.kind}")


def _points(values: Sequence[float], top: float) -> str:
    step = WIDTH / max(1, len(values) - 1)
    tall = BOTTOM - TOP
    return " ".join(f"{i * step:.1f},{BOTTOM - tall * value / top:.1f}" for i, value in enumerate(values))
