#!/usr/bin/env python3
"""Keeps the rows of a training job's tables in an SQLite file, some checkpoints behind the job: what a serving system does
with them. No package is needed.

    trainyard checkpoint follow RUN -o pieces | python3 examples/serving/rows_store.py rows.db

Reads a line of JSON for each piece (see docs/sparse.md, "To serving"). Each is taken in one transaction, so who reads the
file sees the rows of one step. To go on later, from what is there already:

    trainyard checkpoint follow RUN -o pieces --since $(python3 examples/serving/rows_store.py rows.db --step) | ...
"""
import json
import pathlib
import sqlite3
import struct
import sys


def read_arrays(path):
    """{name: (dtype, shape, bytes)} and the metadata of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    start = 8 + length
    return {name: (entry["dtype"], entry["shape"],
                   data[start + entry["data_offsets"][0]:start + entry["data_offsets"][1]])
            for name, entry in header.items()}, metadata


def ids_of(arrays, name):
    """Empty arrays are left out of a piece."""
    _, (count,), data = arrays.get(name, ("I64", (0,), b""))
    return struct.unpack(f"<{count}q", data)  # 64 bits, as SQLite keeps them


def open_store(path):
    store = sqlite3.connect(path)
    store.execute("CREATE TABLE IF NOT EXISTS rows (name TEXT, id INTEGER, weights BLOB, PRIMARY KEY (name, id))")
    store.execute("CREATE TABLE IF NOT EXISTS variables (name TEXT PRIMARY KEY, shape TEXT, weights BLOB)")
    store.execute("CREATE TABLE IF NOT EXISTS state (step INTEGER)")
    return store


def step_of(store):
    """Of what is in it; None: nothing is."""
    found = store.execute("SELECT step FROM state").fetchone()
    return found[0] if found else None


def take_table(store, name, arrays):
    gone = ids_of(arrays, f"{name}/gone")
    store.executemany("DELETE FROM rows WHERE name = ? AND id = ?", ((name, each) for each in gone))
    _, (_, dim), data = arrays.get(f"{name}/rows", ("F32", (0, 0), b""))
    size = 4 * dim
    store.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)",
                      ((name, each, data[size * i:size * (i + 1)])
                       for i, each in enumerate(ids_of(arrays, f"{name}/ids"))))


def take(store, piece):
    arrays, metadata = read_arrays(piece["file"])
    since = metadata.get("trainyard.since")
    with store:
        if since is None:
            store.execute("DELETE FROM rows")
        elif int(since) != step_of(store):
            raise SystemExit(f"{piece['file']} follows step {since}, here is step {step_of(store)}")
        tables = [table["name"] for table in piece["tables"]]
        for name in tables:
            take_table(store, name, arrays)
        of_tables = {f"{name}/{array}" for name in tables for array in ("gone", "ids", "rows")}
        store.executemany("INSERT OR REPLACE INTO variables VALUES (?, ?, ?)",
                          ((name, json.dumps(shape), data) for name, (_, shape, data) in arrays.items()
                           if name not in of_tables))
        store.execute("DELETE FROM state")
        store.execute("INSERT INTO state VALUES (?)", (piece["step"],))
    pathlib.Path(piece["file"]).unlink()


def main():
    store = open_store(sys.argv[1])
    if "--step" in sys.argv[2:]:
        print(step_of(store))
        return
    for line in sys.stdin:
        piece = json.loads(line)
        take(store, piece)
        rows = store.execute("SELECT count(*) FROM rows").fetchone()[0]
        print(f"step {piece['step']}: {rows} rows", flush=True)


if __name__ == "__main__":
    main()
