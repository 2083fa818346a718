#!/usr/bin/env python3
"""libFuzzer over every parser of bytes from outside.

    make fuzz [FUZZ_SECONDS=60] [FUZZ_ONLY="job idx"]

Each target runs so many seconds from its seeds and from what earlier runs found (build/fuzz/corpus). Prints what it
ran, the share of its parser's lines that the corpus reaches, and findings, whose inputs and logs are left in
build/fuzz/findings. Exits 1 with a finding, with less than 80 % of a parser's lines, or when the bug that is planted
behind a valid header is not found.
"""
import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LEAST_LINES = 80  # per cent
PLANTED_SECONDS = 60  # that it may take to find what is planted
# An input that takes longer, or more memory, is a finding too.
INPUT_SECONDS, MEMORY_MB = 20, 2048

# The files of each target's parser.
PARSERS = {
    "job": ["operator/job/" + name for name in (
        "cross.cc", "cross_tables.cc", "defaults.cc", "overrides.cc", "parse.cc", "path.cc", "schema.cc", "suggest.cc",
        "support.cc", "to_yaml.cc", "validate.cc", "view.cc", "yaml.cc", "yaml_json.cc")],
    "idx": ["runtime/data/idx.cc"],
    "csv": ["runtime/data/criteo.cc", "runtime/data/csv.cc", "runtime/data/csv_records.cc"],
    "tfrecord": ["runtime/data/" + name for name in ("record_file.cc", "tf_example.cc", "tfrecord.cc")],
    "safetensors": ["runtime/checkpoint/safetensors.cc", "runtime/checkpoint/reader.cc"],
    "manifest": ["runtime/checkpoint/manifest_json.cc"],
    "chunk": ["runtime/lanes/frame.cc", "runtime/lanes/connection.cc", "runtime/ps/payload.cc"],
    "answer": ["runtime/ps/chunk_link.cc"],
    "greeting": ["runtime/lanes/greeting.cc"],
    "handshake": ["runtime/transport/handshake.cc", "runtime/transport/mutual_proof.cc"],
    "frame": ["runtime/transport/frame.cc"],
    "membership": ["agent/membership/identity.cc", "agent/membership/membership_file.cc"],
    "record": ["base/json/proto_json.cc"],
    "report": ["operator/local/last_report.cc"],
    "session": ["runtime/session/" + name for name in ("body.h", "message.cc", "serve.cc", "turn_order.cc")],
    "telling": ["agent/telling/telling.cc"],
}


@dataclasses.dataclass
class Outcome:
    name: str
    inputs: int = 0  # that were run
    corpus: int = 0  # files
    lines: float = 0  # per cent
    finding: str = ""  # its first line; empty: none


class Fuzzer:
    def __init__(self, build, seconds):
        self.build, self.seconds = build, seconds
        self.program = build / "bin/trainyard-fuzz"
        for folder in ("corpus", "findings", "profiles"):
            (build / folder).mkdir(exist_ok=True)

    def start(self, name, *arguments, **environment):
        """Runs the program over a target; its exit code and what it said."""
        done = subprocess.run(
            [self.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            env={**os.environ, "TRAINYARD_SOURCE": str(SOURCE), "TRAINYARD_FUZZ_TARGET": name,
                 "LLVM_PROFILE_FILE": os.devnull, **environment})
        return done.returncode, done.stdout.decode(errors="replace")

    def seeded(self, name):
        corpus = self.build / "corpus" / name
        corpus.mkdir(exist_ok=True)
        code, said = self.start(name, TRAINYARD_FUZZ_SEEDS=str(corpus))
        if code:
            sys.exit(f"fuzz: the seeds of {name}: {said}")
        return corpus

    def explore(self, name, seconds):
        corpus = self.seeded(name)
        findings = self.build / "findings"
        for old in findings.glob(f"{name}-*"):
            old.unlink()
        code, said = self.start(
            name, corpus, f"-max_total_time={seconds}", f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={MEMORY_MB}",
            f"-artifact_prefix={findings}/{name}-", "-print_final_stats=1", "-reload=0")
        outcome = Outcome(name, corpus=len(list(corpus.iterdir())))
        ran = re.search(r"number_of_executed_units: *(\d+)", said)
        outcome.inputs = int(ran.group(1)) if ran else 0
        if code:
            (findings / f"{name}-log.txt").write_text(said)
            first = re.search(r"ERROR: .*|runtime error: .*|terminate called.*|CHECK.*", said)
            outcome.finding = first.group(0) if first else f"exit code {code}"
        return outcome

    def lines(self, name):
        """Per cent of the lines of the target's parser that its corpus reaches."""
        raw = self.build / f"profiles/{name}.raw"
        code, said = self.start(name, self.build / "corpus" / name, "-runs=0", LLVM_PROFILE_FILE=str(raw))
        if code:
            return 0.0  # the finding that explore() has told of stands in the corpus
        merged = raw.with_suffix(".merged")
        subprocess.run(["llvm-profdata-14", "merge", "-sparse", raw, "-o", merged], check=True)
        report = json.loads(subprocess.run(
            ["llvm-cov-14", "export", "-summary-only", f"-instr-profile={merged}", self.program],
            check=True, stdout=subprocess.PIPE).stdout)
        # The compiler cache gives the compiler paths that begin in the build folder.
        lines = {os.path.normpath(entry["filename"]): entry["summary"]["lines"]
                 for entry in report["data"][0]["files"]}
        parser = [lines[str(SOURCE / path)] for path in PARSERS[name]]
        return 100 * sum(line["covered"] for line in parser) / sum(line["count"] for line in parser)

    def target(self, name):
        outcome = self.explore(name, self.seconds)
        outcome.lines = self.lines(name)
        return outcome


def reported(outcome):
    """Prints a target's row; whether it is as it should be."""
    print(f"| {outcome.name} | {outcome.inputs:,} | {outcome.corpus:,} | {outcome.lines:.0f} % | "
          f"{outcome.finding or 'none'} |", flush=True)
    return not outcome.finding and outcome.lines >= LEAST_LINES


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="the build folder of the preset fuzz")
    parser.add_argument("--seconds", type=int, default=60, help="of each target")
    parser.add_argument("only", nargs="*", help="targets; all unless told")
    args = parser.parse_intermixed_args()
    unknown = set(args.only) - set(PARSERS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: the targets are {', '.join(PARSERS)}")
    fuzzer = Fuzzer(args.build.resolve(), args.seconds)

    # First: without it the rest says nothing.
    shutil.rmtree(fuzzer.build / "corpus/planted", ignore_errors=True)
    planted = fuzzer.explore("planted", PLANTED_SECONDS)
    print(f"planted: {planted.finding or 'not found'} after {planted.inputs:,} inputs", flush=True)
    for found in (fuzzer.build / "findings").glob("planted-*"):
        found.unlink()  # no finding of the product
    print("| target | inputs | corpus | lines | finding |\n|--|--|--|--|--|", flush=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        good = [reported(outcome) for outcome in pool.map(fuzzer.target, args.only or PARSERS)]
    sys.exit(0 if all(good) and "heap-buffer-overflow" in planted.finding else 1)


if __name__ == "__main__":
    main()
