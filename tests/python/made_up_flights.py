"""Flights for the examples of embedding tables, where those that examples/ctr/flights.py fetches are not at hand."""
import csv
import random

COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "route", "hour", "weekday", "distance", "minutes", "late"]


def write(path, count):
    """As flights.py writes them: which are late the carrier decides, and the hour."""
    draw = random.Random(path.name)
    with open(path, "w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(COLUMNS)
        for _ in range(count):
            carrier, hour = draw.randrange(8), draw.randrange(24)
            late = draw.random() < (0.1 + 0.1 * carrier if hour > 11 else 0.1)
            lines.writerow([f"c{carrier}", draw.randrange(500), f"n{draw.randrange(300)}", "JFK", f"d{draw.randrange(50)}",
                            f"r{draw.randrange(90)}", hour, draw.randrange(7), draw.random(), draw.random(), int(late)])
