"""A panel of kind timeseries: lines or stacked areas over time, with what Grafana's legend says of each."""

import time

import chart
import look
import units

LEFT, RIGHT, TOP, AXIS = 64, 14, 34, 20  # around the lines
ENTRY, ENTRIES = 17, 4  # height of an entry of the legend, and how many lie below each other
NEXT_TO = 0.4  # pixels
SMALL = 11  # size of text
TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


class Frame:
    """Where times and values lie."""

    def __init__(self, place, source, limits, below):
        x, y, width, height = place
        self.left, self.right = x + LEFT, x + width - RIGHT
        self.top, self.bottom = y + TOP, y + height - below - AXIS
        self.start, self.end = source.start, source.end
        self.gap = 1.5 * source.step
        self.low, self.high = limits

    def x(self, at):
        return self.left + (at - self.start) / (self.end - self.start) * (self.right - self.left)

    def y(self, value):
        inside = min(max(value, self.low), self.high)
        return self.bottom - (inside - self.low) / (self.high - self.low) * (self.bottom - self.top)


def stacked(lines):
    """[(floor, points)] of series that lie one on the other; where one has no point, it adds nothing."""
    below, found = {}, []
    for points in lines:
        floor = {at: below.get(at, 0.0) for at, _ in points}
        below.update({at: floor[at] + value for at, value in points})
        found.append((floor, [(at, below[at]) for at, _ in points]))
    return found


def limits(lines, defaults):
    """The lowest and the highest value of the axis: as given, else what holds all points."""
    values = [value for points in lines for _, value in points]
    low = defaults.get("min", min(values))
    high = defaults.get("max", max(values))
    if high <= low:
        high = low + (abs(low) or 1)
    room = (high - low) * 0.05
    return low if "min" in defaults else low - room, high if "max" in defaults else high + room


def runs(points, gap):
    """The points between two gaps."""
    found = []
    for point in points:
        if not found or point[0] - found[-1][-1][0] > gap:
            found.append([])
        found[-1].append(point)
    return found


def thinned(places):
    """Without points that lie next to the line between others; what is left looks the same, and is a third of it."""
    (x0, y0), (x1, y1) = places[0], places[-1]
    off = [abs(y - y0 - (y1 - y0) * (x - x0) / (x1 - x0)) for x, y in places[1:-1]]
    if not off or max(off) < NEXT_TO:
        return [places[0], places[-1]]
    at = off.index(max(off)) + 1
    return thinned(places[:at + 1])[:-1] + thinned(places[at:])


def short(number):
    return f"{number:.1f}".removesuffix(".0").replace("-0.", "-.").removeprefix("0") or "0"


def path(places):
    """Each point by its way from the one before, which is shorter to write."""
    tenths = [(round(x, 1), round(y, 1)) for x, y in places]
    ways = [f"{short(b[0] - a[0])} {short(b[1] - a[1])}".replace(" -", "-") for a, b in zip(tenths, tenths[1:])]
    return f"M{short(tenths[0][0])} {short(tenths[0][1])}l{' '.join(ways)}"


def drawn(number, floor, points, frame, pile):
    """One series: a line for each run of points, and the area below it."""
    colour, out = number % look.LINES, []
    for run in runs(points, frame.gap):
        places = [(frame.x(at), frame.y(value)) for at, value in run]
        if len(run) == 1:
            out.append(f'<circle class="f{colour}" cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="1.6"/>')
            continue
        line = path(thinned(places))
        base = [(frame.x(at), frame.y(floor[at])) for at, _ in reversed(run)] if pile else [
            (places[-1][0], frame.bottom), (places[0][0], frame.bottom)]
        out.append(f'<path class="{"stacked" if pile else "area"} f{colour}" d="{line}{path(thinned(base)).replace("M", "L")}z"/>')
        out.append(f'<path class="line c{colour}" d="{line}"/>')
    return out


def clock(seconds, precise):
    return time.strftime("%H:%M:%S" if precise else "%H:%M", time.gmtime(seconds))


def axes(frame, unit):
    # An axis that hardly reaches into the next unit keeps the smaller one.
    factor, suffix = units.scaled(max(abs(frame.low), abs(frame.high)) * 0.75, unit)
    ticks = chart.steps(frame.low / factor, frame.high / factor)
    out = []
    for tick in ticks:
        y = frame.y(tick * factor)
        out += [look.rule(frame.left, y, frame.right, y),
                look.write(frame.left - 6, y + 4, f"{tick:.6g}{units.short(suffix, unit)}", "quiet small", "end")]
    span = frame.end - frame.start
    step = next((one for one in TIMES if span / one <= 8), TIMES[-1])
    at = -(-frame.start // step) * step
    while at <= frame.end:
        if frame.left + 16 <= frame.x(at) <= frame.right - 10:
            out += [look.rule(frame.x(at), frame.top, frame.x(at), frame.bottom),
                    look.write(frame.x(at), frame.bottom + 15, clock(at, step < 60), "quiet small", "middle")]
        at += step
    return out


class Legend:
    """Name, last value and highest of each series, below each other in as many columns as they need and there is room
    for; of many series not all."""

    def __init__(self, series, width, unit, decimals):
        highest = [max(value for _, value in one.points) for one in series]
        self.lines = [(one.name, units.written(one.last(), unit, decimals), units.written(most, unit, decimals))
                      for one, most in zip(series, highest)]
        self.number = 12 + max(look.width_of(word, SMALL) for _, *words in self.lines for word in (*words, "Last *"))
        name = max(look.width_of(name, SMALL) for name, *_ in self.lines)
        needed, room = -(-len(series) // ENTRIES), int((width - 24) // (name + 2 * self.number + 32))
        self.columns = max(min(needed, room), min(needed, 2))
        self.below = min(-(-len(series) // self.columns), ENTRIES)
        self.height = 24 + ENTRY * self.below

    def draw(self, place):
        x, y, width, height = place
        top, wide = y + height - self.height + 12, (width - 24) / self.columns
        shown, out = self.columns * self.below, []
        if shown < len(self.lines):
            out.append(look.write(x + 12, top, f"{shown} of {len(self.lines)}", "quiet small"))
        for column in range(self.columns):
            left = x + 12 + column * wide
            out += self.entry(left, top, wide, "quiet small", ("", "Last *", "Max"))
            for line, words in enumerate(self.lines[column * self.below:(column + 1) * self.below], 1):
                colour = (column * self.below + line - 1) % look.LINES
                out.append(look.box(left, top + ENTRY * line - 6, 12, 4, f"f{colour}"))
                out += self.entry(left, top + ENTRY * line, wide, "text small", words)
        return out

    def entry(self, left, y, wide, kind, words):
        right = left + wide - (8 if self.columns > 1 else 4)
        name, last, most = words
        room = right - left - 2 * self.number - 18
        return ([look.write(left + 18, y, look.fit(name, room, SMALL), kind)] if name else []) + [
            look.write(right - self.number, y, last, kind, "end"), look.write(right, y, most, kind, "end")]


def draw(panel, answers, place, source, events):
    """The elements below the panel's title."""
    defaults = panel["fieldConfig"]["defaults"]
    series = [one for found in answers.values() for one in found]
    pile = defaults["custom"]["stacking"]["mode"] == "normal"
    lines = stacked([one.points for one in series]) if pile else [({}, one.points) for one in series]
    legend = Legend(series, place[2], defaults["unit"], defaults.get("decimals"))
    frame = Frame(place, source, limits([points for _, points in lines], defaults), legend.height)
    out = axes(frame, defaults["unit"])
    seen = set()  # two at one time show in turns
    for colour, at in events:
        kind = f"event{' late' if at in seen else ''} s-{colour}"
        out.append(look.rule(frame.x(at), frame.top, frame.x(at), frame.bottom, kind))
        seen.add(at)
    for number, (floor, points) in reversed(list(enumerate(lines))):
        out += drawn(number, floor, points, frame, pile)
    return out + legend.draw(place)
