#!/usr/bin/env python3
"""Makes the Grafana dashboards, one JSON file each, in this folder. The chart links to them; a test compares."""
import json
import pathlib

import fleet
import job
import operator_dashboard
import parameter_servers

HERE = pathlib.Path(__file__).resolve().parent
DASHBOARDS = (job, parameter_servers, operator_dashboard, fleet)


def files():
    """{name: text} of every dashboard."""
    return {f"{module.NAME}.json": json.dumps(module.made(), indent=1) + "\n" for module in DASHBOARDS}


def main():
    for name, text in files().items():
        (HERE / name).write_text(text)


if __name__ == "__main__":
    main()
