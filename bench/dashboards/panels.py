"""Panels of the kinds that our dashboards have, each as the elements of an SVG file."""

import graph
import look
import units

ROW = 26  # of a table
BAR = 34  # height of a gauge at most
GRADIENT = "heat"
STOPS = (("0", "green"), ("0.5", "yellow"), ("1", "red"))  # continuous-GrYlRd


def gradient(left, right):
    """Over the whole length of a gauge, of which a bar shows its part."""
    stops = "".join(f'<stop class="g-{colour}" offset="{at}"/>' for at, colour in STOPS)
    return (f'<linearGradient id="{GRADIENT}-{left:.0f}-{right:.0f}" gradientUnits="userSpaceOnUse" x1="{left:.0f}" y1="0" '
            f'x2="{right:.0f}" y2="0">{stops}</linearGradient>')


def threshold(value, steps):
    """The colour of the last step that is not above the value."""
    return [one["color"] for one in steps if one["value"] is None or value >= one["value"]][-1]


def series_of(answers):
    return [one for found in answers.values() for one in found]


def spark(points, place, colour):
    """The course of a number, below it."""
    x, y, width, height = place
    low, high = min(value for _, value in points), max(value for _, value in points)
    first, span = points[0][0], max(points[-1][0] - points[0][0], 1)
    top, bottom = y + height * 0.66, y + height - 1
    places = [(x + 1 + (at - first) / span * (width - 2), bottom - (value - low) / ((high - low) or 1) * (bottom - top))
              for at, value in points]
    line = graph.path(graph.thinned(places))
    return [f'<path class="spark n-{colour}" d="{line}V{bottom:.1f}H{places[0][0]:.1f}z"/>',
            f'<path class="line s-{colour}" d="{line}"/>']


def stat(panel, answers, place, *_):
    x, y, width, height = place
    defaults, one = panel["fieldConfig"]["defaults"], series_of(answers)[0]
    colour = "text" if defaults["color"]["mode"] == "fixed" else threshold(one.last(), defaults["thresholds"]["steps"])
    words = units.written(one.last(), defaults["unit"], defaults.get("decimals"))
    size = min(34, (width - 20) / (len(words) * look.BOLD))
    trend = panel["options"]["graphMode"] == "area" and len(one.points) > 1
    at = y + height * (0.56 if trend else 0.64)
    return [*(spark(one.points, place, "blue" if colour == "text" else colour) if trend else []),
            look.write(x + width / 2, at, words, f"n-{colour}", "middle", more=f' style="font-size:{size:.0f}px;font-weight:600"')]


def bargauge(panel, answers, place, *_):
    x, y, width, height = place
    defaults, series = panel["fieldConfig"]["defaults"], series_of(answers)
    low, high = defaults.get("min", 0), defaults.get("max", max(one.last() for one in series)) or 1
    names = min(max(look.width_of(one.name) for one in series) + 10, width * 0.3)
    left, right = x + 14 + names, x + width - 100
    each = min((height - 44) / len(series), BAR + 10)
    out = [gradient(left, right)]
    for at, one in enumerate(series):
        top, value = y + 36 + at * each, one.last()
        share = min(max((value - low) / ((high - low) or 1), 0), 1)
        middle = top + (each - 10) / 2 + 4
        heat = "green" if share < 0.25 else "yellow" if share < 0.75 else "red"
        out += [look.write(left - 10, middle, one.name, "text", "end", width=names),
                look.box(left, top, right - left, each - 10, "n-track", ' rx="2"'),
                look.box(left, top, share * (right - left), each - 10, "",
                         f' rx="2" fill="url(#{GRADIENT}-{left:.0f}-{right:.0f})"'),
                look.write(right + 10, middle, units.written(value, defaults["unit"], defaults.get("decimals")), f"n-{heat}",
                           more=' style="font-weight:600"')]
    return out


def merged(answers):
    """(names of columns, rows as {name: value}), as the transformation `merge` joins answers: what has the same labels is
    one row. The value of an answer is called after its letter where there are several."""
    names, rows = [], {}
    for letter, series in answers.items():
        value = f"Value #{letter}" if len(answers) > 1 else "Value"
        for one in series:
            key = tuple(sorted(one.labels.items()))
            row = rows.setdefault(key, dict(one.labels))
            row[value] = one.last()
            names += [name for name in [*sorted(one.labels), value] if name not in names]
    return names, list(rows.values())


def organized(names, options):
    """[(name, what is shown above it)] in the order that the transformation `organize` gives."""
    places = options.get("indexByName", {})
    kept = [name for name in names if not options.get("excludeByName", {}).get(name)]
    kept.sort(key=lambda name: places.get(name, len(places)))
    return [(name, options.get("renameByName", {}).get(name, name)) for name in kept]


def unit_of(panel, title):
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"] == {"id": "byName", "options": title}:
            for one in override["properties"]:
                if one["id"] == "unit":
                    return one["value"]
    return panel["fieldConfig"]["defaults"]["unit"]


def cells(panel, answers):
    """(titles, rows of words): the first row by the order of the labels."""
    names, rows = merged(answers)
    transformations = {one["id"]: one["options"] for one in panel["transformations"]}
    shown = organized(names, transformations["organize"])

    def word(row, name, title):
        value = row.get(name, "")
        return value if isinstance(value, str) else units.written(value, unit_of(panel, title))

    return shown, sorted([word(row, name, title) for name, title in shown] for row in rows)


def table(panel, answers, place, *_):
    x, y, width, height = place
    shown, rows = cells(panel, answers)
    numbers = [name.startswith("Value") for name, _ in shown]
    wide = [max(len(title), *(len(row[at]) for row in rows)) + 3 for at, (_, title) in enumerate(shown)]
    unit = (width - 24) / sum(wide)
    room = int((height - 48) // ROW)
    out, top = [], y + 48
    lines = [[title for _, title in shown], *rows[:room - 1 if len(rows) > room else room]]
    for at, line in enumerate(lines):
        left = x + 12
        for column, words in enumerate(line):
            end = left + wide[column] * unit
            from_x, anchor = (end - 12, "end") if numbers[column] else (left, "start")
            out.append(look.write(from_x, top + at * ROW - 2, words, "title text" if at == 0 else "text", anchor,
                                  width=end - left - 4))
            left = end
        out.append(look.rule(x + 12, top + at * ROW + 6, x + width - 12, top + at * ROW + 6))
    if len(rows) > len(lines) - 1:
        out.append(look.write(x + 12, top + len(lines) * ROW - 2, f"and {len(rows) - len(lines) + 1} more"))
    return out
