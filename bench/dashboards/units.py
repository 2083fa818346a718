"""Numbers as Grafana writes them: those of its units that our dashboards use, three digits unless it is told how many."""

import math

BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
DECIMAL = ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")
COUNTED = {"ops": "ops/s", "reqps": "req/s", "cpm": "counts/min"}
COUNTS = ("", "K", "Mil", "Bil")
PLURALS = ("mins", "hours", "days", "weeks")
# Seconds: from how many on, in what they are counted, and its name.
TIMES = ((0, 1e-9, "ns"), (1e-6, 1e-6, "µs"), (1e-3, 1e-3, "ms"), (1, 1, "s"), (60, 60, "mins"), (3600, 3600, "hours"),
         (86400, 86400, "days"), (604800, 604800, "weeks"))


def step_of(size, base, names):
    """The largest of `names` of which there is one at least, as (factor, name)."""
    at = 0
    while at + 1 < len(names) and size >= base ** (at + 1):
        at += 1
    return base ** at, names[at]


def time_of(size):
    if size == 0:
        return 1, "s"
    _, factor, name = [one for one in TIMES if size >= one[0]][-1]
    return factor, name


def scaled(size, unit):
    """(factor, suffix) of a unit for values up to `size`: what they are divided by, and what is written behind."""
    size = abs(size)
    if unit in ("none", ""):
        return 1, ""
    if unit.startswith("suffix:"):
        return 1, f" {unit.removeprefix('suffix:')}"
    if unit == "percentunit":
        return 0.01, "%"
    if unit == "percent":
        return 1, "%"
    if unit == "s":
        factor, name = time_of(size)
    elif unit == "bytes":
        factor, name = step_of(size, 1024, BINARY)
    elif unit == "mbytes":
        factor, name = step_of(size, 1024, BINARY[2:])
    elif unit == "Bps":
        factor, name = step_of(size, 1000, DECIMAL)
    elif unit == "watt":
        factor, name = step_of(size, 1000, ("W", "kW"))
    elif unit in COUNTED:
        factor, name = step_of(size, 1000, COUNTS)
        name = f"{name} {COUNTED[unit]}".strip()
    else:
        raise ValueError(f"the unit {unit} is not known here")
    return factor, f" {name}"


def short(suffix, unit):
    """What of a suffix stands at an axis: only what tells sizes apart where the title says what is counted."""
    if unit.startswith("suffix:"):
        return ""
    if unit in COUNTED:
        return "".join(f" {name}" for name in COUNTS[1:] if suffix.split()[0] == name)
    return suffix


def digits(value):
    """How many behind the point make three in all; none of a whole number."""
    if value == 0 or value == round(value):
        return 0
    return max(0, 2 - math.floor(math.log10(abs(value))))


def fixed(value, decimals=None):
    return f"{value:.{digits(value) if decimals is None else decimals}f}"


def written(value, unit, decimals=None):
    factor, suffix = scaled(value, unit)
    # What dividing leaves behind the twelfth digit is no part of the number.
    number = fixed(float(f"{value / factor:.12g}"), decimals)
    return number + (suffix.removesuffix("s") if number == "1" and suffix[1:] in PLURALS else suffix)
