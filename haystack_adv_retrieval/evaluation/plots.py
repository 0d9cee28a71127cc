"""Plots as inline SVG: no library, no script, no network. Colours are CSS classes, so they follow the page's theme."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

WIDTH, HEIGHT = 640, 340
LEFT, RIGHT, TOP, BOTTOM = 48, 138, 14, 44
COLORS = 8

Scale = Callable[[float], float]


class Point(NamedTuple):
    """
    A point of a plot.

    :param x: Horizontal value.
    :param y: Vertical value.
    :param note: What is shown when the pointer rests on it.
    :param low: Lower end of a whisker.
    :param high: Upper end of a whisker.
    """

    x: float
    y: float
    note: str = ""
    low: float = 0.0
    high: float = 0.0


def lines(series: Mapping[str, Sequence[Point]], *, label: str, x: str, y: str) -> Markup:
    """
    Draw one line per series, over a logarithmic x axis.

    :param series: The points of each line by its name; the first is drawn in the baseline's style.
    :param label: What the plot shows, for screen readers.
    :param x: Title of the x axis.
    :param y: Title of the y axis, whose values are shares in [0, 1].
    :returns: An SVG element.
    """
    points = [point for line in series.values() for point in line]
    ticks = sorted({point.x for point in points})
    across, up = _log(ticks[0], ticks[-1]), _unit(min(point.y for point in points))
    marks: list[Markup] = []
    ends = []
    for number, (name, line) in enumerate(series.items()):
        path = " ".join(f"{across(point.x):.1f},{up(point.y):.1f}" for point in line)
        marks.append(_tag("polyline", points=path, class_=f"line {_color(number)}"))
        marks += (_dot(across(point.x), up(point.y), number, point.note) for point in line)
        ends.append((up(line[-1].y), name, number))
    return _frame(label, across, ticks, up, x, y, marks + _end_labels(ends))


def scatter(series: Mapping[str, Point], *, label: str, x: str, y: str) -> Markup:
    """
    Draw one labelled point with a whisker per series, over a logarithmic x axis.

    :param series: The point of each series by its name; the first is drawn in the baseline's style.
    :param label: What the plot shows, for screen readers.
    :param x: Title of the x axis, whose values are positive.
    :param y: Title of the y axis, whose values are shares in [0, 1].
    :returns: An SVG element.
    """
    xs = [point.x for point in series.values()]
    low, high = min(xs) / 1.5, max(xs) * 1.5
    across = _log(low, high)
    whiskers = {name: (max(point.low, 0), min(point.high, 1)) for name, point in series.items()}
    up = _unit(min(bottom for bottom, _ in whiskers.values()))
    marks: list[Markup] = []
    ends = []
    for number, (name, point) in enumerate(series.items()):
        bottom, top = whiskers[name]
        marks.append(_line(across(point.x), up(bottom), across(point.x), up(top), f"line {_color(number)}"))
        marks.append(_dot(across(point.x), up(point.y), number, f"{name}: {point.note}", radius=6))
        ends.append((up(point.y), name, number))
    return _frame(label, across, _log_ticks(low, high), up, x, y, marks + _end_labels(ends))


def cloud(points: Sequence[Point], *, label: str, x: str, y: str) -> Markup:
    """
    Draw points over two logarithmic axes of the same range, with the diagonal.

    :param points: The points; both values are positive.
    :param label: What the plot shows, for screen readers.
    :param x: Title of the x axis.
    :param y: Title of the y axis.
    :returns: An SVG element.
    """
    values = [value for point in points for value in (point.x, point.y)]
    low, high = min(values) / 1.3, max(values) * 1.3
    across, up = _log(low, high), _log(low, high, HEIGHT - BOTTOM, TOP)
    marks = [_line(across(low), up(low), across(high), up(high), "guide")]
    marks += (_dot(across(point.x), up(point.y), 1, point.note) for point in points)
    ticks = _log_ticks(low, high)
    return _frame(label, across, ticks, up, x, y, marks, y_ticks=ticks)


def bars(values: Sequence[Point], *, label: str) -> Markup:
    """
    Draw one bar per question, up for a win and down for a loss, largest win first.

    :param values: `y` is the difference in [-1, 1], `x` the number of the question, to which the bar links.
    :param label: What the plot shows, for screen readers.
    :returns: An SVG element.
    """
    height, middle = 120, 60.0
    step = WIDTH / len(values)
    marks = []
    for place, point in enumerate(sorted(values, key=lambda point: -point.y)):
        size = abs(point.y) * (middle - 4)
        bar = _tag(
            "rect",
            _tag("title", point.note),
            x=f"{place * step:.2f}",
            y=f"{middle - (size if point.y > 0 else 0):.1f}",
            width=f"{max(step - (1 if step > 3 else 0), 0.5):.2f}",
            height=f"{max(size, 1):.1f}",
            class_="win" if point.y > 0 else "loss" if point.y < 0 else "tie",
        )
        marks.append(_tag("a", bar, href=f"#q{point.x:.0f}"))
    marks.append(_line(0, middle, WIDTH, middle, "axis"))
    return _svg(label, marks, height)


def slopes(moves: Iterable[tuple[int, int]], *, label: str) -> Markup:
    """
    Draw how ranks changed, one line per pair of ranks, the thicker the more often it occurs.

    :param moves: Ranks before and after, from 1.
    :param label: What the plot shows, for screen readers.
    :returns: An SVG element.
    """
    counts = Counter(moves)
    last = max(max(move) for move in counts)
    left, right = 90, WIDTH - 90

    def down(rank: float) -> float:
        return TOP + 22 + (rank - 1) * (HEIGHT - TOP - 40) / max(last - 1, 1)

    marks = [_text(left, TOP + 4, "before", "tick middle"), _text(right, TOP + 4, "after", "tick middle")]
    for rank in sorted({1, last, *range(5, last, 5)}):
        marks += (
            _text(left - 14, down(rank) + 4, str(rank), "tick end"),
            _text(right + 14, down(rank) + 4, str(rank), "tick"),
        )
    for (before, after), count in sorted(counts.items(), key=lambda item: item[0][1] < item[0][0]):
        note = _tag("title", f"{before} → {after}: {count} results")
        kind = "win" if after < before else "loss" if after > before else "tie"
        ends = {"x1": left, "y1": f"{down(before):.1f}", "x2": right, "y2": f"{down(after):.1f}"}
        marks.append(_tag("line", note, **ends, class_=f"slope {kind}", stroke_width=f"{1 + math.sqrt(count):.1f}"))
    return _svg(label, marks)


def _frame(
    label: str,
    across: Scale,
    ticks: Sequence[float],
    up: Scale,
    x: str,
    y: str,
    marks: Iterable[Markup],
    y_ticks: Sequence[float] = (0, 0.2, 0.4, 0.6, 0.8, 1),
) -> Markup:
    """Draw axes, grid and titles around the marks."""
    end, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    frame: list[Markup] = []
    for value in y_ticks:
        height = up(value)
        if TOP - 1 <= height <= bottom + 1:
            frame.append(_line(LEFT, height, end, height, "grid"))
            frame.append(_text(LEFT - 8, height + 4, _short(value), "tick end"))
    frame.append(_line(LEFT, bottom, end, bottom, "axis"))
    frame += (_text(across(value), bottom + 18, _short(value), "tick middle") for value in ticks)
    frame.append(_text((LEFT + end) / 2, HEIGHT - 6, x, "title middle"))
    turned = f"translate(12 {(TOP + bottom) / 2:.0f}) rotate(-90)"
    frame.append(_tag("text", escape(y), transform=turned, class_="title middle"))
    return _svg(label, [*frame, *marks])


def _end_labels(ends: Sequence[tuple[float, str, int]]) -> list[Markup]:
    """Write names at the right edge, at the heights given but never over each other."""
    ordered = sorted(ends)
    heights: list[float] = []
    for height, _, _ in ordered:
        heights.append(max(height, heights[-1] + 15) if heights else height)
    overflow = max(0, heights[-1] - (HEIGHT - BOTTOM))
    return [
        _text(
            WIDTH - RIGHT + 10,
            height - overflow + 4,
            name if len(name) < 20 else name[:18] + "…",
            f"name {_color(number)}",
        )
        for height, (_, name, number) in zip(heights, ordered, strict=True)
    ]


def _log(low: float, high: float, start: float = LEFT, end: float = WIDTH - RIGHT) -> Scale:
    spread = math.log(high / low) or 1.0
    return lambda value: start + (end - start) * math.log(value / low) / spread


def _unit(lowest: float) -> Scale:
    """Scale shares, from the last fifth below the lowest value up to 1."""
    floor = max(0.0, math.floor(lowest * 5) / 5) if lowest < 1 else 0.8
    return lambda value: TOP + (HEIGHT - BOTTOM - TOP) * (1 - value) / (1 - floor)


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if high / low < 300 else (1,)
    ticks = [step * 10**power for power in range(first, last + 1) for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _color(number: int) -> str:
    return f"c{(number - 1) % COLORS + 1}" if number else "c0"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def _dot(x: float, y: float, number: int, note: str, radius: int = 4) -> Markup:
    return _tag("circle", _tag("title", note), cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius, class_=f"dot {_color(number)}")


def _line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return _tag("line", x1=f"{x1:.1f}", y1=f"{y1:.1f}", x2=f"{x2:.1f}", y2=f"{y2:.1f}", class_=class_)


def _text(x: float, y: float, text: str, class_: str) -> Markup:
    return _tag("text", escape(text), x=f"{x:.1f}", y=f"{y:.1f}", class_=class_)


def _svg(label: str, marks: Iterable[Markup], height: int = HEIGHT) -> Markup:
    return _tag("svg", Markup("").join(marks), viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=label)


def _tag(name: str, content: str = "", **attributes: object) -> Markup:
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    return Markup("<{0}{1}>{2}</{0}>").format(name, given, content)
