"""A whole dashboard as one SVG file: its rows, and the panels in their places."""

import html
import time

import graph
import look
import panels
import questions

WIDTH, MARGIN, HEAD = 1240, 12, 44
COLUMNS, CELL, GAP = 24, 38, 8  # Grafana's grid: 30 pixels of a cell and 8 between two
KINDS = {"timeseries": graph.draw, "stat": panels.stat, "bargauge": panels.bargauge, "table": panels.table}


def kind(panel):
    """What draws it."""
    if panel["type"] not in KINDS:
        raise ValueError(f"{panel['title']}: a panel of kind {panel['type']} cannot be drawn here")
    return KINDS[panel["type"]]


def rows(dashboard):
    """[(row, its panels)]: those of a row that is folded are in it, those of an open one behind it."""
    found = []
    for one in dashboard["panels"]:
        if one["type"] == "row":
            found.append((one, list(one["panels"])))
        else:
            found[-1][1].append(one)
    return found


def chosen(dashboard, names):
    """Rows whose title begins with one of `names`, opened; without names all of them, as they are."""
    if not names:
        return [(row, below, not row["collapsed"]) for row, below in rows(dashboard)]
    found = [(row, below, True) for row, below in rows(dashboard) if row["title"].startswith(tuple(names))]
    lacking = [name for name in names if not any(row["title"].startswith(name) for row, _, _ in found)]
    if lacking:
        raise ValueError(f"there is no row {lacking[0]}")
    return found


def place_of(panel, first, top):
    """(x, y, width, height) in pixels, of a panel whose row begins at `top`; the row's first line in the grid is `first`."""
    grid, cell = panel["gridPos"], (WIDTH - 2 * MARGIN + GAP) / COLUMNS
    return (MARGIN + grid["x"] * cell, top + (grid["y"] - first) * CELL, grid["w"] * cell - GAP, grid["h"] * CELL - GAP)


class Page:
    """`empty` names the panels without data, once it is drawn."""

    def __init__(self, dashboard, source, given, only=()):
        self.dashboard, self.source, self.only = dashboard, source, only
        self.chosen = questions.variables(dashboard, source, given)
        self.values = {name: text for name, (_, text) in self.chosen.items()}
        self.empty = []

    def panel(self, panel, place, events):
        x, y, width, _ = place
        answers = questions.answers(panel, self.source, self.values)
        body = [look.box(*place, "n-card rule", ' rx="3"'),
                look.write(x + 10, y + 20, panel["title"], "title text", width=width - 16)]
        if any(answers.values()):
            body += kind(panel)(panel, answers, place, self.source, events)
        else:
            self.empty.append(panel["title"])
            body.append(look.write(x + width / 2, y + place[3] / 2 + 6, "No data", "quiet", "middle"))
        return ["<g>", f"<title>{html.escape(panel['description'])}</title>", *body, "</g>"]

    def row(self, row, below, opened, top, events):
        """(elements, where the next row begins)."""
        words = row["title"] if opened else f"{row['title']} ({len(below)} panels)"
        out = [look.write(MARGIN + 2, top + 20, f"{'▾' if opened else '▸'} {words}", "title text")]
        top += 30
        if not opened or not below:
            return out, top
        first = min(one["gridPos"]["y"] for one in below)
        for one in below:
            out += self.panel(one, place_of(one, first, top), events)
        return out, top + CELL * (max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in below) - first)

    def head(self):
        """The title, what the variables are, and the stretch of time."""
        words = ", ".join(f"{one['label']}: {self.chosen[one['name']][0]}"
                           for one in self.dashboard["templating"]["list"] if one["name"] in self.chosen)
        between = " to ".join(time.strftime("%H:%M:%S", time.gmtime(at)) for at in (self.source.start, self.source.end))
        return [look.write(MARGIN + 2, 28, self.dashboard["title"], "text", more=' style="font-size:17px;font-weight:600"'),
                look.write(WIDTH / 2, 28, words, "text", "middle"),
                look.write(WIDTH - MARGIN, 28, f"{between} UTC", "quiet", "end")]

    def svg(self):
        events = questions.annotations(self.dashboard, self.source, self.values)
        body, top = self.head(), HEAD
        for row, below, opened in chosen(self.dashboard, self.only):
            out, top = self.row(row, below, opened, top, events)
            body += out
        height = top + MARGIN
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
            f"<style>{look.style()}</style>", look.box(0, 0, WIDTH, height, "n-ground"), *body, "</svg>"]) + "\n"
