"""What a dashboard's panels ask once its variables have values, and what they get."""

import re

VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)\}?")
ALL = "All"


class Series:
    """One line of a panel."""

    def __init__(self, name, labels, points):
        self.name, self.labels, self.points = name, labels, points

    def last(self):
        return self.points[-1][1]


def seconds(text):
    """Of a scrape or a window: 15s, 1m."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def rate_interval(step, scrape):
    """Grafana's $__rate_interval: wide enough for four scrapes, and for no gaps between points."""
    return f"{max(step + scrape, 4 * scrape):g}s"


def filled(text, values):
    """A text with variables replaced; one without a value is an error."""

    def value(found):
        if found[1] not in values:
            raise ValueError(f"${found[1]} has no value in: {text}")
        return values[found[1]]

    return VARIABLE.sub(value, text)


def variables(dashboard, source, given):
    """{name: (what is shown, what is put into expressions)}: what is given, else all, else the first value that there is."""
    chosen = {}
    for one in dashboard["templating"]["list"]:
        name = one["name"]
        if one["type"] != "query":  # the data source
            continue
        if name not in given and one["includeAll"]:
            chosen[name] = (ALL, one["allValue"])
            continue
        inner = re.fullmatch(r"label_values\((.*), (\w+)\)", one["query"]["query"])
        there = source.values(filled(inner[1], {key: text for key, (_, text) in chosen.items()}), inner[2])
        value = given.get(name) or next(iter(sorted(there)), None)
        if value not in there:
            raise ValueError(f"the variable {name} may be one of {there}, not {value}")
        chosen[name] = (value, value)
    return chosen


def legend(form, labels):
    """The name of a series: {{label}} stands for a label's value."""
    if form == "__auto":
        return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()) if key != "__name__") or "Value"
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), form)


def answers(panel, source, values):
    """{letter of the target: [Series]}; series without a point are left out."""
    found = {}
    for target in panel["targets"]:
        ask = source.at_end if target["instant"] else source.over_time
        found[target["refId"]] = [Series(legend(target["legendFormat"], labels), labels, points)
                                  for labels, points in ask(filled(target["expr"], values)) if points]
    return found


def annotations(dashboard, source, values):
    """[(colour, time)] of events: where an annotation's expression begins to have a value."""
    events = set()
    for one in dashboard["annotations"]["list"]:
        for _, points in source.over_time(filled(one["expr"], values)):
            before = None
            for time, value in points:
                if value and (before is None or time - before > 1.5 * source.step):
                    events.add((one["iconColor"], time))
                before = time if value else before
    return sorted(events, key=lambda event: event[1])
