"""What a dashboard asks a Prometheus over HTTP, for one stretch of time."""

import json
import math
import urllib.parse
import urllib.request


class Source:
    """Times are seconds since 1970; `step` is that between two points of a graph."""

    def __init__(self, url, start, end, step):
        self.url, self.start, self.end, self.step = url, start, end, step

    def get(self, path, **parameters):
        text = urllib.parse.urlencode(parameters, doseq=True)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{text}", timeout=60) as answer:
            return json.load(answer)["data"]

    def over_time(self, expr):
        """[(labels, [(time, value)])]; values that are no numbers are left out, as they are in a graph."""
        found = self.get("query_range", query=expr, start=self.start, end=self.end, step=self.step)["result"]
        return [(one["metric"], list(numbers(one["values"]))) for one in found]

    def at_end(self, expr):
        """The same with the one point at the end."""
        found = self.get("query", query=expr, time=self.end)["result"]
        return [(one["metric"], list(numbers([one["value"]]))) for one in found]

    def values(self, series, label):
        """Of a label of what a selector of series takes."""
        return self.get(f"label/{label}/values", **{"match[]": series, "start": self.start, "end": self.end})


def numbers(points):
    for time, text in points:
        value = float(text)
        if math.isfinite(value):
            yield float(time), value
