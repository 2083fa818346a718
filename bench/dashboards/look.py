"""How a drawn dashboard looks: colours, light and dark, and words that fit their place."""

import chart

# Beside the colours of charts, those that thresholds, gauges and annotations name.
NAMED = {"light": {"green": "#0b8a5c", "yellow": "#d9a106", "red": "#d02f2f", "orange": "#d9480f", "blue": "#2563eb",
                   "card": "#ffffff", "ground": "#f3f5f8", "track": "#e9edf2", "text": "#1c2430"},
         "dark": {"green": "#41cf97", "yellow": "#f0c14b", "red": "#ff6b6b", "orange": "#ff8f5a", "blue": "#6ea0ff",
                  "card": "#1b212a", "ground": "#12161c", "track": "#2b333f", "text": "#e6eaf0"}}
LINES = len(chart.LIGHT["lines"])
CHARACTER, BOLD = 0.6, 0.7  # width of a character as a part of the size of its text; a narrow font leaves room


def colours(palette, named):
    rules = [f".n-{name}{{fill:{value}}}.s-{name}{{stroke:{value}}}.g-{name}{{stop-color:{value}}}"
             for name, value in named.items()]
    return chart.colors(palette) + "".join(rules)


def style():
    return (f"text{{font:12px {chart.FONT}}}.title{{font-weight:600}}.line{{fill:none;stroke-width:1.3;stroke-linejoin:round}}"
            f".area{{fill-opacity:.08}}.spark{{fill-opacity:.15}}.stacked{{fill-opacity:.3}}.small{{font-size:11px}}.event{{stroke-dasharray:4 4}}.late{{stroke-dashoffset:4}}"
            f"{colours(chart.LIGHT, NAMED['light'])}"
            f"@media(prefers-color-scheme:dark){{{colours(chart.DARK, NAMED['dark'])}}}")


def width_of(words, size=12):
    return len(words) * size * CHARACTER


def fit(words, width, size=12):
    """Words that are too long end in a mark of it."""
    room = int(width / (size * CHARACTER))
    return words if len(words) <= room else words[:max(room - 1, 0)] + "…"


def write(x, y, words, kind="quiet", anchor="start", width=None, more=""):
    return chart.text(x, y, fit(words, width) if width else words, kind, anchor, more)


def box(x, y, width, height, kind, more=""):
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"{more}/>'


def rule(x1, y1, x2, y2, kind="rule"):
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'
