"""Line charts as SVG, light and dark, in the colours of report.html. Pure: values in, text out; the same values give the
same text."""

import html
import math

# cli/report/style.h
LIGHT = {"page": "#ffffff", "text": "#1c2430", "quiet": "#5d6b7e", "rule": "#e3e7ed",
         "lines": ["#2563eb", "#d9480f", "#0b8a5c", "#7c3aed", "#b7791f", "#0e8ba0", "#c0266f", "#55606e"]}
DARK = {"page": "#1b212a", "text": "#e6eaf0", "quiet": "#97a3b4", "rule": "#2b333f",
        "lines": ["#6ea0ff", "#ff8f5a", "#41cf97", "#b394ff", "#e8b656", "#4fc6da", "#f27db4", "#a3afbe"]}
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif'
WIDTH, HEIGHT = 430, 270  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 34, 42
LEGEND = 26
LEGEND_LINE = 18
TICKS = 5
LETTER = 7.2  # the width of one, about


class Line:
    """`points` are (x, y), rising in x; joined by a line, or marked, the `hollow` ones (by index) to be taken with care.
    Without a name it is not in the legend."""

    def __init__(self, name, color, points, dashed=False, joined=True, marked=False, hollow=()):
        self.name, self.color, self.points = name, color, list(points)
        self.dashed, self.joined, self.marked, self.hollow = dashed, joined, marked, set(hollow)


class Panel:
    """One chart. `mark` draws a horizontal rule at that y; limits that are not given follow from the points. `logarithmic`:
    both axes are, with powers of ten at the left and, below, what `ticks` says: (x, words)."""

    def __init__(self, title, x, y, lines, mark=None, y_limits=None, logarithmic=False, ticks=()):
        self.title, self.x, self.y, self.lines = title, x, y, lines
        self.mark, self.y_limits = mark, y_limits
        self.logarithmic, self.ticks = logarithmic, ticks


def colors(palette):
    rules = [f".page{{fill:{palette['page']}}}", f".text{{fill:{palette['text']}}}", f".quiet{{fill:{palette['quiet']}}}",
             f".rule{{stroke:{palette['rule']}}}", f".mark{{stroke:{palette['quiet']}}}", f".hole{{fill:{palette['page']}}}"]
    for number, color in enumerate(palette["lines"]):
        rules += [f".c{number}{{stroke:{color}}}", f".f{number}{{fill:{color}}}"]
    return "".join(rules)


def style():
    return (f"text{{font:12px {FONT}}}.title{{font-weight:600;font-size:13px}}.line{{fill:none;stroke-width:1.8;"
            f"stroke-linejoin:round}}.dash{{stroke-dasharray:5 4}}.mark{{stroke-dasharray:2 3}}{colors(LIGHT)}"
            f"@media(prefers-color-scheme:dark){{{colors(DARK)}}}")


def steps(low, high):
    """Round numbers between two limits, about TICKS of them."""
    if high <= low:
        return [low]
    raw = (high - low) / TICKS
    power = 10 ** math.floor(math.log10(raw))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [(first + n) * step for n in range(int(math.floor(high / step + 1e-9)) - first + 1)]


def number(value):
    if abs(value) >= 10000:
        return f"{value / 1000:g}k"
    return f"{value:.6g}"


def text(x, y, words, kind="quiet", anchor="start", more=""):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def powers(low, high):
    """Of ten, the first at or below `low`, the last at or above `high`; two at least."""
    first = math.floor(math.log10(low))
    return [10.0 ** n for n in range(first, max(math.ceil(math.log10(high)), first + 1) + 1)]


class Frame:
    """Where the values of a panel lie."""

    def __init__(self, panel, left, top):
        points = [point for line in panel.lines for point in line.points]
        x, y = [x for x, _ in points] or [1.0], [y for _, y in points] or [1.0]
        self.scale = math.log if panel.logarithmic else float
        if panel.logarithmic:
            self.x0, self.x1 = min(x), max(max(x), 2 * min(x))
            self.x_ticks, self.y_ticks = list(panel.ticks), powers(min(y), max(y))
            self.y0, self.y1 = self.y_ticks[0], self.y_ticks[-1]
        else:
            self.x0, self.x1 = 0.0, max(x) or 1.0
            self.y0, self.y1 = panel.y_limits or (0.0, max(y) or 1.0)
            self.x_ticks = [(value, number(value)) for value in steps(self.x0, self.x1)]
            self.y_ticks = steps(self.y0, self.y1)
        self.left, self.right = left + LEFT, left + WIDTH - RIGHT
        self.top, self.bottom = top + TOP, top + HEIGHT - BOTTOM

    def share(self, value, low, high):
        return (self.scale(value) - self.scale(low)) / (self.scale(high) - self.scale(low))

    def x(self, value):
        return self.left + self.share(value, self.x0, self.x1) * (self.right - self.left)

    def y(self, value):
        inside = min(max(value, self.y0), self.y1)
        return self.bottom - self.share(inside, self.y0, self.y1) * (self.bottom - self.top)


def axes(panel, frame):
    out = [text(frame.left, frame.top - 12, panel.title, "text title")]
    for value in frame.y_ticks:
        y = frame.y(value)
        out.append(f'<line class="rule" x1="{frame.left:.1f}" y1="{y:.1f}" x2="{frame.right:.1f}" y2="{y:.1f}"/>')
        out.append(text(frame.left - 6, y + 4, number(value), anchor="end"))
    for value, words in frame.x_ticks:
        inside = min(frame.x(value), frame.right + RIGHT - LETTER * len(words) / 2)
        out.append(text(inside, frame.bottom + 16, words, anchor="middle"))
    middle = (frame.top + frame.bottom) / 2
    out.append(text((frame.left + frame.right) / 2, frame.bottom + 34, panel.x, anchor="middle"))
    out.append(text(frame.left - 40, middle, panel.y, anchor="middle",
                    more=f' transform="rotate(-90 {frame.left - 40:.1f} {middle:.1f})"'))
    if panel.mark is not None:
        y = frame.y(panel.mark)
        out.append(f'<line class="mark" x1="{frame.left:.1f}" y1="{y:.1f}" x2="{frame.right:.1f}" y2="{y:.1f}"/>')
    return out


def circle(line, x, y, hollow=False):
    return (f'<circle class="{"hole" if hollow else f"f{line.color}"} c{line.color}" stroke-width="1.6" '
            f'cx="{x:.1f}" cy="{y:.1f}" r="3.4"/>')


def drawn(line, frame):
    places = [(frame.x(x), frame.y(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    out = []
    if path and line.joined:
        out.append(f'<polyline class="line c{line.color}{" dash" if line.dashed else ""}" points="{path}"/>')
    if line.marked:
        out += [circle(line, x, y, index in line.hollow) for index, (x, y) in enumerate(places)]
    return out


def legend(panels, width):
    """Its parts, and how much lower the panels are for its lines beyond the first one."""
    known = {}
    for panel in panels:
        for line in panel.lines:
            known.setdefault(line.name, line)
    out, x, y = [], LEFT, 0
    for line in known.values():
        if not line.name:
            continue
        long = 25 + LETTER * len(line.name) + 18
        if x > LEFT and x + long - 18 > width:
            x, y = LEFT, y + LEGEND_LINE
        if line.joined:
            dash = " dash" if line.dashed else ""
            out.append(f'<line class="line c{line.color}{dash}" x1="{x:.1f}" y1="{y + 16}" x2="{x + 20:.1f}" y2="{y + 16}"/>')
        else:
            out.append(circle(line, x + 10, y + 16))
        out.append(text(x + 25, y + 20, line.name, "text"))
        x += long
    return out, y


def draw(panels, columns=2):
    """The panels row by row, below one legend, as the text of an SVG file."""
    rows = -(-len(panels) // columns)
    width = columns * WIDTH
    words, lower = legend(panels, width)
    height = LEGEND + lower + rows * HEIGHT
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
             f"<style>{style()}</style>", f'<rect class="page" width="{width}" height="{height}"/>', *words]
    for index, panel in enumerate(panels):
        frame = Frame(panel, index % columns * WIDTH, LEGEND + lower + index // columns * HEIGHT)
        parts += axes(panel, frame)
        for line in panel.lines:
            parts += drawn(line, frame)
    return "\n".join([*parts, "</svg>"]) + "\n"
