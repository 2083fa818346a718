#!/usr/bin/env python3
"""Checks the tree against tests/tidy/rules.py; prints one line per breach and exits 1 on any."""
import pathlib
import sys

import rules


def main():
    here = pathlib.Path(__file__).resolve().parent
    tree = rules.Tree.read(here.parent.parent)
    if len(tree.code) < 10:
        sys.exit("tidy: found no sources")
    breaches = rules.run(tree, rules.allowances((here / "allowed.txt").read_text()))
    print("\n".join(breaches) or f"tidy: {len(tree.files)} files, {len(rules.RULES)} rules")
    sys.exit(1 if breaches else 0)


if __name__ == "__main__":
    main()
